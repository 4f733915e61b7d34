"""`crocevia stat` beside running programs: its numbers against perftest's own, loss, many queue pairs, processes that are
stopped, killed, another user's, many on one address; the forms; and what being asked costs."""

import json
import os
import re
import signal
import time

from harness import NOBODY, Case, Fail, Proc, Skip, check_pair, free_port, need, run, wait_listening
import net

SIZE, COUNT, MTU = 65536, 2000, 4096
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"^[a-zA-Z_:][a-zA-Z0-9_:]*\{{{LABEL}(?:,{LABEL})*\}} -?[0-9]+(?:\.[0-9]+)?$")


def stat(env, *words, enter=(), timeout=20):
    """The command, to its end; the result and the seconds that it took."""
    start = time.monotonic()
    result = run([*enter, env.crocevia, "stat", *map(str, words)], timeout)
    return result, time.monotonic() - start


def told(env, *words):
    """What the devices of a selection tell."""
    result, _ = stat(env, "--json", *words)
    if result.failed:
        raise Fail(result.show("stat"))
    return json.loads(result.out)["devices"]


def expect(condition, what, of=None):
    """A Fail with what a command, or a process that then is ended, has printed."""
    if not condition:
        of = of.wait(0.1) if isinstance(of, Proc) else of
        raise Fail("  " + what + ("\n" + of.show("output") if of else ""))


class Running:
    """Programs that are ended at the end."""

    def __init__(self, env):
        self.env, self.procs = env, []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for proc in self.procs:
            try:
                os.kill(proc.pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
            proc.end()

    def start(self, argv):
        proc = Proc(argv)
        self.procs.append(proc)
        return proc

    def waiting(self, end):
        """A server that nobody comes to, its device open."""
        need("ib_write_bw")
        proc = self.start(self.env.under(end, ["ib_write_bw", "-F", "-p", str(free_port())]))
        limit = time.monotonic() + 20
        while not told(self.env, "--pid", proc.pid):
            expect(proc.alive() and time.monotonic() < limit, "no device is opened", proc)
            time.sleep(0.02)
        return proc

    def pair(self, ends, words, faults=None):
        """A server and a client of ib_write_bw."""
        need("ib_write_bw")
        port = free_port()
        words = ["ib_write_bw", "-F", "-p", str(port), *words]
        server = self.start(self.env.under(ends[0], words, faults))
        expect(wait_listening(server, port), "no server", server)
        return server, self.start(self.env.under(ends[1], [*words, ends[0].peer], faults))

    def watched_pair(self, ends, words, faults=None):
        """The last that each end of a pair told before it ended."""
        watch = self.start([self.env.crocevia, "stat", "-w0.01", "--json"])
        server, client = self.pair(ends, words, faults)
        results = [proc.wait(60) for proc in (server, client)]
        time.sleep(0.05)
        watch.end()
        check_pair(*results)
        last = {}
        for line in watch.output().splitlines():
            try:
                devices = json.loads(line)["devices"]
            except ValueError:
                continue  # the end was cut off
            last.update({device["pid"]: device for device in devices})
        expect(server.pid in last and client.pid in last, "not told of")
        return last[server.pid], last[client.pid]


def agrees(env, faults=None):
    """The numbers of a whole run are those that perftest was asked for, whatever was lost."""
    words = ["-s", str(SIZE), "-n", str(COUNT), "-m", str(MTU)]
    problem = "never the same"
    for _ in range(3):
        with Running(env) as running:
            server, client = running.watched_pair(net.loopback(), words, faults)
        sent, got = client["counters"], server["counters"]
        found = {
            "WRITEs begun": (sent["tx_write_requests"], COUNT),
            "WRITEs executed": (got["rx_write_requests"], COUNT),
            "bytes sent once": (sent["tx_write_bytes"] - sent["retransmitted_bytes"], COUNT * SIZE),
            "bytes placed": (got["rx_bytes"], COUNT * SIZE),
            "packets sent once": (sent["tx_write_packets"] - sent["retransmitted_packets"], COUNT * SIZE // MTU),
            "packets": (sent["tx_write_packets"] * MTU, sent["tx_write_bytes"]),
        }
        problem = "; ".join(f"{k}: {a} instead of {b}" for k, (a, b) in found.items() if a != b)
        if not problem:
            return check_faults(sent, got, server, bool(faults))
        # The last look may have come too early.
    raise Fail("  " + problem)


def check_faults(sent, got, server, lossy):
    lost = ("out_of_sequence", "tx_seq_naks", "duplicate_request")
    balance = got["rx_accepted"] + got["duplicate_request"] + sum(n for cause, n in server["drops"].items() if cause in got)
    expect(balance == got["rx_packets"], f"{balance} of {got['rx_packets']} packets accounted for: {server['drops']}")
    if not lossy:
        return None
    expect(sent["retransmitted_packets"] > 0 and sent["packet_seq_err"] > 0, f"no resends: {sent}")
    expect(got["out_of_sequence"] > 0 and got["tx_seq_naks"] > 0, f"no gaps: {got}")
    expect(server["drops"].get("rx_beyond_expected", 0) > 0, f"no drops: {server['drops']}")
    return ", ".join(f"{name} {got[name]}" for name in lost)


def many_qps(env):
    """A thousand queue pairs, each told of; together they have counted what the device has."""
    with Running(env) as running:
        server, client = running.pair(net.loopback(), ["-q", "1000", "-s", "1024", "-D", "4", "-t", "4"])
        limit, device = time.monotonic() + 30, None
        while not device or len(device["qps"]) < 1000 or device["counters"]["tx_bytes"] == 0:
            expect(client.alive() and time.monotonic() < limit, "no traffic", client)
            found = told(env, "--pid", client.pid, "--qp")
            device = found[0] if found else None
            time.sleep(0.05)
        result, took = stat(env, "--qp", "--pid", client.pid)
        expect(not result.failed and took < 5, f"took {took:.1f} s", result)
        rows = [line for line in result.out.splitlines() if " RC " in line]
        expect(len(rows) == 1000, f"{len(rows)} rows", result)
        check_pair(server.wait(60), client.wait(60))
        return f"{took:.2f} s"


def four(env):
    """Four processes on one address are four rows."""
    end = net.loopback()[0]
    with Running(env) as running:
        procs = [running.waiting(end) for _ in range(4)]
        result, _ = stat(env)
        rows = [line.split() for line in result.out.splitlines()]
        for proc in procs:
            found = [row for row in rows if row and row[0] == str(proc.pid)]
            expect(len(found) == 1 and found[0][3] == end.addr and found[0][1] == "ib_write_bw", "not one row", result)


def other_user(env):
    """Another user learns nothing, by the command or without it."""
    if not env.root:
        raise Skip("to be two users needs root")
    with Running(env) as running:
        own = running.waiting(net.loopback()[0])
        result, _ = stat(env, "--pid", own.pid, enter=net.as_nobody())
        expect(result.code == 1 and "belongs to user 0" in result.out, "another user is not refused", result)
        result, _ = stat(env, enter=net.as_nobody())
        expect(str(own.pid) not in result.out, "another user is told", result)
        with open("/proc/net/unix") as table:
            name = next(w for w in table.read().split() if w.startswith(f"@crocevia/stat/0/{own.pid}/"))
        code = (f"import socket,os; os.setgid({NOBODY}); os.setuid({NOBODY}); s=socket.socket(socket.AF_UNIX);"
                f"s.settimeout(5); s.connect('\\0{name[1:]}'); print(s.recv(99))")
        answer = run(["python3", "-c", code])
        expect(answer.out.strip() == r"b'denied\n'", "another user is answered", answer)
        # Root is told of everybody's.
        others = running.waiting(net.loopback(user=True)[1])
        expect(told(env, "--pid", others.pid)[0]["uid"] == NOBODY, "root is not told")


def stopped(env):
    """A process that is stopped does not hold the others up, and is named."""
    ends = net.loopback()
    with Running(env) as running:
        halted, other = running.waiting(ends[0]), running.waiting(ends[1])
        os.kill(halted.pid, signal.SIGSTOP)
        result, took = stat(env)
        expect(result.code == 1 and took < 3, f"took {took:.1f} s", result)
        expect(f"process {halted.pid} (crocevia" in result.out and "is stopped" in result.out, "it is not named", result)
        expect(any(line.startswith(str(other.pid)) for line in result.out.splitlines()), "the other is not told of", result)
        result, took = stat(env, "--pid", other.pid)
        expect(not result.failed and took < 1, "the one that was asked for is not held up", result)
        result, took = stat(env, "--prometheus", "--timeout", "0.2")
        expect(f'crocevia_answers{{pid="{halted.pid}"' in result.out and took < 2, "not told of", result)
        os.kill(halted.pid, signal.SIGCONT)
        result, _ = stat(env)
        expect(not result.failed, "it goes on", result)


def killed(env):
    """Processes that die while they are asked."""
    ends = net.loopback()
    with Running(env) as running:
        watch = running.start([env.crocevia, "stat", "-w0.01", "--json", "--qp"])
        for turn in range(12):
            server, client = running.pair(ends, ["-q", "50", "-s", "4096", "-D", "30"])
            time.sleep(0.1 + 0.03 * turn)
            expect(watch.alive(), "it has ended", watch)
            for proc in (client, server):
                proc.child.kill()
                proc.child.wait()
            _, took = stat(env, "--qp")
            expect(took < 2, f"took {took:.1f} s")
        # What they have left holds nobody up, and is told of no more.
        expect(not any(device["pid"] == client.pid for device in told(env)), "a dead process is told of")
        silent = [json.loads(line)["silent"] for line in watch.output().splitlines()[:-1]]
        expect(not any(silent), f"dying processes are called silent: {[s for s in silent if s][:3]}")


def forms(env):
    """JSON is JSON, Prometheus's text is of its grammar, tables are aligned, a reader that goes ends it."""
    need("head")
    with Running(env) as running:
        _, client = running.pair(net.loopback(), ["-s", "4096", "-D", "30"])
        limit, device = time.monotonic() + 20, {"qps": []}
        while not device["qps"]:
            expect(client.alive() and time.monotonic() < limit, "no queue pair is told of", client)
            device = (told(env, "--qp", "--pid", client.pid) or [device])[0]
        expect(device["command"] == "ib_write_bw", f"{device}")
        result, _ = stat(env, "--prometheus", "--qp", "--pid", client.pid)
        typed = set()
        for line in result.out.splitlines():
            if line.startswith("# TYPE "):
                typed.add(line.split()[2])
            elif not line.startswith("# HELP "):
                expect(SAMPLE.match(line) and line.split("{")[0] in typed, line)
        expect(len(typed) > 150 and result.out.endswith("\n"), f"{len(typed)} families")
        result, _ = stat(env, "-a", "--qp", "--pid", client.pid)
        for name, value in device["counters"].items():
            expect(re.search(rf"^    {name}: \d+$", result.out, re.M), f"{name} = {value} is missing")
        cut = run(["sh", "-c", f"{env.crocevia} stat -w0.01 | head -n 3"], 10)
        expect(cut.out.count("ib_write_bw") >= 1 and cut.code == 0, "not as it should", cut)


def idle(env):
    """An idle process uses no CPU, also while it was asked before, and has one descriptor more at a high place."""
    with Running(env) as running:
        proc = running.waiting(net.loopback()[0])
        for _ in range(10):
            told(env, "--qp", "--pid", proc.pid)

        def used():
            threads = {}
            for thread in os.listdir(f"/proc/{proc.pid}/task"):
                with open(f"/proc/{proc.pid}/task/{thread}/schedstat") as f:
                    with open(f"/proc/{proc.pid}/task/{thread}/comm") as comm:
                        threads[comm.read().strip()] = int(f.read().split()[0])
            return threads
        time.sleep(0.6)
        before = used()
        time.sleep(1.5)
        after = used()
        expect("crocevia-stat" in before, f"no thread: {before}")
        spent = after["crocevia-stat"] - before["crocevia-stat"]
        expect(spent == 0, f"{spent} ns in 1.5 s without being asked")
        whole = (sum(after.values()) - sum(before.values())) / 1e6
        expect(whole < 1.5, f"{whole} ms in 1.5 s: {before} {after}")
        return f"{before['crocevia-stat'] / 1e6 / 10:.2f} ms of CPU a question"


def namespaces(env):
    """Who is in another network namespace is not told of."""
    with net.NetPair(1500, not env.root) as pair, Running(env) as running:
        ends = pair.ends()
        need("ib_write_bw")
        there = running.start(env.under(ends[0], ["ib_write_bw", "-F", "-p", "18515"]))
        limit = time.monotonic() + 20
        while True:
            result, _ = stat(env, enter=ends[0].enter)
            if not result.failed and "ib_write_bw" in result.out:
                break
            expect(there.alive() and time.monotonic() < limit, "not told of in the namespace", result)
            time.sleep(0.05)
        # Entering does not change the process's number, which the other namespace does not know.
        result, _ = stat(env, enter=ends[1].enter)
        expect(result.failed and "no crocevia device is open" in result.out, "told of beside it", result)


def cases(env):
    yield Case("stat/agrees", lambda: agrees(env))
    yield Case("stat/loss", lambda: agrees(env, "loss=1%,seed=7"))
    yield Case("stat/1000qps", lambda: many_qps(env))
    yield Case("stat/four", lambda: four(env))
    yield Case("stat/users", lambda: other_user(env))
    yield Case("stat/stopped", lambda: stopped(env))
    yield Case("stat/killed", lambda: killed(env))
    yield Case("stat/forms", lambda: forms(env))
    yield Case("stat/idle", lambda: idle(env))
    yield Case("stat/namespaces", lambda: namespaces(env))

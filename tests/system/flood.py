"""Hostile datagrams to port 4791 while traffic runs that checks every byte.

What must hold, whoever sends what (`bench/programs/src/bin/flood/mix.rs` says what there is):

* From an address that no connection knows: nothing happens but a count, whatever is right otherwise (queue pair, PSN, keys, ICRC).
  Nothing is answered. A datagram queue pair takes what has its Q_Key from anywhere; nobody here knows it.
* From the peer's own address: what has a wrong ICRC, or is of another version, service, P_Key or queue pair, or no packet at all, is
  counted and dropped. An acknowledgement outside what is unacknowledged is dropped. A request far behind is a duplicate, one far ahead
  a gap: the rules have both answered, to the peer, whom that makes repeat what was under way.
* From the NIC's own address: what looks handed on by a process that shares it, but has not its secret, is no packet.
* Traffic ends with right bytes and no completion in error; what it moves is back within a second of the flood's end; memory does
  not grow. Unreliable services may lose messages.
* Each packet has one end: accepted, a duplicate, handed on, or one cause of a drop. What the kernel drops, its buffer being full, is
  counted apart. Together they are what was sent.

A sender that can write the peer's address on a packet and knows queue pair and PSN, and makes the ICRC right, is the peer: what it asks
for happens. That is the protocol, and is not tried. Over IPv4 a peer whose IP identifications are not the usual ones (a UDP socket's
are) leaves 16 bits of the ICRC to check packets from its address by.

`--count 10000000` (and `--rate`) sends that many in the main cases.
"""

import json
import os
import re
import statistics
import time

from harness import Case, Fail, Proc, Skip, check_pair, free_port, need, run, wait_listening
import net

HERE, THERE = "127.0.0.2", "127.0.0.3"
HERE6, THERE6, STRANGER6 = "fd87::2", "fd87::3", "fd87::66"
STRANGERS = ["127.66.0.1", "127.66.0.2", "127.66.7.9"]
COUNT, RATE = 120_000, 80_000
SLICE = 0.1
# Least part of the throughput before that is to be there in the second after the first one that follows the flood. Others use
# the machine too, so it is looked at again a few times before it counts.
BACK, TRIES = 0.4, 5
GROWTH_KIB = 16 << 10
# A socket that nobody reads keeps a few small datagrams.
SOCKETS, KEPT = 64, 4


class Space(net.OneSpace):
    """The namespace, and the programs that run in it."""

    def __init__(self, env, user=False):
        super().__init__([HERE6, THERE6, STRANGER6], user)
        self.env, self.procs, self.files = env, [], 0

    def close(self):
        for proc in getattr(self, "procs", []):
            proc.end()
        super().close()

    def start(self, argv, env=None):
        proc = Proc([*self.enter(), *argv], env)
        self.procs.append(proc)
        return proc

    def file(self):
        self.files += 1
        return os.path.join(self.env.tmp, f"flood-{self.holders[0].pid}-{self.files}")

    def flood(self, *words):
        strangers = [w for a in [*STRANGERS, STRANGER6] for w in ("-a", a)]
        return self.start([self.env.program("flood"), *strangers, *map(str, words)])

    def udp(self):
        """Counts of UDP and ICMP, IPv4 and IPv6 together."""
        counts, lines = {}, self.read("snmp").splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            proto = names.split(":")[0]
            for name, value in zip(names.split()[1:], values.split()[1:]):
                counts[f"{proto}.{name}"] = int(value)
        for line in self.read("snmp6").splitlines():
            name, value = line.split()
            for six, four in (("Udp6", "Udp."), ("Icmp6", "Icmp."), ("Ip6", "Ip.")):
                if name.startswith(six):
                    name = four + name[len(six):]
                    counts[name] = counts.get(name, 0) + int(value)
        return counts

    def told(self, *pids):
        result = run([*self.enter(), self.env.crocevia, "stat", "--json", "--qp"], 20)
        if result.failed:
            raise Fail(result.show("stat"))
        return [d for d in json.loads(result.out)["devices"] if not pids or d["pid"] in pids]


def expect(condition, what, of=None):
    if not condition:
        raise Fail("  " + what + ("\n" + of.wait(0.1).show("output") if of else ""))


def figures(proc, seconds):
    """What the flood says it has sent."""
    result = proc.wait(seconds)
    if result.failed:
        raise Fail(result.show("flood"))
    return json.loads(result.out.splitlines()[-1]), result


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s*(\d+)", f.read()).group(1))


class Traffic:
    """Traffic of all services that checks itself, in one process with a NIC at each end."""

    def __init__(self, space, ends):
        self.space, self.stop = space, space.file()
        program = space.env.program("checked_traffic")
        self.proc = space.start([program, "--here", ends[0], "--there", ends[1], "--until", self.stop])

    def slices(self):
        """MiB/s in each slice so far."""
        found = []
        for line in self.proc.output().splitlines():
            if '"slice"' in line and line.endswith("}"):
                row = json.loads(line)
                found.append(row["rc"] + row["uc"] + row["ud"])
        return found

    def wait_slices(self, count, seconds=30):
        end = time.monotonic() + seconds
        while len(self.slices()) < count:
            expect(self.proc.alive() and time.monotonic() < end, "no traffic", self.proc)
            time.sleep(0.05)

    def finish(self):
        """Stops it; its sums. The devices stay open until `leave`."""
        with open(self.stop, "w"):
            pass
        end = time.monotonic() + 40
        while '"checked_traffic"' not in self.proc.output():
            expect(self.proc.alive() and time.monotonic() < end, "the traffic did not end well", self.proc)
            time.sleep(0.02)
        return json.loads(self.proc.output().splitlines()[-1])

    def leave(self):
        os.unlink(self.stop)
        result = self.proc.wait(10)
        if result.failed:
            raise Fail(result.show("traffic"))


def recovered(traffic, before, since):
    """The part of the throughput `before` that is there in the second after the first one behind slice `since`."""
    best = 0
    for turn in range(TRIES):
        start = since + 10 + 10 * turn
        traffic.wait_slices(start + 10)
        best = max(best, statistics.mean(traffic.slices()[start:start + 10]) / before)
        if best >= BACK:
            return best, turn
    raise Fail(f"  {best:.2f} of the throughput before is back {TRIES + 1} s after the flood")


def balance(devices):
    """Each packet that was taken has one end; the drops, by cause."""
    causes = {}
    for device in devices:
        link, counted = device["link"], device["counters"]
        drops = {cause: n for cause, n in device["drops"].items() if cause != "rx_kernel_drops"}
        own = {cause: n for cause, n in drops.items() if cause in link}
        right = link["rx_icrc_ok"] + link["rx_icrc_solved"]
        ends = link["rx_strays"] + sum(own.values()) + right
        expect(ends == link["rx_packets"], f"{ends} of {link['rx_packets']} packets have an end: {link}")
        deeper = {cause: n for cause, n in drops.items() if cause in counted and cause not in own}
        ends = counted["rx_accepted"] + counted["duplicate_request"] + sum(deeper.values()) - counted["rx_multicast_copies"]
        expect(ends == counted["rx_packets"] == right, f"{ends} of {counted['rx_packets']} ({right} right) have an end: {counted}")
        for cause, n in drops.items():
            causes[cause] = causes.get(cause, 0) + n
    return causes


def one_slot(env, user):
    """Whether a NIC has one socket for an address: where the system allows it less buffer it has several, not all in use."""
    with open("/proc/sys/net/core/rmem_max") as f:
        return (env.root and not user) or int(f.read()) >= 4 << 20


def accounted(space, start, devices, sent, exactly):
    """Every message that left somebody's socket was taken by a NIC, dropped by the kernel, or waits where nobody reads."""
    udp = {name: n - start.get(name, 0) for name, n in space.udp().items()}
    udp = {name: n for name, n in udp.items() if n or name in ("Udp.RcvbufErrors", "Udp.NoPorts", "Icmp.OutDestUnreachs")}
    left = sent["messages"] + sum(d["link"]["tx_messages"] + d["link"]["rx_strays"] for d in devices)
    taken = sum(d["link"]["rx_messages"] for d in devices)
    dropped = udp["Udp.RcvbufErrors"]
    waiting = left - taken - dropped
    expect(0 <= waiting <= 2 * SOCKETS * KEPT, f"{left} messages left, {taken} were taken, {dropped} dropped by the kernel: {udp}")
    expect(udp["Udp.NoPorts"] == 0 and udp["Icmp.OutDestUnreachs"] == 0, f"the host has answered: {udp}")
    counted = sum(d["link"]["rx_kernel_drops"] for d in devices)
    nobodys = sent["nobodys_messages"]
    expect(not exactly or nobodys - waiting == dropped - counted, f"{dropped} messages dropped by the kernel, {counted} counted by the "
           f"NICs, and {nobodys} were for slots that nobody has, of which {waiting} wait")
    if exactly and counted == 0:
        # Then it is known to the datagram.
        came = sum(d["link"]["rx_packets"] - d["link"]["rx_strays"] - d["link"]["tx_packets"] for d in devices)
        expect(came == sent["datagrams"] - sent["nobodys_datagrams"], f"{came} of the flood came: {sent}")
    return dropped, counted


def unanswered(sent, result):
    expect(sent["answers"] == 0 and sent["flow_answers"] == 0, f"{sent['answers']:.0f} answers\n" + result.show("flood"))


def main_case(env, ends, user=False):
    count, rate = env.count or COUNT, RATE if env.rate is None else env.rate
    with Space(env, user) as space:
        start = space.udp()
        traffic = Traffic(space, ends)
        # The first second warms up.
        traffic.wait_slices(22)
        before = statistics.mean(traffic.slices()[10:])
        size = resident(traffic.proc.pid)
        sent, result = figures(space.flood("-c", count, "-r", rate), 60 + count / 5000)
        at = len(traffic.slices())
        during = statistics.mean(traffic.slices()[22:at] or [0])
        expect(traffic.proc.alive(), "the traffic has ended", traffic.proc)
        back, turn = recovered(traffic, before, at)
        grown = resident(traffic.proc.pid) - size
        sums = traffic.finish()
        devices = space.told(traffic.proc.pid)
        expect(sent["datagrams"] == count, f"{sent}")
        unanswered(sent, result)
        causes = balance(devices)
        dropped, counted = accounted(space, start, devices, sent, one_slot(env, user))
        traffic.leave()
        expect(grown < GROWTH_KIB, f"grown by {grown} KiB")
        wanted = {"rx_icrc_encapsulated", "rx_wrong_address", "rx_wrong_pkey", "rx_wrong_version", "rx_wrong_opcode", "rx_truncated",
                  "rx_unknown_opcode", "rx_unknown_qp", "rx_wrong_pad", "rx_wrong_qkey", "rx_stale_ack", "rx_nobodys"}
        expect(wanted <= set(causes), f"no packet was dropped for {wanted - set(causes)}: {causes}")
        if env.count:
            print("  " + json.dumps({"sent": sent, "drops": causes, "kernel_drops": dropped, "of_these_counted_by_the_nics": counted,
                                     "traffic": sums, "mib_s_before": before, "during": during, "back": back, "grown_kib": grown}))
        late = f" (at look {turn + 1})" if turn else ""
        return (f"{count} in {sent['seconds']:.1f} s; {before:.0f} MiB/s before, {during:.0f} during, {100 * back:.0f} % a second after{late};"
                f" {sum(causes.values())} packets dropped for {len(causes)} causes, {dropped} messages by the kernel")


def spoof(env):
    """Exact copies of what runs, from elsewhere: each counted, none of any effect."""
    with Space(env) as space:
        traffic = Traffic(space, (HERE, THERE))
        traffic.wait_slices(10)
        sent, result = figures(space.flood("-c", 30_000, "-r", 30_000, "--spoof"), 60)
        traffic.finish()
        devices = space.told(traffic.proc.pid)
        unanswered(sent, result)
        causes = balance(devices)
        states = {(qp["type"], qp["state"]) for d in devices for qp in d["qps"]}
        expect({state for _, state in states} == {"RTS"}, f"{states}")
        # Of connected services by the address, of datagrams by the key; those cut short or at a wrong length before.
        sure = causes["rx_wrong_address"] + causes["rx_wrong_qkey"]
        expect(sure > 5_000 and causes.get("rx_icrc_encapsulated", 0) == 0, f"{causes}")
        naks = {name: n for d in devices for name, n in d["counters"].items() if re.fullmatch(r"tx_(invalid|access|oper)\w*naks", name)}
        expect(not any(naks.values()), f"{naks}")
        traffic.leave()
        return f"{sure} refused by address or key"


def pair(env, space, program, words, before=(), env_of=None, addresses=(HERE, THERE), seconds=60):
    """A server and a client, to their ends."""
    need(program)
    port = free_port()
    words = [program, *words, "-p", str(port)]
    argv = [[env.crocevia, "run", "--addr", a, *before, "--", *words] for a in addresses]
    server = space.start(argv[0], env_of)
    expect(wait_listening(server, port), "no server", server)
    client = space.start([*argv[1], addresses[0]], env_of)
    return server, client, seconds


def ended(procs):
    server, client, seconds = procs
    results = client.wait(seconds), server.wait(10)
    check_pair(results[1], results[0])
    return results


class Flooded:
    """A flood for as long as the block runs."""

    def __init__(self, space, *words):
        self.space, self.stop = space, space.file()
        self.proc = space.flood("-c", 10 ** 9, "--until", self.stop, *(words or ("-r", 40_000)))
        self.sent = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        with open(self.stop, "w"):
            pass
        if kind is None:
            self.sent, result = figures(self.proc, 20)
            unanswered(self.sent, result)
        self.proc.end()


PINGPONG = ["-g", "0", "-c", "-s", "20000", "-m", "4096"]


def pingpong(env, before=(), check=None, words=("-n", "4000")):
    """rdma-core's own program checks the bytes."""
    with Space(env) as space:
        with Flooded(space) as flood:
            results = ended(pair(env, space, "ibv_rc_pingpong", [*PINGPONG, *words], before))
        note = check(results) if check else None
        return f"{flood.sent['datagrams']:.0f} datagrams meanwhile" + (f", {note}" if note else "")


def captured(env):
    """The capture holds the flood too, and is whole."""
    import pcap
    file = os.path.join(env.tmp, "flood.pcapng")

    def check(_):
        try:
            capture = pcap.Capture(file)
            remarks = sum("dropped" in p.comment for p in capture.packets)
            expect(remarks > 100, f"{remarks} drops are remarked on, in {len(capture.packets)} packets")
            return f"{len(capture.packets)} packets captured, {remarks} of them dropped"
        finally:
            os.unlink(file)
    return pingpong(env, ("--pcap", file), check, ("-n", "1000"))


def checker(env):
    def check(results):
        for result in results:
            expect("crocevia check: no findings" in result.out, "the checker has found something\n" + result.show("program"))
    return pingpong(env, ("--check",), check)


def many(env):
    """Eight processes that share an address: what is for one may come merged with what is for another."""
    with Space(env) as space:
        pairs = [("ib_write_bw", ["-s", "65536"]), ("ib_read_bw", ["-s", "65536"]), ("ib_send_bw", ["-s", "65536", "-q", "4"]),
                 ("ib_atomic_bw", [])]
        words = ["-F", "-D", "3"]
        procs = [pair(env, space, program, [*words, *own], addresses=(HERE, HERE)) for program, own in pairs]
        with Flooded(space) as flood:
            time.sleep(1.5)
            devices = space.told()
            expect(len(devices) == 8, f"{len(devices)} devices")
            for procs_of in procs:
                ended(procs_of)
        strays = sum(d["link"]["rx_strays"] for d in devices)
        expect(strays > 0, "nothing was handed on")
        nobodys = sum(d["link"]["rx_nobodys"] for d in devices)
        return f"{flood.sent['datagrams']:.0f} datagrams, {strays} handed on, {nobodys} nobody's, half way through"


def leaving(env):
    """Programs come and go in the flood."""
    with Space(env) as space, Flooded(space) as flood:
        for turn in range(6):
            ended(pair(env, space, "ibv_rc_pingpong", [*PINGPONG, "-n", str(5 + 40 * turn)]))
    return f"{flood.sent['datagrams']:.0f} datagrams meanwhile"


def idle(env):
    """A process that waits for work is as it was before, and serves whoever comes."""
    with Space(env) as space:
        need("ib_write_bw")
        port = free_port()
        words = ["ib_write_bw", "-F", "-p", str(port), "-n", "200"]
        server = space.start([env.crocevia, "run", "--addr", HERE, "--", *words])
        expect(wait_listening(server, port), "no server", server)
        end = time.monotonic() + 10
        while not space.told():
            expect(server.alive() and time.monotonic() < end, "no device", server)
        pid = space.told()[0]["pid"]
        size = resident(pid)
        sent, result = figures(space.flood("-c", 100_000, "--at", HERE), 60)
        unanswered(sent, result)
        expect(resident(pid) - size < GROWTH_KIB, f"{size} KiB before, {resident(pid)} after")
        time.sleep(0.7)
        ticks = cpu(pid)
        time.sleep(1)
        spent = cpu(pid) - ticks
        expect(spent <= 2, f"{spent} ticks of CPU in a second without work")
        balance(space.told())
        client = space.start([env.crocevia, "run", "--addr", THERE, "--", *words, HERE])
        check_pair(server.wait(30), client.wait(30))
        return f"{sent['datagrams'] / sent['seconds']:.0f} datagrams/s"


def cpu(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


NUISANCE = """
import os, socket, sys, time
os.setgid(65534); os.setuid(65534)
names, end, kept, tries = sys.argv[2:], time.monotonic() + float(sys.argv[1]), [], 0
while time.monotonic() < end:
    for name in names:
        s = socket.socket(socket.AF_UNIX); s.settimeout(0)
        try:
            s.connect("\\0" + name); s.send(b"J" * (1 + tries % 5)); tries += 1; kept.append(s)
        except OSError:
            s.close()
    if len(kept) > 300:
        for s in kept[:200]:
            try:
                data, fds, *_ = socket.recv_fds(s, 64, 100)
                if fds: print("GIVEN", len(fds)); sys.exit(1)
            except OSError: pass
            s.close()
        kept = kept[200:]
print(tries)
"""


def other_user(env):
    """Another user gets none of the sockets, and keeps nobody of the own one from joining."""
    if not env.root:
        raise Skip("to be two users needs root")
    need("ibv_devinfo", "ib_write_bw")
    with Space(env) as space:
        server = space.start([env.crocevia, "run", "--addr", HERE, "--", "ib_write_bw", "-F", "-p", str(free_port())])
        end = time.monotonic() + 10
        while f"@crocevia/4791/{HERE}/0" not in space.read("unix"):
            expect(server.alive() and time.monotonic() < end, "no device", server)
            time.sleep(0.02)
        names = {w[1:] for w in space.read("unix").split() if w.startswith("@crocevia/")}
        nuisance = space.start(["python3", "-c", NUISANCE, "4", *sorted(names)])
        time.sleep(0.3)
        for _ in range(6):
            result = run([*space.enter(), env.crocevia, "run", "--addr", HERE, "--", "ibv_devinfo"], 20)
            expect(not result.failed, "a process of the same user cannot join\n" + result.show("ibv_devinfo"))
            expect(space.told(), "nobody tells what it has counted")
        result = nuisance.wait(20)
        if result.failed:
            raise Fail(result.show("the other user"))
        return f"{result.out.strip()} connections of the other user"


def cases(env):
    yield Case("flood/ipv4", lambda: main_case(env, (HERE, THERE)))
    yield Case("flood/ipv6", lambda: main_case(env, (HERE6, THERE6)))
    if env.root:
        yield Case("flood/uid65534", lambda: main_case(env, (HERE, THERE), True))
    yield Case("flood/spoof", lambda: spoof(env))
    yield Case("flood/pingpong", lambda: pingpong(env))
    yield Case("flood/pcap", lambda: captured(env))
    yield Case("flood/check", lambda: checker(env))
    yield Case("flood/faults", lambda: pingpong(env, ("--faults", "loss=2%,corrupt=1%,reorder=2%,dup=1%,seed=3"), words=("-n", "400")))
    yield Case("flood/many", lambda: many(env))
    yield Case("flood/leaving", lambda: leaving(env))
    yield Case("flood/idle", lambda: idle(env))
    yield Case("flood/users", lambda: other_user(env))

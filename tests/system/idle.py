"""A process with a NIC that has nothing to do uses no processor time and does not wake up: whatever it has done before, whether
its peer lives, whether it came first on the address, while captures and the checker are on, and hardly while it is watched.

The processes are idle.c. All kinds wait at the same time, and are measured together.
"""

import os
import time

from harness import Case, Fail, Proc, build_c
import net

# After the last packet a NIC is alert for half a second; what is owed to a queue pair that has gone is kept for 4.5 s.
SETTLE, MEASURE = 5.5, 3.0
KINDS = ("open", "connected", "event", "traffic", "datagrams", "vanished", "for-ever", "no-receive")
# Wake-ups of all threads of a process that are let pass: somebody else's signal or an interface that changes.
MOST_WAKES = 2


def used(pid):
    """Nanoseconds on a processor, and how often its threads have slept, of a process; its threads' names."""
    ns, slept, names = 0, 0, []
    for task in os.listdir(f"/proc/{pid}/task"):
        base = f"/proc/{pid}/task/{task}"
        with open(f"{base}/schedstat") as f:
            ns += int(f.read().split()[0])
        with open(f"{base}/status") as f:
            fields = dict(line.split(":", 1) for line in f)
        slept += int(fields["voluntary_ctxt_switches"])
        names.append(fields["Name"].strip())
    return ns, slept, names


def ticks(pid):
    """utime + stime, in clock ticks."""
    with open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))


class Waiting:
    """Programs that wait."""

    def __init__(self, env):
        self.env, self.program, self.procs = env, build_c(env, "idle"), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, proc in self.procs:
            proc.end()

    def start(self, name, kind, end, *options):
        argv = self.env.under(end, [self.program, kind])
        at = argv.index("run") + 1
        self.procs.append((name, Proc([*argv[:at], *options, *argv[at:]])))

    def pids(self):
        """Names and processes, when all wait. A child that has been killed is not among them."""
        end, found = time.monotonic() + 30, []
        for name, proc in self.procs:
            while True:
                lines = [line.split() for line in proc.output().splitlines() if line.startswith("idle ")]
                if lines:
                    break
                if not proc.alive() or time.monotonic() > end:
                    raise Fail(proc.wait(0.1).show(name))
                time.sleep(0.02)
            for word, who in zip(lines[0][1:], ("first", "second")):
                if os.path.exists(f"/proc/{word}/task"):
                    found.append((f"{name}, {who} on its address", int(word)))
        return found


def measure(pids, most_wakes):
    """Each of the processes does nothing for a while; what the worst did."""
    time.sleep(SETTLE)
    before = [(ticks(pid), *used(pid)) for _, pid in pids]
    time.sleep(MEASURE)
    after = [(ticks(pid), *used(pid)) for _, pid in pids]
    faults, worst = [], (0, 0)
    for (name, _), (t0, ns0, slept0, _), (t1, ns1, slept1, names) in zip(pids, before, after):
        worst = max(worst, (slept1 - slept0, ns1 - ns0))
        if t1 > t0 or slept1 - slept0 > most_wakes or ns1 - ns0 > most_wakes * 1_000_000:
            faults.append(f"  {name}: {t1 - t0} ticks, {(ns1 - ns0) / 1000:.0f} us, {slept1 - slept0} wake-ups in {MEASURE} s"
                          f" (threads {', '.join(sorted(names))})")
    if faults:
        raise Fail("\n".join(faults))
    return f"{len(pids)} processes for {MEASURE:.0f} s: at most {worst[0]} wake-ups, {worst[1] / 1000:.0f} us"


def plain(env):
    with Waiting(env) as waiting:
        for kind, end in zip(KINDS, net.more_loopback(len(KINDS))):
            waiting.start(kind, kind, end)
        return measure(waiting.pids(), MOST_WAKES)


def looked_at(env):
    """With a capture, the checker, and both."""
    ways = (("--pcap", os.path.join(env.tmp, "idle.pcapng")), ("--check",),
            ("--check", "--pcap", os.path.join(env.tmp, "idle-both.pcapng")), ("--faults", "loss=1%,delay=20us,seed=3"))
    kinds = ("connected", "traffic", "datagrams")
    with Waiting(env) as waiting:
        ends = iter(net.more_loopback(len(ways) * len(kinds)))
        for options in ways:
            for kind in kinds:
                waiting.start(f"{kind} with {options[0]}", kind, next(ends), *options)
        return measure(waiting.pids(), MOST_WAKES)


def watched(env):
    """Being asked by `stat -w` once a second costs a few wake-ups each time, and nothing in between."""
    with Waiting(env) as waiting:
        end = net.more_loopback(1)[0]
        waiting.start("traffic", "traffic", end)
        pids = waiting.pids()
        watcher = Proc([env.crocevia, "stat", "-w1", "--pid", str(pids[0][1])])
        try:
            return measure(pids, 8 * MEASURE)
        finally:
            watcher.end()


def cases(env):
    yield Case("idle/plain", lambda: plain(env))
    yield Case("idle/looked-at", lambda: looked_at(env))
    yield Case("idle/watched", lambda: watched(env))

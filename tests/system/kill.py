"""Four pairs of processes on one address, one process after the other killed at a random moment: the others see no error,
and wait no longer for completions than without kills. `run.py kill --rounds 1000` does it in full.

The processes are pair.c; the board that they and this module share is a file. A killed process' partner has to see
RETRY_EXC in time, and goes on with the process that takes the killed one's place.
"""

import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import tempfile
import time

from harness import Case, End, Fail, Skip, build_c
import net

PAIRS, ROUNDS = 4, 4096
HEADER, RECORD = 64 * 8, 32 * 8 + 2 * 4 * ROUNDS
ROUND, STOP, TIMEOUT, RETRIES, SESSIONS, LEAVE = 0, 1, 2, 3, 4, 8
FIELDS = ("incarnation stage published qpn datagram_qpn rkey address ready ended status ended_at fault sent received"
          " datagrams_sent datagrams_received multicasts last datagram_wait").split()
RETRY_EXC = 12
# A peer is given up after 8 times 67 ms; in a long run, which is for a quiet machine, after half of that.
TIMEOUT_CODE, RETRY_COUNT = 14, 7
# A retry may wait for up to four timeouts (transport rules), and the machine may be busy.
LATEST = 4 * 0.537 + 1.0
# More than this above the run without kills is too long.
EXCESS_MS = 100
# A peer that does not say that it has taken datagrams is given up after less.
DATAGRAM_PATIENCE = 3
QUICK_ROUNDS = 16


class TooLong(Fail):
    """A completion came too late."""


class Board:
    """What the processes and this module tell each other."""

    def __init__(self, path):
        size = HEADER + 2 * PAIRS * RECORD
        with open(path, "wb") as f:
            f.truncate(size)
        os.chmod(path, 0o666)
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), size)

    def put(self, word, value):
        struct.pack_into("<Q", self.map, 8 * word, value)

    def session(self, pair):
        return struct.unpack_from("<Q", self.map, 8 * (SESSIONS + pair))[0]

    def of(self, index, field):
        return struct.unpack_from("<Q", self.map, HEADER + index * RECORD + 8 * FIELDS.index(field))[0]

    def longest_ms(self, index, round, pause=False):
        """The longest time between completions of a process in a round (or between its looks at the queue)."""
        at = HEADER + index * RECORD + 32 * 8 + 4 * (round % ROUNDS + ROUNDS * pause)
        return struct.unpack_from("<I", self.map, at)[0] / 1000


def processor_waits(pid):
    """How long each thread of a process has waited for a processor, in ms."""
    found = {}
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                found[task] = int(f.read().split()[1]) / 1e6
    except OSError:
        pass
    return found


class Crowd:
    """The eight processes."""

    def __init__(self, env, end, program, seed):
        self.env, self.end, self.program = env, end, program
        self.random = random.Random(seed)
        self.dir = tempfile.TemporaryDirectory(prefix="crocevia-kill-")
        os.chmod(self.dir.name, 0o755)
        self.path = os.path.join(self.dir.name, "board")
        self.board = Board(self.path)
        self.board.put(TIMEOUT, TIMEOUT_CODE - bool(env.rounds))
        self.board.put(RETRIES, RETRY_COUNT)
        self.said = open(os.path.join(self.dir.name, "said"), "w+")
        self.running, self.names, self.incarnations = [None] * 2 * PAIRS, [0] * 2 * PAIRS, 0
        self.took, self.kinds, self.number, self.waits, self.starved = [], {}, 0, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in filter(None, self.running):
            if child.poll() is None:
                child.kill()
            child.wait()
        self.said.close()
        self.board.map.close()
        self.dir.cleanup()

    def start(self, index):
        self.incarnations += 1
        self.names[index] = self.incarnations
        words = [self.program, self.path, str(index), str(self.incarnations)]
        argv = self.env.under(self.end, words + (["events"] if index // 2 % 2 else []))
        self.running[index] = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said, cwd="/")

    def begin(self, number):
        """A round begins."""
        self.starved[self.number] = max(map(self.waited_ms, range(2 * PAIRS)))
        self.number = number
        self.board.put(ROUND, number)
        self.waits = {child.pid: processor_waits(child.pid) for child in filter(None, self.running)}

    def waited_ms(self, index):
        """How long a thread of a process has waited for a processor in this round, at most."""
        pid = self.running[index].pid
        before = self.waits.get(pid, {})
        return max((wait - before.get(task, 0) for task, wait in processor_waits(pid).items()), default=0)

    def renew(self, pair):
        """The pair connects anew."""
        self.board.put(SESSIONS + pair, self.board.session(pair) + 1)

    def fail(self, what):
        self.said.seek(0)
        lines = [f"  {what}"]
        for index in range(2 * PAIRS):
            state = " ".join(f"{field}={self.board.of(index, field)}" for field in FIELDS if field not in ("rkey", "address"))
            gap, pause = (self.board.longest_ms(index, self.number, of) for of in (False, True))
            lines.append(f"    {index}: session={self.board.session(index // 2)} {state}")
            lines.append(f"       in this round: {gap:.1f} ms between completions, {pause:.1f} between looks,"
                         f" {self.waited_ms(index):.1f} waiting for a processor")
        raise Fail("\n".join(lines + ["    " + line.rstrip() for line in self.said.readlines()[-20:]]))

    def until(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.fail(what)
            time.sleep(0.001)

    def flows(self, pair, more=20):
        """Both ends of the pair have completed some requests since now."""
        ends, session = (2 * pair, 2 * pair + 1), self.board.session(pair)
        ready = lambda: all(self.board.of(i, "ready") == session and self.board.of(i, "last") for i in ends)
        self.until(ready, 10, f"pair {pair} does not connect")
        before = [self.board.of(i, "sent") for i in ends]
        moved = lambda: all(self.board.of(i, "sent") >= n + more for i, n in zip(ends, before))
        self.until(moved, 10, f"pair {pair} stands still")

    def look(self, besides=None):
        """No process but those of a pair has found anything wrong, or has ended."""
        now = time.monotonic_ns()
        for index, child in enumerate(self.running):
            if self.board.of(index, "fault"):
                self.fail(f"process {index} found a fault at its line {self.board.of(index, 'fault')}")
            if index // 2 == besides:
                continue
            if child.poll() is not None:
                self.fail(f"process {index} has ended with {child.returncode}")
            if self.board.of(index, "ended") == self.board.session(index // 2):
                self.fail(f"process {index}, whose partner lives, got status {self.board.of(index, 'status')}")
            last = self.board.of(index, "last")
            if last and now - last > 2_000_000_000:
                self.fail(f"process {index} has had no completion for {(now - last) / 1e9:.1f} s")

    def look_at_what_was_said(self):
        self.said.seek(0)
        if any("RetryExcErr: the peer did not answer" not in line for line in self.said):
            self.fail("a process said something else than that its peer has gone")

    def end_one(self, index, leaves):
        """Ends a process, by itself first if it `leaves`; its partner has to find out, if they were connected."""
        partner, session = index ^ 1, self.board.session(index // 2)
        child = self.running[index]
        if self.board.of(index, "ended") == session:
            self.fail(f"process {index} got status {self.board.of(index, 'status')} before it was killed")
        connected = bool(self.board.of(partner, "last"))
        if leaves:
            self.board.put(LEAVE + index, self.names[index])
            time.sleep(self.random.uniform(0, 0.008))
        child.send_signal(signal.SIGKILL)
        killed = time.monotonic_ns()
        if child.wait() not in ((0, -signal.SIGKILL) if leaves else (-signal.SIGKILL,)):
            self.fail(f"process {index} ended with {child.returncode}")
        return (partner, session, killed) if connected else None

    def given_up(self, partner, session, killed):
        """The partner of a killed process has seen RETRY_EXC, in time."""
        self.until(lambda: self.board.of(partner, "ended") == session, LATEST + 2, f"process {partner} sees no error")
        if self.board.of(partner, "status") != RETRY_EXC:
            self.fail(f"process {partner} got status {self.board.of(partner, 'status')}, not RETRY_EXC")
        took = (self.board.of(partner, "ended_at") - killed) / 1e9
        self.took.append(took)
        if took > LATEST:
            self.fail(f"process {partner} saw RETRY_EXC only after {took:.2f} s")

    def round(self, number):
        """Ends one process, in turn; the pair whose it was is busy again at the end."""
        victim = number % (2 * PAIRS)
        pair = victim // 2
        self.begin(number)
        kind = self.random.choices(("busy", "starting", "leaving", "stopped"), (60, 15, 15, 10))[0]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        time.sleep(self.random.uniform(0, 0.04))
        if kind == "stopped":
            self.running[victim].send_signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(0, 0.2))
        noticed = self.end_one(victim, kind == "leaving")
        if noticed:
            self.given_up(*noticed)
        self.look(pair)
        self.start(victim)
        self.renew(pair)
        if kind == "starting":
            time.sleep(self.random.uniform(0, 0.05))
            self.end_one(victim, False)
            self.start(victim)
            self.renew(pair)
        self.flows(pair)
        self.look()

    def gaps(self, rounds, killing):
        """The longest gap of each round over the processes whose partner was not killed in it, in ms."""
        found = []
        for number in rounds:
            pair = number % (2 * PAIRS) // 2 if killing else None
            found.append(max((self.board.longest_ms(i, number), i) for i in range(2 * PAIRS) if i // 2 != pair))
        return found


def summary(name, gaps):
    values = sorted(gap for gap, _ in gaps)
    return f"{name}: longest gap {values[-1]:.1f} ms, in the median round {statistics.median(values):.1f} ms"


def killing(env, end, rounds, seed):
    """The run without kills, and the one with them."""
    program = build_c(env, "pair")
    # Fewer rounds than the board has room for.
    rounds = min(rounds, ROUNDS - 2 - rounds // 2)
    with Crowd(env, end, program, seed) as crowd:
        for pair in range(PAIRS):
            for index in (2 * pair, 2 * pair + 1):
                crowd.start(index)
            crowd.renew(pair)
        for pair in range(PAIRS):
            crowd.flows(pair)
        killed = range(1, rounds + 1)
        # Half as many rounds without kills, or as many if they are few.
        quiet = range(rounds + 1, rounds + max(rounds // 2, min(rounds, QUICK_ROUNDS)) + 1)
        for number in quiet:
            crowd.begin(number)
            time.sleep(0.25)
            crowd.look()
        control = crowd.gaps(quiet, False)
        begin = time.monotonic()
        for number in killed:
            crowd.round(number)
        seconds = time.monotonic() - begin
        crowd.board.put(STOP, 1)
        for index, child in enumerate(crowd.running):
            try:
                code = child.wait(10)
            except subprocess.TimeoutExpired:
                crowd.fail(f"process {index} does not leave")
            if code:
                crowd.fail(f"process {index} left with {code}")
        crowd.look_at_what_was_said()
        gaps = crowd.gaps(killed, True)
        most, index = max(gaps)
        number = killed[gaps.index((most, index))]
        note = (f"seed {seed}: {rounds} rounds ({', '.join(f'{n} {kind}' for kind, n in sorted(crowd.kinds.items()))}) in"
                f" {seconds:.0f} s; {summary('killed', gaps)}; {summary('control', control)};"
                f" RETRY_EXC after {min(crowd.took):.2f} to {max(crowd.took):.2f} s")
        if most > max(control)[0] + EXCESS_MS:
            raise TooLong(f"  {note}\n  round {number}, process {index}: {most:.1f} ms between completions,"
                          f" {crowd.board.longest_ms(index, number, True):.1f} between its looks for them;"
                          f" a thread waited {crowd.starved.get(number, 0):.1f} ms for a processor in all")
        wait = max(crowd.board.of(i, "datagram_wait") for i in range(2 * PAIRS)) / 1e9
        if wait > DATAGRAM_PATIENCE:
            raise Fail(f"  {note}\n  a datagram waited {wait:.2f} s to be sent")
        multicasts = sum(crowd.board.of(i, "multicasts") for i in range(2 * PAIRS))
        return f"{note}; a datagram waited {wait:.2f} s at most, {multicasts} came by multicast"


def twice(env, end, rounds, seed):
    """A run of few rounds may have met somebody else's load, which a second one will not. A long one has to be free of it."""
    try:
        return killing(env, end, rounds, seed)
    except TooLong as fault:
        if env.rounds:
            raise
        return f"{killing(env, end, rounds, seed + 1)}; at first\n{fault}"


def founding(env, end, rounds, seed):
    """Two processes come to an address where nobody is, one of them is killed meanwhile: the other gets its NIC soon."""
    slowest = 0
    with Crowd(env, end, build_c(env, "pair"), seed) as crowd:
        for number in range(rounds):
            victim = number % 2
            for index in (0, 1):
                crowd.start(index)
            begin = time.monotonic()
            time.sleep(crowd.random.uniform(0, 0.03))
            crowd.running[victim].kill()
            crowd.running[victim].wait()
            name = crowd.names[1 - victim]
            there = lambda: crowd.board.of(1 - victim, "incarnation") == name and crowd.board.of(1 - victim, "stage") == 4
            crowd.until(there, 5, f"process {1 - victim} gets no NIC after process {victim} was killed")
            slowest = max(slowest, time.monotonic() - begin)
            crowd.running[1 - victim].kill()
            crowd.running[1 - victim].wait()
            crowd.look_at_what_was_said()
    return f"seed {seed}: {rounds} rounds, the slowest took {slowest:.2f} s"


def cases(env):
    rounds = env.rounds or QUICK_ROUNDS
    seed = int.from_bytes(os.urandom(4), "little") if env.seed is None else env.seed
    four = net.loopback()[0]
    yield Case("kill/ipv4", lambda: twice(env, four, rounds, seed))
    yield Case("kill/uid65534", lambda: twice(env, net.loopback(user=True)[0], rounds // 2, seed))
    yield Case("kill/founding", lambda: founding(env, four, 2 * rounds, seed))
    yield Case("kill/ipv6", lambda: twice(env, six(), rounds // 2, seed))


def six():
    """The one IPv6 address of loopback."""
    if not net.roce_port_free("::1"):
        raise Skip("there is no ::1, or its port is in use")
    return End(addr="::1", peer="::1")

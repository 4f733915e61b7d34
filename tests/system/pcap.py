"""`crocevia run --pcap`: what it writes opens in tshark with nothing malformed, satisfies the independent ICRC checker, agrees
between both ends packet by packet, and with a tcpdump of the same traffic; and what becomes of it when processes share the
option, are killed, leave by _exit, find the disk full or a pipe without a reader.
"""

import collections
import os
import re
import shutil
import struct
import sys
import time

from harness import ROOT, Case, Fail, Proc, check_pair, free_port, have, need, run, run_pair, wait_listening
import net
import table
from perftest import Lazy

sys.path.insert(0, os.path.join(ROOT, "crates", "wire", "tests", "captures"))
import check_icrc  # noqa: E402

TIMEOUT = 60
PAIRS = [
    ("ibv_rc_pingpong", ["-g", "0", "-n", "200"]),
    ("ibv_uc_pingpong", ["-g", "0", "-n", "200"]),
    ("ibv_ud_pingpong", ["-g", "0", "-n", "200"]),
    ("ib_write_bw", ["-s", "65536", "-n", "30"]),
    ("ib_read_bw", ["-s", "65535", "-n", "30"]),
    ("ib_send_bw", ["-s", "1", "-n", "200"]),
    ("ib_atomic_lat", ["-n", "100"]),
]
# One of each shape, over a veth and beside tcpdump.
BESIDE = [
    ("ib_write_bw", ["-s", "65535", "-n", "30"]),
    ("ib_read_bw", ["-s", "65535", "-n", "30"]),
    ("ib_send_bw", ["-s", "61", "-n", "200", "-c", "UD"]),
    ("ib_atomic_bw", ["-n", "100"]),
]
# Settings that tshark does not have by default: it is to judge every checksum that there is, and not to guess what the programs'
# random payload might be, to find that malformed.
JUDGE = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
for guess in ("eth_over_ib", "mellanox_eoib", "rpcrdma_infiniband", "iser_infiniband", "lnet_ib", "sdp_infiniband",
              "smb_direct_infiniband", "smcr_infiniband", "fc_infiniband", "nvme_rdma"):
    JUDGE += ["--disable-heuristic", guess]
BAD = "_ws.malformed || ip.checksum.status == Bad || udp.checksum.status == Bad || _ws.expert.severity == Error"


class Capture:
    """A capture as an independent reader has it."""

    def __init__(self, path, cut_short=False):
        self.path, self.sections, self.statistics = path, [], []
        try:
            self.packets = list(check_icrc.pcapng(path, None, self.sections, self.statistics, cut_short))
        except (OSError, ValueError) as fault:
            raise Fail(f"  {fault}") from None

    def count(self, code):
        """Sum of a count over the interfaces: 4 seen, 5 left out, 7 dropped by the kernel, 8 kept."""
        last = {s["interface"]: s for s in self.statistics}
        return sum(int.from_bytes(s[code], "little") for s in last.values())

    def way(self, direction):
        return [p for p in self.packets if p.direction == direction]

    def comments(self):
        """How often each comment stands there, numbers left out."""
        found = collections.Counter()
        for p in self.packets:
            found.update(re.sub(r"\d+", "N", c) for c in p.comment.split("; ") if c)
        return found

    def wrong(self):
        """Packets that are whole and have a wrong ICRC."""
        return [p for p in self.packets if not p.cut and not check_icrc.Roce(p.frame).ok]

    def check(self, damaged=False):
        """Right by itself; `damaged`: where packets are damaged on purpose, and said to be."""
        if not self.sections or any(s.get(4, b"")[:9] != b"crocevia " or 3 not in s for s in self.sections):
            raise Fail(f"  {self.path}: section headers {self.sections}")
        silent = [p for p in self.wrong() if not (damaged and "dropped" in p.comment)]
        if silent:
            raise Fail(f"  {self.path}: {len(silent)} wrong ICRCs, the first: {silent[0].comment!r} {silent[0].frame.hex()}")
        last = 0
        for p in self.packets:
            if p.ns < last:
                raise Fail(f"  {self.path}: time runs back by {last - p.ns} ns")
            last = p.ns
        if self.statistics:
            seen, lost, kept = (self.count(c) for c in (4, 5, 8))
            if seen != kept + lost or kept != len(self.packets):
                raise Fail(f"  {self.path}: {seen} seen, {kept} kept, {lost} left out; {len(self.packets)} in the file")
    def closed(self):
        """It came to its proper end."""
        if len(self.statistics) < 1:
            raise Fail(f"  {self.path}: no statistics at the end")


def judge(captures):
    """tshark finds nothing wrong with any of them."""
    if have("tshark"):
        return
    runs = [Proc(["tshark", "-n", *JUDGE, "-r", c.path, "-Y", BAD]) for c in captures]
    for result in [proc.wait(TIMEOUT) for proc in runs]:
        text = [s for s in result.out.splitlines() if s.strip() and "could be dangerous" not in s]
        if result.failed or text:
            raise Fail(result.show("tshark"))


def body(frame):
    """What both ends and tcpdump agree on: without Ethernet addresses, TTL and what depends on it, UDP checksum."""
    at = 14
    head = bytearray(frame[at:at + 20 if frame[at] >> 4 == 4 else at + 40])
    if head[0] >> 4 == 4:
        head[8:9] = head[10:12] = b""
    else:
        head[7:8] = b""
    udp = at + (20 if frame[at] >> 4 == 4 else 40)
    return bytes(head) + frame[udp:udp + 6] + frame[udp + 8:]


ACKNOWLEDGE = 0x11


def opcode(frame):
    """Of the BTH, behind the UDP header."""
    return frame[14 + (20 if frame[14] >> 4 == 4 else 40) + 8]


def agree(one, other):
    """What one end sent is what the other received, in order, and no earlier; unless the kernel dropped some, and but for last
    words, which may come to nobody."""
    for sender, receiver in ((one, other), (other, one)):
        sent, came = sender.way("out"), receiver.way("in")
        unheard = sent[len(came):]
        if receiver.count(7) == 0 and (len(came) > len(sent) or len(unheard) > 8):
            raise Fail(f"  {len(sent)} packets out in {sender.path}, {len(came)} in in {receiver.path}")
        waiting = iter(sent)
        for p in came:
            for s in waiting:
                if body(s.frame) == body(p.frame):
                    break
                if receiver.count(7) == 0:
                    raise Fail(f"  differ: {s.frame.hex()}\n  {p.frame.hex()}")
            else:
                raise Fail(f"  {p.frame.hex()} came, but was not sent")
            if s.ns > p.ns:
                raise Fail(f"  came {s.ns - p.ns} ns before it was sent: {p.frame.hex()}")


def under(env, end, file, words, *options):
    """A program on a NIC that captures."""
    return [*end.enter, env.crocevia, "run", "--addr", end.addr, "--pcap", file, *options, "--", *words]


def place(env, name, user=False):
    """A fresh folder for captures."""
    path = os.path.join(env.tmp, "pcap-" + name.replace("/", "-"))
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path, 0o777)
    if user and env.root:
        os.chmod(path, 0o777)
    return path


def run_captured(env, folder, ends, program, options, gid=None, extra=(), variables=None):
    """Runs a pair; the captures of both ends."""
    need(program)
    port = free_port()
    words = [program, *([] if program.startswith("ibv_") else ["-F"]), "-p", str(port), *options]
    files = [os.path.join(folder, f"{side}.pcapng") for side in ("server", "client")]
    argv = [[*words, *(["-x", str(gid[side])] if gid else [])] for side in (0, 1)]
    server, client = run_pair(
        under(env, ends[0], files[0], argv[0], *extra), under(env, ends[1], files[1], [*argv[1], ends[0].peer], *extra),
        port, TIMEOUT, variables)
    check_pair(server, client)
    return [Capture(f) for f in files]


def pair(env, name, ends, program, options):
    captures = run_captured(env, place(env, name, True), ends, program, options)
    for c in captures:
        c.check()
        c.closed()
    if not captures[0].packets:
        raise Fail("  nothing was captured")
    agree(*captures)
    judge(captures)
    return f"{len(captures[0].packets)} packets"


def beside(env, name, ends, addresses, gid, program, options):
    """Over a veth that cuts nothing, tcpdump sees each packet: it is byte for byte what we captured."""
    folder = place(env, name)
    file = os.path.join(folder, "tcpdump.pcap")
    with net.Dump(ends[1], 1, file) as dump:
        captures = run_captured(env, folder, ends, program, options, gid)
        dump.settle()
    for c in captures:
        c.check()
        c.closed()
    agree(*captures)
    judge(captures[1:])
    theirs = [f for _, f, _ in check_icrc.packets(file)]
    ours = captures[1]
    for direction, source in (("out", addresses[1]), ("in", addresses[0])):
        dumped = [f for f in theirs if check_icrc.Roce(f).src == text_of(source)]
        mine = ours.way(direction)
        if direction == "in":
            # Last words: acknowledgements repeated to a queue pair that has gone.
            while len(mine) < len(dumped) <= len(mine) + 8 and opcode(dumped[-1]) == ACKNOWLEDGE:
                dumped.pop()
        if [body(f) for f in dumped] != [body(p.frame) for p in mine]:
            raise Fail(f"  {direction}: tcpdump has {len(dumped)} packets, the capture {len(mine)}, or their bytes differ")
        # Ethernet addresses and TTL or hop limit too. Of a neighbour that was just being asked for the address is not known yet.
        known = False
        for f, p in zip(dumped, mine):
            known = known or bytes(6) not in (p.frame[:6], p.frame[6:12])
            start = 0 if known else 14
            if f[start:24] != p.frame[start:24]:
                raise Fail(f"  {direction}: headers differ: {f[:34].hex()} {p.frame[:34].hex()}")
        if not known:
            raise Fail(f"  {direction}: nowhere an Ethernet address of the peer")
    return f"{len(theirs)} packets"


def text_of(address):
    """An address as the checker writes it."""
    if "." in address:
        return address
    groups = address.split("::")
    left, right = ([int(w, 16) for w in g.split(":") if w] for g in (groups + [""])[:2])
    return ":".join("%x" % w for w in left + [0] * (8 - len(left) - len(right)) + right)


def lossy(env):
    """Under loss both ends' captures tell what was sent again."""
    folder = place(env, "loss")
    options = ["-s", "65536", "-n", "100"]
    captures = run_captured(env, folder, net.loopback(), "ib_write_bw", options, None, ["--faults", "loss=3%,corrupt=1%,seed=7"])
    for c in captures:
        c.check(damaged=True)
    said = captures[1].comments()
    if not said["retransmission of PSN N"]:
        raise Fail(f"  no retransmission in what the client says: {dict(said)}")
    said = captures[0].comments()
    for wanted in ("wrong ICRC", "out of sequence"):
        if not any(wanted in text for text in said):
            raise Fail(f"  no {wanted} in what the server says: {dict(said)}")
    again = [p for p in captures[1].way("out") if p.comment]
    numbers = collections.Counter(p.frame[51:54] for p in captures[1].way("out"))
    for p in again:
        if captures[1].count(5) == 0 and numbers[p.frame[51:54]] < 2:
            raise Fail(f"  said to be sent again, but was not: {p.comment}")
    return f"{len(again)} packets sent again"


def sizes(env):
    """Messages of 0 bytes and of 1 GiB; of the latter only the headers are kept."""
    pair(env, "empty", net.loopback(), "ibv_rc_pingpong", ["-g", "0", "-s", "0", "-n", "50"])
    port, ends, size, snap = free_port(), net.loopback(), 1 << 30, 96
    file = os.path.join(place(env, "sizes"), "client.pcapng")
    words = ["ibv_rc_pingpong", "-g", "0", "-m", "4096", "-s", str(size), "-n", "1", "-p", str(port)]
    server, client = run_pair(
        env.under(ends[0], words), under(env, ends[1], file, [*words, ends[0].peer]), port, TIMEOUT, {"CROCEVIA_PCAP_SNAPLEN": snap})
    check_pair(server, client)
    # Half a million packets: only lengths, and what is at the end.
    with open(file, "rb") as f:
        data = f.read()
    at, count, seen, longest = 0, 0, 0, 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            captured, original = struct.unpack_from("<II", data, at + 20)
            count, longest = count + 1, max(longest, captured)
            seen += original - 58 if original > 100 else 0
        elif kind == 5:
            found = check_icrc.options(data[at + 20:at + length - 4], file)
            lost = int.from_bytes(found[5], "little")
        at += length
    # Back and forth.
    if at != len(data) or longest > snap or seen + 4096 * lost < 2 * size:
        raise Fail(f"  {seen} of {2 * size} bytes seen in {count} packets of at most {longest} bytes, {lost} left out")
    return f"{count} packets of 2 GiB, {lost} left out"


def killed(env):
    """After kill -9 the file is right up to its last whole block."""
    need("ib_write_bw")
    folder, ends, port = place(env, "killed"), net.loopback(), free_port()
    words = ["ib_write_bw", "-F", "-p", str(port), "-D", "20", "-s", "65536"]
    files = [os.path.join(folder, f"{side}.pcapng") for side in ("server", "client")]
    server = Proc(under(env, ends[0], files[0], words))
    try:
        if not wait_listening(server, port):
            raise Fail(server.wait(0.5).show("server"))
        client = Proc(under(env, ends[1], files[1], [*words, ends[0].peer]))
        try:
            time.sleep(1.5)
            for proc in (client, server):
                proc.child.kill()
                proc.child.wait()
        finally:
            client.end()
    finally:
        server.end()
    for file in files:
        c = Capture(file, cut_short=True)
        if len(c.packets) < 1000 or c.wrong():
            raise Fail(f"  {file}: {len(c.packets)} packets, {len(c.wrong())} wrong")
    return f"{len(c.packets)} packets"


def processes(env):
    """Several processes under one `run` have a file each; the next run begins the first one anew."""
    need("ibv_rc_pingpong")
    folder, end, port = place(env, "processes"), net.loopback()[0], free_port()
    both = f"ibv_rc_pingpong -g 0 -p {port} & sleep 0.7; ibv_rc_pingpong -g 0 -p {port} {end.peer}; wait"
    file = os.path.join(folder, "t.pcapng")
    for round in range(2):
        result = run(under(env, end, file, ["sh", "-c", both]), TIMEOUT)
        if result.failed:
            raise Fail(result.show("two programs"))
        names = sorted(os.listdir(folder))
        others = [n for n in names if re.fullmatch(r"t\.\d+\.pcapng", n)]
        if len(names) != 2 + round or len(others) != 1 + round:
            raise Fail(f"  files: {names}")
    for name in names:
        c = Capture(os.path.join(folder, name))
        c.check()
        c.closed()
        if len(c.packets) < 2000:
            raise Fail(f"  {name}: {len(c.packets)} packets")
    result = run(under(env, end, os.path.join(folder, "u-%p.pcapng"), ["ibv_devinfo"]), TIMEOUT)
    found = [n for n in os.listdir(folder) if n.startswith("u-")]
    if result.failed or len(found) != 1 or not re.fullmatch(r"u-\d+\.pcapng", found[0]):
        raise Fail(result.show(f"with %p: {found}"))


PYTHON = """
import ctypes, os, sys
v = ctypes.CDLL("libibverbs.so.1")
v.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
v.ibv_open_device.restype = ctypes.c_void_p
v.ibv_open_device.argtypes = [ctypes.c_void_p]
device = v.ibv_open_device(v.ibv_get_device_list(None)[0])
assert device
"""


def leaves(env):
    """A process that leaves by exit, by _exit, or as a child of a fork."""
    folder, end = place(env, "leaves"), net.loopback()[0]
    ways = {
        "exit": "sys.exit(0)",
        "_exit": "os._exit(0)",
        "fork": "pid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)\nos._exit(0)",
    }
    for name, way in ways.items():
        file = os.path.join(folder, name + ".pcapng")
        result = run(under(env, end, file, [sys.executable, "-c", PYTHON + way]), TIMEOUT)
        if result.failed:
            raise Fail(result.show(name))
        c = Capture(file)
        c.check()
        if len(c.statistics) != 1 or len(c.sections) != 1:
            raise Fail(f"  {name}: {len(c.sections)} sections, {len(c.statistics)} statistics")
    if len(os.listdir(folder)) != len(ways):
        raise Fail(f"  files: {os.listdir(folder)}")


def full(env):
    """A file that takes no more ends on a whole block; the program goes on."""
    need("ib_write_bw", "prlimit")
    folder, ends, port = place(env, "full"), net.loopback(), free_port()
    words = ["ib_write_bw", "-F", "-p", str(port), "-n", "500", "-s", "65536"]
    limit = ["prlimit", f"--fsize={1 << 20}"]
    file = os.path.join(folder, "t.pcapng")
    server, client = run_pair(
        env.under(ends[0], words), [*limit, *under(env, ends[1], file, [*words, ends[0].peer])], port, TIMEOUT)
    check_pair(server, client, allow="crocevia: capture ")
    if f"capture {file}: File too large" not in client.out:
        raise Fail(client.show("says nothing of the full file"))
    c = Capture(file)
    c.check()
    if not (1 << 19) < os.path.getsize(file) <= 1 << 20:
        raise Fail(f"  {os.path.getsize(file)} bytes")
    return f"{len(c.packets)} packets"


def pipe(env):
    """A named pipe has a capture for each reader that comes, and none is waited for."""
    need("ib_send_lat")
    folder, ends = place(env, "pipe"), net.loopback()
    fifo = os.path.join(folder, "fifo")
    os.mkfifo(fifo)
    words = [*under(env, ends[1], fifo, ["ib_send_lat", "-F"])]
    port = free_port()
    server, client = run_pair(env.under(ends[0], ["ib_send_lat", "-F", "-p", str(port), "-n", "500"]),
                              [*words, "-p", str(port), "-n", "500", ends[0].peer], port, TIMEOUT)
    check_pair(server, client)
    server = Proc(env.under(ends[0], ["ib_send_lat", "-F", "-p", str(port), "-D", "3"]))
    try:
        if not wait_listening(server, port):
            raise Fail(server.wait(0.5).show("server"))
        client = Proc([*words, "-p", str(port), "-D", "3", ends[0].peer])
        readers = []
        try:
            time.sleep(0.7)
            for number in (1, 2):
                file = os.path.join(folder, f"read{number}.pcapng")
                reader = Proc(["sh", "-c", 'exec cat "$0" > "$1"', fifo, file])
                readers.append((reader, file))
                if number == 1:
                    time.sleep(0.7)
                    reader.end()
                    # Until the writer has met the want of a reader.
                    time.sleep(0.3)
            ended = client.wait(30)
            check_pair(server.wait(10), ended)
            readers[1][0].wait(5)
        finally:
            client.end()
            for reader, _ in readers:
                reader.end()
    finally:
        server.end()
    counts = []
    for number, (_, file) in enumerate(readers):
        c = Capture(file, cut_short=number == 0)
        counts.append(len(c.packets))
        if len(c.sections) != 1 or len(c.packets) < 100 or c.wrong():
            raise Fail(f"  {file}: {len(c.sections)} sections, {len(c.packets)} packets, {len(c.wrong())} wrong")
    return f"{counts[0]} and {counts[1]} packets"


def refused(env):
    """What cannot be written is told at the start, by file and reason; by a process of its own too."""
    end = net.loopback(user=True)[1]
    folder = place(env, "refused")
    os.chmod(folder, 0o755)
    file = os.path.join(folder, "t.pcapng")
    result = run(under(env, end, file, ["ibv_devinfo"]), 20)
    if env.root and (result.code != 1 or f"cannot capture to {file}: Permission denied" not in result.out):
        raise Fail(result.show("a folder that may not be written"))
    result = run([*end.enter, "env", "CROCEVIA_PCAP=/nowhere/t.pcapng", env.crocevia, "devinfo", "--addr", end.addr], 20)
    if result.failed:
        raise Fail(result.show("a command that captures nothing"))
    end = net.loopback()[1]
    later = under(env, end, os.path.join(folder, "d", "t.pcapng"), ["sh", "-c", f"rm -r {folder}/d; ibv_devinfo"])
    os.mkdir(os.path.join(folder, "d"))
    result = run(later, 20)
    if "cannot capture to" not in result.out or "No such file" not in result.out:
        raise Fail(result.show("a folder that has gone"))


def cases(env):
    for program, options in PAIRS:
        yield Case(f"pcap/loopback/{program}", lambda p=program, o=options: pair(env, p, net.loopback(), p, o))
    if env.root:
        yield Case("pcap/uid65534", lambda: pair(env, "uid65534", net.loopback(user=True), *PAIRS[3]))
    yield Case("pcap/loss", lambda: lossy(env))
    yield Case("pcap/sizes", lambda: sizes(env))
    yield Case("pcap/killed", lambda: killed(env))
    yield Case("pcap/processes", lambda: processes(env))
    yield Case("pcap/leaves", lambda: leaves(env))
    yield Case("pcap/full", lambda: full(env))
    yield Case("pcap/pipe", lambda: pipe(env))
    yield Case("pcap/refused", lambda: refused(env))

    def names(mtu):
        return [f"pcap/veth{mtu}/{family}/{p}" for family in ("ipv4", "ipv6") for p, _ in BESIDE]

    for mtu, veth, skip in net.whole_packets("pcap", lambda mtu: env.any_wanted(names(mtu)), "tcpdump"):
        if skip:
            yield skip
            continue
        ends = veth.ends()
        for family, addresses in (("ipv4", net.V4), ("ipv6", net.V6)):
            gid = Lazy(lambda a=addresses: [table.gid_index(env.under(ends[s], []), a[s]) for s in (0, 1)])
            for program, options in BESIDE if (mtu, family) == (9000, "ipv4") else BESIDE[:1]:
                name = f"pcap/veth{mtu}/{family}/{program}"
                yield Case(name, lambda a=(name, ends, addresses, gid, program, options): beside(env, *a))

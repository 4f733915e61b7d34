"""`crocevia audit --live`: our own NIC's traffic judged while it flows, on a veth and on loopback, in namespaces of the test's own.
Clean traffic has no finding and the packets that tcpdump has; a lossy one is explained; what ends it leaves report and terminal in order.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

from harness import End, Case, Fail, Proc, Skip, check_pair, free_port, need, run, run_pair
import net
import table

LO = ("127.0.0.2", "127.0.0.3")
# name, program, options, what it is that is done and how often in each direction
RUNS = [
    ("ib_write_bw", ["-F", "-n", "500", "-s", "65536"], {"WRITE": {500}}),
    ("ib_read_bw", ["-F", "-n", "200", "-s", "100000"], {"READ": {200}}),
    ("ibv_rc_pingpong", ["-n", "500", "-s", "4096", "-m", "1024"], {"SEND": {500}}),
]
# of the READs above, together
READ_BYTES = 200 * 100000
COLUMNS, ROWS = 90, 30
CAPTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/wire/tests/captures/loss-drop-request.pcap")
# Sends the frames of a capture at an interface with tags behind their addresses, and tells how many: interface, file, tags in hexadecimal.
SENDER = """
import socket, struct, sys
interface, file, tags = sys.argv[1:]
data, at, count = open(file, "rb").read(), 24, 0
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind((interface, 0))
while at < len(data):
    length, = struct.unpack_from("<I", data, at + 8)
    frame = data[at + 16:at + 16 + length]
    sender.send(frame[:12] + bytes.fromhex(tags) + frame[12:])
    at, count = at + 16 + length, count + 1
print(count)
"""


class Space:
    """One namespace with loopback, or two with a veth, and where to listen: (place, interface, server, client)."""

    @staticmethod
    @contextlib.contextmanager
    def make(env, kind):
        user = not env.root
        if kind == "lo":
            with net.OneSpace(user=user) as space:
                enter = space.enter()
                yield enter, "lo", *(End(addr=a, peer=a, enter=enter) for a in LO)
        else:
            with net.NetPair(1500 if kind == "veth1500" else 9000, user=user) as pair:
                yield pair.enter(0), net.DEVICE[0], *pair.ends()


class Audit:
    """The auditor at an interface, which listens within `with`; `end` gives its report."""

    def __init__(self, env, enter, interface, *options):
        self.proc = Proc([*enter, env.crocevia, "audit", "--live", interface, *options])

    def __enter__(self):
        deadline = time.monotonic() + 20
        try:
            while "listening on" not in self.proc.output():
                if not self.proc.alive() or time.monotonic() > deadline:
                    raise Fail(self.proc.wait(0.1).show("crocevia audit --live"))
                time.sleep(0.02)
        except BaseException:
            self.proc.end()
            raise
        return self

    def end(self, how=signal.SIGINT):
        if self.proc.alive():
            os.kill(self.proc.pid, how)
        return self.proc.wait(20)

    def __exit__(self, *unused):
        self.proc.end()


def document(result, status):
    """The JSON of a run, which ended with `status`."""
    at = result.out.find("{\n")
    if at < 0:
        raise Fail("  expected JSON\n" + result.show("crocevia audit --live"))
    report = json.loads(result.out[at:])
    if result.code != status:
        told = [f"  {f['rule']} {f['count']} times, {f['subject']}: {f['detail']}" for f in report["findings"]]
        raise Fail("\n".join([f"  exit status {result.code} instead of {status}", *told, str(report["totals"])]))
    return report


def resent(report):
    return sum(talk[way]["retransmitted"] for talk in report["conversations"] for way in ("forward", "backward"))


def sound(result):
    """The report of traffic without loss: no finding, and exit status 0. On a machine with more to do than processors a peer answers so
    late that the NIC repeats packets, which the auditor rightly tells: only that is excused, and only where packets were repeated."""
    at = result.out.find("{\n")
    report = json.loads(result.out[at:]) if at >= 0 else {"findings": []}
    if report["findings"] and resent(report) and all(re.fullmatch(r"R02\d", f["rule"]) for f in report["findings"]):
        return document(result, 1)
    return document(result, 0)


def said(report):
    return f", {resent(report)} packets repeated by a busy machine" if report["findings"] else ""


def programs(env, ends, program, options, faults=None):
    """Server and client of a program on our NIC."""
    need(program)
    port = free_port()
    words = [program, "-p", str(port), *options]
    if program.startswith("ibv_"):
        gid = ["-g", "0"], ["-g", "0"]
    else:
        gid = [["-x", str(table.gid_index(env.under(end, []), address))] for end, address in
               zip(ends, net.V4 if ends[0].addr in net.DEVICE else LO)]
    server, client = run_pair(env.under(ends[0], [*words, *gid[0]], faults),
                              env.under(ends[1], [*words, *gid[1], ends[0].peer], faults), port, 100)
    check_pair(server, client)


def clean(env, kind, program, options, operations):
    with Space.make(env, kind) as (enter, interface, *ends):
        file = os.path.join(env.tmp, "audit-live.pcap")
        dump = net.Dump(ends[0], 0, file, 70000) if kind != "lo" and env.root else contextlib.nullcontext()
        with Audit(env, enter, interface, "--json") as audit, dump as dumped:
            programs(env, ends, program, options)
            report = sound(audit.end())
            if dumped:
                dumped.settle()
    if dumped:
        filed = sound(run([env.crocevia, "audit", file, "--json"]))
        compare(report, filed, ("packets", "bytes", "icrc_right", "trains"))
    totals = report["totals"]
    if not totals["packets"] or totals["icrc_right"] != totals["packets"] or totals["refused"] or totals["damaged"]:
        raise Fail(f"  totals: {totals}")
    if totals["other"] or report["captures"][0]["dropped"]:
        raise Fail(f"  what nobody wanted, or lost: {totals}, {report['captures']}")
    done, asked = {}, {}
    for talk in report["conversations"]:
        for way in ("forward", "backward"):
            for kind in talk[way]["operations"]:
                done.setdefault(kind["kind"], set()).add(kind["count"])
                asked[kind["kind"]] = asked.get(kind["kind"], 0) + kind["bytes"]
    # The NIC may ask for a READ in parts, each a READ of its own on the wire: their bytes are those of the whole.
    def fits(kind, counts):
        return asked.get(kind) == READ_BYTES if kind == "READ" else done.get(kind) == counts
    if not all(fits(kind, counts) for kind, counts in operations.items()) and not (resent(report) and "READ" in operations):
        raise Fail(f"  expected {operations}, found {done}, bytes {asked}")
    return f"{totals['packets']} packets, {totals['trains']} trains{said(report)}"


def compare(live, filed, names):
    for name in names:
        if live["totals"][name] != filed["totals"][name]:
            raise Fail(f"  {name}: live {live['totals'][name]}, the file {filed['totals'][name]}")


def lossy(env, kind, program, options, faults, rules):
    with Space.make(env, kind) as (enter, interface, *ends):
        with Audit(env, enter, interface, "--json") as audit:
            programs(env, ends, program, options, faults)
            report = document(audit.end(), 1)
    found = {finding["rule"]: finding for finding in report["findings"]}
    if not any(re.fullmatch(rules, rule) for rule in found):
        raise Fail(f"  expected {rules}, found {sorted(found)}")
    return ", ".join(f"{rule} {finding['count']} times" for rule, finding in sorted(found.items()))


def lines(env):
    """Without a terminal findings appear while it goes on; --for ends it."""
    with Space.make(env, "lo") as (enter, interface, *ends):
        with Audit(env, enter, interface, "--for", "30") as audit:
            programs(env, ends, "ibv_rc_pingpong", ["-n", "2000"], "loss=2%,seed=7")
            deadline = time.monotonic() + 10
            while not re.search(r"^[\d.]+ s \w+ R02\d .*qp 0x", audit.proc.output(), re.M):
                if time.monotonic() > deadline:
                    raise Fail(audit.end().show("no line of a finding"))
                time.sleep(0.05)
            result = audit.end(signal.SIGTERM)
            if result.code != 1 or not re.search(r"^lo: live, Ethernet, \d+ frames", result.out, re.M):
                raise Fail(result.show("no summary"))
        start = time.monotonic()
        result = run([*enter, env.crocevia, "audit", "--live", "lo", "--for", "0.5"], 20)
        took = time.monotonic() - start
        if result.code != 0 or "Nothing to judge" not in result.out or not 0.4 < took < 5:
            raise Fail(f"  took {took:.1f} s\n" + result.show("--for"))


def several(env):
    """Both ends of a path judged together: each packet is counted at both, and nothing is found."""
    with net.OneSpace(user=not env.root) as space:
        enter = space.enter()
        for words in (["link", "add", "ca", "type", "veth", "peer", "name", "cb"], ["link", "set", "ca", "up"], ["link", "set", "cb", "up"]):
            if run([*enter, "ip", *words]).failed:
                raise Fail("  no veth")
        with Audit(env, enter, "lo,ca,cb", "--json") as audit:
            programs(env, [End(addr=a, peer=a, enter=enter) for a in LO], "ibv_rc_pingpong", ["-n", "300"])
            report = sound(audit.end())
    names = [capture["name"] for capture in report["captures"]]
    records = [capture["records"] for capture in report["captures"]]
    if names != ["lo", "ca", "cb"] or not records[0] or report["totals"]["packets"] < 600:
        raise Fail(f"  {names} {records} {report['totals']}")
    return f"{report['totals']['packets']} packets{said(report)}"


def ended(env, words, message):
    """The interface goes away: the report is given, and says so."""
    with net.NetPair(1500, user=not env.root) as pair:
        ends = pair.ends()
        with Audit(env, pair.enter(0), net.DEVICE[0]) as audit:
            programs(env, ends, "ibv_rc_pingpong", ["-n", "50"])
            pair.ip(0, "link", *words)
            result = audit.proc.wait(10)
    if result.code != 1 or f"{net.DEVICE[0]}: {message}" not in result.out or "ends early" not in result.out:
        raise Fail(result.show("the interface ended"))


def denied(env):
    need("setpriv")
    result = run([*net.as_nobody(), env.crocevia, "audit", "--live", "lo"], 20)
    wanted = ("CAP_NET_RAW", "sudo crocevia audit --live lo", "setcap cap_net_raw+ep")
    if result.code != 2 or not all(text in result.out for text in wanted):
        raise Fail(result.show("as another user"))


def wrong(env):
    with Space.make(env, "lo") as (enter, *_):
        run([*enter, "ip", "link", "add", "cd", "type", "veth", "peer", "name", "ce"])
        for words, text in ((["eth9"], "no such interface: there are lo"), (["cd"], "`ip link set cd up`"),
                            (["lo", "trace.pcap"], "cannot be used"), (["lo", "--ladder", "1"], "cannot be used"),
                            ([""], "no such interface"), (["lo", "--for", "0"], "seconds"), (["lo,lo"], "twice")):
            result = run([*enter, env.crocevia, "audit", "--live", *words], 20)
            if result.code != 2 or text not in result.out:
                raise Fail(f"  expected {text!r}\n" + result.show("wrong arguments"))


class Pty:
    """A program on a terminal of its own."""

    def __init__(self, argv):
        self.out = b""
        self.master, slave = pty.openpty()
        self.resize(slave, ROWS, COLUMNS)
        self.slave, self.before = slave, termios.tcgetattr(slave)
        self.child = os.fork()
        if self.child == 0:
            try:
                os.setsid()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                for fd in (0, 1, 2):
                    os.dup2(slave, fd)
                os.execvp(argv[0], argv)
            finally:
                os._exit(127)

    @staticmethod
    def resize(fd, rows, columns):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds, until=None):
        """What is written within a time, or until it has a pattern; from the last call on."""
        deadline, got = time.monotonic() + seconds, b""
        while time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    got += os.read(self.master, 65536)
                except OSError:
                    break
            if until and re.search(until, got):
                break
        self.out += got
        if until and not re.search(until, got):
            raise Fail(f"  {until} is not in {got.decode(errors='replace')!r}")
        return got

    def type(self, keys):
        os.write(self.master, keys)

    def wait(self, seconds=10):
        """Exit status, negative for a signal."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.read(0.05)
            pid, status = os.waitpid(self.child, os.WNOHANG)
            if pid:
                self.child = None
                return os.waitstatus_to_exitcode(status)
        raise Fail(f"  it goes on: {self.out[-2000:]!r}")

    def close(self):
        if self.child:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
        os.close(self.master)
        os.close(self.slave)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def view(env, how):
    """On a terminal: pictures on the other screen that keep to its size; ended by a key or a signal, the summary on the first screen."""
    with Space.make(env, "lo") as (enter, interface, *ends):
        with Pty([*enter, env.crocevia, "audit", "--live", interface]) as term:
            term.read(10, rb"\x1b\[\?1049h")
            term.read(5, rb"Nothing to judge")
            quiet = termios.tcgetattr(term.slave)[3]
            if quiet & (termios.ECHO | termios.ICANON):
                raise Fail("  keys are echoed")
            programs(env, ends, "ibv_rc_pingpong", ["-n", "1000"], "loss=2%,seed=3")
            picture = term.read(5, rb"R02\d")
            term.read(1.2)
            picture = term.out[term.out.rindex(b"\x1b[H"):]
            rows = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", picture).decode().replace("\r", "").split("\n")
            if len(rows) > ROWS or any(len(row) > COLUMNS for row in rows):
                raise Fail(f"  a picture of {len(rows)} lines: {rows}")
            if how == "resize":
                term.resize(term.master, 12, 70)
                os.kill(term.child, signal.SIGWINCH)
                term.read(0.3)
                small = term.out[term.out.rindex(b"\x1b[H"):].split(b"\n")
                if len(small) > 12:
                    raise Fail(f"  {len(small)} lines where there are 12")
                how = "q"
            if how == "stop":
                term.type(b"\x1a")
                term.read(5, rb"\x1b\[\?1049l")
                os.waitpid(term.child, os.WUNTRACED)
                if termios.tcgetattr(term.slave) != term.before:
                    raise Fail("  stopped, the terminal is not as it was")
                os.kill(term.child, signal.SIGCONT)
                term.read(5, rb"\x1b\[\?1049h")
                how = "q"
            if isinstance(how, signal.Signals):
                os.kill(term.child, how)
            else:
                term.type({"q": b"q", "ctrl-c": b"\x03"}[how])
            status = term.wait()
            if status != 1:
                raise Fail(f"  exit status {status}: {term.out[-2000:]!r}")
            if termios.tcgetattr(term.slave) != term.before:
                raise Fail("  the terminal is not as it was")
            last = term.out[term.out.rindex(b"\x1b[?1049l"):]
            if b"\x1b[?25h" not in term.out[-len(last) - 40:] or not re.search(rb"lo: live, Ethernet, \d+ frames", last):
                raise Fail(f"  no summary at the end: {last!r}")


def vlan(env, tags):
    """Frames of a capture sent with tags: those that the kernel took off stand in the frames again, and all is judged as without them."""
    recorded = document(run([env.crocevia, "audit", CAPTURE, "--json"]), 1)
    count = recorded["captures"][0]["records"]
    with net.NetPair(1500, user=not env.root) as pair:
        with Audit(env, pair.enter(0), net.DEVICE[0], "--json") as audit:
            sent = run([*pair.enter(1), sys.executable, "-c", SENDER, net.DEVICE[1], CAPTURE, tags], 30)
            if sent.failed or sent.out.strip() != str(count):
                raise Fail(sent.show("frames with tags"))
            report = document(audit.end(), 1)
    compare(report, recorded, ("packets", "icrc_right", "damaged", "refused"))
    live, file = report["captures"][0], recorded["captures"][0]
    wanted = file["bytes"] + count * len(tags) // 2
    if live["records"] - report["totals"]["other"] != count or live["bytes"] != wanted:
        raise Fail(f"  expected {count} frames of {wanted} bytes, found {live}")
    rules = [[f["rule"] for f in r["findings"]] for r in (report, recorded)]
    if "R021" not in rules[0]:
        raise Fail(f"  {rules[0]}, in the file {rules[1]}")
    return f"{count} frames"


def filtered(env):
    """What a filter leaves out is not judged; the exit status is that of what is left."""
    exprs = ("src {}", "src {}", "host 192.0.2.1", "frame ..10", "conversation 1")
    exprs = [e.format(a) for e, a in zip(exprs, [*LO, "", "", ""])]
    with Space.make(env, "lo") as (enter, interface, *ends), contextlib.ExitStack() as stack:
        audits = [stack.enter_context(Audit(env, enter, interface, "--json", *(["--filter", e] if e else []))) for e in ["", *exprs]]
        programs(env, ends, "ibv_rc_pingpong", ["-n", "500"], "loss=2%,seed=5")
        results = [audit.end() for audit in audits]
    reports = [document(result, 0 if '"clean": true' in result.out else 1) for result in results]
    for report, expr in zip(reports, ["", *exprs]):
        if report["filter"] != (expr or None):
            raise Fail(f"  {expr!r}: {report['filter']}")
    every, one, other, none, ten, first = ([r["totals"]["packets"], r["clean"]] for r in reports)
    if not every[0] or one[0] + other[0] != every[0] or not one[0] or not other[0]:
        raise Fail(f"  {every} are not {one} and {other}")
    if none != [0, True] or not 0 < ten[0] <= 10 * 64 or every[1] or first != every:
        raise Fail(f"  nobody's {none}, of ten frames {ten}, of the first conversation {first}, all {every}")
    return f"{one[0]} + {other[0]} packets"


def frames(env):
    """--frames: each instance while it goes on; without any the exit status is 0."""
    with Space.make(env, "lo") as (enter, interface, *ends):
        with Audit(env, enter, interface, "--frames", "all") as audit, Audit(env, enter, interface, "--frames", "R090") as none:
            programs(env, ends, "ibv_rc_pingpong", ["-n", "1000"], "loss=2%,seed=7")
            deadline = time.monotonic() + 10
            while not re.search(r"^#\d+ [\d.]+ R02\d ", audit.proc.output(), re.M):
                if time.monotonic() > deadline:
                    raise Fail(audit.end().show("no line of a frame"))
                time.sleep(0.05)
            result, nothing = audit.end(), none.end()
    lines = [line for line in result.out.splitlines() if not line.startswith("crocevia:")]
    wrong = [line for line in lines if not re.match(r"#\d+ [\d.]+ R\d{3} .*: .", line)]
    if result.code != 1 or wrong:
        raise Fail(f"  {wrong[:5]}\n" + result.show("--frames"))
    if nothing.code != 0 or "R0" in nothing.out:
        raise Fail(nothing.show("--frames of a rule that nothing breaks"))
    return f"{len(lines)} lines"


def page(env):
    """--html: the page and the summary; a page that cannot be written costs only itself."""
    file = os.path.join(env.tmp, "audit-live.html")
    with Space.make(env, "lo") as (enter, interface, *ends):
        with Audit(env, enter, interface, "--html", file) as audit, Audit(env, enter, interface, "--html", "/nowhere/page.html") as lost:
            programs(env, ends, "ibv_rc_pingpong", ["-n", "1000"], "loss=2%,seed=7")
            result, unwritten = audit.end(signal.SIGTERM), lost.end()
        with open(file, encoding="utf-8") as f:
            text = f.read()
    if result.code != 1 or not re.search(r"R02\d", result.out):
        raise Fail(result.show("--html"))
    if not all(part in text for part in ("RDMA audit of lo", "<svg", "R02", "</html>")) or "://" in text:
        raise Fail(f"  a page of {len(text)} bytes: {text[:300]}")
    if unwritten.code != 2 or "lo: live, Ethernet" not in unwritten.out or "cannot be written" not in unwritten.out:
        raise Fail(unwritten.show("--html where nothing can be written"))
    return f"{len(text)} bytes"


def promiscuous(env):
    """--promiscuous is on while it listens, and not otherwise."""
    need("ip")
    with net.NetPair(1500, user=not env.root) as pair:
        def count():
            shown = run([*pair.enter(0), "ip", "-d", "link", "show", net.DEVICE[0]]).out
            found = re.search(r"promiscuity (\d+)", shown)
            if not found:
                raise Skip("this ip does not tell promiscuity")
            return int(found[1])
        for options, wanted in ((["--promiscuous"], 1), ([], 0)):
            with Audit(env, pair.enter(0), net.DEVICE[0], *options) as audit:
                during = count()
                result = audit.end()
            if result.code != 0 or (during, count()) != (wanted, 0):
                raise Fail(f"  {options}: {during} times promiscuous, {count()} afterwards\n" + result.show("--promiscuous"))


def idle(env):
    """Nothing arrives that is wanted: it takes no processor time, whatever else passes."""
    with Space.make(env, "lo") as (enter, *_):
        with Audit(env, enter, "lo") as audit:
            def ticks():
                with open(f"/proc/{audit.proc.pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                return int(fields[11]) + int(fields[12])
            time.sleep(0.5)
            before = ticks()
            run([*enter, "bash", "-c", "for i in {1..2000}; do echo x >/dev/udp/127.0.0.1/53; done"], 20)
            time.sleep(2)
            spent = ticks() - before
            if spent:
                raise Fail(f"  {spent} ticks of processor time")


def cases(env):
    for kind in ("lo", "veth1500", "veth9000"):
        for program, options, operations in RUNS:
            yield Case(f"audit_live/{kind}/{program}", lambda a=(kind, program, options, operations): clean(env, *a))
    for kind in ("lo", "veth1500"):
        for program, options, _ in RUNS:
            yield Case(f"audit_live/{kind}/{program}/loss",
                       lambda a=(kind, program, options): lossy(env, *a, "loss=1%,seed=42", r"R02\d"))
    yield Case("audit_live/several", lambda: several(env))
    yield Case("audit_live/lines", lambda: lines(env))
    yield Case("audit_live/down", lambda: ended(env, ["set", net.DEVICE[0], "down"], "the interface is down"))
    yield Case("audit_live/gone", lambda: ended(env, ["del", net.DEVICE[0]], "the interface has vanished"))
    for name, tags in (("none", ""), ("customer", "81006007"), ("service", "88a86007"), ("both", "88a8600781000005")):
        yield Case(f"audit_live/tags/{name}", lambda t=tags: vlan(env, t))
    yield Case("audit_live/filter", lambda: filtered(env))
    yield Case("audit_live/frames", lambda: frames(env))
    yield Case("audit_live/html", lambda: page(env))
    yield Case("audit_live/promiscuous", lambda: promiscuous(env))
    yield Case("audit_live/denied", lambda: denied(env))
    yield Case("audit_live/wrong", lambda: wrong(env))
    for how in ("q", "ctrl-c", "resize", "stop", signal.SIGTERM, signal.SIGHUP):
        yield Case(f"audit_live/view/{getattr(how, 'name', how)}", lambda h=how: view(env, h))
    yield Case("audit_live/idle", lambda: idle(env))

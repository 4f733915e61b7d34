"""Our own traffic judged: captures of unmodified programs through `crocevia audit`, which finds nothing in clean ones, the loss in
lossy ones, and never blames requester or responder; tcpdump's of the same traffic agree; and captures that are cut, packed,
damaged, or read in odd ways.
"""

import gzip
import json
import os
import random
import signal
import subprocess
import time

from harness import Case, Fail, Proc, Skip, have, need, run
import net
import pcap
import table

TIMEOUT = 60
# What no capture of ours may show, whatever is lost on the way: requester and responder are right, packets are whole.
NEVER = ("R011", "R012", "R013", "R014", "R015", "R016", "R017", "R018", "R03", "R04", "R052", "R053", "R054", "R055", "R056")
CLEAN = [
    ("write", "ib_write_bw", ["-s", "65536", "-n", "200"]),
    ("send", "ib_send_bw", ["-s", "65536", "-n", "200"]),
    ("read", "ib_read_bw", ["-s", "65536", "-n", "200"]),
    ("atomic", "ib_atomic_lat", ["-n", "200"]),
    ("latency", "ib_send_lat", ["-n", "500"]),
    ("ud", "ib_send_bw", ["-c", "UD", "-s", "1024", "-n", "500"]),
    ("uc", "ib_write_bw", ["-c", "UC", "-s", "65536", "-n", "100"]),
    ("4qp", "ib_write_bw", ["-q", "4", "-s", "65536", "-n", "100"]),
    ("both-ways", "ib_send_bw", ["-b", "-s", "8192", "-n", "300"]),
    ("both-ways-read-4qp", "ib_read_bw", ["-b", "-q", "4", "-s", "8192", "-n", "100"]),
    ("mtu-256", "ib_read_bw", ["-m", "256", "-s", "10001", "-n", "100"]),
    ("pingpong", "ibv_rc_pingpong", ["-g", "0", "-n", "500"]),
    ("empty", "ibv_rc_pingpong", ["-g", "0", "-n", "100", "-s", "0"]),
    ("one-large", "ib_write_bw", ["-s", str(16 << 20), "-n", "5"]),
]
# Faults of the NICs at both ends: name, options, rules of which one must be found, in either capture.
FAULTY = [
    ("loss", "loss=1%", ["R020", "R021", "R022"]),
    ("corrupt", "corrupt=1%", ["R010"]),
    ("dup", "dup=1%", []),
    ("reorder", "reorder=1%", []),
    ("all", "loss=1%,dup=1%,reorder=1%,corrupt=1%", ["R010"]),
]


class Audit:
    """What an audit says in JSON."""

    def __init__(self, env, files, *options, enter=()):
        self.result = run([*enter, env.crocevia, "audit", "--json", *options, *files], TIMEOUT)
        if self.result.code not in (0, 1):
            raise Fail(self.result.show("audit"))
        try:
            self.said = json.loads(self.result.out)
        except ValueError:
            raise Fail(self.result.show("no JSON")) from None
        self.rules = sorted({f["rule"] for f in self.said["findings"]})
        if self.said["clean"] == bool(self.result.code) or self.said["clean"] == bool(self.rules):
            raise Fail(f"  exit status {self.result.code}, clean: {self.said['clean']}, rules: {self.rules}")

    def never(self, rules=NEVER):
        """None of these was found."""
        found = [f for f in self.said["findings"] if f["rule"].startswith(rules)]
        if found:
            raise Fail("  no capture of ours may show this:\n" + "\n".join(f"    {f}" for f in found[:5]))

    def text(self):
        return "; ".join(f"{f['rule']} x{f['count']}: {f['detail']}" for f in self.said["findings"])


def capture(env, name, ends, program, options, gid=None, faults=()):
    """Files of a run, server's and client's."""
    folder = pcap.place(env, "audit-" + name)
    captures = pcap.run_captured(env, folder, ends, program, options, gid, faults)
    return [c.path for c in captures]


def repeated(files, rules):
    """Whether these rules tell what the NICs themselves say in their captures: that they sent again, since an answer came late."""
    # R028: the NIC probes sooner than any timer of an adapter could run out.
    late = {"R021", "R022", "R023", "R024", "R025", "R028", "R110", "R111"}
    return rules <= late and any(pcap.Capture(file).comments()["retransmission of PSN N"] for file in files)


def clean(env, name, ends, program, options, gid=None):
    """No finding. Where a machine is busy the NIC asks again for what is late, and says so: then another attempt is to be clean."""
    for left in (2, 1, 0):
        files = capture(env, name, ends, program, options, gid)
        audits = [Audit(env, [file]) for file in files]
        for audit in audits:
            audit.never((*NEVER, "R010"))
        totals = [a.said["totals"] for a in audits]
        packets = sum(t["packets"] for t in totals)
        # What a capture cut, since it could not write as fast, cannot be told.
        if not packets or packets != sum(t["icrc_right"] + t["icrc_untold"] for t in totals):
            raise Fail(f"  totals: {totals}")
        dirty = [f"{file}: {a.text()}" for file, a in zip(files, audits) if a.rules]
        if not dirty:
            Audit(env, files).never((*NEVER, "R010"))
            return f"{packets} packets"
        if not repeated(files, {rule for a in audits for rule in a.rules}):
            raise Fail("  the NICs say nothing of this:\n" + "\n".join(dirty))
        if not left:
            raise Skip(f"answers were late in three attempts, and asked for again: {dirty[0]}")
    return None


def faulty(env, name, faults, wanted):
    """What was done to the packets is found, and nobody is blamed for it."""
    said = []
    for program, options in (("ib_write_bw", ["-s", "65536", "-n", "200"]), ("ib_read_bw", ["-s", "8192", "-n", "200"])):
        files = capture(env, name, net.loopback(), program, options, None, ["--faults", f"{faults},seed=7"])
        audits = [Audit(env, [file]) for file in files]
        for audit in audits:
            audit.never()
        found = {rule for audit in audits for rule in audit.rules}
        if wanted and not found & set(wanted):
            raise Fail(f"  {program}: none of {wanted} in {sorted(found)}")
        if "corrupt" not in faults and "R010" in found:
            raise Fail(f"  {program}: a wrong ICRC, though nothing was corrupted")
        said.append(f"{program} {' '.join(sorted(found))}")
    return "; ".join(said)


def beside_tcpdump(env):
    """tcpdump on lo has trains, from before they are cut: as many packets, all right."""
    need("tcpdump", "ib_write_bw")
    if not env.root:
        raise Skip("tcpdump on lo needs root")
    ends = net.loopback()
    file = os.path.join(pcap.place(env, "audit-lo"), "lo.pcap")
    dump = Proc(["tcpdump", "-q", "-U", "--immediate-mode", "-Z", "root", "-B", "65536", "-i", "lo", "-w", file,
                 f"udp port 4791 and host {ends[0].addr}"])
    try:
        end = time.monotonic() + 10
        while "listening on" not in dump.output():
            if not dump.alive() or time.monotonic() > end:
                raise Skip("tcpdump does not capture on lo: " + " ".join(dump.output().split())[-200:])
            time.sleep(0.02)
        files = capture(env, "beside", ends, "ib_write_bw", ["-s", "65536", "-n", "200"])
        size = -1
        while size != os.path.getsize(file):
            size = os.path.getsize(file)
            time.sleep(0.3)
    finally:
        dump.end()
    lo, server, client = (Audit(env, [name]) for name in (file, *files))
    for audit in (lo, server, client):
        audit.never((*NEVER, "R010"))
    totals = lo.said["totals"]
    if totals["icrc_right"] != totals["packets"]:
        raise Fail(f"  totals of lo: {totals}")
    sent = sum(audit_out(file) for file in files)
    if sent - 4 > totals["packets"] or totals["packets"] > sent:
        raise Fail(f"  {totals['packets']} packets on lo, {sent} sent by what both ends captured")
    return f"{totals['packets']} packets, {totals['trains']} trains"


def audit_out(file):
    """Packets that an end sent, by an independent reader."""
    return len(pcap.Capture(file).way("out"))


class Sample:
    """A capture that several cases read, made once."""

    def __init__(self, env):
        self.env, self.file = env, None

    def __call__(self):
        if self.file is None:
            options = ["-s", "65536", "-n", "200"]
            self.file = capture(self.env, "sample", net.loopback(), "ib_write_bw", options, None,
                                ["--faults", "loss=1%,seed=3"])[0]
        return self.file


def cut(env, sample):
    """Cut in the middle: what stands before is judged, the damage told with its place."""
    with open(sample(), "rb") as f:
        whole = f.read()
    file = os.path.join(os.path.dirname(sample()), "cut.pcapng")
    for length, code in ((len(whole) // 2 + 1, 1), (40, 1), (4, 2), (0, 2)):
        with open(file, "wb") as f:
            f.write(whole[:length])
        result = run([env.crocevia, "audit", file], TIMEOUT)
        # Behind the section header a file may end anywhere between blocks.
        if result.code not in ((0, code) if length == 40 else (code,)) or (code == 2 and file not in result.out):
            raise Fail(result.show(f"{length} bytes"))
        if length > 40 and ("R001" not in result.out or "byte " not in result.out):
            raise Fail(result.show(f"{length} bytes"))


def packed(env, sample):
    """gzip, zstd, standard input: the same as the plain file."""
    def findings(audit):
        return [(f["rule"], f["count"], f["first"]) for f in audit.said["findings"]], audit.said["totals"]

    plain = findings(Audit(env, [sample()]))
    with open(sample(), "rb") as f:
        whole = f.read()
    files = [sample() + ".gz"]
    with gzip.open(files[0], "wb", 1) as f:
        f.write(whole)
    if not have("zstd"):
        files.append(sample() + ".zst")
        result = run(["zstd", "-q", "-f", sample(), "-o", files[1]])
        if result.failed:
            raise Fail(result.show("zstd"))
    for file in files:
        if findings(Audit(env, [file])) != plain:
            raise Fail(f"  {file}: another result than the plain file's")
    for file in [sample(), *files]:
        piped = Audit(env, [], enter=["sh", "-c", 'f="$0"; exec "$@" - <"$f"', file])
        if findings(piped) != plain:
            raise Fail(f"  {file}: another result from standard input")
    note = "" if len(files) == 2 else ", no zstd here"
    return f"{plain[1]['packets']} packets{note}"


def nobody(env, sample):
    """It needs no right but that to read the file."""
    enter = net.as_nobody()
    if not enter:
        raise Skip("only root can become another user")
    os.chmod(sample(), 0o644)
    said = Audit(env, [sample()], enter=enter).rules
    if said != Audit(env, [sample()]).rules:
        raise Fail(f"  uid 65534 sees {said}")
    os.chmod(sample(), 0o600)
    result = run([*enter, env.crocevia, "audit", sample()], TIMEOUT)
    os.chmod(sample(), 0o644)
    if result.code != 2 or "ermission denied" not in result.out:
        raise Fail(result.show("a file that may not be read"))


def killed(env, sample):
    """Ended in the middle it leaves nothing behind; a reader that goes away ends it without a word."""
    with open(sample(), "rb") as f:
        half = f.read()[:200_000]
    folder = pcap.place(env, "audit-killed")
    for sig in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        child = subprocess.Popen([env.crocevia, "audit", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, cwd=folder, start_new_session=True)
        try:
            child.stdin.write(half)
            child.stdin.flush()
            time.sleep(0.1)
            child.send_signal(sig)
            code = child.wait(5)
        finally:
            if child.poll() is None:
                child.kill()
            child.stdin.close()
        if code not in (-sig, 128 + sig):
            raise Fail(f"  signal {sig}: exit status {code}")
    if os.listdir(folder):
        raise Fail(f"  left behind: {os.listdir(folder)}")
    need("bash")
    for words in ("--qps", "--json", "--frames all", "--ladder 1 --limit 0"):
        script = f'"$0" audit {words} "$1" | head -1; exit ${{PIPESTATUS[0]}}'
        result = run(["bash", "-c", script, env.crocevia, sample()], TIMEOUT)
        if result.code not in (0, 1, 141) or "panicked" in result.out or "roken pipe" in result.out:
            raise Fail(result.show(f"{words} into head"))


def hostile(env, sample):
    """Damaged at random: some result or a message, never a crash; each view of it."""
    folder = pcap.place(env, "audit-hostile")
    file, page = os.path.join(folder, "t.pcapng"), os.path.join(folder, "t.html")
    with open(sample(), "rb") as f:
        whole = f.read()[:60_000]
    chance = random.Random(5)
    views = (["audit", "--json"], ["audit", "--qps", "--connections", "--links", "--findings", "all"],
             ["audit", "--ladder", "1"], ["audit", "--frames", "all"], ["audit", "--html", page],
             ["audit", "--filter", "host 127.0.0.1 and not qp 1"], ["audit", "decode", "--tree"], ["audit", "decode"])
    codes = {}
    for n in range(40):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 3, 20, 300))):
            damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if n % 4 == 3:
            del damaged[chance.randrange(len(damaged)):]
        with open(file, "wb") as f:
            f.write(damaged)
        result = run([env.crocevia, *views[n % len(views)], file], TIMEOUT)
        if result.code not in (0, 1, 2) or "panicked" in result.out:
            kept = os.path.join("/tmp", f"crocevia-hostile-{n}.pcapng")
            with open(kept, "wb") as f:
                f.write(damaged)
            raise Fail(result.show(f"damaged file {n}, kept as {kept}"))
        codes[result.code] = codes.get(result.code, 0) + 1
    return ", ".join(f"{count} x status {code}" for code, count in sorted(codes.items()))


def wrong(env, sample):
    """Wrong words end with status 2 and say what is wrong."""
    for words in ([], ["/nowhere/t.pcap"], [env.tmp], [sample(), "--explain"], ["--explain", "R999"], [sample(), "--filter", "host"],
                  [sample(), "--frames", "R999"], [sample(), "--ladder", "nobody"], [env.crocevia]):
        result = run([env.crocevia, "audit", *words], TIMEOUT)
        if result.code != 2 or not result.out.strip() or "panicked" in result.out:
            raise Fail(result.show(f"audit {' '.join(words)}"))


def ipv6(env):
    """Between two IPv6 addresses of a loopback interface."""
    need("ib_write_bw")
    with net.OneSpace(net.V6) as space:
        ends = [net.End(addr=a, peer="127.0.0.1", enter=space.enter()) for a in net.V6]
        gid = [table.gid_index(env.under(end, []), end.addr) for end in ends]
        return clean(env, "ipv6", ends, "ib_write_bw", ["-s", "65536", "-n", "100"], gid)


def cases(env):
    for name, program, options in CLEAN:
        yield Case(f"audit/clean/{name}", lambda n=name, p=program, o=options: clean(env, n, net.loopback(), p, o))
    yield Case("audit/clean/ipv6", lambda: ipv6(env))
    for name, faults, wanted in FAULTY:
        yield Case(f"audit/faults/{name}", lambda n=name, f=faults, w=wanted: faulty(env, n, f, w))
    yield Case("audit/tcpdump", lambda: beside_tcpdump(env))
    sample = Sample(env)
    for name, case in (("cut", cut), ("packed", packed), ("uid65534", nobody), ("killed", killed), ("hostile", hostile),
                       ("wrong-words", wrong)):
        yield Case(f"audit/{name}", lambda c=case: c(env, sample))

"""Injected faults under unmodified programs: delays and rates as asked for, data whole under loss in both directions, and what
happens once (a queue pair's error, a queue's overrun, a port that goes down) as the program is to see it.
"""

import glob
import os
import re
import time

from harness import Case, Fail, Skip, check_pair, free_port, need, run, run_pair
import net
import table

ALL = "loss=5%,corrupt=1%,reorder=5%,dup=1%"
BOTH = f"{ALL},tx.loss=5%,tx.corrupt=1%,tx.reorder=5%,tx.dup=1%,seed=42"
INFO = {"CROCEVIA_LOG": "info"}
DEBUG = {"CROCEVIA_LOG": "debug"}
NOTE = r"^crocevia: (info|debug|warning):"
TIMEOUT = 40


def pair(env, program, options, faults, ends=None, gid=(0, 0), log=None, timeout=TIMEOUT):
    """Both ends of a program, with these faults on (server, client)."""
    need(program)
    ends = ends or net.loopback()
    port = free_port()
    index = "-g" if program.startswith("ibv_") else "-x"
    words = [[program, "-p", str(port), *options, index, str(g)] for g in gid]
    return run_pair(env.under(ends[0], words[0], faults[0]), env.under(ends[1], [*words[1], ends[0].peer], faults[1]), port,
                    timeout, log)


def shown(server, client):
    return "\n".join([client.show("client"), server.show("server")])


def number(pattern, result, what):
    found = re.search(pattern, result.out, re.M)
    if not found:
        raise Fail(f"  {what} not found: {pattern}\n" + result.show("its output"))
    return float(found.group(1))


def tries(measure):
    """What is too slow is measured again, for others may have had the processors; a machine that is busy says nothing."""
    for left in (2, 1, 0):
        try:
            return measure()
        except Slow as why:
            if not left and os.getloadavg()[0] > (os.cpu_count() or 1) + 1:
                raise Skip(f"the machine is busy: {str(why).splitlines()[0].strip()}") from why
            if not left:
                raise


class Slow(Fail):
    """Less than was asked for."""


def latency(env, faults, least, most):
    """`ib_write_lat` prints half of a round trip; the fastest and the typical one have to be what was asked for."""
    server, client = pair(env, "ib_write_lat", ["-F", "-n", "500", "-s", "8"], faults)
    check_pair(server, client)
    low = number(r"^ 8 +500 +([\d.]+)", client, "the least latency")
    typical = number(r"^ 8 +500 +[\d.]+ +[\d.]+ +([\d.]+)", client, "the typical latency")
    if not (least <= low and typical <= most):
        kind = Fail if low < least else Slow
        raise kind(f"  half a round trip of {least} to {most} us expected, {low} to {typical} found\n" + shown(server, client))
    return f"{2 * low:.0f} us at least, {2 * typical:.0f} us typical there and back"


def bandwidth(env, faults):
    server, client = pair(env, "ib_write_bw", ["-F", "-D", "1", "-m", "4096", "-s", "65536", "--report_gbits"], faults)
    check_pair(server, client)
    gbits = number(r"^ 65536 +\d+ +[\d.]+ +([\d.]+)", client, "the bandwidth")
    if not 0.85 <= gbits <= 1.0:
        kind = Fail if gbits > 1 else Slow
        raise kind(f"  0.85 to 1.0 Gbit/s expected, {gbits} found\n" + shown(server, client))
    return f"{gbits} Gbit/s"


def whole(env, faults, options, ends=None, gid=(0, 0)):
    """The pingpong compares every byte."""
    server, client = pair(env, "ibv_rc_pingpong", ["-c", *options], faults, ends, gid)
    check_pair(server, client)
    return re.search(r"= ([\d.]+ usec/iter)", client.out).group(1)


def summary(result, direction, word):
    """How many packets of a direction met a fault, by the line at the end."""
    line = re.search(r"faults: (received .*)$", result.out, re.M)
    if not line:
        raise Fail("  no summary\n" + result.show("its output"))
    parts = [p for p in line.group(1).split("; ") if p.startswith(direction)]
    found = re.search(rf"(\d+) {word}", parts[0]) if parts else None
    return int(found.group(1)) if found else 0


def counted(env):
    """Every kind, both directions, in the summary."""
    server, client = pair(env, "ibv_rc_pingpong", ["-c", "-n", "500"], (None, BOTH), log=INFO)
    check_pair(server, client, NOTE)
    counts = {}
    for direction in ("received", "sent"):
        for word in ("lost", "corrupted", "reordered", "duplicated"):
            counts[f"{direction} {word}"] = summary(client, direction, word)
    if not all(counts.values()):
        raise Fail(f"  {counts}\n" + client.show("client"))
    return f"{sum(counts.values())} faults"


def marks(env, tclass):
    """Packets that say ECT(0) are marked when they wait, others never."""
    faults = ("rate=1gbit,ecn=10k:100k:50%", None)
    server, client = pair(env, "ib_write_bw", ["-F", "-n", "500", "-s", "65536", f"--tclass={tclass}"], faults, log=INFO)
    check_pair(server, client, NOTE)
    marked = summary(server, "received", "marked CE")
    if bool(marked) != (tclass & 3 != 0):
        raise Fail(f"  {marked} packets marked with traffic class {tclass}\n" + server.show("server"))
    return f"{marked} marked"


def ends_with_error(env, program, faults, said, log=r"struck at"):
    """The client ends, in time, with the completion error that the fault leads to; the fault is told of."""
    options = ["-F", "-n", "20000", "-s", "65536"]
    server, client = pair(env, program, options, faults, log=INFO, timeout=20)
    both = client.out + server.out
    if client.code in (None, 0) or not re.search(said, client.out) or not re.search(log, both):
        raise Fail(f"  the client is to end with {said!r}\n" + shown(server, client))
    return re.search(r"faults: (\S+ struck at \S+ packet \d+)", both).group(1)


def port_flaps(env):
    """Half of a transfer's packets meet a port that is down for a while; all of it arrives."""
    server, client = pair(env, "ibv_rc_pingpong", ["-c", "-n", "2000"], ("fail=port_down@1000/20ms", None), log=INFO)
    check_pair(server, client, NOTE)
    for word in ("port_down struck at rx packet 1000 ", "port_up struck after"):
        if word not in server.out:
            raise Fail(f"  not said: {word}\n" + server.show("server"))


def asyncwatch(env):
    """The port's events, told by a program that does nothing but wait for them."""
    need("ibv_asyncwatch")
    argv = env.under(net.loopback()[0], ["ibv_asyncwatch"], "fail=port_down@300ms/200ms")
    result = run(["timeout", "-s", "KILL", "2", "stdbuf", "-oL", *argv], 10)
    events = re.findall(r"event_type (\w+)", result.out)
    if events != ["IBV_EVENT_PORT_ERR", "IBV_EVENT_PORT_ACTIVE"]:
        raise Fail(f"  events {events}\n" + result.show("ibv_asyncwatch"))


def captured(env):
    """A capture names the faults of both directions, one-shot ones too, and no packet in it is taken for another."""
    need("tshark")
    plan = ("loss=3%,dup=3%,tx.loss=3%,tx.dup=3%,tx.corrupt=2%,fail=rnr@50,seed=3", None)
    server, client = pair(env, "ibv_rc_pingpong", ["-n", "300"], plan, log={"CROCEVIA_PCAP": os.path.join(env.tmp, "faults.%p.pcapng")})
    check_pair(server, client)
    files = glob.glob(os.path.join(env.tmp, "faults.*.pcapng"))
    said = "".join(run(["tshark", "-r", f, "-Y", "frame.comment", "-T", "fields", "-e", "frame.comment"], 30).out for f in files)
    wanted = (r"^PSN \d+: injected: lost", r"^injected: lost", r"^PSN \d+: injected: duplicated", r"^injected: duplicated",
              r"^injected: corrupted", r"^PSN \d+: injected: rnr", r"^retransmission of PSN \d+; injected: ")
    missing = [w for w in wanted if not re.search(w, said, re.M)]
    if missing or len(files) != 2:
        raise Fail(f"  not said in {len(files)} captures: {missing}\n" + shown(server, client))
    return f"{len(re.findall('injected', said))} comments"


def lost(result):
    return [int(n) for n in re.findall(r"rx packet (\d+) to QP \S+, PSN \d+: lost", result.out)]


def repeats(env):
    """The same packets of a direction, by their number, are lost in both runs, whatever they carry."""
    runs = []
    for _ in range(2):
        server, client = pair(env, "ibv_rc_pingpong", ["-c", "-n", "300"], ("loss=5%,seed=77,fail=drop@5", None), log=DEBUG)
        check_pair(server, client, NOTE)
        runs.append(lost(server))
    common = min(max(r, default=0) for r in runs)
    first, second = ([n for n in r if n <= common] for r in runs)
    if first != second or len(first) < 10 or 5 not in first:
        raise Fail(f"  lost in the first run: {first}\n  in the second: {second}")
    return f"the same {len(first)} packets lost"


def leaves(env):
    """What is held back leaves before its process does: the last acknowledgement of a receiver that ends at once."""
    faults = ("tx.delay=60ms", "tx.delay=60ms")
    start = time.monotonic()
    server, client = pair(env, "ibv_rc_pingpong", ["-c", "-n", "3"], faults)
    check_pair(server, client)
    return f"{time.monotonic() - start:.1f} s"


def refused(env):
    """What is no specification is told with field, value and what was expected, before anything runs."""
    for spec, words in (("tx.los=1%", ("tx.los", "1%")), ("fail=boom@5", ("fail", "boom@5", "qp_error")),
                        ("tx.fail=rnr@5", ("tx.fail", "rnr@5")), ("delay=5", ("delay", "`5`", "20us"))):
        result = run(env.under(net.loopback()[0], ["true"], spec), 10)
        if result.code != 2 or not all(w in result.out for w in words):
            raise Fail(f"  {words} expected\n" + result.show("crocevia run"))


def ipv6(env):
    names = ["faults/ipv6/both", "faults/ipv6/rate"]
    if not env.any_wanted(names):
        return
    try:
        space = net.NetPair(1500, user=not env.root)
    except Skip as why:
        def skip(message=str(why)):
            raise Skip(message)
        yield Case("faults/ipv6", skip)
        return
    with space:
        ends = space.ends()
        gid = [table.gid_index(env.under(ends[s], []), net.V6[s]) for s in (0, 1)]
        yield Case(names[0], lambda: whole(env, (BOTH, BOTH), ["-n", "300"], ends, gid))
        yield Case(names[1], lambda: whole(env, ("tx.rate=1gbit,tx.delay=50us", "rate=1gbit,jitter=50us"), ["-n", "500"], ends, gid))


def cases(env):
    both = ("delay=200us", "delay=200us")
    yield Case("faults/delay-rx", lambda: tries(lambda: latency(env, both, 200, 400)))
    yield Case("faults/delay-tx", lambda: tries(lambda: latency(env, ("tx.delay=200us", "tx.delay=200us"), 200, 400)))
    yield Case("faults/rate-rx", lambda: tries(lambda: bandwidth(env, ("rate=1gbit", None))))
    yield Case("faults/rate-tx", lambda: tries(lambda: bandwidth(env, (None, "tx.rate=1gbit"))))
    yield Case("faults/both-directions", lambda: whole(env, (BOTH, BOTH), ["-n", "300"]))
    yield Case("faults/both-directions-events", lambda: whole(env, (BOTH, BOTH), ["-n", "300", "-e"]))
    yield Case("faults/one-byte", lambda: whole(env, (BOTH, BOTH), ["-n", "500", "-s", "1"]))
    yield Case("faults/long", lambda: whole(env, (BOTH, BOTH), ["-n", "10", "-s", "1000003", "-m", "4096"]))
    yield Case("faults/counted", lambda: counted(env))
    yield Case("faults/ecn-ect", lambda: marks(env, 2))
    yield Case("faults/ecn-not-ect", lambda: marks(env, 0))
    flushed = r"Failed status 5"
    yield Case("faults/qp-error", lambda: ends_with_error(env, "ib_write_bw", (None, "fail=qp_error@1000"), flushed))
    yield Case("faults/qp-error-tx", lambda: ends_with_error(env, "ib_write_bw", (None, "tx.fail=qp_error@1000"), flushed))
    yield Case("faults/qp-error-peer", lambda: ends_with_error(env, "ib_write_bw", ("fail=qp_error@1000", None), r"Failed status 12"))
    yield Case("faults/cq-overrun", lambda: ends_with_error(env, "ib_write_bw", (None, "tx.fail=cq_overrun@1000"), flushed))
    yield Case("faults/nak-access", lambda: ends_with_error(env, "ib_write_bw", ("fail=nak_access@1000", None), r"Failed status 10"))
    yield Case("faults/device-fatal", lambda: ends_with_error(env, "ib_write_bw", (None, "fail=device_fatal@1000"), flushed))
    yield Case("faults/port-down", lambda: port_flaps(env))
    yield Case("faults/asyncwatch", lambda: asyncwatch(env))
    yield Case("faults/repeats", lambda: repeats(env))
    yield Case("faults/captured", lambda: captured(env))
    yield Case("faults/leaves", lambda: leaves(env))
    yield Case("faults/refused", lambda: refused(env))
    yield Case("faults/nobody", lambda: whole(env, (BOTH, BOTH), ["-n", "200"], net.loopback(user=True)))
    yield from ipv6(env)

"""Debian's perftest, unmodified: all eight programs on RC at every size, over loopback and over veth pairs, with and without
rights; then every program with every service, events, many queue pairs, both directions, shared receive queues, inline data; multicast."""

import contextlib
import re

from harness import Case, Fail, Skip, XrcFiles, check_pair, free_port, need, run_pair
import net
import table

VERBS = ("write", "read", "send", "atomic")
PROGRAMS = [f"ib_{verb}_{what}" for verb in VERBS for what in ("bw", "lat")]
ITERATIONS = {"bw": 20, "lat": 5}
TIMEOUT = 120

# Shapes beside the plain one, on loopback: (name, program, options, size of the one row).
SHAPES = [
    ("bidirectional-4qp", "ib_write_bw", ["-b", "-q", "4", "-n", "200"], 65536),
    ("bidirectional-4qp", "ib_read_bw", ["-b", "-q", "4", "-n", "200"], 65536),
    ("bidirectional-4qp", "ib_send_bw", ["-b", "-q", "4", "-n", "200"], 65536),
    ("post-list", "ib_write_bw", ["-l", "16", "-q", "2", "-n", "320"], 65536),
    ("inline", "ib_write_bw", ["-I", "64", "-s", "64", "-n", "2000"], 64),
    ("mtu-256", "ib_send_bw", ["-m", "256", "-n", "200"], 65536),
    ("odd-size", "ib_read_bw", ["-s", "99999", "-n", "200"], 99999),
    ("compare-and-swap", "ib_atomic_bw", ["-A", "CMP_AND_SWAP", "-n", "500"], 8),
    ("one-outstanding", "ib_read_bw", ["-o", "1", "-n", "200"], 65536),
    ("duration", "ib_write_bw", ["-D", "2"], 65536),
    ("long-timeout", "ib_read_bw", ["-u", "20", "-n", "200"], 65536),
    ("shortest-timeout", "ib_read_bw", ["-u", "1", "-n", "200"], 65536),
]

# Every program with the services that it has.
SERVICES = {"send": ("RC", "UC", "UD", "XRC"), "write": ("RC", "UC", "XRC"), "read": ("RC", "XRC"), "atomic": ("RC", "XRC")}


def variants(verb, what):
    """(name, options) of the shapes that a program takes, beside the plain one. perftest has events and shared receive queues
    for what is received, inline data for what is sent."""
    yield "plain", []
    if what == "bw":
        yield "bidirectional-16qp", ["-b", "-q", "16"]
        if verb != "write":
            yield "events-4qp", ["-e", "-q", "4"]
    elif verb == "send":
        yield "events", ["-e"]
    if verb == "send":
        yield "srq", ["--use-srq"] + (["-q", "16"] if what == "bw" else [])
    if verb in ("send", "write"):
        yield "inline", ["-I", "128", "-s", "128"]


def matrix():
    """(name, program, options, size of the one row)."""
    for verb, services in SERVICES.items():
        for what in ("bw", "lat"):
            for service in services:
                for name, options in variants(verb, what):
                    if (service, name) == ("RC", "plain"):
                        continue
                    size = 8 if verb == "atomic" else 2 if what == "lat" else 4096 if service == "UD" else 65536
                    size = 128 if name == "inline" else size
                    count = ["-n", "400"]
                    yield f"{service.lower()}-{name}", f"ib_{verb}_{what}", ["-c", service, *options, *count], size


# Unreliable services lose nothing for want of a buffer or a receive request, at a stock kernel's receive buffer neither.
UNRELIABLE = [
    ("ib_send_bw", ["-c", "UC", "-n", "2000"], 65536),
    ("ib_write_bw", ["-c", "UC", "-q", "4", "-n", "500"], 65536),
    ("ib_send_bw", ["-c", "UC", "-b", "-e", "-n", "500"], 65536),
    ("ib_send_bw", ["-c", "UC", "-s", "64", "-n", "20000"], 64),
    ("ib_send_bw", ["-c", "UD", "-q", "4", "-n", "2000"], 4096),
    ("ib_send_bw", ["-c", "UD", "-s", "64", "--use-srq", "-q", "2", "-n", "5000"], 64),
]

# A group as perftest takes it: 16 numbers. The default one is an IPv6 group, which ib_send_bw wants an IPv6 address for.
GROUP_V4 = "0:0:0:0:0:0:0:0:0:0:255:255:239:87:1:2"
GROUP_V6 = "255:5:0:0:0:0:0:0:0:0:0:0:0:87:1:2"

# The receive buffer of a stock kernel, where an address has several sockets and queue pairs share them out.
STOCK = [
    ("ib_write_bw", ["-q", "16", "-n", "200"], 65536),
    ("ib_read_bw", ["-q", "16", "-n", "200"], 65536),
    ("ib_send_bw", ["-b", "-q", "8", "-n", "200"], 65536),
    ("ib_send_bw", ["-e", "-q", "4", "-n", "200"], 65536),
    ("ib_write_lat", ["-n", "1000"], 2),
]
STOCK_BUFFER = 212992


def run_one(env, ends, program, options, sizes, gid=None, before=()):
    need(program)
    port = free_port()
    words = [*before, program, "-F", "-p", str(port), *options]
    argv = [[], []]
    for side in (0, 1):
        own = list(words)
        if gid:
            own += ["-x", str(gid[side])]
        if side == 1:
            own.append(ends[0].peer)
        argv[side] = env.under(ends[side], own)
    with XrcFiles() if "XRC" in options else contextlib.nullcontext():
        server, client = run_pair(argv[0], argv[1], port, TIMEOUT)
    check_pair(server, client)
    rows = table.check(client, program, sizes)
    check_header(client, options)
    if program.endswith("_bw"):
        size, best = max(rows, key=lambda r: r[1][1])
        return f"{best[1]:.0f} MiB/s at {size} B"
    return f"{rows[0][1][2]:.1f} us at {rows[0][0]} B"


def check_header(client, options):
    """perftest's own word on what it ran."""
    wanted = {}
    for option, line in (("-c", "Connection type"), ("-q", "Number of qps")):
        if option in options:
            wanted[line] = options[options.index(option) + 1]
    if {"XRC", "-b"} <= set(options):
        # It counts the queue pairs of both directions.
        wanted["Number of qps"] = str(2 * int(wanted["Number of qps"]))
    if "--use-srq" in options:
        wanted["Using SRQ"] = "ON"
    for line, value in wanted.items():
        if not re.search(rf"{line}\s*:\s*{value}\b", client.out):
            raise Fail(f"  it does not say `{line} : {value}`\n" + client.show("client", 60))
    if "-b" in options and "Bidirectional" not in client.out:
        raise Fail("  it does not say Bidirectional\n" + client.show("client", 60))


def multicast(env, ends, label, family, gid=None):
    """The two programs that take a group, and members of another user, where one can be had."""
    shapes = [("ib_send_lat", ["-M", GROUP_V4 if family == "ipv4" else GROUP_V6], 2),
              ("ib_send_bw", ["-M", GROUP_V4 if family == "ipv4" else GROUP_V6, "-e"], 1024)]
    if family == "ipv4":
        shapes.append(("ib_send_lat", [], 2))
    for program, options, size in shapes:
        words = ["-c", "UD", "-g", *options, "-s", str(size), "-n", "400"]
        own = "default-group/" if not options else ""
        yield Case(f"perftest/{label}/multicast/{own}{program}",
                   lambda p=program, o=words, s=size: run_one(env, ends, p, o, [s], gid))


def every_size(env, ends, program, gid=None):
    if "atomic" in program:
        return run_one(env, ends, program, ["-n", "500"], [8], gid)
    count = ITERATIONS[program.rsplit("_", 1)[1]]
    return run_one(env, ends, program, ["-a", "-n", str(count)], table.ALL_SIZES, gid)


def group(env, label, ends, gid=None):
    for program in PROGRAMS:
        yield Case(f"perftest/{label}/{program}", lambda p=program: every_size(env, ends, p, gid))


def skipped(label, why):
    def run():
        raise Skip(why)
    yield Case(f"perftest/{label}", run)


def cases(env):
    yield from group(env, "loopback/root" if env.root else "loopback/user", net.loopback())
    if env.root:
        yield from group(env, "loopback/uid65534", net.loopback(user=True))
    for shape, program, options, size in SHAPES:
        yield Case(f"perftest/loopback/{shape}/{program}",
                   lambda p=program, o=options, s=size: run_one(env, net.loopback(), p, o, [s]))
    for shape, program, options, size in matrix():
        yield Case(f"perftest/loopback/{shape}/{program}",
                   lambda p=program, o=options, s=size: run_one(env, net.loopback(), p, o, [s]))
    yield from multicast(env, net.loopback(), "loopback", "ipv4")
    if env.root:
        # The server of root, the client of nobody: each has a socket of its own.
        mixed = (net.loopback()[0], net.loopback(user=True)[1])
        yield from multicast(env, mixed, "loopback/two-users", "ipv4")
    stock = ("env", f"CROCEVIA_RCVBUF={STOCK_BUFFER}")
    for place, before in (("unreliable", ()), ("unreliable-stock-buffer", stock)):
        for program, options, size in UNRELIABLE:
            yield Case(f"perftest/loopback/{place}{''.join(options[:-2])}/{program}",
                       lambda p=program, o=options, s=size, b=before: run_one(env, net.loopback(), p, o, [s], before=b))
    for program, options, size in STOCK:
        yield Case(f"perftest/loopback/stock-buffer{''.join(options[:-2])}/{program}",
                   lambda p=program, o=options, s=size: run_one(env, net.loopback(), p, o, [s], before=stock))
    for who, user in (("root", False), ("unshare", True)):
        for mtu in (1500, 9000):
            place = f"veth{mtu}/{who}"
            services = [("uc", "ib_send_bw", ["-c", "UC", "-q", "4", "-n", "400"], 65536),
                        ("ud", "ib_send_bw", ["-c", "UD", "-q", "4", "-s", "1024", "-n", "400"], 1024),
                        ("xrc", "ib_send_bw", ["-c", "XRC", "-q", "4", "-n", "400"], 65536)] if mtu == 1500 else []
            names = [f"perftest/{place}/{f}/{p}" for f in ("ipv4", "ipv6")
                     for p in PROGRAMS + [f"{name}/{program}" for name, program, _, _ in services]
                     + ["multicast/ib_send_lat", "multicast/ib_send_bw"]]
            if not env.any_wanted(names):
                continue
            try:
                pair = net.NetPair(mtu, user)
            except Skip as why:
                yield from skipped(place, str(why))
                continue
            with pair:
                ends = pair.ends()
                for family, addresses in (("ipv4", net.V4), ("ipv6", net.V6)):
                    gid = Lazy(lambda a=addresses: [
                        table.gid_index(env.under(ends[s], []), a[s]) for s in (0, 1)])
                    yield from group(env, f"{place}/{family}", ends, gid)
                    for name, program, options, size in services:
                        yield Case(f"perftest/{place}/{family}/{name}/{program}",
                                   lambda p=program, o=options, s=size, g=gid: run_one(env, ends, p, o, [s], g))
                    if services:
                        yield from multicast(env, ends, f"{place}/{family}", family, gid)


class Lazy:
    """A pair of GID indices, looked up at the first case that needs it, so that a failure belongs to a case."""

    def __init__(self, find):
        self.find, self.found = find, None

    def __getitem__(self, side):
        if self.found is None:
            self.found = self.find()
        return self.found[side]

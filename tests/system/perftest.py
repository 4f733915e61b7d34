"""Debian's perftest, unmodified, RC: all eight programs, every size, over loopback and over veth pairs, with and without rights."""

from harness import Case, Skip, check_pair, free_port, need, run_pair
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
    ("events", "ib_send_bw", ["-e", "-n", "200"], 65536),
    ("events", "ib_send_lat", ["-e", "-n", "200"], 2),
    ("post-list", "ib_write_bw", ["-l", "16", "-q", "2", "-n", "320"], 65536),
    ("inline", "ib_write_bw", ["-I", "64", "-s", "64", "-n", "2000"], 64),
    ("mtu-256", "ib_send_bw", ["-m", "256", "-n", "200"], 65536),
    ("odd-size", "ib_read_bw", ["-s", "99999", "-n", "200"], 99999),
    ("compare-and-swap", "ib_atomic_bw", ["-A", "CMP_AND_SWAP", "-n", "500"], 8),
    ("one-outstanding", "ib_read_bw", ["-o", "1", "-n", "200"], 65536),
    ("duration", "ib_write_bw", ["-D", "2"], 65536),
    ("uc", "ib_write_lat", ["-c", "UC", "-n", "200"], 2),
    ("uc", "ib_send_lat", ["-c", "UC", "-n", "200"], 2),
    ("ud", "ib_send_lat", ["-c", "UD", "-n", "200"], 2),
    ("srq", "ib_send_bw", ["--use-srq", "-q", "2", "-n", "200"], 65536),
]

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
    server, client = run_pair(argv[0], argv[1], port, TIMEOUT)
    check_pair(server, client)
    rows = table.check(client, program, sizes)
    if program.endswith("_bw"):
        size, best = max(rows, key=lambda r: r[1][1])
        return f"{best[1]:.0f} MiB/s at {size} B"
    return f"{rows[0][1][2]:.1f} us at {rows[0][0]} B"


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
    stock = ("env", f"CROCEVIA_RCVBUF={STOCK_BUFFER}")
    for program, options, size in STOCK:
        yield Case(f"perftest/loopback/stock-buffer{''.join(options[:-2])}/{program}",
                   lambda p=program, o=options, s=size: run_one(env, net.loopback(), p, o, [s], before=stock))
    for who, user in (("root", False), ("unshare", True)):
        for mtu in (1500, 9000):
            place = f"veth{mtu}/{who}"
            if not env.any_wanted(f"perftest/{place}/{f}/{p}" for f in ("ipv4", "ipv6") for p in PROGRAMS):
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


class Lazy:
    """A pair of GID indices, looked up at the first case that needs it, so that a failure belongs to a case."""

    def __init__(self, find):
        self.find, self.found = find, None

    def __getitem__(self, side):
        if self.found is None:
            self.found = self.find()
        return self.found[side]

"""rdma-core's own examples on crocevia: ibv_devices, ibv_devinfo, and the pingpongs, which check every byte, also under faults."""

import re
import time

from harness import Case, Fail, Proc, XrcFiles, check_pair, free_port, need, run, run_pair, wait_listening
import net

SEED = "seed=42"
VARIANTS = [
    ("plain", [], None),
    ("mtu-4096", ["-m", "4096", "-s", "100003", "-n", "200"], None),
    ("events", ["-e"], None),
    ("wr-api", ["-N"], None),
    ("loss-5", ["-n", "500"], f"loss=5%,{SEED}"),
    ("corrupt-1", ["-n", "500"], f"corrupt=1%,{SEED}"),
    ("reorder-5", ["-n", "500"], f"reorder=5%,{SEED}"),
    ("loss-5-long", ["-n", "100", "-s", "65536", "-m", "4096"], f"loss=5%,{SEED}"),
    ("all-faults", ["-n", "500", "-s", "20000", "-m", "1024"], f"loss=5%,corrupt=1%,reorder=5%,dup=1%,{SEED}"),
    ("all-faults-events", ["-e", "-n", "300"], f"loss=2%,dup=2%,reorder=2%,corrupt=1%,{SEED}"),
]
# Each end leaves as soon as it has what it wants, so that its last acknowledgement may be lost.
LEAVE = ["-n", "5", "-s", "20000"]
LEAVES = 60
OTHERS = ("ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong")
# (name, options) of the others; ibv_ud_pingpong takes no path MTU.
OTHER_VARIANTS = [("plain", []), ("events", ["-e"]), ("size-1", ["-s", "1"]), ("many", ["-n", "5000", "-r", "300"])]
TIMEOUT = 120


def pingpong(env, ends, program, options, faults):
    need(program)
    port = free_port()
    words = [program, "-g", "0", "-c", "-p", str(port), *options]
    server, client = run_pair(
        env.under(ends[0], words, faults), env.under(ends[1], [*words, ends[0].peer], faults), port, TIMEOUT)
    check_pair(server, client)
    for title, result in (("client", client), ("server", server)):
        if not re.search(r"^\d+ iters in ", result.out, re.M):
            raise Fail("  no closing line\n" + result.show(title))
    return re.search(r"= ([\d.]+ usec/iter)", client.out).group(1)


def leave(env):
    for seed in range(LEAVES):
        pingpong(env, net.loopback(), "ibv_rc_pingpong", LEAVE, f"loss=5%,seed={seed}")


def xrc_pingpong(env, clients, options):
    """One server; each client gets its messages and sends them on. The program checks no bytes but the numbers in them."""
    need("ibv_xsrq_pingpong")
    with XrcFiles():
        xrc_processes(env, clients, options)


def xrc_processes(env, clients, options):
    port, ends = free_port(), net.loopback()
    words = ["ibv_xsrq_pingpong", "-g", "0", "-p", str(port), *options]
    procs = [Proc(env.under(ends[0], [*words, "-c", str(clients)]))]
    try:
        if not wait_listening(procs[0], port):
            raise Fail(procs[0].wait(0.5).show("server"))
        for _ in range(clients):
            procs.append(Proc(env.under(ends[1], [*words, ends[0].peer])))
        results = [proc.wait(TIMEOUT) for proc in procs]
    finally:
        for proc in procs:
            proc.end()
    for client in results[1:]:
        check_pair(results[0], client)
        if not re.search(r"^success$", client.out, re.M):
            raise Fail("  no closing line\n" + client.show("client"))


def asyncwatch(env):
    """The port goes down and up again with its interface."""
    need("ibv_asyncwatch", "stdbuf")
    with net.NetPair(1500, user=not env.root) as pair:
        end = pair.ends()[0]
        watch = Proc(env.under(end, ["stdbuf", "-o0", "ibv_asyncwatch"]))
        try:
            for act, pattern in ((None, r"async event FD"), ("down", r"PORT_ERR\b"), ("up", r"PORT_ACTIVE\b")):
                if act:
                    pair.ip(0, "link", "set", net.DEVICE[0], act)
                deadline = time.monotonic() + 20
                while not re.search(pattern, watch.output()):
                    if time.monotonic() > deadline or not watch.alive():
                        raise Fail(f"  not told: {pattern}\n" + watch.wait(0.1).show("ibv_asyncwatch"))
                    time.sleep(0.02)
        finally:
            watch.end()


def devices(env):
    need("ibv_devices")
    result = run(env.under(net.loopback()[0], ["ibv_devices"]), 20)
    if result.failed or not re.search(r"^\s+crocevia\d+\s+[0-9a-f]{16}\s*$", result.out, re.M):
        raise Fail(result.show("ibv_devices"))


def devinfo(env):
    need("ibv_devinfo")
    result = run(env.under(net.loopback()[0], ["ibv_devinfo", "-v"]), 20)
    gid = r"GID\[\s*0\]:\s+::ffff:" + re.escape(net.loopback()[0].addr) + ", RoCE v2"
    wanted = (r"state:\s+PORT_ACTIVE \(4\)", r"link_layer:\s+Ethernet", gid)
    for pattern in wanted:
        if result.failed or not re.search(pattern, result.out):
            raise Fail(f"  not found: {pattern}\n" + result.show("ibv_devinfo", 100))


def cases(env):
    yield Case("pingpong/ibv_devices", lambda: devices(env))
    yield Case("pingpong/ibv_devinfo", lambda: devinfo(env))
    for name, options, faults in VARIANTS:
        yield Case(f"pingpong/{name}",
                   lambda o=options, f=faults: pingpong(env, net.loopback(), "ibv_rc_pingpong", o, f))
    yield Case("pingpong/loss-5-leave", lambda: leave(env))
    for program in OTHERS:
        for name, options in OTHER_VARIANTS:
            yield Case(f"pingpong/{program}/{name}",
                       lambda p=program, o=options: pingpong(env, net.loopback(), p, o, None))
    for clients, options in ((1, []), (3, ["-n", "50"]), (2, ["-e", "-s", "1"])):
        yield Case(f"pingpong/ibv_xsrq_pingpong/{clients}-clients{''.join(options)}",
                   lambda c=clients, o=options: xrc_pingpong(env, c, o))
    yield Case("pingpong/ibv_asyncwatch", lambda: asyncwatch(env))

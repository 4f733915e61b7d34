"""Several programs on one address: pairs side by side on loopback and over a veth, one of them killed, another user's."""

import time

from harness import Case, Fail, Proc, Skip, check_pair, free_port, need, run, wait_listening
import net
import table

PROGRAMS = [
    ("ib_write_bw", ["-s", "65536", "-n", "3000"], 65536),
    ("ib_read_bw", ["-s", "4096", "-n", "3000"], 4096),
    ("ib_send_bw", ["-s", "100000", "-n", "1000", "-q", "4"], 100000),
    ("ib_write_lat", ["-s", "8", "-n", "2000"], 8),
]
TIMEOUT = 120


class Pairs:
    """Servers and clients that run at the same time."""

    def __init__(self):
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, server, client, _ in self.running:
            server.end()
            client.end()

    def start(self, env, ends, program, options, size, gid=None):
        need(program)
        port = free_port()
        words = [program, "-F", "-p", str(port), *options]
        argv = [[*words, *(["-x", str(gid[side])] if gid else [])] for side in (0, 1)]
        server = Proc(env.under(ends[0], argv[0]))
        if not wait_listening(server, port):
            raise Fail(server.wait(0.5).show("server"))
        client = Proc(env.under(ends[1], [*argv[1], ends[0].peer]))
        self.running.append((program, server, client, size))

    def finish(self):
        end = time.monotonic() + TIMEOUT
        for program, server, client, size in self.running:
            results = [proc.wait(end - time.monotonic()) for proc in (client, server)]
            check_pair(results[1], results[0])
            table.check(results[0], program, [size])


def side_by_side(env, ends, gid=None):
    with Pairs() as pairs:
        for program, options, size in PROGRAMS:
            pairs.start(env, ends, program, options, size, gid)
        pairs.finish()


def killed(env):
    """The program that came first, and serves the others, is killed; those there go on, and others can come."""
    end = net.loopback()[0]
    need("ib_write_bw")
    first = Proc(env.under(end, ["ib_write_bw", "-F", "-p", str(free_port())]))
    try:
        time.sleep(0.5)
        with Pairs() as pairs:
            pairs.start(env, (end, end), "ib_write_bw", ["-s", "65536", "-D", "3"], 65536)
            time.sleep(1)
            first.child.kill()
            first.child.wait()
            pairs.start(env, (end, end), *PROGRAMS[0])
            pairs.finish()
    finally:
        first.end()


def another_user(env):
    """A user's processes share an address, another's are told why they cannot."""
    if not env.root:
        raise Skip("to be two users needs root")
    need("ib_write_bw", "ibv_devinfo")
    own, other = net.loopback()[0], net.loopback(user=True)[0]
    holder = Proc(env.under(own, ["ib_write_bw", "-F", "-p", str(free_port())]))
    try:
        time.sleep(0.5)
        mine = run(env.under(own, ["ibv_devinfo"]), 20)
        if mine.failed:
            raise Fail(mine.show("the same user"))
        result = run(env.under(other, ["ibv_devinfo"]), 20)
        if not result.failed or "of user 0" not in result.out or "--addr" not in result.out:
            raise Fail(result.show("the other user"))
    finally:
        holder.end()


def cases(env):
    ends = net.loopback()
    yield Case("sharing/loopback", lambda: side_by_side(env, (ends[0], ends[0])))
    users = net.loopback(user=True)
    yield Case("sharing/uid65534", lambda: side_by_side(env, (users[0], users[1])))
    yield Case("sharing/killed", lambda: killed(env))
    yield Case("sharing/users", lambda: another_user(env))
    names = [f"sharing/veth9000/{family}" for family in ("ipv4", "ipv6")]
    if not env.any_wanted(names):
        return
    try:
        pair = net.NetPair(9000, not env.root)
    except Skip as why:
        for name in names:
            yield Case(name, lambda w=str(why): skip(w))
        return
    with pair:
        ends = pair.ends()
        for name, addresses in zip(names, (net.V4, net.V6)):
            def one(addresses=addresses):
                gid = [table.gid_index(env.under(ends[s], []), addresses[s]) for s in (0, 1)]
                side_by_side(env, ends, gid)
            yield Case(name, one)


def skip(why):
    raise Skip(why)

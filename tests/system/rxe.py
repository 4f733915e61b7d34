"""On the wire with the Linux kernel's Soft-RoCE: a guest under QEMU (tools/rxe-vm) on a TAP, perftest and ibv_rc_pingpong between its
rxe_eth0 and a crocevia NIC on the bridge, kernel as client and as server, IPv4 and IPv6, path MTU 1024 and 4096.

The guest is emulated and slow: counts are small, the QP timeout is long (-u 18), and nothing here is a figure of speed.
"""

import os
import re
import shlex
import time

from harness import Case, End, Fail, Proc, Result, Skip, check_pair, have, must, need, run, wait_listening
from perftest import PROGRAMS
import table

TOOLS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools", "rxe-vm")
BRIDGE, HOST4, HOST6 = "rxebr0", "10.77.0.1", "fd77:0:0:1::1"
GUEST4, GUEST6, GUEST_DEVICE = "10.77.0.2", "fd77:0:0:1::2", "rxe_eth0"
FAMILIES = {"ipv4": (HOST4, GUEST4), "ipv6": (HOST6, GUEST6)}
MTUS = (1024, 4096)
SIDES = ("kernel-client", "kernel-server")
TIMEOUT = 120  # of one program; a lost packet costs a second at -u 18
PORT = 18515


class Guest:
    """The virtual machine, in a network namespace and a state folder of this run's own."""

    def __init__(self, env):
        missing = have("qemu-system-x86_64", "cpio", "zstd", "depmod", "dpkg", "apt-get", "gcc", "ip")
        if missing:
            raise Skip(f"no Soft-RoCE guest: not installed: {', '.join(missing)} (scripts/needs installs it)")
        if not env.root or not os.path.exists("/dev/net/tun"):
            raise Skip("no Soft-RoCE guest: a TAP needs root and /dev/net/tun")
        self.ns = f"crocevia-rxe-{os.getpid()}"
        self.vars = {"RXE_VM_NETNS": self.ns, "RXE_VM_STATE": os.path.join(env.tmp, "rxe-vm")}
        built = run([os.path.join(TOOLS, "build")], 900)
        if built.failed:  # stale or no package lists
            run(["apt-get", "-q", "update"], 300)
            built = run([os.path.join(TOOLS, "build")], 900)
        if built.failed:
            raise Skip("no Soft-RoCE guest: its packages cannot be fetched: " + " ".join(built.out.split())[-200:])
        self.share = os.path.join(env.tmp, "rxe-vm", "peer", "share")
        try:
            must([os.path.join(TOOLS, "vm"), "start", "--name", "peer", "--tap", "--mem", "1536"], 180, self.vars)
        except BaseException:
            self.close()
            raise

    def close(self):
        run([os.path.join(TOOLS, "vm"), "stop", "--name", "peer"], 60, self.vars)
        run(["ip", "netns", "del", self.ns], 10)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def submit(self, script):
        """Starts a script in the guest; returns the job."""
        job = os.path.join(self.share, f"{time.monotonic_ns()}.{os.getpid()}")
        with open(job + ".tmp", "w") as f:
            f.write(script)
        os.rename(job + ".tmp", job + ".cmd")
        return job

    def result(self, job, argv, seconds):
        """Waits for a job; the guest's `timeout` ends it before we give up."""
        end = time.monotonic() + seconds
        while not os.path.exists(job + ".rc") and time.monotonic() < end:
            time.sleep(0.02)
        out = ""
        if os.path.exists(job + ".out"):
            with open(job + ".out", errors="replace") as f:
                out = f.read()
        if not os.path.exists(job + ".rc"):
            return Result(argv, None, out)
        with open(job + ".rc") as f:
            return Result(argv, int(f.read()), out)

    def start(self, argv):
        """Starts a program in the guest under a time limit."""
        return self.submit(f"exec timeout -k 2 {TIMEOUT} {shlex.join(argv)}\n")

    def call(self, argv, seconds=TIMEOUT + 10):
        return self.result(self.start(argv), ["(guest)", *argv], seconds)

    def wait_listening(self, port):
        """Until somebody listens in the guest; the look-up runs there."""
        loop = (f"for i in $(seq 200); do grep -qi ':{port:04X} [0-9:A-F]* 0A' /proc/net/tcp /proc/net/tcp6 && exit 0;"
                " usleep 20000; done; exit 1")
        job = self.submit(loop + "\n")
        return not self.result(job, ["(guest)", "wait for the server"], 30).failed

    def quiet(self):
        """Ends what a failed case may have left in the guest."""
        programs = " ".join([*PROGRAMS, "ibv_rc_pingpong"])
        self.call(["sh", "-c", f"for p in {programs}; do killall -9 $p; done; true"], 20)


def host_end(guest):
    return End(addr=BRIDGE, peer=HOST4, enter=("ip", "netns", "exec", guest.ns))


def exchange(env, guest, side, server_words, client_words):
    """Runs the two ends, one in the guest; (server, client) results."""
    host = host_end(guest)
    if side == "kernel-server":
        job = guest.start(server_words)
        if not guest.wait_listening(PORT):
            return guest.result(job, ["(guest)", *server_words], 1), Result(client_words, -1, "not started: no server")
        client = run(env.under(host, client_words), TIMEOUT)
        return guest.result(job, ["(guest)", *server_words], 15 if client.code == 0 else 3), client
    server = Proc(env.under(host, server_words))
    try:
        if not wait_listening(server, PORT):
            return server.wait(0.5), Result(client_words, -1, "not started: no server")
        client = guest.call(client_words)
        return server.wait(15 if client.code == 0 else 3), client
    finally:
        server.end()


def gids(env, guest, family):
    """(host's index, guest's index) of the family's GID."""
    if family not in guest.__dict__.setdefault("gid_cache", {}):
        host = table.gid_index(env.under(host_end(guest), []), FAMILIES[family][0])
        # rxe lists link-local, IPv4, global IPv6, in this order.
        guest.gid_cache[family] = (host, {"ipv4": 1, "ipv6": 2}[family])
    return guest.gid_cache[family]


def both(env, guest, side, family, words):
    """Server and client command lines: the same words, each with its own device and GID index."""
    host_gid, guest_gid = gids(env, guest, family)
    flag = "-x" if words[0].startswith("ib_") else "-g"
    own = [*words, flag, str(host_gid)]
    kernel = [*words, "-d", GUEST_DEVICE, flag, str(guest_gid)]
    if side == "kernel-server":
        return kernel, [*own, GUEST4]
    return own, [*kernel, HOST4]


def perftest(env, guest, side, family, mtu, program, options, sizes):
    need(program)
    words = [program, "-F", "-u", "18", "-m", str(mtu), *options]
    server, client = exchange(env, guest, side, *both(env, guest, side, family, words))
    try:
        check_pair(server, client)
        table.check(client, program, sizes, slow=True)
    except Fail:
        guest.quiet()
        raise


def pingpong(env, guest, side, family, mtu):
    need("ibv_rc_pingpong")
    words = ["ibv_rc_pingpong", "-c", "-n", "200", "-s", "20001", "-m", str(mtu)]
    server, client = exchange(env, guest, side, *both(env, guest, side, family, words))
    try:
        check_pair(server, client)
        if not re.search(r"^200 iters in ", client.out, re.M):
            raise Fail("  no closing line\n" + client.show("client"))
    except Fail:
        guest.quiet()
        raise


def plain(program):
    """Options and sizes of the plain run: an odd size, so that the last packet has a pad."""
    if "atomic" in program:
        return ["-n", "50"], [8]
    if program.endswith("_bw"):
        return ["-n", "50", "-s", "65533"], [65533]
    return ["-n", "50", "-s", "4099"], [4099]


def case_list():
    """(name, function of (env, guest)) for the whole matrix."""
    for side in SIDES:
        for family in FAMILIES:
            for mtu in MTUS:
                place = f"rxe/{side}/{family}/mtu{mtu}"
                yield f"{place}/ibv_rc_pingpong", lambda e, g, a=(side, family, mtu): pingpong(e, g, *a)
                for program in PROGRAMS:
                    options, sizes = plain(program)
                    yield f"{place}/{program}", lambda e, g, a=(side, family, mtu, program, options, sizes): perftest(
                        e, g, *a)
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            a = (side, "ipv4", 4096, program, ["-a", "-n", "5"], table.ALL_SIZES)
            yield f"rxe/{side}/every-size/{program}", lambda e, g, a=a: perftest(e, g, *a)


def cases(env):
    matrix = list(case_list())
    if not env.any_wanted(name for name, _ in matrix):
        return
    try:
        guest = Guest(env)
    except Skip as why:
        message = str(why)

        def skip():
            raise Skip(message)
        yield Case("rxe", skip)
        return
    with guest:
        for name, function in matrix:
            yield Case(name, lambda f=function: f(env, guest))

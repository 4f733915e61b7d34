"""Pairs of places to run in: two loopback addresses, or two network namespaces joined by a veth.

The namespaces are held by sleeping processes, not by names under /run: this needs no mount, works for a user without
rights, and nothing is left when the holders end.
"""

import functools
import itertools
import os
import socket
import time

from harness import NOBODY, Case, End, Fail, Proc, Skip, must, need, run

V4 = ("10.87.0.1", "10.87.0.2")
V6 = ("fd87::1", "fd87::2")
DEVICE = ("ca", "cb")


def as_nobody():
    """Command prefix that drops to uid 65534; empty for a user who has no rights to drop."""
    if os.geteuid() != 0:
        return ()
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")


def roce_port_free(address):
    """Whether nobody has the RoCE port on this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        try:
            s.bind((address, 4791))
        except OSError:
            return False
    return True


@functools.cache
def loopback_addresses():
    """127.0.0.2 and 127.0.0.3, or the next two that no other run on this machine uses."""
    for net in range(256):
        pair = (f"127.0.{net}.2", f"127.0.{net}.3")
        if all(map(roce_port_free, pair)):
            return pair
    raise Fail("  no free pair of loopback addresses")


def loopback(user=False):
    """Two ends on two loopback addresses of this namespace."""
    enter = as_nobody() if user else ()
    return tuple(End(addr=a, peer=a, enter=enter) for a in loopback_addresses())


def more_loopback(count):
    """Ends on as many other loopback addresses of this namespace that nobody uses."""
    places = (f"127.0.{net}.{host}" for net in range(256) for host in range(10, 250))
    free = itertools.islice(filter(roce_port_free, places), count)
    return [End(addr=a, peer=a) for a in free]


class OneSpace:
    """A namespace that has a loopback interface and nothing else: its kernel counts nobody else's datagrams."""

    def __init__(self, addresses=(), user=False):
        need("ip", "nsenter", "unshare", "setpriv")
        if not user and os.geteuid() != 0:
            user = True
        self.user, self.drop, self.holders = user, as_nobody() if user else (), []
        try:
            hold(self, [*self.drop, "unshare", "-Urn" if user else "-n"])
            for words in (["link", "set", "lo", "up"], *(["-6", "addr", "add", f"{a}/128", "dev", "lo", "nodad"] for a in addresses)):
                result = run([*self.enter(), "ip", *words])
                if result.failed:
                    raise Fail(result.show("set-up of the namespace"))
        except BaseException:
            self.close()
            raise

    def enter(self):
        return entering(self, 0)

    def read(self, path):
        """A file below /proc/net of the namespace."""
        with open(f"/proc/{self.holders[0].pid}/net/{path}") as f:
            return f.read()

    def close(self):
        for proc in self.holders:
            proc.end()
        self.holders = []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def hold(space, prefix):
    """Adds a process that sleeps in a namespace of its own, made by `prefix`."""
    proc = Proc([*prefix, "sleep", "3000"])
    space.holders.append(proc)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            with open(f"/proc/{proc.pid}/comm") as f:
                if f.read().strip() == "sleep":
                    return
        except OSError:
            pass
        if not proc.alive():
            break
        time.sleep(0.01)
    text = proc.wait(0.1).out.strip()
    if space.user:
        raise Skip(f"no user namespaces here: {text}")
    raise Fail(f"  no network namespace: {text}")


def entering(space, side):
    """Command prefix that enters a namespace of `space`, with the rights that its holder has."""
    pid = str(space.holders[side].pid)
    if space.user:
        return (*space.drop, "nsenter", "-t", pid, "-U", "-n", "--preserve-credentials", "--")
    return ("nsenter", "-t", pid, "-n", "--")


class NetPair:
    """Two namespaces and a veth between them, IPv4 and IPv6 on both ends."""

    def __init__(self, mtu, user=False):
        self.user = user
        self.drop = as_nobody() if user else ()
        self.holders = []
        need("ip", "nsenter", "unshare", "setpriv")
        if not user and os.geteuid() != 0:
            raise Skip("a network namespace of root's needs root (the unprivileged pair covers the rest)")
        try:
            first = ["unshare", "-Urn"] if user else ["unshare", "-n"]
            hold(self, [*self.drop, *first])
            hold(self, [*self.enter(0), "unshare", "-n"])
            self.wire_up(mtu)
        except BaseException:
            self.close()
            raise

    def enter(self, side):
        return entering(self, side)

    def ip(self, side, *words):
        result = run([*self.enter(side), "ip", *words])
        if result.failed:
            raise Fail(result.show("set-up of the namespaces"))

    def wire_up(self, mtu):
        self.ip(0, "link", "add", DEVICE[0], "mtu", str(mtu), "type", "veth",
                "peer", "name", DEVICE[1], "mtu", str(mtu), "netns", str(self.holders[1].pid))
        for side in (0, 1):
            self.ip(side, "link", "set", "lo", "up")
            self.ip(side, "addr", "add", V4[side] + "/24", "dev", DEVICE[side])
            self.ip(side, "-6", "addr", "add", V6[side] + "/64", "dev", DEVICE[side], "nodad")
            self.ip(side, "link", "set", DEVICE[side], "up")
        end = time.monotonic() + 20
        for side in (0, 1):
            # The kernel reports a new link as running up to a second late.
            while "state UP" not in run([*self.enter(side), "ip", "-o", "link", "show", DEVICE[side]]).out:
                if time.monotonic() > end:
                    raise Fail("  the veth does not come up")
                time.sleep(0.02)

    def ends(self):
        """(server, client), each on its veth; the peer's TCP address is IPv4."""
        return tuple(End(addr=DEVICE[s], peer=V4[s], enter=self.enter(s)) for s in (0, 1))

    def close(self):
        for proc in reversed(self.holders):
            proc.end()
        self.holders = []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def whole_packets(suite, wanted, *commands):
    """Veths of MTU 1500 and 9000, of those that are `wanted(mtu)`, which cut nothing: segmentation offload is off, so that each packet
    leaves with the IP header that a NIC would give it. Yields (mtu, pair, None), or (mtu, None, case) with a case that says why not."""
    for mtu in (1500, 9000):
        if not wanted(mtu):
            continue
        try:
            need("ethtool", *commands)
            pair = NetPair(mtu)
        except Skip as why:
            def skip(message=str(why)):
                raise Skip(message)
            yield mtu, None, Case(f"{suite}/veth{mtu}", skip)
            continue
        with pair:
            for side in (0, 1):
                must([*pair.enter(side), "ethtool", "-K", DEVICE[side], "tx-udp-segmentation", "off"])
            yield mtu, pair, None


class Dump:
    """A tcpdump of the RoCE port at one end of a veth, which runs within `with`."""

    def __init__(self, end, side, file, snap=9216):
        self.file = file
        self.proc = Proc([*end.enter, "tcpdump", "-q", "-U", "--immediate-mode", "-Z", "root", "-B", "65536", "-s", str(snap),
                          "-i", DEVICE[side], "-w", file, "udp", "port", "4791"])

    def __enter__(self):
        end = time.monotonic() + 10
        try:
            while "listening on" not in self.proc.output():
                if not self.proc.alive() or time.monotonic() > end:
                    raise Fail(self.proc.wait(0.1).show("tcpdump"))
                time.sleep(0.02)
        except BaseException:
            self.proc.end()
            raise
        return self

    def settle(self):
        """Waits until it has written what it has seen: it writes packet by packet, and loses the rest when it is ended."""
        end, size = time.monotonic() + 10, -1
        while size != os.path.getsize(self.file) and time.monotonic() < end:
            size = os.path.getsize(self.file)
            time.sleep(0.3)

    def __exit__(self, *unused):
        self.proc.end()

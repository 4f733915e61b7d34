#!/usr/bin/env python3
"""Measures crocevia beside its rivals, interleaved in one run; medians, ratios round by round, JSON.

    bench/run.py [write] [qps] [small] [cpu] [pcap] [lat] [buffer] [veth] [audit] [--rounds 5] [--within NS] [--json FILE] [--plot FILE] [--smoke]

    write   ib_write_bw -s 65536 -m 4096 | iperf3 TCP | bare UDP trains of the same shape, and those with copies and CRC;
            ib_send_bw and ib_read_bw    | ib_write_bw
    qps     1000 and 100 queue pairs     | one
    small   perf send-bw -s 64, messages a second
    cpu     CPU seconds of both ends per GB: ib_write_bw, which polls, and ib_send_bw -e | iperf3 TCP
    pcap    ib_write_bw -s 65536 -m 4096 | the same with both ends captured: whole packets, and 128 bytes of each
    lat     ib_{write,send,read,atomic}_lat | bare spinning UDP ping-pong of datagrams of the same size; of trains of two, as
            ends that answer each other send: a message and an acknowledgement; and WRITEs whose ends spin on memory outside
            the library
    buffer  1 GiB READ and 8-to-1 incast at the stock SO_RCVBUF of 212992 | the same at 4 MiB
    veth    over a veth with MTU 1500: ib_write_bw -s 65536 -m 1024, ib_send_bw, ib_read_bw | UDP trains of the same shape over it
    audit   crocevia audit, ICRCs and all | tshark -q -z conv,udp, on a capture of 4.3 GB (a million packets of 4 KiB and as many
            acknowledgements) and one of 10 million packets of 64 B, both in the page cache (6 GB of room in the temporary directory)

All others between 127.0.0.2 and 127.0.0.3. --plot draws the figures and the ratios as SVG, PNG or PDF, by the name (bench/plot.py; needs
matplotlib). Only ratios carry over to another machine, and only where nothing else runs.
A hypervisor moves virtual processors about, and what goes from one to another then takes up to four times as long: the figures of a
round are all taken at one distance (core_distance), or again. --within 100 waits for processors that share a cache.
Needs `cargo build --release --workspace`, perftest and iperf3. --smoke runs each once with tiny counts and judges nothing.
"""

import argparse
import contextlib
import functools
import glob
import json
import os
import resource
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "system"))

import harness  # noqa: E402
import plot  # noqa: E402
import net  # noqa: E402
import table  # noqa: E402

STOCK, LARGE = 212992, 4 << 20


class Bench:
    """One run: where the programs are, and how much to do."""

    def __init__(self, binaries, smoke):
        self.env = harness.Env(binaries)
        self.binaries, self.smoke = binaries, smoke
        self.ends = net.loopback()
        self.stack = contextlib.ExitStack()

    def close(self):
        self.stack.close()
        self.env.close()

    @functools.cached_property
    def veth(self):
        """Two namespaces with a veth of MTU 1500 between them."""
        return self.stack.enter_context(net.NetPair(1500))

    def veth_gbit(self, verb):
        self_ends, self.ends = self.ends, tuple(
            harness.End(addr=net.V4[s], peer=net.V4[s], enter=self.veth.enter(s)) for s in (0, 1))
        try:
            return self.gbit(verb, 65536, 500 if self.smoke else 20000, mtu=1024)
        finally:
            self.ends = self_ends

    def veth_trains(self, *options):
        """One process that has its receiver in one namespace and its sender in the other."""
        sender = f"/proc/{self.veth.holders[1].pid}/ns/net"
        return self.trains("-m", "1024", "-w", "1024", "--server", net.V4[0], "--client", net.V4[1], "--client-net", sender, *options,
                           enter=self.veth.enter(0))

    def distance(self):
        """Nanoseconds in which a cache line goes between the processors; 0 where that does not matter."""
        nanoseconds = self.program("core_distance")["ns"]
        return 0 if self.smoke else nanoseconds

    @functools.cache
    def capture(self, large):
        """A capture and the packets in it. Read once, so that it lies in the page cache."""
        path = os.path.join(self.env.tmp, f"bench-{'large' if large else 'small'}.pcap")
        packets = (1000000 if large else 10000000) // (500 if self.smoke else 1)
        options = ["-s", "4096", "-a", "1"] if large else ["-s", "64", "-a", "16"]
        made = self.program("capture_file", path, "-p", str(packets), *options)
        with open(path, "rb", 0) as file:
            while file.read(1 << 20):
                pass
        return path, made["frames"]

    def reads(self, large, *words):
        """Million packets a second, and MB of memory at most, of a program that reads a capture."""
        path, packets = self.capture(large)
        start = time.monotonic()
        process = subprocess.Popen([*words, path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise harness.Fail(f"  {' '.join(words)} {path} ended with {process.returncode}")
        return packets / (time.monotonic() - start) / 1e6, usage.ru_maxrss / 1e3

    def audit(self, large):
        return self.reads(large, os.path.join(self.binaries, "crocevia"), "audit")

    def tshark(self, large):
        if harness.have("tshark"):
            raise harness.Skip("tshark is not installed")
        return self.reads(large, "tshark", "-q", "-z", "conv,udp", "-r")

    def perftest(self, program, options, column, env=None):
        """The figure in `column` of the one row that the client prints."""
        for _ in range(5):
            client = self.perftest_once(program, options, env)
            rows = table.rows(client.out, 3 if program.endswith("_bw") else 7)
            if len(rows) != 1:
                raise harness.Fail(client.show(program))
            if not table.CLOCK_WARNING.search(client.out):
                return rows[0][1][column]
        raise harness.Fail("  perftest does not find the clock rate: too much else is running\n" + client.show(program))

    def perftest_once(self, program, options, env):
        port = harness.free_port()
        words = [program, "-F", "-p", str(port), *options]
        server, client = harness.run_pair(
            self.env.under(self.ends[0], words), self.env.under(self.ends[1], [*words, self.ends[0].peer]), port, 300, env)
        harness.check_pair(server, client)
        return client

    def program(self, name, *options, env=None, enter=()):
        """The JSON line of a program of this folder."""
        result = harness.run([*enter, os.path.join(self.binaries, name), *options], 120, env)
        if result.failed:
            raise harness.Fail(result.show(name))
        return json.loads(result.out.splitlines()[-1])

    def gbit(self, verb, size, count, env=None, options=(), mtu=4096):
        options = ["-s", str(size), "-m", str(mtu), "-n", str(count), "-N", "--report_gbits", *options]
        return self.perftest(f"ib_{verb}_bw", options, 1, env)

    def captured(self, snap):
        """With both ends captured to files, which are removed."""
        env = {"CROCEVIA_PCAP": os.path.join(self.env.tmp, "bench-%p.pcapng")}
        if snap:
            env["CROCEVIA_PCAP_SNAPLEN"] = snap
        try:
            return self.gbit("write", 65536, 500 if self.smoke else 20000, env)
        finally:
            for file in glob.glob(os.path.join(self.env.tmp, "bench-*.pcapng")):
                os.remove(file)

    def iperf3(self):
        port = str(harness.free_port())
        server = ["iperf3", "-s", "-1", "-B", self.ends[0].peer, "-p", port]
        client = ["iperf3", "-J", "-t", "1", "-c", self.ends[0].peer, "-B", self.ends[1].peer, "-p", port]
        _, result = harness.run_pair(server, client, int(port), 60)
        if result.failed:
            raise harness.Fail(result.show("iperf3"))
        return json.loads(result.out)["end"]["sum_received"]["bits_per_second"] / 1e9

    def trains(self, *options, enter=()):
        seconds = "0.1" if self.smoke else "1"
        shape = () if "-m" in options else ("-m", "4096")
        return self.program("udp_trains", "-s", "65536", *shape, "-D", seconds, *options, enter=enter)["gbit"]

    def incast(self, buffer):
        seconds = "0.2" if self.smoke else "2"
        return self.program("incast", "--senders", "8", "-D", seconds, env={"CROCEVIA_RCVBUF": buffer})["gbit"]

    def read(self, buffer):
        size, count = (1 << 24, 5) if self.smoke else (1 << 30, 5)
        return self.gbit("read", size, count, {"CROCEVIA_RCVBUF": buffer})

    def lat(self, program, size, column=2):
        options = ["-n", "1000" if self.smoke else "20000", *(["-s", str(size)] if size else [])]
        return self.perftest(program, options, column)

    def pingpong(self, *options):
        return self.program("udp_pingpong", "-s", "40", "-n", "1000" if self.smoke else "20000", *options)["p50_us"]

    def spinning(self):
        return self.program("memory_pingpong", "-n", "200" if self.smoke else "2000")["p50_us"]

    def qps(self, number):
        each = 5 if self.smoke else max(40, 20000 // number)
        return self.gbit("write", 65536, each, options=["-q", str(number), "-t", "16"])

    def messages(self):
        """Million 64-byte messages a second."""
        port = str(harness.free_port())
        words = ["perf", "send-bw", "-s", "64", "-D", "0.2" if self.smoke else "2", "--json", "-p", port]
        crocevia = os.path.join(self.binaries, "crocevia")
        server, client = harness.run_pair(
            [crocevia, *words, "--addr", self.ends[0].addr],
            [crocevia, *words, "--addr", self.ends[1].addr, self.ends[0].peer], int(port), 60)
        harness.check_pair(server, client)
        return json.loads(client.out)["results"][0]["msg_rate"]

    def cpu(self, program, *options):
        """CPU seconds of both ends for a GB moved; what start and end cost is taken off."""
        few, many = 100, 1000 if self.smoke else 40000
        seconds = [self.cpu_of(lambda n=n: self.perftest(
            program, ["-s", "65536", "-m", "4096", "-n", str(n), *options], 1)) for n in (few, many)]
        return (seconds[1] - seconds[0]) / ((many - few) * 65536 / 1e9)

    def cpu_tcp(self):
        moved = []
        seconds = self.cpu_of(lambda: moved.append(self.iperf3()))
        # It runs for a second.
        return seconds / (moved[0] / 8)

    @staticmethod
    def cpu_of(action):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        action()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# suite -> (unit, ((name, function), ...), ((ratio, numerator, denominator, target), ...)); without a
# denominator the figure itself is judged. A target is (">=" or "<=", value).
SUITES = {
    "write": ("Gbit/s", (
        ("ib_write_bw", lambda b: b.gbit("write", 65536, 500 if b.smoke else 20000)),
        ("tcp", lambda b: b.iperf3()),
        ("udp trains", lambda b: b.trains()),
        ("udp trains, copies and CRC", lambda b: b.trains("--full")),
        ("ib_send_bw", lambda b: b.gbit("send", 65536, 500 if b.smoke else 20000)),
        ("ib_read_bw", lambda b: b.gbit("read", 65536, 500 if b.smoke else 20000)),
    ), (
        ("ib_write_bw / tcp", "ib_write_bw", "tcp", (">=", 1.0)),
        ("ib_write_bw / udp trains", "ib_write_bw", "udp trains", None),
        ("ib_write_bw / udp trains, copies and CRC", "ib_write_bw", "udp trains, copies and CRC", (">=", 0.85)),
        ("ib_send_bw / ib_write_bw", "ib_send_bw", "ib_write_bw", (">=", 0.9)),
        ("ib_read_bw / ib_write_bw", "ib_read_bw", "ib_write_bw", (">=", 0.9)),
    )),
    "qps": ("Gbit/s", (
        ("1 queue pair", lambda b: b.qps(1)),
        ("100 queue pairs", lambda b: b.qps(100)),
        ("1000 queue pairs", lambda b: b.qps(1000)),
    ), (
        ("100 / 1", "100 queue pairs", "1 queue pair", None),
        ("1000 / 1", "1000 queue pairs", "1 queue pair", (">=", 0.8)),
    )),
    "small": ("million messages a second", (
        ("perf send-bw -s 64", lambda b: b.messages()),
    ), (
        ("perf send-bw -s 64", "perf send-bw -s 64", None, (">=", 2.0)),
    )),
    "cpu": ("CPU seconds per GB, both ends", (
        ("ib_write_bw", lambda b: b.cpu("ib_write_bw")),
        ("ib_send_bw -e", lambda b: b.cpu("ib_send_bw", "-e")),
        ("tcp", lambda b: b.cpu_tcp()),
    ), (
        ("ib_write_bw / tcp", "ib_write_bw", "tcp", ("<=", 1.2)),
        ("ib_send_bw -e / tcp", "ib_send_bw -e", "tcp", ("<=", 1.0)),
    )),
    "pcap": ("Gbit/s", (
        ("ib_write_bw", lambda b: b.gbit("write", 65536, 500 if b.smoke else 20000)),
        ("captured", lambda b: b.captured(None)),
        ("captured, 128 bytes", lambda b: b.captured(128)),
    ), (
        ("captured / not", "captured", "ib_write_bw", (">=", 0.7)),
        ("captured, 128 bytes / not", "captured, 128 bytes", "ib_write_bw", (">=", 0.7)),
    )),
    "lat": ("us one way", (
        ("ib_write_lat", lambda b: b.lat("ib_write_lat", 8)),
        ("udp ping-pong", lambda b: b.pingpong()),
        ("udp ping-pong, with company", lambda b: b.pingpong("--company", "20")),
        ("ib_send_lat", lambda b: b.lat("ib_send_lat", 8)),
        ("half of ib_read_lat", lambda b: b.lat("ib_read_lat", 8) / 2),
        ("half of ib_atomic_lat", lambda b: b.lat("ib_atomic_lat", None) / 2),
        ("ib_write_lat, 99 %", lambda b: b.lat("ib_write_lat", 8, 5)),
        ("WRITE, nobody in the library", lambda b: b.spinning()),
    ), (
        ("ib_write_lat / udp ping-pong", "ib_write_lat", "udp ping-pong", ("<=", 1.4)),
        ("ib_write_lat / with company", "ib_write_lat", "udp ping-pong, with company", None),
        ("ib_send_lat / udp ping-pong", "ib_send_lat", "udp ping-pong", ("<=", 1.4)),
        ("ib_read_lat / round trip", "half of ib_read_lat", "udp ping-pong", ("<=", 1.6)),
        ("ib_atomic_lat / round trip", "half of ib_atomic_lat", "udp ping-pong", ("<=", 1.6)),
        ("nobody in the library / udp ping-pong", "WRITE, nobody in the library", "udp ping-pong", None),
        ("ib_write_lat, 99 % / 50 %", "ib_write_lat, 99 %", "ib_write_lat", ("<=", 3.0)),
    )),
    "buffer": ("Gbit/s", (
        ("1 GiB READ, stock buffer", lambda b: b.read(STOCK)),
        ("1 GiB READ, 4 MiB", lambda b: b.read(LARGE)),
        ("incast 8 to 1, stock buffer", lambda b: b.incast(STOCK)),
        ("incast 8 to 1, 4 MiB", lambda b: b.incast(LARGE)),
    ), (
        ("READ, stock / 4 MiB", "1 GiB READ, stock buffer", "1 GiB READ, 4 MiB", (">=", 0.7)),
        ("incast, stock / 4 MiB", "incast 8 to 1, stock buffer", "incast 8 to 1, 4 MiB", (">=", 0.7)),
    )),
    "veth": ("Gbit/s, MTU 1500", (
        ("ib_write_bw", lambda b: b.veth_gbit("write")),
        ("udp trains", lambda b: b.veth_trains()),
        ("udp trains, copies and CRC", lambda b: b.veth_trains("--full")),
        ("ib_send_bw", lambda b: b.veth_gbit("send")),
        ("ib_read_bw", lambda b: b.veth_gbit("read")),
    ), (
        ("ib_write_bw / udp trains", "ib_write_bw", "udp trains", None),
        ("ib_write_bw / udp trains, copies and CRC", "ib_write_bw", "udp trains, copies and CRC", (">=", 0.85)),
        ("ib_send_bw / udp trains, copies and CRC", "ib_send_bw", "udp trains, copies and CRC", None),
        ("ib_read_bw / udp trains, copies and CRC", "ib_read_bw", "udp trains, copies and CRC", None),
    )),
    "audit": ("million packets a second; MB", (
        ("audit, 4 KiB", lambda b: b.audit(True)[0]),
        ("tshark, 4 KiB", lambda b: b.tshark(True)[0]),
        ("audit, 64 B", lambda b: b.audit(False)[0]),
        ("tshark, 64 B", lambda b: b.tshark(False)[0]),
        ("audit, 64 B, memory", lambda b: b.audit(False)[1]),
    ), (
        ("audit / tshark, 4 KiB", "audit, 4 KiB", "tshark, 4 KiB", (">=", 20.0)),
        ("audit / tshark, 64 B", "audit, 64 B", "tshark, 64 B", (">=", 20.0)),
        ("audit, memory", "audit, 64 B, memory", None, ("<=", 200.0)),
    )),
}


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": values}


def alike(one, other):
    """Whether two distances of the processors are the same but for noise: those within a cache and between two differ fourfold."""
    return max(one, other) <= 1.6 * min(one, other)


def steady(bench, function, distance):
    """A figure taken while the processors were as far apart as `distance` ns; None if they do not stay so."""
    for _ in range(6):
        for _ in range(40):
            if alike(bench.distance(), distance):
                break
            time.sleep(0.25)
        else:
            return None
        value = function(bench)
        if alike(bench.distance(), distance):
            return value
    return None


def one_round(bench, runners, distance, told):
    """A figure of each, all taken at one distance of the processors; None if that does not last."""
    samples = {}
    for runner, function in runners:
        print(f"\r{told}, {runner:<30}", end="", file=sys.stderr, flush=True)
        samples[runner] = steady(bench, function, distance) if distance else function(bench)
        if samples[runner] is None:
            return None
    return samples


def measure(bench, name, rounds, within=None):
    unit, runners, ratios = SUITES[name]
    samples, distances, moved = {n: [] for n, _ in runners}, [], 0
    patience = time.monotonic() + 60 * rounds
    while len(distances) < rounds and time.monotonic() < patience:
        number = len(distances)
        distance = bench.distance()
        if within and distance > within:
            time.sleep(0.5)
            continue
        # Every other round backwards: no rival always runs in another's wake.
        order = runners if number % 2 == 0 else tuple(reversed(runners))
        taken = one_round(bench, order, distance, f"{name}: round {number + 1}/{rounds}")
        if taken is None:
            moved += 1
            continue
        distances.append(distance)
        for runner, value in taken.items():
            samples[runner].append(value)
    print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    if not distances:
        raise harness.Fail(f"  no round of {name}: the processors do not stay where they are, or within {within} ns (bench/programs, core_distance)")
    result = {"unit": unit, "rounds": len(distances), "distance_ns": distances, "moved": moved,
              "figures": {n: spread(v) for n, v in samples.items()}, "ratios": {}}
    for title, top, bottom, target in ratios:
        entry = spread([a / b for a, b in zip(samples[top], samples[bottom])] if bottom else samples[top])
        if target:
            met = entry["median"] >= target[1] if target[0] == ">=" else entry["median"] <= target[1]
            entry.update(target=f"{target[0]} {target[1]}", met=met)
        result["ratios"][title] = entry
    return result


def show(name, result):
    print(f"{name} ({result['unit']}, {result['rounds']} rounds: median, min .. max)")
    near, far = min(result["distance_ns"]), max(result["distance_ns"])
    given_up = f"; {result['moved']} times they moved" if result["moved"] else ""
    print(f"  a cache line took {near:.0f} .. {far:.0f} ns between the processors{given_up}")
    for title, f in result["figures"].items():
        print(f"  {title:<44} {f['median']:9.2f}   {f['min']:.2f} .. {f['max']:.2f}")
    for title, f in result["ratios"].items():
        target = f"   target {f['target']}: {'met' if f['met'] else 'MISSED'}" if "target" in f else ""
        print(f"  {title:<44} {f['median']:9.2f}   {f['min']:.2f} .. {f['max']:.2f}{target}")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", nargs="*", help=f"of {', '.join(SUITES)}; default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write the result there too")
    parser.add_argument("--plot", metavar="FILE", help="draw the result: .svg, .png or .pdf")
    parser.add_argument("--within", type=float, metavar="NS", help="only while a cache line takes no longer between the processors")
    parser.add_argument("--smoke", action="store_true", help="one round, tiny counts, nothing judged")
    parser.add_argument("--bin", default=os.path.join(ROOT, "target", "release"), help="where the built programs are")
    args = parser.parse_args()
    unknown = [s for s in args.suite if s not in SUITES]
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    missing = harness.have("ib_write_bw", "iperf3")
    if missing:
        parser.error(f"not installed: {', '.join(missing)} (scripts/needs installs it)")
    bench = Bench(args.bin, args.smoke)
    results = {}
    try:
        for name in args.suite or SUITES:
            try:
                results[name] = measure(bench, name, 1 if args.smoke else args.rounds, args.within)
            except harness.Skip as why:
                print(f"bench {name}: skipped: {why}")
                continue
            if args.smoke:
                print(f"bench {name}: {len(results[name]['figures'])} programs run")
            else:
                show(name, results[name])
    except harness.Fail as fault:
        print(f"\n{fault}\n  reproduce: bench/run.py {name}{' --smoke' if args.smoke else ''}")
        return 1
    finally:
        bench.close()
    if args.plot:
        try:
            plot.draw(results, args.plot)
        except harness.Skip as why:
            print(f"bench plot: skipped: {why}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

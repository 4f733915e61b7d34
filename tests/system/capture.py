"""What crocevia puts on the wire, judged by the independent ICRC checker that judges the captures of the kernel: perftest between two
namespaces with segmentation offload off, so that each packet of a train leaves with the IP header that a NIC would give it.
"""

import os
import re
import sys

from harness import ROOT, Case, Fail, check_pair, free_port, need, run, run_pair
import net
import table

CHECKER = os.path.join(ROOT, "crates", "wire", "tests", "captures", "check_icrc.py")
# program, options, opcodes that must be there
RUNS = [
    ("ib_write_bw", ["-s", "65535"], ("RC_WRITE_FIRST", "RC_WRITE_MIDDLE", "RC_WRITE_LAST", "RC_ACK")),
    ("ib_read_bw", ["-s", "65535"], ("RC_READ_REQUEST", "RC_READ_RESP_FIRST", "RC_READ_RESP_MIDDLE", "RC_READ_RESP_LAST")),
    ("ib_send_bw", ["-s", "65535"], ("RC_SEND_FIRST", "RC_SEND_MIDDLE", "RC_SEND_LAST", "RC_ACK")),
    ("ib_send_bw", ["-s", "61"], ("RC_SEND_ONLY", "RC_ACK")),
    ("ib_atomic_bw", [], ("RC_FETCH_ADD", "RC_ATOMIC_ACK")),
]


def capture(env, ends, addresses, program, options, opcodes):
    need(program)
    gid = [table.gid_index(env.under(ends[s], []), addresses[s]) for s in (0, 1)]
    file = os.path.join(env.tmp, "capture.pcap")
    with net.Dump(ends[1], 1, file) as dump:
        port = free_port()
        words = [program, "-F", "-n", "100", "-p", str(port), *options]
        server, client = run_pair(
            env.under(ends[0], [*words, "-x", str(gid[0])]),
            env.under(ends[1], [*words, "-x", str(gid[1]), ends[0].peer]), port, 60)
        check_pair(server, client)
        dump.settle()
    checked = run([sys.executable, CHECKER, file])
    missing = [o for o in opcodes if not re.search(rf"\b{o} [1-9]", checked.out)]
    if checked.failed or missing:
        raise Fail(f"  opcodes that are missing: {missing}\n" + checked.show("check_icrc.py"))
    return re.sub(r"^[^:]*: (\d+) RoCEv2 packets, .*", r"\1 packets", checked.out.strip())


def cases(env):
    def names(mtu):
        return [f"capture/veth{mtu}/{family}/{p}{''.join(o)}" for family in ("ipv4", "ipv6") for p, o, _ in RUNS]

    for mtu, pair, skip in net.whole_packets("capture", lambda mtu: env.any_wanted(names(mtu)), "tcpdump"):
        if skip:
            yield skip
            continue
        for family, addresses in (("ipv4", net.V4), ("ipv6", net.V6)):
            for program, options, opcodes in RUNS:
                yield Case(f"capture/veth{mtu}/{family}/{program}{''.join(options)}",
                           lambda a=(pair.ends(), addresses, program, options, opcodes): capture(env, *a))

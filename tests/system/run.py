#!/usr/bin/env python3
"""Runs the system suites and closes with `N passed, N failed, N skipped`.

    tests/system/run.py [SUITE...] [-k REGEX] [--list] [--quick] [--bin target/release] [--count N] [--rate N]

Needs `cargo build --release` before, and what scripts/needs installs. Standard library only.
"""

import argparse
import os
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import audit  # noqa: E402
import audit_live  # noqa: E402
import capture  # noqa: E402
import check  # noqa: E402
import counters  # noqa: E402
import demo  # noqa: E402
import faults  # noqa: E402
import flood  # noqa: E402
import harness  # noqa: E402
import idle  # noqa: E402
import kill  # noqa: E402
import pcap  # noqa: E402
import perftest  # noqa: E402
import pingpong  # noqa: E402
import rxe  # noqa: E402
import sharing  # noqa: E402

SUITES = {"pingpong": pingpong, "perftest": perftest, "faults": faults, "sharing": sharing, "kill": kill, "idle": idle, "stat": counters,
          "capture": capture, "pcap": pcap, "check": check, "audit": audit, "audit_live": audit_live, "flood": flood, "rxe": rxe,
          "demo": demo}


class Tally:
    """Counts, and what to print for each case."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], 0

    def case(self, case):
        start = time.monotonic()
        verdict, text = "ok", ""
        try:
            text = case.run() or ""
            self.passed += 1
        except harness.Skip as why:
            verdict, text = "skip", str(why)
            self.skipped += 1
        except harness.Fail as fault:
            verdict, text = "FAIL", "\n" + str(fault)
            self.failed.append(case.name)
        except Exception:
            verdict, text = "FAIL", "\n" + traceback.format_exc()
            self.failed.append(case.name)
        print(f"{verdict:4} {case.name}  {time.monotonic() - start:.1f} s  {text}".rstrip(), flush=True)
        if verdict == "FAIL":
            print(f"  reproduce: tests/system/run.py -k '^{case.name}$'", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", nargs="*", help=f"of {', '.join(SUITES)}; default all")
    parser.add_argument("-k", metavar="REGEX", help="only cases whose name matches")
    parser.add_argument("--list", action="store_true", help="names only; may set up what the names depend on")
    parser.add_argument("--quick", action="store_true", help="without the fresh clone")
    parser.add_argument("--rounds", type=int, metavar="N", help="of what is repeated with random times: processes killed")
    parser.add_argument("--seed", type=int, metavar="N", help="of these times; default another one each time")
    parser.add_argument("--bin", default=os.path.join(harness.ROOT, "target", "release"), help="where the built programs are")
    parser.add_argument("--count", type=int, help="datagrams of the flood suite's main cases")
    parser.add_argument("--rate", type=float, help="the same, datagrams a second; 0: as fast as it goes")
    parser.add_argument("--counts", metavar="FILE", help="write the three counts to FILE instead of printing the closing line")
    args = parser.parse_args()
    unknown = [s for s in args.suite if s not in SUITES]
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    return args


def suite(name, env, tally, list_only):
    """Runs the wanted cases of one suite. What a suite cannot set up is a case of its own that fails."""
    try:
        for case in SUITES[name].cases(env):
            if not env.wanted(case.name):
                continue
            if list_only:
                print(case.name)
            else:
                tally.case(case)
    except (harness.Fail, harness.Skip, OSError) as fault:
        def broken(fault=fault):
            raise fault
        tally.case(harness.Case(f"{name}/set-up", broken))


def interrupted(*unused):
    """SIGTERM as Ctrl-C: what was set up is torn down."""
    raise KeyboardInterrupt


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, interrupted)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    env = harness.Env(args.bin, args.k, args.quick)
    env.rounds, env.seed, env.count, env.rate = args.rounds, args.seed, args.count, args.rate
    tally = Tally()
    start = time.monotonic()
    try:
        for name in args.suite or SUITES:
            suite(name, env, tally, args.list)
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    finally:
        env.close()
    if args.list:
        return 0
    if not (tally.passed or tally.failed or tally.skipped):
        print("no case matches")
        return 2
    print(f"system suites: {time.monotonic() - start:.0f} s")
    for name in tally.failed:
        print(f"  failed: {name}   reproduce: tests/system/run.py -k '^{name}$'")
    counts = (tally.passed, len(tally.failed), tally.skipped)
    if args.counts:
        with open(args.counts, "w") as f:
            print(*counts, file=f)
    else:
        print("{} passed, {} failed, {} skipped".format(*counts))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())

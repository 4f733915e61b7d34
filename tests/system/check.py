"""The verbs checker on unmodified programs: nothing is found in rdma-core's examples and perftest but what they really do.

The programs that break each rule are in crates/cabi/tests/c/check; here is what must stay quiet, and what `--check` does around it.
"""

import json
import os

from harness import Case, Fail, check_pair, free_port, need, run, run_pair
import net

TIMEOUT = 60

# Real faults of perftest 4.5 (docs/checker.md, at its end): (program, options, end) may break these rules.
RECEIVE_CQ = "C018 CQ"


def known(program, options, end):
    """What is accepted: beginnings of `code object`."""
    if program == "ib_atomic_lat" and end == "server":
        return ("C018 ",)
    accepted = ()
    if program == "ib_send_bw" and end == "client" and "-b" not in options:
        accepted += (RECEIVE_CQ,)
    if program in ("ib_send_bw", "ib_send_lat") and "UD" in options:
        accepted += ("C012 ",)
    return accepted


PERFTEST = [
    ("ib_write_bw", ["-s", "65536", "-n", "100"]),
    ("ib_write_bw", ["-b", "-q", "4", "-n", "100"]),
    ("ib_write_bw", ["-l", "16", "-q", "2", "-n", "160"]),
    ("ib_write_bw", ["-I", "64", "-s", "64", "-n", "1000"]),
    ("ib_write_bw", ["-c", "UC", "-n", "200"]),
    ("ib_write_bw", ["-D", "1"]),
    ("ib_read_bw", ["-s", "65536", "-n", "100"]),
    ("ib_read_bw", ["-b", "-q", "2", "-n", "100"]),
    ("ib_send_bw", ["-s", "65536", "-n", "100"]),
    ("ib_send_bw", ["-b", "-q", "4", "-n", "100"]),
    ("ib_send_bw", ["-e", "-n", "200"]),
    ("ib_send_bw", ["--use-srq", "-q", "2", "-n", "200"]),
    ("ib_send_bw", ["-c", "UC", "-n", "200"]),
    ("ib_send_bw", ["-c", "UD", "-s", "1024", "-n", "200"]),
    ("ib_atomic_bw", ["-n", "200"]),
    ("ib_atomic_bw", ["-A", "CMP_AND_SWAP", "-q", "2", "-n", "200"]),
    ("ib_write_lat", ["-n", "200"]),
    ("ib_write_lat", ["-s", "4096", "-n", "200"]),
    ("ib_write_lat", ["-c", "UC", "-n", "200"]),
    ("ib_read_lat", ["-n", "200"]),
    ("ib_send_lat", ["-n", "200"]),
    ("ib_send_lat", ["-s", "4096", "-e", "-n", "200"]),
    ("ib_send_lat", ["-c", "UC", "-n", "200"]),
    ("ib_send_lat", ["-c", "UD", "-n", "200"]),
    ("ib_atomic_lat", ["-n", "200"]),
]
PINGPONGS = [
    (f"ibv_{kind}_pingpong", options)
    for kind, variants in (("rc", ([], ["-e"], ["-N"], ["-t"], ["-o"])), ("uc", ([], ["-e"])), ("ud", ([], ["-e"])), ("srq", ([], ["-e"])))
    for options in variants
]
FAULTS = "loss=5%,reorder=3%,dup=3%,corrupt=1%,seed=42"


def checked(env, end, program, file, faults=None, mode="report"):
    argv = env.under(end, program, faults)
    at = argv.index("run") + 1
    return [*argv[:at], f"--check={mode}", "--check-json", file, *argv[at:]]


def findings(file):
    """The findings, and the summaries, of a file."""
    with open(file) as f:
        lines = [json.loads(line) for line in f]
    return [x for x in lines if "finding" in x], [x for x in lines if "summary" in x]


def quiet(env, program, options, words, faults=None, ends=None):
    """Runs a pair, and looks at what was found at either end."""
    need(program)
    port = free_port()
    ends = ends or net.loopback()
    files = [os.path.join(env.tmp, f"findings-{port}-{side}") for side in ("server", "client")]
    for file in files:
        open(file, "w").close()
        os.chmod(file, 0o666)
    words = [program, *words, "-p", str(port), *options]
    server, client = run_pair(
        checked(env, ends[0], words, files[0], faults),
        checked(env, ends[1], [*words, ends[0].peer], files[1], faults), port, TIMEOUT)
    check_pair(server, client, allow="crocevia check:|found:|expected:|to do:")
    accepted = 0
    for side, file, result in (("server", files[0], server), ("client", files[1], client)):
        found, summaries = findings(file)
        if len(summaries) != 1 or summaries[0]["sends"] + summaries[0]["objects"] == 0:
            raise Fail(f"  {side}: no summary, or nothing was looked at: {summaries}\n" + result.show(side))
        allowed = known(program, options, side)
        wrong = [x for x in found if not f"{x['finding']} {x['object']}".startswith(tuple(allowed) or "-")]
        if wrong:
            raise Fail(f"  {side}: false alarm: {wrong[0]}\n" + result.show(side, 60))
        accepted += len(found)
    return f"{accepted} accepted" if accepted else ""


def perftest(env, program, options, ends=None):
    return quiet(env, program, options, ["-F"], ends=ends)


def pingpong(env, program, options, faults=None):
    return quiet(env, program, options, ["-g", "0", "-c", "-n", "200"], faults)


def loops(env):
    """The same pair again and again: nothing depends on how the ends meet."""
    for _ in range(10):
        pingpong(env, "ibv_rc_pingpong", ["-e"], FAULTS)


def killed(env):
    """What was found before a program is killed stands in the file."""
    need("ib_send_bw")
    file = os.path.join(env.tmp, "findings-killed")
    argv = checked(env, net.loopback()[0], ["timeout", "-s", "KILL", "1", "ib_send_bw", "-F", "-p", str(free_port())], file)
    result = run(argv, 20)
    if result.code not in (137, -9):
        raise Fail(result.show("killed"))
    found, summaries = findings(file)
    if found or summaries:
        raise Fail(f"  expected nothing, found {found} {summaries}")


def usage(env):
    """Wrong words and files are told before the program starts."""
    end = net.loopback()[0]
    for options, code, text in (
            (["--check=loud"], 2, "found `loud`"),
            (["--check-json", "/nowhere/x"], 1, "/nowhere/x"),
            (["--check"], 2, "no program")):
        argv = [env.crocevia, "run", "--addr", end.addr, *options]
        result = run(argv if text == "no program" else [*argv, "--", "true"], 20)
        if result.code != code or text not in result.out:
            raise Fail(result.show(f"expected {code} and `{text}`"))
    listed = run([env.crocevia, "run", "--check=list"], 20)
    if listed.failed or "C001 buffer-changed" not in listed.out:
        raise Fail(listed.show("list"))


def not_verbs(env):
    """A program that uses no verbs says nothing, nor do those that it starts."""
    result = run([env.crocevia, "run", "--check", "--", "sh", "-c", "true; /bin/echo done"], 20)
    if result.failed or result.out != "done\n":
        raise Fail(result.show("no verbs"))


def cases(env):
    for program, options in PERFTEST:
        yield Case(f"check/{program}{''.join(options)}", lambda p=program, o=options: perftest(env, p, o))
    if env.root:
        yield Case("check/uid65534/ib_send_bw",
                   lambda: perftest(env, "ib_send_bw", ["-n", "100"], net.loopback(user=True)))
    for program, options in PINGPONGS:
        yield Case(f"check/{program}{''.join(options)}", lambda p=program, o=options: pingpong(env, p, o))
    yield Case("check/ibv_rc_pingpong-faults", lambda: pingpong(env, "ibv_rc_pingpong", [], FAULTS))
    yield Case("check/ibv_rc_pingpong-loops", lambda: loops(env))
    yield Case("check/killed", lambda: killed(env))
    yield Case("check/usage", lambda: usage(env))
    yield Case("check/not-verbs", lambda: not_verbs(env))

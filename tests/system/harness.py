"""What every system suite uses: cases, processes with a time limit, a server and a client run as a pair.

A suite is a module with `cases(env)`, a generator of Case; what it sets up around a `yield` is torn down when the
generator goes on. Nothing here knows RDMA, except how `crocevia run` is called.
"""

import contextlib
import dataclasses
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NOBODY = 65534


class Skip(Exception):
    """The case cannot run on this machine; the message says why in one line."""


class Fail(Exception):
    """The case found a fault; the message is what the reader needs to see."""


@dataclasses.dataclass
class Case:
    """One named check. `run` raises Fail or Skip, or returns a note for the line (or None)."""

    name: str
    run: object


@dataclasses.dataclass
class End:
    """Where a program runs and how its peer reaches it."""

    addr: str  # what `crocevia run --addr` gets: an address or an interface
    peer: str  # the address that the other end connects to
    enter: tuple = ()  # command that enters the namespace and drops rights, before the program


@dataclasses.dataclass
class Result:
    """What a process left."""

    argv: list
    code: object  # exit status, negative for a signal, None when it had to be ended
    out: str

    @property
    def failed(self):
        return self.code != 0

    def show(self, title, lines=40):
        """The command and the end of its output, for a failure report."""
        how = "did not end in time" if self.code is None else f"exit status {self.code}"
        tail = "\n".join("    " + s for s in self.out.splitlines()[-lines:])
        return f"  {title}: {how}\n  $ {shlex.join(self.argv)}\n{tail}"


class Proc:
    """A child in a process group of its own, its output in a file."""

    def __init__(self, argv, env=None):
        self.argv = [str(a) for a in argv]
        self.file = tempfile.TemporaryFile()
        full = dict(os.environ, **{k: str(v) for k, v in (env or {}).items()})
        self.child = subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
            env=full, cwd="/", start_new_session=True)
        self.pid = self.child.pid

    def alive(self):
        return self.child.poll() is None

    def output(self):
        # Not by seeking: the child writes at the same offset.
        fd = self.file.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    def wait(self, seconds):
        """Result after at most `seconds`; what still runs then is ended."""
        try:
            code = self.child.wait(max(seconds, 0.01))
        except subprocess.TimeoutExpired:
            code = None
            self.end()
        return Result(self.argv, code, self.output())

    def end(self):
        """Ends the process group that this object started."""
        if self.child.poll() is not None:
            return
        for sig, grace in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(self.pid, sig)
            except ProcessLookupError:
                pass
            try:
                self.child.wait(grace)
                return
            except subprocess.TimeoutExpired:
                continue


def run(argv, timeout=60, env=None):
    """Runs to the end, or for `timeout` seconds."""
    return Proc(argv, env).wait(timeout)


def must(argv, timeout=60, env=None):
    """Like `run`, for set-up steps: a failure is a Fail."""
    result = run(argv, timeout, env)
    if result.failed:
        raise Fail(result.show("set-up"))
    return result.out


def have(*commands):
    """Names of the commands that are not installed."""
    return [c for c in commands if shutil.which(c) is None]


class XrcFiles:
    """perftest and ibv_xsrq_pingpong keep an XRC domain in a file of a fixed name, which only its maker can open: those made
    meanwhile go, so that the next user has none in the way; one that was there before is in the way of others than its owner."""

    NAMES = ("/tmp/xrc_domain", "/tmp/xrc_domain_client", "/tmp/xrc_domain_server")

    def __enter__(self):
        self.before = [name for name in self.NAMES if os.path.exists(name)]
        if self.before:
            raise Skip(f"somebody else's {self.before[0]} is in the way")

    def __exit__(self, *_):
        for name in self.NAMES:
            with contextlib.suppress(OSError):
                os.unlink(name)


def need(*commands):
    """Skips the case when a command is missing."""
    missing = have(*commands)
    if missing:
        raise Skip(f"not installed: {', '.join(missing)} (scripts/needs installs it)")


def build_c(env, name):
    """A program of this directory, NAME.c, compiled; it finds its libibverbs when it runs."""
    need("cc")
    if not os.path.exists("/usr/include/infiniband/verbs.h"):
        raise Skip("not installed: libibverbs-dev (scripts/needs installs it)")
    program = os.path.join(env.tmp, name)
    if not os.path.exists(program):
        must(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
              os.path.join(HERE, name + ".c"), "-libverbs"])
    return program


def free_port():
    """A TCP port nobody listens on in this namespace now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.bind(("0.0.0.0", 0))
        return s.getsockname()[1]


def listening(pid, port):
    """Whether somebody in the network namespace of `pid` listens on the TCP port."""
    want = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}") as f:
                for line in f:
                    field = line.split()
                    if len(field) > 3 and field[3] == "0A" and field[1].endswith(want):
                        return True
        except OSError:
            pass
    return False


def wait_listening(proc, port, seconds=20):
    """Waits for the server; False when it ended or does not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if listening(proc.pid, port):
            return True
        if not proc.alive():
            return False
        time.sleep(0.01)
    return False


def run_pair(server_argv, client_argv, port, timeout, env=None):
    """Server first, client when the server listens; both results. The server gets 10 s after its client."""
    start = time.monotonic()
    server = Proc(server_argv, env)
    client = None
    try:
        if not wait_listening(server, port):
            return server.wait(0.5), Result(list(map(str, client_argv)), -1, "not started: no server")
        client = Proc(client_argv, env)
        client_result = client.wait(timeout - (time.monotonic() - start))
        grace = 10 if client_result.code == 0 else 2
        return server.wait(grace), client_result
    finally:
        server.end()
        if client is not None:
            client.end()


BAD_WORDS = re.compile(
    r"(?i)\b(error|errors|fail|failed|failure|unable|couldn't|could not|cannot|can't|invalid|mismatch|panicked)\b")


def check_pair(server, client, allow=None):
    """Both ended with 0 and neither complained."""
    parts = []
    if client.failed or server.failed:
        parts.append("both ends must exit with 0")
    for title, result in (("client", client), ("server", server)):
        for line in result.out.splitlines():
            if BAD_WORDS.search(line) and not (allow and re.search(allow, line)):
                parts.append(f"{title} says: {line.strip()}")
    if parts:
        shown = "\n".join([client.show("client"), server.show("server")])
        raise Fail("\n".join("  " + p for p in parts) + "\n" + shown)


class Env:
    """The run: where the built programs are, which cases are wanted."""

    def __init__(self, binaries, wanted=None, quick=False):
        self.binaries = binaries
        self.wanted_re = re.compile(wanted) if wanted else None
        self.quick = quick
        self.root = os.geteuid() == 0
        self.tmp = tempfile.mkdtemp(prefix="crocevia-test-")
        os.chmod(self.tmp, 0o755)
        self.bin = os.path.join(self.tmp, "bin")
        os.mkdir(self.bin, 0o755)
        # A copy that any user can read: a checkout below a private home is of no use to uid 65534.
        for name in ("crocevia", "libcrocevia_ibverbs.so"):
            path = os.path.join(binaries, name)
            if not os.path.exists(path):
                raise SystemExit(f"{path} is missing: run `cargo build --release` first")
            shutil.copy2(path, self.bin)
            os.chmod(os.path.join(self.bin, name), 0o755)
        self.crocevia = os.path.join(self.bin, "crocevia")

    def program(self, name):
        """A program that only some suites need, beside the others."""
        place = os.path.join(self.bin, name)
        if not os.path.exists(place):
            path = os.path.join(self.binaries, name)
            if not os.path.exists(path):
                raise Skip(f"{path} is missing: run `cargo build --release --workspace` first")
            shutil.copy2(path, place)
            os.chmod(place, 0o755)
        return place

    def close(self):
        shutil.rmtree(self.tmp, ignore_errors=True)

    def wanted(self, name):
        """Whether the case is to run."""
        return self.wanted_re is None or bool(self.wanted_re.search(name))

    def any_wanted(self, names):
        """For set-up that costs: whether any of these cases is to run."""
        return any(self.wanted(n) for n in names)

    def under(self, end, program, faults=None):
        """The command that runs `program` on a crocevia NIC at `end`."""
        argv = [*end.enter, self.crocevia, "run", "--addr", end.addr]
        if faults:
            argv += ["--faults", faults]
        return [*argv, "--", *program]

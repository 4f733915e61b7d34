"""README's first command, as a new user types it: a fresh clone, that one line, the demo's table."""

import os
import re
import shutil
import tempfile

from harness import ROOT, Case, Fail, Skip, need, run
import net

ROWS = ("RDMA WRITE", "RDMA READ", "SEND", "FETCH-AND-ADD", "TCP")


def readme_commands():
    """The lines of the first code block of README.md."""
    with open(os.path.join(ROOT, "README.md")) as f:
        block = re.search(r"```[a-z]*\n(.*?)```", f.read(), re.S)
    if not block:
        raise Fail("  README.md has no code block")
    return [s for s in block.group(1).splitlines() if s.strip() and not s.lstrip().startswith("#")]


def check_table(result):
    missing = [row for row in ROWS if not re.search(rf"^\W*{row}\s.*\d", result.out, re.M)]
    if "every byte was checked, 0 were wrong" not in result.out:
        missing.append("every byte right")
    if result.failed or missing:
        raise Fail(f"  not in the demo's output: {missing}\n" + result.show("demo", 80))


def built(env):
    check_table(run([env.crocevia, "demo"], 120))


def unprivileged(env):
    if not env.root:
        raise Skip("the case before ran without rights already")
    need("setpriv")
    check_table(run([*net.as_nobody(), env.crocevia, "demo"], 120))


def fresh_clone():
    need("git", "cargo")
    if not os.path.exists(os.path.join(ROOT, ".git")):
        raise Skip("not a git checkout")
    command = readme_commands()[0]
    folder = tempfile.mkdtemp(prefix="crocevia-clone-")
    try:
        clone = run(["git", "clone", "-q", ROOT, os.path.join(folder, "crocevia")], 120)
        if clone.failed:
            raise Fail(clone.show("git clone"))
        script = f"cd {folder}/crocevia && {command}"
        check_table(run(["env", "-u", "CARGO_TARGET_DIR", "bash", "-c", script], 1200))
        return command
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cases(env):
    yield Case("demo/built", lambda: built(env))
    yield Case("demo/uid65534", lambda: unprivileged(env))
    if not env.quick:
        yield Case("demo/fresh-clone", fresh_clone)

#!/usr/bin/env python3
"""The documents name only what exists: files in backquotes, `file::test` of docs/conformance.md, links between pages."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RULES = "crates/engine/tests/rules"
SOURCES = {"wire": "crates/wire", "live": "crates/live", "cabi": "crates/cabi"}
PAGES = ("README.md", "ARCHITECTURE.md", "STYLE.md", "docs/conformance.md", "docs/counters.md", "docs/doctor.md", "tools/rxe-vm/README.md")


def text(path):
    with open(os.path.join(ROOT, path)) as f:
        return f.read()


def exists(path):
    return os.path.exists(os.path.join(ROOT, path))


def conformance():
    """Every `file::test`, and every source file in short form."""
    for line in text("docs/conformance.md").splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) != 5 or cells[2] in ("where", "---"):
            continue
        for name in re.findall(r"`([^`]+\.rs)`", cells[2]):
            crate, _, rest = name.partition("/")
            path = f"{SOURCES[crate]}/src/{rest}" if crate in SOURCES else f"crates/engine/src/{name}"
            if not exists(path):
                yield f"docs/conformance.md: no file {path} ({cells[1][:40]}…)"
        for file, _, test in (n.partition("::") for n in re.findall(r"`([^`]+)`", cells[3])):
            crate, _, rest = file.partition("/")
            path = file if file.startswith("tests/") else f"{SOURCES[crate]}/tests/{rest}" if crate in SOURCES else f"{RULES}/{file}"
            if not exists(path):
                yield f"docs/conformance.md: no file {path} ({cells[1][:40]}…)"
            elif test and not re.search(rf"^\s*fn {test}\(", text(path), re.M):
                yield f"docs/conformance.md: no test {test} in {path}"


def paths():
    """Paths in backquotes and links."""
    tops = set(subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split())
    tops = {p.split("/")[0] for p in tops if "/" in p}
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)\)", text(page)):
            if not os.path.exists(os.path.join(ROOT, os.path.dirname(page), link)):
                yield f"{page}: no file {link}"
        for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text(page)):
            if name.split("/")[0] in tops and not exists(name):
                yield f"{page}: no file {name}"


def main():
    found = list(conformance()) + list(paths())
    for fault in found:
        print(fault)
    print(f"docs: {len(PAGES)} pages, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

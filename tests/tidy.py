#!/usr/bin/env python3
"""The style rules that a program can check, over the whole workspace: sizes, headers, markers, where `unsafe` may stand, which
crate may depend on which, and the licences of what is linked (the allow list of deny.toml).
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAX_FILE, MAX_LINE, MAX_FUNCTION = 600, 100, 70
UNSAFE_CRATES = {"live", "cabi"}
# Arrows point down only. Dev-dependencies are free.
EDGES = {
    "crocevia-wire": set(),
    "crocevia-engine": {"crocevia-wire"},
    "crocevia-live": {"crocevia-wire", "crocevia-engine"},
    "crocevia": {"crocevia-wire", "crocevia-engine", "crocevia-live"},
    "crocevia-cabi": {"crocevia"},
    "crocevia-cli": {"crocevia"},
    "crocevia-bench": {"crocevia"},
}
MARKERS = re.compile(r"\b(?:todo|unimplemented|dbg)!\s*\(|\bFIXME\b|\bXXX\b|#\[ignore|assert!\(true\)")
FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([a-z]+\))? )?(?:const )?(?:unsafe )?(?:extern \"C\" )?fn (\w+)")


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [p for p in out.stdout.splitlines() if os.path.exists(os.path.join(ROOT, p))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
        return f.read().splitlines()


def long_functions(path, lines):
    """Functions over the limit, by the indentation that rustfmt guarantees."""
    start = name = indent = None
    for number, line in enumerate(lines, 1):
        m = FUNCTION.match(line)
        if m and start is None:
            start, indent, name = number, m.group(1), m.group(2)
        if start is not None and (line == indent + "}" or (number == start and line.rstrip().endswith(("}", ";")))):
            if number - start + 1 > MAX_FUNCTION:
                yield f"{path}:{start}: function {name} has {number - start + 1} lines (at most {MAX_FUNCTION})"
            start = None
        elif start is not None and line.startswith(indent + ")") and line.rstrip().endswith(";"):
            start = None


def rust(path):
    lines = read(path)
    crate = path.split("/")[1] if path.startswith("crates/") else ""
    is_test = "/tests/" in path or path.endswith("tests.rs") or "/examples/" in path or path.startswith("bench/")
    if len(lines) > MAX_FILE:
        yield f"{path}: {len(lines)} lines (at most {MAX_FILE})"
    if not lines or not lines[0].startswith("//!"):
        yield f"{path}:1: a file opens with `//!`: what lives here, what does not"
    if not is_test:
        yield from long_functions(path, lines)
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            yield f"{path}:{number}: {len(line)} columns (at most {MAX_LINE})"
        if MARKERS.search(line):
            yield f"{path}:{number}: left unfinished: {line.strip()}"
        code = line.split("//")[0]
        if crate not in UNSAFE_CRATES and re.search(r"\bunsafe\s*(?:\{|fn|impl|extern)", code) and not is_test:
            yield f"{path}:{number}: `unsafe` belongs to {', '.join(sorted(UNSAFE_CRATES))}"


def edges(metadata):
    for package in metadata["packages"]:
        if package["source"] is not None:
            continue
        allowed = EDGES.get(package["name"])
        if allowed is None:
            yield f"{package['name']}: not in the table of crates (tests/tidy.py)"
            continue
        for dep in package["dependencies"]:
            if dep["kind"] is None and dep["name"] in EDGES and dep["name"] not in allowed:
                yield f"{package['name']} must not depend on {dep['name']}"


def allowed_licences():
    text = "\n".join(read("deny.toml"))
    block = re.search(r"^allow = \[(.*?)\]", text, re.S | re.M).group(1)
    return set(re.findall(r'"([^"]+)"', block))


def licence_ok(expression, allowed):
    """An SPDX expression of AND, OR, WITH and brackets, judged against the allow list."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def either():
        value = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value = both() or value
        return value

    def both():
        value = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value = one() and value
        return value

    def one():
        word = tokens.pop(0)
        if word == "(":
            value = either()
            tokens.pop(0)
            return value
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            word += " WITH " + tokens.pop(0)
        return word in allowed

    return either()


def licences(metadata):
    allowed = allowed_licences()
    for package in metadata["packages"]:
        if not package["license"] or not licence_ok(package["license"], allowed):
            yield f"{package['name']} {package['version']}: licence {package['license']!r} is not on deny.toml's list"


def main():
    out = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked"], cwd=ROOT, capture_output=True, text=True)
    if out.returncode:
        print(out.stderr)
        return 1
    metadata = json.loads(out.stdout)
    files = tracked("*.rs")
    found = [fault for path in files for fault in rust(path)]
    found += list(edges(metadata)) + list(licences(metadata))
    for path in ("LICENSE-MIT", "LICENSE-APACHE", "README.md", "ARCHITECTURE.md", "STYLE.md"):
        if not os.path.exists(os.path.join(ROOT, path)):
            found.append(f"{path} is missing")
    for fault in found:
        print(fault)
    print(f"tidy: {len(files)} files, {len(metadata['packages'])} packages, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

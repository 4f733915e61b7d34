#!/usr/bin/env python3
"""The licences of everything that cargo would link, against the allow list of deny.toml; for where cargo-deny is not installed."""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def allowed_licences():
    with open(os.path.join(ROOT, "deny.toml")) as f:
        text = f.read()
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
    found = list(licences(metadata))
    for fault in found:
        print(fault)
    print(f"licences: {len(metadata['packages'])} packages, {len(found)} not allowed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

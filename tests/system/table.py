"""Reads the tables that perftest prints, and the GID list of ibv_devinfo."""

import ipaddress
import re

from harness import Fail, run

ALL_SIZES = [2 ** n for n in range(1, 24)]
NUMBER = r"(?:\d+(?:\.\d+)?|inf|-?nan)"
# perftest takes the clock rate from a regression; beside other load it may give up, says so on standard error in the middle of
# a row, and divides by zero.
CLOCK_WARNING = re.compile(r"Correlation coefficient r\^2: [\d.]+ < [\d.]+")


def rows(out, columns):
    """[(size, [numbers])] for each line of the table."""
    line = re.compile(rf"^\s*(\d+)\s+(\d+)((?:\s+{NUMBER}){{{columns}}})\s*$")
    found = []
    for text in CLOCK_WARNING.sub("", out).splitlines():
        m = line.match(text)
        if m:
            found.append((int(m.group(1)), [float(x) for x in m.group(3).split()]))
    return found


def check(result, program, sizes, slow=False):
    """The client's table has one row per size and real figures (a slow peer's may round to 0.00); returns the rows."""
    columns = 3 if program.endswith("_bw") else 7
    table = rows(result.out, columns)
    got = [size for size, _ in table]
    if got != list(sizes):
        missing = [s for s in sizes if s not in got]
        raise Fail(f"  the table has {len(got)} rows instead of {len(sizes)}; missing sizes {missing}\n"
                   + result.show("client", 60))
    if not slow and not CLOCK_WARNING.search(result.out):
        column = 1 if program.endswith("_bw") else 2
        figures = [numbers[column] for _, numbers in table]
        # Few bytes in a loaded machine round to 0.00; the largest size never does.
        if not all(0 <= f < float("inf") for f in figures) or (figures[-1] == 0 and sizes[-1] > 8):
            raise Fail(f"  no figures: {figures}\n" + result.show("client", 60))
    return table


def gid_index(prefix, address):
    """Index of the GID of an address in what `ibv_devinfo -v` prints under `prefix`."""
    want = ipaddress.ip_address(address)
    result = run([*prefix, "ibv_devinfo", "-v"], 20)
    for m in re.finditer(r"GID\[\s*(\d+)\]:\s*([0-9a-fA-F:.]+)", result.out):
        try:
            gid = ipaddress.IPv6Address(m.group(2))
        except ValueError:
            continue
        if (gid.ipv4_mapped or gid) == want:
            return int(m.group(1))
    raise Fail(f"  no GID for {address}\n" + result.show("ibv_devinfo", 80))

#!/usr/bin/env python3
"""Draws what bench/run.py --json has written: for each suite its figures, and the ratios beside their targets. A dot is a round, a
bar the median.

    bench/plot.py RESULTS.json OUT.{svg,png,pdf}

Needs matplotlib (python3-matplotlib, or pip install matplotlib). Measures nothing.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "system"))

import harness  # noqa: E402

BAR, MISSED, DOT, LINE = "#9ecae1", "#fdae6b", "#08519c", "#404040"


def panel(axes, entries, title):
    """Horizontal bars, the first on top; a target is a short upright line at its bar."""
    names = list(entries)
    for place, name in enumerate(names):
        entry = entries[name]
        axes.barh(place, entry["median"], height=0.6, color=BAR if entry.get("met", True) else MISSED, zorder=1)
        axes.scatter(entry["all"], [place] * len(entry["all"]), s=9, color=DOT, zorder=3)
        if "target" in entry:
            sign, value = entry["target"].split()
            axes.plot([float(value)] * 2, [place - 0.42, place + 0.42], color=LINE, linewidth=1.5, zorder=2)
            axes.annotate(f"{sign} {value}", (float(value), place - 0.42), fontsize=6, ha="center", va="bottom")
        axes.annotate(f" {entry['median']:.3g}", (0, place), fontsize=7, va="center", zorder=4)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.4, -0.75)
    axes.set_xlim(left=0)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="x", linewidth=0.3)
    axes.set_title(title, fontsize=8, loc="left")


def draw(results, file):
    """One row for each suite. Skip: matplotlib is not there."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as why:
        raise harness.Skip(f"{why} (apt install python3-matplotlib, or pip install matplotlib)") from None
    if not results:
        raise harness.Skip("there is nothing to draw")
    heights = [1.2 + 0.28 * max(len(r["figures"]), len(r["ratios"])) for r in results.values()]
    figure, rows = pyplot.subplots(
        len(results), 2, figsize=(11, sum(heights)), squeeze=False, height_ratios=heights, layout="constrained")
    for (name, result), (left, right) in zip(results.items(), rows):
        rounds = f"{result['rounds']} round" + ("s" if result["rounds"] > 1 else "")
        panel(left, result["figures"], f"{name}: {result['unit']}, {rounds}")
        panel(right, result["ratios"], f"{name}: ratios round by round, and targets")
    figure.savefig(file)
    pyplot.close(figure)


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip())
        return 2
    with open(sys.argv[1]) as f:
        results = json.load(f)
    try:
        draw(results, sys.argv[2])
    except harness.Skip as why:
        print(f"bench plot: skipped: {why}")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())

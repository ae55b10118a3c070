"""Draws what the rows `speed-scaling` and `speed-scaling-sets` found.

`scaling.py OUT.svg FILE...`: files as `bench/run ROW --json FILE` writes them, on a machine of 16 cores or so;
by the Python of `bench/figures/run`.
"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True

from figures import plot  # noqa: E402

_ROW = re.compile(r"(?P<load>.*), (?P<workers>\d+) workers(, (?P<background>\d+) background threads)?:")
_RATE = re.compile(r"\(([\d,]+)/s")


def read(paths):
    """Lists of workers and millions per second, by load and system."""
    lines = {}
    for path in paths:
        with open(path) as file:
            figures = json.load(file)
        for figure in figures:
            row = _ROW.match(figure["what"])
            rates = [int(rate.replace(",", "")) / 1e6 for rate in _RATE.findall(figure["figure"])]
            names = ["Terrace", "memcached (DRAM)"]
            if row["background"]:
                names = [f"Terrace, {row['background']} in the background"]
            for name, rate in zip(names, rates):
                lines.setdefault((row["load"], name), []).append((int(row["workers"]), rate))
    return lines


def draw(lines, path):
    loads = list(dict.fromkeys(load for load, _ in lines))
    figure, panels = plot.grid([loads[:3], loads[3:]], width=4.3, height=3.3)
    for panel, load in zip([panel for row in panels for panel in row], loads):
        of_load = [(name, points) for (other, name), points in lines.items() if other == load]
        plot.curves(panel, of_load, "workers", "million per second", x_scale="log")
    plot.save(figure, path)


if __name__ == "__main__":
    draw(read(sys.argv[2:]), sys.argv[1])

"""Sensitivity of media to concurrent access, by `terrace probe`."""

import os
import re
import subprocess
import tempfile

from measure.figure import say
from measure.server import ROOT

from . import plot

TITLE = "Sensitivity to concurrent access, by medium"
TEXT = """
s = (concurrency / access lanes) × (maximum - observed bandwidth) / maximum, with lanes and maximum
inferred by `terrace probe`, of reads of 4 KiB by how many are in flight and of writes of 1 MiB by how
many write at the same time. A medium that goes on giving its maximum has 0; the more a crowd takes
away, the larger. The drive is that of the tree; DRAM is a file on `/dev/shm`{note}.
"""


def measure(quick):
    seconds = 10 if quick else 40
    target = os.environ.get("TERRACE_BENCH_DIR") or os.path.join(ROOT, "target")
    places = {"drive": target, "DRAM": "/dev/shm"}
    return {"media": {name: _probe(name, place, seconds) for name, place in places.items()}}


def _probe(name, place, seconds):
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    binary = os.environ.get("TERRACE_BENCH_SERVER") or os.path.join(target, "release", "terrace")
    with tempfile.TemporaryDirectory(dir=place, prefix="bench-") as folder:
        path = os.path.join(folder, "probe")
        command = [binary, "probe", path, "--seconds", str(seconds)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if result.returncode:
        say(f"{name}: {result.stderr.strip().splitlines()[-1]}")
        return None
    return _parse(result.stdout)


def _parse(text):
    """The tables of reads and writes, each with the sensitivities that follow it."""
    found, heading, rates = {}, None, {}
    for line in text.splitlines():
        words = line.split()
        if line.startswith(("random reads of 4 KiB", "sequential writes of 1 MiB")):
            heading, rates = ("reads" if "reads" in line else "writes"), {}
        elif heading and re.match(r"\s+\d+\s+\d+\s", line) and len(words) == 6:
            rates[int(words[1])] = float(words[3])
        elif heading and len(words) == 2 and re.fullmatch(r"[\d.]+", words[1]):
            at = int(words[0])
            point = {"at": at, "s": float(words[1]), "mb": rates.get(at)}
            found.setdefault(heading, []).append(point)
        elif not line.strip() and heading in found:
            heading = None
    return found


def draw(found, path):
    titles = ["bandwidth of 4 KiB reads", "sensitivity, reads", "sensitivity, 1 MiB writes"]
    figure, (rates, reads, writes) = plot.panels(titles, width=4.4)
    media = {name: points for name, points in found["media"].items() if points}
    line = lambda which, what: [
        (name, [(p["at"], p[what]) for p in points.get(which, [])]) for name, points in media.items()
    ]
    several = {"x_scale": "log"}
    plot.curves(rates, line("reads", "mb"), "reads in flight", "MB/s", y_scale="log", **several)
    plot.curves(reads, line("reads", "s"), "reads in flight", "s", **several)
    plot.curves(writes, line("writes", "s"), "writers", "s", **several)
    plot.save(figure, path)


def text(found):
    missing = [name for name, points in found["media"].items() if not points]
    note = f"; {', '.join(missing)} could not be probed here" if missing else ""
    return TEXT.format(note=note)

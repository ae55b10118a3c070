"""Sensitivity of media to concurrent access, by `terrace probe`."""

import json
import os
import subprocess
import tempfile

from measure.figure import say
from measure.server import ROOT

from . import plot

TITLE = "Sensitivity to concurrent access, by medium"
TEXT = """
s = (concurrency / access lanes) × (maximum - observed bandwidth) / maximum, with lanes and maximum
inferred by `terrace probe` from the same points: those of its knee, and the most that was observed. A
medium that goes on giving its maximum has 0; the more a crowd takes away, the larger. As the lanes are
inferred, curves tell how a medium changes with a crowd, not which medium is better. Top: random reads of
4 KiB, by how many are in flight (of DRAM, by how many threads copy), and by processes of which each waits
for its own; at the right sequential writes of 1 MiB by processes with a file each, and all on one file (DRAM:
memory of their own only, {own} MiB each). Middle: s of the same. Bottom: random reads of 4 KiB, 8 in flight, beside
writers of 1 MiB. The drive is that of the tree, {size} MiB of it, read past the page cache; DRAM is
{size} MiB of memory, half of it read and half of it written.
"""
KINDS = [
    ("read", "random", "inflight", "requests in flight"),
    ("read", "random", "own", "processes, a file each"),
    ("write", "sequential", "own", "processes, a file each"),
    ("write", "sequential", "shared", "processes, one file"),
]

# Of random reads beside writers: what is drawn, how it is found, how it lies.
BESIDE = [
    ("reads/s", lambda mixed, _: mixed["reads"]["per_second"], "log"),
    ("of the reads/s alone", lambda mixed, first: mixed["reads"]["per_second"] / first["per_second"], "linear"),
    ("99 % latency, us", lambda mixed, _: mixed["reads"]["p99_us"], "log"),
    ("written, MB/s", lambda mixed, _: _written(mixed), "log"),
]


def _written(mixed):
    writes = mixed["writes"]
    return writes and writes["per_second"] * writes["block_bytes"] / 1e6


def measure(quick):
    size, seconds = (256, 10) if quick else (1024, 40)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    binary = os.path.join(target, "release", "terrace-probe")
    place = os.environ.get("TERRACE_BENCH_DIR") or os.path.join(ROOT, "target")
    with tempfile.TemporaryDirectory(dir=place, prefix="bench-") as folder:
        path, kept = os.path.join(folder, "probe"), os.path.join(folder, "json")
        command = [binary, path, "dram", "--size", str(size), "--seconds", str(seconds)]
        result = subprocess.run([*command, "--json", kept], capture_output=True, text=True, timeout=600)
        if result.returncode:
            raise RuntimeError(result.stderr.strip().splitlines()[-1])
        with open(kept) as file:
            media = json.load(file)
    for medium, name in zip(media, ("drive", "DRAM")):
        medium["name"] = medium["profile"]["name"] = name
        knee = medium["profile"]
        say(f"{name}: {knee['read_iops']:,.0f} reads/s with {knee['queue_depth']} at once")
    return {"size": size, "seconds": seconds, "media": media}


def _series(medium, operation, access, by):
    wanted = (operation, access, by)
    for series in medium["series"]:
        if (series["operation"], series["access"], series["by"]) == wanted:
            return series
    return None


def _line(found, kind, value):
    lines = []
    for medium in found["media"]:
        series = _series(medium, *kind[:3])
        points = zip(series["points"], series["sensitivity"]) if series else []
        lines.append((medium["name"], [(p["concurrency"], value(p, s)) for p, s in points]))
    return lines


def _beside(found, value):
    lines = []
    for medium in found["media"]:
        first = medium["mixed"][0]["reads"] if medium["mixed"] else None
        points = [(mixed["writers"], value(mixed, first)) for mixed in medium["mixed"]]
        lines.append((medium["name"], [point for point in points if point[1] is not None]))
    return lines


def draw(found, path):
    titles = [f"{access} {operation}s" for operation, access, _, _ in KINDS]
    below = [f"sensitivity, {title}" for title in titles]
    figure, rows = plot.grid([titles, below, ["random reads beside writers"] * len(BESIDE)], width=4.2)
    megabytes = lambda p, _: p["per_second"] * p["block_bytes"] / 1e6
    for kind, top, bottom in zip(KINDS, *rows[:2]):
        plot.curves(top, _line(found, kind, megabytes), kind[3], "MB/s", x_scale="log", y_scale="log")
        plot.curves(bottom, _line(found, kind, lambda _, s: s), kind[3], "s", x_scale="log")
    for panel, (name, value, scale) in zip(rows[2], BESIDE):
        plot.curves(panel, _beside(found, value), "writers of 1 MiB", name, y_scale=scale)
    plot.save(figure, path)


def text(found):
    rows = ["", "| medium | measured | at once | MB/s | p50 us | p99 us | s |", "|---|---|---|---|---|---|---|"]
    for medium in found["media"]:
        for kind in KINDS:
            series = _series(medium, *kind[:3])
            for point, s in zip(series["points"], series["sensitivity"]) if series else []:
                cells = [
                    medium["name"],
                    series["title"],
                    str(point["concurrency"]),
                    f"{point['per_second'] * point['block_bytes'] / 1e6:,.0f}",
                    f"{point['p50_us']:,.1f}",
                    f"{point['p99_us']:,.1f}",
                    f"{s:.2f}",
                ]
                rows.append("| " + " | ".join(cells) + " |")
    rows += ["", "Random reads of 4 KiB, 8 at once, beside writers of 1 MiB:", ""]
    rows += ["| medium | writers | reads/s | of alone | p99 us | MB/s written |", "|---|---|---|---|---|---|"]
    for medium in found["media"]:
        alone = medium["mixed"][0]["reads"]["per_second"] if medium["mixed"] else None
        for mixed in medium["mixed"]:
            reads, writes = mixed["reads"], mixed["writes"]
            written = writes["per_second"] * writes["block_bytes"] / 1e6 if writes else 0
            rows.append(
                f"| {medium['name']} | {mixed['writers']} | {reads['per_second']:,.0f} "
                f"| {reads['per_second'] / alone:.2f} | {reads['p99_us']:,.1f} | {written:,.0f} |"
            )
    return TEXT.format(size=found["size"], own=found["size"] // 8) + "\n".join(rows) + "\n"

"""Traces through a real server that holds about a tenth of them, beside an LRU of as many bytes."""

import itertools
import os
import re
import struct
import subprocess
import sys

from measure.figure import at_most, say
from measure.load import load
from measure.server import ROOT, terrace, terrace_binary

sys.path.insert(0, os.path.join(ROOT, "tests", "replay"))

import trace as published  # noqa: E402

KEY_BYTES = 20
# Of the bytes of all objects; a third of the memory is records, and four fifths of the tier.
MEMORY_PART, TIER_PART = 0.05, 0.1
MEMORY_MIB_MIN, TIER_MIB_MIN = 6, 12
MUST = 1.02
# Of the long trace, from its beginning: one connection at depth 1 sends some 20,000 requests a second.
REQUESTS_MOST = 2_000_000
# Blocks of 64 KiB become records of 4 KiB, so that the server needs no more than it does for the other trace.
BLOCKS_DIVIDED = 16
# Time, object, size, next use.
BINARY = struct.Struct("<IQIq")
# Facebook's ETC: popularity, one SET to 30 GETs, and 231 bytes to a record.
ETC_OBJECTS, ETC_VALUE_BYTES, ETC_GET_PERCENT = 500_000, 211, 97
# Half of them before it is measured.
ETC_REQUESTS = 2_000_000


def traces(quick):
    scale = 10 if quick else 1
    folder = os.path.join(ROOT, "target", "bench-traces")
    os.makedirs(folder, exist_ok=True)
    blocks, beginning = os.path.join(folder, "blocks.csv"), os.path.join(folder, "beginning.csv")
    _divide(published.fetch(published.BLOCKS), blocks)
    _begin(published.fetch(published.FILES["10m"]), beginning, REQUESTS_MOST // scale)
    figures = [_trace(f"block trace, sizes divided by {BLOCKS_DIVIDED}", blocks)]
    figures.append(_trace(f"cluster52, its first {REQUESTS_MOST // scale:,} requests", beginning))
    return [*figures, _etc(scale)]


def _divide(path, out):
    with open(path, "rb") as file, open(out, "w") as lines:
        for time, name, size, _ in BINARY.iter_unpack(file.read()):
            lines.write(f"{time},{name},{max(size // BLOCKS_DIVIDED, KEY_BYTES)}\n")


def _begin(path, out, count):
    with published.lines(path) as lines, open(out, "w") as file:
        file.writelines(itertools.islice(lines, count + 1))


def _trace(name, path):
    requests, objects, of_all = _size_of(path)
    memory, tier = _sizes(of_all)
    room = memory + tier << 20
    with _server(memory, tier) as server:
        # One connection at depth 1: the order of the requests is the trace's.
        how = {"connections": 1, "depth": 1, "key_bytes": KEY_BYTES}
        report = load(server, "replay", trace=path, **how)
        held, records = server.stats()["bytes"], server.stats()["curr_items"]
    misses = _misses(report)
    peer, roomy = _misses_of_lru(path, held), _misses_of_lru(path, room)
    note = (
        f"{misses:.4f} and {peer:.4f} with {held / of_all:.1%} of the bytes, {records / objects:.1%} of "
        f"{objects:,} objects, at the end; {roomy:.4f} if it had all of -m and the tier, {room / of_all:.1%}, "
        "for nothing but objects"
    )
    say(f"{name}, {requests:,} requests: {note}")
    return at_most(f"{name}: misses, of LRU's with as many bytes", misses / peer, MUST, "{:.3f}", note)


def etc(objects):
    """The generator's flags for this mix; what is missed is stored."""
    return {
        "popularity": "zipf-mandelbrot", "get_percent": ETC_GET_PERCENT, "back_end": 0, "any_version": True,
        "records": objects, "key_bytes": KEY_BYTES, "value_bytes": ETC_VALUE_BYTES, "connections": 4, "depth": 4,
    }  # fmt: skip


def _etc(scale):
    objects, requests = ETC_OBJECTS // scale, ETC_REQUESTS // scale
    how = {"requests": requests // 2, **etc(objects)}
    with _server(*_sizes(objects * (KEY_BYTES + ETC_VALUE_BYTES))) as server:
        load(server, "mixed", **how)
        misses = _misses(load(server, "mixed", **how))
        held = 100 * server.stats()["curr_items"] / objects
    flags = ["--objects", str(objects), "--requests", str(requests), "--cached", f"{held:.3f}", "--write-policies", "all-once"]
    peer = float(re.search(r"LRU +([0-9.]+)", _lab("--stream", "etc", *flags)).group(1))
    what = f"ETC, {objects:,} objects: misses, of LRU's with as many objects"
    note = f"{misses:.4f} and {peer:.4f} with {held:.1f} %"
    say(f"{what}: {note}")
    return at_most(what, misses / peer, MUST, "{:.3f}", note)


def _misses(report):
    return report["misses"] / (report["hits"] + report["misses"])


def _sizes(of_all):
    """MiB of memory and of the tier."""
    memory = max(round(of_all * MEMORY_PART / (1 << 20)), MEMORY_MIB_MIN)
    return memory, max(round(of_all * TIER_PART / (1 << 20)), TIER_MIB_MIN)


def _server(memory, tier):
    server = terrace("-m", str(memory), "-t", "1", "--tier", f"ssd:DIR/tier:{tier}m", "--write-policy", "all-once")
    say(server.command)
    return server


def _size_of(path):
    """Requests, objects, and bytes of all objects."""
    found = re.search(r"(\d+) requests for (\d+) objects of (\d+) bytes", _lru(path, 0))
    return tuple(int(number) for number in found.groups())


def _misses_of_lru(path, room):
    return float(re.search(r"misses ([0-9.]+)", _lru(path, room)).group(1))


def _lru(path, room):
    return _lab("--trace", path, "--lru-bytes", str(room))


def _lab(*arguments):
    command = [terrace_binary(), "plan", "--policy", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

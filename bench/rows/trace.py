"""A real trace through a server that holds a tenth of its objects, in each write policy."""

import concurrent.futures
import os
import sys

from measure.figure import Figure, at_most, say
from measure.load import load
from measure.server import ROOT, terrace
from measure.table import ratio
from measure.tiers import of_terrace

sys.path.insert(0, os.path.join(ROOT, "tests", "replay"))

import trace as cluster52  # noqa: E402

# One trace is too small for a server: this many of it are replayed at once, each with names of its own.
COPIES = 4
KEY_BYTES = 20
# Of `-m`, the records in DRAM take about a third; found by trying that the whole is a tenth then.
MEMORY_MIB, TIER_MIB = 6, 12
POLICIES = ("all-once", "all-twice", "reused-once", "reused-none")
# Miss ratio at so many flash writes per miss, at most.
MUST = [(0.200, 1.3), (0.213, 0.45)]


def trace(quick):
    folder = os.path.join(ROOT, "target", "bench-trace")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "copies.csv")
    objects, mean = _copies(path, quick)
    # Two at once, on two cores: no miss depends on how long it took.
    with concurrent.futures.ThreadPoolExecutor(2) as together:
        replay = lambda policy: _replay(path, policy, objects, mean)
        found = dict(zip(POLICIES, together.map(replay, POLICIES)))
    figures = [_told(policy, *of_policy) for policy, of_policy in found.items()]
    for misses_most, writes_most in MUST:
        cheap = [(misses, writes) for misses, writes, _ in found.values() if writes <= writes_most]
        best = min(cheap, default=(1, 0))
        what = f"cluster52: least miss ratio of a write policy with at most {writes_most} flash writes per miss"
        figures.append(at_most(what, best[0], misses_most, "{:.4f}", f"at {best[1]:.2f}"))
    return figures


def _told(policy, misses, writes, cached):
    what = f"cluster52, {policy}: miss ratio, flash writes per miss"
    return Figure(what, f"{misses:.4f}, {writes:.2f} ({cached:.1%} of the objects at the end)")


def _copies(path, quick):
    """Writes the trace; how many objects it has, and how long they are on average."""
    names, sizes = cluster52.load("1m")
    count = len(names) // (4 if quick else 1)
    seen = {}
    with open(path, "w") as file:
        for name, size in zip(names[:count], sizes[:count]):
            number = seen.setdefault(name, (len(seen), size))[0]
            for copy in range(COPIES):
                file.write(f"0,{number * COPIES + copy},{size}\n")
    lengths = [max(size, KEY_BYTES) for _, size in seen.values()]
    return len(seen) * COPIES, sum(lengths) / len(lengths)


def _replay(path, policy, objects, mean):
    flags = ["-m", str(MEMORY_MIB), "-t", "1", "--tier", f"ssd:DIR/tier:{TIER_MIB}m", "--write-policy", policy]
    with terrace(*flags) as server:
        say(server.command)
        report = load(server, "replay", trace=path, connections=COPIES, depth=1, key_bytes=KEY_BYTES)
        stats = of_terrace(server)
    requests, misses = report["hits"] + report["misses"], report["misses"]
    written = stats["tier:written_bytes"] + stats["tier:tombstone_log_written_bytes"]
    return ratio(misses, requests), ratio(written / mean, misses), stats["records"] / objects

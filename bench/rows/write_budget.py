"""Bytes at the drive, by kernel accounting, while ten times the write budget is asked for."""

import threading
import time

from measure.figure import Figure, at_most, say
from measure.load import load
from measure.server import terrace
from measure.tiers import of_terrace

BUDGET_MIB, OVERLOAD = 4, 10
RECORD = {"key_bytes": 16, "value_bytes": 800}
RECORD_BYTES = 816
# More than the tier holds, so that it is full; what is read is what was stored last.
TIER_MIB, RECORDS = 256, 2_000_000
SECONDS, WINDOW = 200, 180
# The first seconds are left out: the budget begins with nothing saved up, but nothing is due either.
SETTLE = 5


def overload(quick):
    seconds, window = (45, 30) if quick else (SECONDS, WINDOW)
    rate = BUDGET_MIB * OVERLOAD * (1 << 20) // RECORD_BYTES
    flags = ["-m", "64", "-t", "2", "--tier", f"ssd:DIR/tier:{TIER_MIB}m"]
    with terrace(*flags, "--write-budget", f"{BUDGET_MIB}MB/s") as server:
        say(server.command)
        seen, ended = [], threading.Event()
        watcher = threading.Thread(target=_watch, args=(server, seen, ended))
        watcher.start()
        try:
            report = load(
                server, "overwrite", records=RECORDS, seconds=seconds, rate=rate, connections=8, **RECORD
            )
        finally:
            ended.set()
            watcher.join()
        stats, policy = of_terrace(server), server.stats("tiers")["tier:0:write_policy"]
    budget = BUDGET_MIB << 20
    most = max(_rates(seen, window), default=0) / budget
    asked = report["requests_per_second"] * RECORD_BYTES / budget
    note = f"{policy} at the end"
    latency = report["latency"]
    return [
        at_most(f"bytes at the drive over any {window} s, of the write budget", most, 1.05, "{:.3f}", note),
        Figure("asked for, of the write budget", f"{asked:.1f}"),
        Figure("records let go", f"{stats['tier:dropped_records']:,}"),
        Figure("SET meanwhile", f"p50 {latency['p50_us']} us, p99.9 {latency['p999_us']} us"),
    ]  # fmt: skip


def _watch(server, seen, ended):
    while not ended.wait(1):
        seen.append((time.monotonic(), server.usage().drive_written))


def _rates(seen, window):
    """Bytes per second over every stretch of `window` seconds."""
    begin = seen[0][0] + SETTLE
    seen = [point for point in seen if point[0] >= begin]
    for at, (start, before) in enumerate(seen):
        later = [point for point in seen[at:] if point[0] - start >= window]
        if later:
            end, after = later[0]
            yield (after - before) / (end - start)

"""What is lost with ever smaller write budgets: requests and misses at the same rate, side by side."""

import concurrent.futures
import contextlib
import time

from measure.figure import Figure, at_most, say
from measure.load import load
from measure.server import terrace
from rows import traces

FLAGS = ["-m", "6", "-t", "1", "--tier", "ssd:DIR/tier:12m"]
ETC = traces.etc(traces.ETC_OBJECTS)
WARM_UP = 600_000
# Requests per second, of each server.
RATE = 6_000
# A tenth of what is written without a budget fills the tier in about half of it.
SECONDS, ASKED_SECONDS = 300, 30
# Of what is written without a budget.
PARTS = [1 / 2, 1 / 5, 1 / 10]


def falling(quick):
    """Hits and latency under a half, a fifth and a tenth of what would be written."""
    seconds = SECONDS // (10 if quick else 1)
    with _server("unlimited") as server:
        asked = _measure(server, ASKED_SECONDS / (3 if quick else 1))["written"]
    budgets = ["unlimited"] + [f"{round(asked * part / 1000)}KB/s" for part in PARTS]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(_server(budget)) for budget in budgets]
        with concurrent.futures.ThreadPoolExecutor(len(servers)) as together:
            free, *held = together.map(lambda server: _measure(server, seconds), servers)
    figures = [Figure("without a budget", _text(free))]
    for part, found in zip(PARTS, held):
        name, written = f"a budget of {part:.0%} of {asked:,.0f} bytes/s", found["written"] / (asked * part)
        figures.append(at_most(f"{name}: bytes at the drive, of it", written, 1.05, "{:.3f}", _text(found)))
        figures.append(Figure(f"{name}: hits, of those without", f"{found['hits'] / free['hits']:.3f}"))
    return figures


def _text(found):
    return (
        f"hits {found['hits']:.4f}, {found['written']:,.0f} bytes/s, p50 {found['p50']:.0f} us, "
        f"p99 {found['p99']:.0f} us, policy {found['policy']}"
    )


def _server(budget):
    server = terrace(*FLAGS, "--write-budget", budget)
    say(server.command)
    return server


def _measure(server, seconds):
    load(server, "mixed", requests=WARM_UP, **ETC)
    start, before = time.monotonic(), server.usage().drive_written
    report = load(server, "mixed", seconds=round(seconds), rate=RATE, **ETC)
    written = (server.usage().drive_written - before) / (time.monotonic() - start)
    latency = report["latency"]
    return {
        "hits": report["hits"] / (report["hits"] + report["misses"]),
        "written": written,
        "p50": latency["p50_us"],
        "p99": latency["p99_us"],
        "policy": server.stats("tiers").get("tier:0:write_policy", ""),
    }

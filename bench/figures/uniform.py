"""Latency over throughput: uniform reads, reads and writes, writes, of short records."""

import os

from measure import tiers
from measure.figure import say

from . import plot, systems

RECORDS, RECORD = 1_000_000, {"key_bytes": 20, "value_bytes": 80}
# So little that few of the records fit besides the index; the group counts connections and page cache, too.
MIB, LIMIT_MIB = 24, 72
MIXES = {
    "100 % GET": ("get", {}),
    "80 % GET, 20 % SET": ("mixed", {"get_percent": 80}),
    "100 % SET": ("overwrite", {}),
}
# Connections and requests in flight on each: along a curve, and beside it.
CURVE = [(8, 1), (16, 1), (32, 1), (64, 1), (120, 1), (120, 4), (120, 8), (120, 16), (120, 32)]
BESIDE = [(264, 1), (264, 8), (264, 32), (528, 1), (528, 8), (528, 32)]
# Of the others, where curves begin, bend and end.
CORNERS = [(8, 1), (32, 1), (120, 1), (120, 8), (120, 32), (528, 32)]
# What extstore has not is stored so soon after: its back end costs it nothing here.
BACK_END_US = 100
TITLE = "Latency over throughput, records of 20 + 80 bytes, uniform"
TEXT = """
Each point is one setting of connections and requests in flight per connection (depth). Up and to the left is a server
that queues. Terrace keeps {records:,} records on a drive with `-m {mib}`; extstore has the same `-m`
and drive (`ext_item_size=64`), and can't hold what it must know of all of them: what it misses is stored {back_end} us after.
Both are in control groups of {limit} MiB that count the page cache too. memcached has all records in DRAM. *fio* reads pages of the
same file at random, one to 256 at once, without a server. One worker thread each on one core, the generator on the other; meta
protocol.

{rates}
"""
COLUMNS = "| system | load | connections | depth | requests/s | mean us | 99 %, us | GETs hit | hits from flash | us of CPU per request |"


def measure(quick):
    settings = CORNERS if quick else CURVE + BESIDE
    seconds = 0.6 if quick else 1.5
    records = RECORDS // 4 if quick else RECORDS
    found = {"records": records, "systems": {}, "fio": []}
    for name, start in _systems().items():
        with start() as server:
            say(f"{name}: {server.command}")
            systems.fill(server, records, slowly=name == "extstore", **RECORD)
            here = settings if name == "Terrace" else CORNERS
            found["systems"][name] = {
                mix: [_point(server, name, records, mix, *setting, seconds) for setting in here] for mix in MIXES
            }
            if name == "Terrace":
                stats = tiers.of_terrace(server)
                span = stats["tier:segments_used"] * stats["tier:segment_bytes"]
                found["fio"] = systems.fio_curve(os.path.join(server.dir, "tier"), span, quick)
    return found


def _systems():
    return {
        "Terrace": lambda: systems.on_flash(mib=MIB, limit_mib=LIMIT_MIB),
        "extstore": lambda: systems.extstore(mib=MIB, limit_mib=LIMIT_MIB, more=",ext_item_size=64"),
        "memcached (DRAM)": systems.in_dram,
    }


def _point(server, name, records, mix, connections, depth, seconds):
    workload, options = MIXES[mix]
    if name == "extstore" and workload != "overwrite":
        options = options | {"back_end": BACK_END_US}
    before = _hits(server)
    report = systems.gets(
        server, workload, records=records, seconds=seconds, warm_up=seconds / 4, protocol="meta",
        connections=connections, depth=depth, any_version=True, **RECORD, **options,
    )  # fmt: skip
    found = systems.point(report)
    flash, hits = (now - then for now, then in zip(_hits(server), before))
    if hits and tiers.flash(server):
        found["from_flash"] = flash / hits
    say(f"{server.name}, {mix}, {connections} x {depth}: {found['rate']:,.0f}/s, mean {found['mean_us']:,.0f} us")
    return found


def _hits(server):
    """From flash, and all; by the server's own count."""
    return (tiers.flash(server) or {"hits": 0})["hits"], server.stats()["get_hits"]


def _curve(points):
    return [p for p in points if (p["connections"], p["depth"]) in CURVE]


def draw(found, path):
    figure, panels = plot.panels(list(MIXES))
    for panel, mix in zip(panels, MIXES):
        lines = []
        for name, points in found["systems"].items():
            lines.append((name, [(p["rate"] / 1000, p["mean_us"]) for p in _curve(points[mix])]))
        if mix == "100 % GET":
            lines.append(("fio", [(p["rate"] / 1000, p["mean_us"]) for p in found["fio"]]))
        plot.curves(panel, lines, "thousand requests/s", "mean latency, us", y_scale="log")
        for name, points in found["systems"].items():
            rest = [p for p in points[mix] if (p["connections"], p["depth"]) not in CURVE]
            panel.plot(
                [p["rate"] / 1000 for p in rest], [p["mean_us"] for p in rest],
                ".", color=plot.colour(name), alpha=0.5,
            )  # fmt: skip
    plot.save(figure, path)


def text(found):
    rates = _rates(found)
    return TEXT.format(
        records=found["records"], mib=MIB, limit=LIMIT_MIB, back_end=BACK_END_US, rates=rates
    ) + "\nCurves rise from 8 to 120 connections, then in depth; dots beside them are those of 264 and 528 connections.\n" + _table(found)


def _rates(found):
    """Requests per second at a mean of 1 ms, interpolated on each sweep."""
    rows = ["| requests/s at a mean of 1 ms | " + " | ".join(MIXES) + " |", "|---" * (len(MIXES) + 1) + "|"]
    for name, mixes in found["systems"].items():
        cells = []
        for points in mixes.values():
            most = systems.rate_at(_curve(points))
            cells.append(f"{most:,.0f}" if most else "above 1 ms everywhere")
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    most = systems.rate_at(found["fio"])
    rows.append("| fio | " + (f"{most:,.0f}" if most else "") + " |" * len(MIXES))
    return "\n".join(rows)


def _table(found):
    rows = ["", COLUMNS, "|---|---|---|---|---|---|---|---|---|---|"]
    share = lambda value: f"{value:.1%}" if value is not None else ""
    for name, mixes in found["systems"].items():
        for mix, points in mixes.items():
            for p in points:
                cells = [name, mix, str(p["connections"]), str(p["depth"]), f"{p['rate']:,.0f}"]
                cells += [f"{p['mean_us']:,.0f}", f"{p['p99_us']:,.0f}", share(p["hits"])]
                cells += [share(p.get("from_flash")), f"{p['server_cpu_us']:.2f}" if p["server_cpu_us"] else ""]
                rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"

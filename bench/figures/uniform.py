"""Latency over throughput: uniform reads, reads and writes, writes."""

from measure import tiers
from measure.figure import say

from . import plot, systems

RECORDS, RECORD = 400_000, {"key_bytes": 16, "value_bytes": 800}
MIXES = {
    "100 % GET": ("get", {}),
    "80 % GET, 20 % SET": ("mixed", {"get_percent": 80, "any_version": True}),
    "100 % SET": ("overwrite", {}),
}
TITLE = "Latency over throughput, records of 16 + 800 bytes, uniform"
TEXT = """
Each point is one setting of connections and requests in flight per connection (depth); depth rises
along a curve. Up and to the left is a server that queues. Terrace and extstore keep {records:,} records
({mib:.0f} MiB) on the same drive with `-m 128` each, within {limit} MiB of memory that count the page cache; memcached has all of them
in DRAM. One worker thread each on one core, the generator on the other; meta protocol. extstore
is filled slowly and with a quick slab mover (`slab_automove_window=3,slab_automove_freeratio=0.05`), without
which it evicts half of the records; misses of its GETs are what it evicted all the same: {misses}.
"""
COLUMNS = "| system | load | connections | depth | requests/s | mean us | 99 %, us | GETs hit | hits from flash | us of CPU per request |"


def measure(quick):
    settings = [(120, depth) for depth in (1, 8, 32)]
    if not quick:
        settings = [(c, depth) for c in (120, 264, 528) for depth in (1, 8, 16, 32)]
    seconds = 0.6 if quick else 1.2
    # A quarter of that would fit into DRAM.
    records = RECORDS
    found = {"records": records, "systems": {}}
    for name, start in _systems().items():
        with start() as server:
            say(f"{name}: {server.command}")
            systems.fill(server, records, slowly=name == "extstore", **RECORD)
            found["systems"][name] = {
                mix: [_point(server, records, mix, *setting, seconds) for setting in settings]
                for mix in MIXES
            }
    return found


def _systems():
    return {
        "Terrace": systems.on_flash,
        "extstore": systems.extstore,
        "memcached (DRAM)": systems.in_dram,
    }


def _point(server, records, mix, connections, depth, seconds):
    workload, options = MIXES[mix]
    before = _hits(server)
    report = systems.gets(
        server, workload, records=records, seconds=seconds, warm_up=seconds / 4, protocol="meta",
        connections=connections, depth=depth, any_version=True, **RECORD,
        **{name: value for name, value in options.items() if name != "any_version"},
    )  # fmt: skip
    found = systems.point(report)
    flash, hits = (now - then for now, then in zip(_hits(server), before))
    if hits and tiers.flash(server):
        found["from_flash"] = flash / hits
    say(
        f"{server.name}, {mix}, {connections} x {depth}: {found['rate']:,.0f}/s, "
        f"mean {found['mean_us']:,.0f} us"
    )
    return found


def _hits(server):
    """From flash, and all; by the server's own count."""
    return (tiers.flash(server) or {"hits": 0})["hits"], server.stats()["get_hits"]


def draw(found, path):
    figure, panels = plot.panels(list(MIXES))
    for panel, mix in zip(panels, MIXES):
        lines = []
        for name, points in found["systems"].items():
            most = [p for p in points[mix] if p["connections"] == points[mix][0]["connections"]]
            lines.append((name, [(p["rate"] / 1000, p["mean_us"]) for p in most]))
        plot.curves(panel, lines, "thousand requests/s", "mean latency, us", y_scale="log")
        for name, points in found["systems"].items():
            rest = points[mix][len(lines[0][1]) :]
            panel.plot(
                [p["rate"] / 1000 for p in rest], [p["mean_us"] for p in rest],
                ".", color=plot.colour(name), alpha=0.5,
            )  # fmt: skip
    plot.save(figure, path)


def text(found):
    points = found["systems"]["extstore"]["100 % GET"]
    misses = 1 - min(p["hits"] for p in points)
    mib = found["records"] * 816 / (1 << 20)
    return TEXT.format(
        records=found["records"], mib=mib, limit=systems.LIMIT_MIB, misses=f"{misses:.2%} of reads"
    ) + (
        "\nCurves are those of 120 connections; dots without a line those of 264 and 528.\n"
        if len(points) > 3
        else ""
    ) + _table(found)


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

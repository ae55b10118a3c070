"""Latency over throughput: a sweep over connections and requests in flight, as figures of several loads draw it."""

from measure import tiers
from measure.figure import say

from . import plot, systems

# Connections and requests in flight on each: along a curve, and beside it.
CURVE = [(8, 1), (16, 1), (32, 1), (64, 1), (120, 1), (120, 4), (120, 8), (120, 16), (120, 32)]
BESIDE = [(264, 1), (264, 8), (264, 32), (528, 1), (528, 8), (528, 32)]
# Of the others, where curves begin, bend and end.
CORNERS = [(8, 1), (32, 1), (120, 1), (120, 8), (120, 32), (528, 32)]
# What extstore has not is stored so soon after: its back end costs it nothing here.
BACK_END_US = 100
COLUMNS = "| system | load | connections | depth | requests/s | mean us | 99 %, us | GETs hit | hits from flash | us of CPU per request |"
NOTE = "\nCurves rise from 8 to 120 connections, then in depth; dots beside them are those of 264 and 528 connections.\n"


def points(server, name, mixes, quick, seconds, **load):
    """Every point of one system, by mix. Terrace has all settings, the others the corners."""
    settings = CURVE + BESIDE if name == "Terrace" and not quick else CORNERS
    return {mix: [_point(server, name, mix, *mixes[mix], *setting, seconds, load) for setting in settings] for mix in mixes}


def _point(server, name, mix, workload, options, connections, depth, seconds, load):
    if name == "extstore" and workload != "overwrite":
        options = options | {"back_end": BACK_END_US}
    before = _hits(server)
    report = systems.gets(
        server, workload, seconds=seconds, warm_up=seconds / 4, protocol="meta", connections=connections, depth=depth,
        any_version=True, **load, **options,
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


def curve(points):
    return [p for p in points if (p["connections"], p["depth"]) in CURVE]


def draw(found, mixes, path):
    figure, panels = plot.panels(list(mixes))
    for panel, mix in zip(panels, mixes):
        lines = []
        for name, points in found["systems"].items():
            lines.append((name, [(p["rate"] / 1000, p["mean_us"]) for p in curve(points[mix])]))
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


def rates(found, mixes):
    """Requests per second at a mean of 1 ms, interpolated on each curve."""
    rows = ["| requests/s at a mean of 1 ms | " + " | ".join(mixes) + " |", "|---" * (len(mixes) + 1) + "|"]
    for name, of_mixes in found["systems"].items():
        cells = []
        for points in of_mixes.values():
            rate = systems.rate_at(curve(points))
            hits = min(1 if p["hits"] is None else p["hits"] for p in curve(points))
            missed = "" if hits > 0.999 else f" ({hits:.0%} of GETs hit at the least)"
            cells.append((f"{rate:,.0f}" if rate else "above 1 ms everywhere") + missed)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    most = systems.rate_at(found["fio"])
    rows.append("| fio, reads of pages | " + (f"{most:,.0f}" if most else "") + " |" * len(mixes))
    return "\n".join(rows)


def table(found):
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

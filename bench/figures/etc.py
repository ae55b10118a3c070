"""Records of Facebook's ETC sizes at several depths, against memcached in DRAM."""

from measure.figure import say

from . import plot, systems

RECORDS = 1_000_000
DEPTHS = [1, 8, 16, 32]
LOAD = {"sizes": "etc", "popularity": "zipf-mandelbrot", "protocol": "meta", "connections": 120}
MIXES = {"100 % GET": ("get", {}), "80 % GET, 20 % SET": ("mixed", {"get_percent": 80})}
TITLE = "Facebook's ETC: sizes and popularity, against memcached in DRAM"
TEXT = """
{records:,} records with ETC's sizes (230 bytes in the mean) and popularity. Terrace keeps them on flash, read
past the page cache, with `-m {mib}` for everything, in which it had {held} of the records: copies and what was not
yet written out. memcached has all of them in DRAM ({resident:.0f} MiB resident, Terrace {own:.0f} MiB).
120 connections, meta protocol, one core each for server and generator.
"""


def measure(quick):
    records = RECORDS // 5 if quick else RECORDS
    # An eighth of the records with a copy's overhead, 5 bytes of index per record, buffers.
    mib = int(records * (230 + 60) / 8 / (1 << 20) + records * 5 / (1 << 20)) + 12
    found = {"records": records, "mib": mib, "systems": {}, "resident": {}, "held": {}}
    starts = {
        "Terrace": lambda: systems.on_flash(mib=mib, limit_mib=mib + 64),
        "memcached (DRAM)": systems.in_dram,
    }
    how = {**LOAD, "records": records, "any_version": True}
    for name, start in starts.items():
        with start() as server:
            say(server.command)
            systems.fill(server, records, sizes="etc")
            found["systems"][name] = {}
            for mix, (workload, options) in MIXES.items():
                # Each load finds other records popular: those of a connection are its own.
                warm_up = {"depth": 8, "seconds": 2 if quick else 12}
                systems.gets(server, workload, **warm_up, **how, **options)
                points = []
                for depth in DEPTHS:
                    seconds = 0.7 if quick else 3
                    report = systems.gets(server, workload, depth=depth, seconds=seconds, **how, **options)
                    points.append(systems.point(report))
                    say(f"{name}, {mix}, depth {depth}: {report['requests_per_second']:,.0f}/s")
                found["systems"][name][mix] = points
                if name == "Terrace":
                    found["held"][mix] = systems.in_memory(server) / records
            found["resident"][name] = server.usage().resident / (1 << 20)
    return found


def draw(found, path):
    figure, panels = plot.panels(list(MIXES))
    for panel, mix in zip(panels, MIXES):
        lines = [
            (name, [p["rate"] / 1000 for p in points[mix]])
            for name, points in found["systems"].items()
        ]
        plot.bars(panel, DEPTHS, lines, "requests in flight per connection", "thousand requests/s")
    plot.save(figure, path)


def text(found):
    rows = [
        "",
        "| system | load | depth | requests/s | mean us | 99 %, us | us of CPU per request |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, mixes in found["systems"].items():
        for mix, points in mixes.items():
            for p in points:
                cpu = p.get("server_cpu_us")
                rows.append(
                    f"| {name} | {mix} | {p['depth']} | {p['rate']:,.0f} | {p['mean_us']:,.0f} "
                    f"| {p['p99_us']:,.0f} | {f'{cpu:.2f}' if cpu else ''} |"
                )
    text = TEXT.format(
        records=found["records"],
        mib=found["mib"],
        held=" and ".join(f"{held:.1%} ({mix})" for mix, held in found["held"].items()),
        resident=found["resident"]["memcached (DRAM)"],
        own=found["resident"]["Terrace"],
    )
    return text + "\n".join(rows) + "\n"

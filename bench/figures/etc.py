"""Records of Facebook's ETC sizes at several depths, against memcached in DRAM."""

from measure.figure import say
from measure.server import terrace

from . import plot, systems

RECORDS = 1_000_000
DEPTHS = [1, 8, 16, 32]
LOAD = {"sizes": "etc", "popularity": "zipf-mandelbrot", "protocol": "meta", "connections": 120}
MIXES = {"100 % GET": ("get", {}), "80 % GET, 20 % SET": ("mixed", {"get_percent": 80})}
TITLE = "Facebook's ETC: sizes and popularity, against memcached in DRAM"
TEXT = """
{records:,} records with ETC's sizes (230 bytes in the mean) and popularity. Terrace keeps them on flash with
{mib} MiB of DRAM for everything, about an eighth of the records and the index; memcached has all of them in
DRAM ({resident:.0f} MiB resident, Terrace {own:.0f} MiB). 120 connections, meta protocol, one core each for server and generator.
"""


def measure(quick):
    records = RECORDS // 5 if quick else RECORDS
    # An eighth of the records with a hot copy's overhead, 5 bytes of index per record, buffers.
    mib = int(records * (230 + 60) / 8 / (1 << 20) + records * 5 / (1 << 20)) + 12
    flags = ["-m", str(mib), "-t", "1", "--tier", "ssd:DIR/tier:2g"]
    found = {"records": records, "mib": mib, "systems": {}, "resident": {}}
    starts = {
        "Terrace": lambda: terrace(*flags, cpus=systems.SERVER_CPU),
        "memcached (DRAM)": systems.in_dram,
    }
    for name, start in starts.items():
        with start() as server:
            say(server.command)
            systems.fill(server, records, sizes="etc")
            how = {**LOAD, "records": records, "any_version": True}
            systems.gets(server, seconds=2 if quick else 8, depth=8, **how)
            found["systems"][name] = {mix: [] for mix in MIXES}
            for mix, (workload, options) in MIXES.items():
                for depth in DEPTHS:
                    seconds = 0.7 if quick else 3
                    report = systems.gets(
                        server, workload, depth=depth, seconds=seconds, **how, **options
                    )
                    found["systems"][name][mix].append(systems.point(report))
                    say(f"{name}, {mix}, depth {depth}: {report['requests_per_second']:,.0f}/s")
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
    return TEXT.format(
        records=found["records"],
        mib=found["mib"],
        resident=found["resident"]["memcached (DRAM)"],
        own=found["resident"]["Terrace"],
    )

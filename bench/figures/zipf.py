"""Zipf-Mandelbrot reads with DRAM for a few per cent of the records."""

from measure import tiers
from measure.figure import say
from measure.server import terrace

from . import plot, systems

RECORDS, RECORD = 2_000_000, {"key_bytes": 20, "value_bytes": 80}
# DRAM for this share of the records besides the index (about 4 bytes per record) and the buffers.
SHARES = [3, 5, 7, 10, 12.5]
BYTES_PER_HOT_RECORD, INDEX_BYTES, BUFFERS = 160, 5, 8 << 20
MIXES = {"100 % GET": ("get", {}), "80 % GET, 20 % SET": ("mixed", {"get_percent": 80})}
LOAD = {"popularity": "zipf-mandelbrot", "protocol": "meta", "connections": 120, "depth": 8}
TITLE = "Popular records: Zipf-Mandelbrot (s = 2.5, beta = 0.03)"
TEXT = """
The popularity that MemStac's paper takes from Facebook's ETC: an eighth of the records gets 91.9 % of
requests. {records:,} records of 20 + 80 bytes on flash, with DRAM for 3 to 12.5 % of them (besides the
index and buffers); memcached has all of them in DRAM. *Ideal* is the share of requests for the most
popular records that fit. Left: throughput; right: GETs answered from DRAM. 120 connections, depth 8,
meta protocol, one core each for server and generator.
"""


def measure(quick):
    records = RECORDS // 2 if quick else RECORDS
    seconds, warm_up = (1, 3) if quick else (3, 6)
    found = {"records": records, "points": [], "dram": {}}
    for share in SHARES:
        hot = records * share / 100 * BYTES_PER_HOT_RECORD
        mib = max(int((records * INDEX_BYTES + BUFFERS + hot) / (1 << 20)), 16)
        flags = ["-m", str(mib), "-t", "1", "--tier", "ssd:DIR/tier:1g"]
        with terrace(*flags, cpus=systems.SERVER_CPU) as server:
            say(server.command)
            systems.fill(server, records, **RECORD)
            for mix in MIXES:
                point = _run(server, records, mix, seconds, warm_up)
                found["points"].append(point | {"share": share, "mix": mix, "mib": mib})
    with systems.in_dram() as server:
        systems.fill(server, records, **RECORD)
        for mix in MIXES:
            found["dram"][mix] = _run(server, records, mix, seconds, 0.5)
    return found


def _run(server, records, mix, seconds, warm_up):
    workload, options = MIXES[mix]
    how = {**LOAD, **RECORD, **options, "records": records, "any_version": True}
    systems.gets(server, workload, seconds=warm_up, **how)
    before = tiers.flash(server)
    report = systems.gets(server, workload, seconds=seconds, **how)
    found = systems.point(report)
    if before:
        from_flash = tiers.flash(server)["hits"] - before["hits"]
        found["from_dram"] = 1 - from_flash / max(report["hits"], 1)
    say(f"{server.name}, {mix}: {found['rate']:,.0f}/s, from DRAM {found.get('from_dram', 1):.3f}")
    return found


def _ideal(share, s=2.5, beta=0.03):
    part = lambda x: beta ** (1 - s) - (x + beta) ** (1 - s)
    return part(share / 100) / part(1)


def draw(found, path):
    figure, (rates, hits) = plot.panels(["throughput", "answered from DRAM"])
    lines = [(f"Terrace, {mix}", _points(found, mix, lambda p: p["rate"] / 1000)) for mix in MIXES]
    for mix, point in found["dram"].items():
        value = point["rate"] / 1000
        lines.append((f"memcached (DRAM), {mix}", [(SHARES[0], value), (SHARES[-1], value)]))
    plot.curves(rates, lines, "DRAM for so many records, %", "thousand requests/s")
    lines = [(f"Terrace, {mix}", _points(found, mix, lambda p: p["from_dram"] * 100)) for mix in MIXES]
    lines.append(("ideal", [(share, _ideal(share) * 100) for share in SHARES]))
    plot.curves(hits, lines, "DRAM for so many records, %", "GETs answered from DRAM, %")
    plot.save(figure, path)


def _points(found, mix, value):
    return [(p["share"], value(p)) for p in found["points"] if p["mix"] == mix]


def text(found):
    return TEXT.format(records=found["records"])

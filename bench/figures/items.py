"""What an item costs by its size: reads of the drive per hit, and bytes of DRAM."""

from measure import process, tiers
from measure.figure import say
from measure.server import terrace

from . import plot, systems

SIZES = [64, 256, 1024, 4096, 16384]
BYTES = 256 << 20
KEY = 20
TITLE = "By item size: reads of the drive, and DRAM"
TEXT = """
Values of 64 bytes to 16 KiB, {mib} MiB of records each. Left: drive reads per GET that DRAM did not answer,
by the servers' own counters; middle: bytes that the kernel counted as read from the drive for each of
them. Right: resident memory of the server with the records on flash, less that of the
server when it was empty, per record. Terrace has `-m 64`, of which hot copies and buffers
take what is left: the dashed line is index and page tables alone (`stats tiers`). extstore keeps a
header of each item in DRAM, and leaves items below 512 bytes there whole.
"""


def measure(quick):
    bytes_in_all = BYTES // 8 if quick else BYTES
    found = {"mib": bytes_in_all >> 20, "systems": {"Terrace": [], "extstore": []}}
    for size in SIZES:
        records = max(bytes_in_all // (size + KEY), 8)
        with terrace("-m", "64", "-t", "1", "--tier", "ssd:DIR/tier:1g", cpus=systems.SERVER_CPU) as server:
            found["systems"]["Terrace"].append(_item(server, size, records, quick))
        with systems.extstore(gib=1) as server:
            found["systems"]["extstore"].append(_item(server, size, records, quick))
    return found


def _item(server, size, records, quick):
    say(f"{server.name}: {records:,} items of {KEY} + {size}")
    empty = process.usage(server.pid).resident
    how = {"records": records, "value_bytes": size}
    systems.fill(server, records, slowly=server.name != "terrace", value_bytes=size)
    resident = process.usage(server.pid).resident
    index = None
    if server.name == "terrace":
        stats = tiers.of_terrace(server)
        names = ("sealed_index", "page_tables", "segment_table")
        index = sum(stats[f"memory_{name}"] for name in names) / max(stats["records"], 1)
    before, used = tiers.flash(server), server.usage()
    number = min(records, 20_000 if quick else 100_000)
    report = systems.gets(
        server, requests=number, connections=8, depth=8, protocol="meta", **how
    )
    after, read = tiers.flash(server), server.usage().since(used).drive_read
    hits = after["hits"] - before["hits"]
    enough = hits > number / 50
    return {
        "size": size,
        "hits": hits,
        "misses": report["misses"],
        "reads": (after["reads"] - before["reads"]) / hits if enough else None,
        "bytes": read / hits if enough else None,
        "dram": (resident - empty) / records,
        "index": index,
    }


def draw(found, path):
    titles = ["reads per hit from flash", "bytes read per hit from flash", "DRAM per item"]
    figure, (reads, size, dram) = plot.panels(titles, width=4.4)
    line = lambda what: [
        (name, [(p["size"], p[what]) for p in points if p[what] is not None])
        for name, points in found["systems"].items()
    ]
    by_size = {"x_scale": "log", "x": "value, bytes"}
    plot.curves(reads, line("reads"), y="reads", **by_size)
    plot.curves(size, line("bytes"), y="bytes", y_scale="log", **by_size)
    plot.curves(dram, line("dram"), y="resident bytes per item", **by_size)
    index = [(p["size"], p["index"]) for p in found["systems"]["Terrace"]]
    dram.plot(*zip(*index), "--", color=plot.colour("Terrace"), label="Terrace, index alone")
    dram.set_yscale("log")
    dram.legend(fontsize=8)
    plot.save(figure, path)


def text(found):
    rows = ["", "| value bytes | system | reads per flash hit | bytes per flash hit | DRAM per item | flash hits | misses |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    shown = lambda value, form: form.format(value) if value is not None else "-"
    for name, points in found["systems"].items():
        for p in points:
            rows.append(
                f"| {p['size']} | {name} | {shown(p['reads'], '{:.3f}')} | "
                f"{shown(p['bytes'], '{:,.0f}')} | {p['dram']:,.0f} | {p['hits']:,} | {p['misses']:,} |"
            )
    return TEXT.format(mib=found["mib"]) + "\n".join(rows) + "\n"

"""What an item costs by its size: reads of the drive per hit, and bytes of DRAM."""

from measure import tiers
from measure.figure import say

from . import plot, systems

SIZES = [64, 256, 1024, 4096, 16384]
BYTES = 192 << 20
KEY, MEMORY_MIB, LIMIT_MIB = 20, 64, 96
TITLE = "By item size: reads of the drive, and DRAM"
TEXT = """
Values of 64 bytes to 16 KiB, {mib} MiB of records of each size, `-m 64`. Left: drive reads per GET that DRAM did
not answer, by the servers' own counters. Middle: bytes that the kernel counted as read from the drive
for each of them: extstore reads through the page cache, of which it has {limit} MiB less its own memory
here, so that a part needs no read. Right: DRAM per item that lies on flash: Terrace's index and page tables (`stats
tiers`; at the right end what does not grow with items is most of it), the chunk that extstore keeps for an item and its share of
the hash table (`stats slabs`), and all that memcached takes for an item without a drive. extstore runs with
`ext_item_size=64`: as it comes it leaves items below 512 bytes in DRAM. Where DRAM has no room for what it
keeps of each item, it forgets the item: those are its misses.
"""


def measure(quick):
    in_all = BYTES // 2 if quick else BYTES
    found = {"mib": in_all >> 20, "systems": {"Terrace": [], "extstore": [], "memcached (DRAM)": []}}
    starts = {
        "Terrace": lambda: systems.on_flash(mib=MEMORY_MIB, limit_mib=LIMIT_MIB),
        "extstore": lambda: systems.extstore(
            mib=MEMORY_MIB, more=",ext_item_size=64", limit_mib=LIMIT_MIB
        ),
        "memcached (DRAM)": systems.in_dram,
    }
    for size in SIZES:
        records = in_all // (size + KEY)
        for name, start in starts.items():
            with start() as server:
                say(f"{name}: {records:,} items of {KEY} + {size}")
                slowly = name == "extstore"
                systems.fill(server, records, slowly=slowly, value_bytes=size)
                point = {"size": size, "dram": _DRAM[name](server)}
                if tiers.flash(server):
                    point |= _reads(server, size, records, 20_000 if quick else 100_000)
                found["systems"][name].append(point)
    return found


def _reads(server, size, records, most):
    before, used = tiers.flash(server), server.usage()
    number = min(records, most)
    report = systems.gets(
        server, records=records, value_bytes=size, requests=number, connections=8, depth=8,
        protocol="meta",
    )  # fmt: skip
    after, read = tiers.flash(server), server.usage().since(used).drive_read
    hits = after["hits"] - before["hits"]
    enough = hits > number / 50
    return {
        "hits": hits,
        "misses": report["misses"] / number,
        "reads": (after["reads"] - before["reads"]) / hits if enough else None,
        "bytes": read / hits if enough else None,
    }


def _terrace_dram(server):
    stats = tiers.of_terrace(server)
    names = ("tier_index", "page_tables", "segment_table")
    return sum(stats[f"memory_{name}"] for name in names) / max(stats["records"], 1)


def _extstore_dram(server):
    """Of an item whose value is on the drive: the smallest chunk in use."""
    stats, slabs = server.stats(), server.stats("slabs")
    used = [name.partition(":")[0] for name, value in slabs.items() if name.endswith(":used_chunks") and value > 0]
    chunk = min(slabs[f"{number}:chunk_size"] for number in used)
    return chunk + stats["hash_bytes"] / max(stats["curr_items"], 1)


def _memcached_dram(server):
    return tiers.dram_for_data(server) / max(server.stats()["curr_items"], 1)


_DRAM = {
    "Terrace": _terrace_dram,
    "extstore": _extstore_dram,
    "memcached (DRAM)": _memcached_dram,
}


def draw(found, path):
    titles = ["reads per hit from flash", "bytes read per hit from flash", "DRAM per item"]
    figure, (reads, size, dram) = plot.panels(titles, width=4.4)
    line = lambda what: [
        (name, [(p["size"], p[what]) for p in points if p.get(what) is not None])
        for name, points in found["systems"].items()
    ]
    by_size = {"x_scale": "log", "x": "value, bytes"}
    plot.curves(reads, line("reads"), y="reads", **by_size)
    plot.curves(size, line("bytes"), y="bytes", **by_size)
    plot.curves(dram, line("dram"), y="bytes of DRAM per item", y_scale="log", **by_size)
    plot.save(figure, path)


def text(found):
    rows = [
        "",
        "| value bytes | system | reads per flash hit | bytes per flash hit | DRAM per item | misses |",
        "|---|---|---|---|---|---|",
    ]
    shown = lambda value, form: form.format(value) if value is not None else "-"
    for name, points in found["systems"].items():
        for p in points:
            cells = [
                str(p["size"]),
                name,
                shown(p.get("reads"), "{:.3f}"),
                shown(p.get("bytes"), "{:,.0f}"),
                f"{p['dram']:,.1f}",
                shown(p.get("misses"), "{:.1%}"),
            ]
            rows.append("| " + " | ".join(cells) + " |")
    return TEXT.format(mib=found["mib"], limit=LIMIT_MIB) + "\n".join(rows) + "\n"

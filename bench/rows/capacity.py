"""Records of 20 + 80 bytes on `-m 64` and one 1 GiB file: none lost, little DRAM, a full file."""

from measure.figure import Figure, at_least, at_most, say
from measure.load import load
from measure.server import terrace
from measure.table import mib, percent
from measure.tiers import MEMORY, of_terrace

FLAGS = ["-m", "64", "-t", "2", "--tier", "ssd:DIR/tier:1g"]
RESIDENT_MOST = 104
STEP = 500_000
# More than fit, by far; so that a server that never evicts does not go on for ever.
RECORDS_MOST = 14_000_000
# Records stored after the first eviction: full means full everywhere.
AFTER = 1_000_000
SAMPLE = 400_000


def two_million(quick):
    records = 400_000 if quick else 2_000_000
    with terrace(*FLAGS) as server:
        say(server.command)
        filled = load(server, "fill", records=records)
        say(f"{filled['stored']:,} stored, {filled['errors']} errors, {filled['seconds']:.1f} s")
        server.settle()
        read = load(server, "verify", records=records)
        say(f"verified in {read['seconds']:.1f} s")
        usage = server.usage()
    what = f"{records:,} records:"
    return [
        at_most(f"{what} lost", read["misses"] + filled["errors"], 0, "{:,}"),
        at_most(f"{what} wrong", read["wrong"], 0, "{:,}"),
        _resident(f"{what} resident", usage),
    ]


def full(quick):
    with terrace(*FLAGS) as server:
        say(server.command)
        records = _fill(server, 200_000 if quick else AFTER)
        server.settle()
        stats, usage = of_terrace(server), server.usage()
        say(f"reading {SAMPLE:,} of them")
        read = load(server, "get", records=records, requests=SAMPLE)
    file_bytes = 1 << 30
    share = lambda name: percent(stats[f"tier:{name}"], file_bytes)
    index = sum(stats[f"memory_{name}"] for name in ("tier_index", "page_tables", "segment_table"))
    accounted = sum(stats.get(name, 0) for name in MEMORY)
    live = stats["records"]
    told = ", ".join(
        f"{name} {share(name + '_bytes')}" for name in ("payload", "header", "padding", "footer")
    )
    found = (read["hits"] + read["wrong"]) / read["requests"] * records
    return [
        Figure("full: live records", f"{live:,} of {records:,} stored; {found:,.0f} by a sample"),
        at_most("full: live records apart from the sample", abs(live - found) / found, 0.02),
        at_most("full: wrong", read["wrong"], 0, "{:,}"),
        at_most("full: index and page tables, B of DRAM per live record", index / live, 4.1, "{:.2f}"),
        at_least(
            "full: share of the file that is live records",
            stats["tier:live_bytes"] / file_bytes, 0.9, "{:.3f}", told,
        ),
        at_most(
            "full: resident memory apart from the accounting",
            abs(usage.resident - accounted) / accounted, 0.1, "{:.3f}",
            f"resident {mib(usage.resident)}, accounted {mib(accounted)}",
        ),
        _resident("full: resident", usage),
    ]  # fmt: skip


def _fill(server, after):
    """Stores new records until some are evicted, and then `after` more; gives back how many."""
    records, until = 0, None
    while records < (until or RECORDS_MOST):
        load(server, "fill", first=records, records=STEP)
        records += STEP
        stats = of_terrace(server)
        say(f"{records:,} stored, {stats['records']:,} live, {stats['evictions']:,} evicted")
        if until is None and stats["evictions"] > 0:
            until = records + after
    return records


def _resident(what, usage):
    most = usage.resident_max / (1 << 20)
    return at_most(what, most, RESIDENT_MOST, "{:.1f} MiB", f"now {mib(usage.resident)}")

"""Latency over throughput: uniform reads, reads and writes, writes, of short records."""

from measure.figure import say

from . import sweep, systems

RECORDS, RECORD = 1_000_000, {"key_bytes": 20, "value_bytes": 80}
# So little that few of the records fit besides the index; the group counts connections and page cache, too.
MIB, LIMIT_MIB = 24, 72
MIXES = {
    "100 % GET": ("get", {}),
    "80 % GET, 20 % SET": ("mixed", {"get_percent": 80}),
    "100 % SET": ("overwrite", {}),
}
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


def measure(quick):
    records = RECORDS // 4 if quick else RECORDS
    found = {"records": records, "systems": {}, "fio": []}
    for name, start in _systems().items():
        with start() as server:
            say(f"{name}: {server.command}")
            systems.fill(server, records, slowly=name == "extstore", **RECORD)
            seconds = 0.6 if quick else 1.5
            found["systems"][name] = sweep.points(server, name, MIXES, quick, seconds, records=records, **RECORD)
            if name == "Terrace":
                found["fio"] = systems.fio_curve(server, quick)
    return found


def _systems():
    return {
        "Terrace": lambda: systems.on_flash(mib=MIB, limit_mib=LIMIT_MIB),
        "extstore": lambda: systems.extstore(mib=MIB, limit_mib=LIMIT_MIB, more=",ext_item_size=64"),
        "memcached (DRAM)": systems.in_dram,
    }


def draw(found, path):
    sweep.draw(found, MIXES, path)


def text(found):
    told = TEXT.format(
        records=found["records"], mib=MIB, limit=LIMIT_MIB, back_end=sweep.BACK_END_US, rates=sweep.rates(found, MIXES)
    )
    return told + sweep.NOTE + sweep.table(found)

"""Records of Facebook's ETC sizes and popularity: latency over throughput."""

from measure.figure import say

from . import sweep, systems

RECORDS = 1_000_000
LOAD = {"sizes": "etc", "popularity": "zipf-mandelbrot"}
MIXES = {"100 % GET": ("get", {}), "80 % GET, 20 % SET": ("mixed", {"get_percent": 80})}
# Beside `-m`: connections' buffers, and what memcached and the kernel take for themselves.
GROUP_BESIDES_MIB = 48
TITLE = "Facebook's ETC: sizes and popularity"
TEXT = """
{records:,} records with ETC's sizes (230 bytes in the mean) and popularity. Terrace keeps them on a drive with `-m {mib}` for
everything, in which it had {held} of the records: copies and what was not yet written out. extstore has the same `-m` and drive
(`ext_item_size=64`); what it misses is stored {back_end} us after. Both are in control groups of {limit} MiB that count the page cache
too. memcached has all of them in DRAM ({resident:.0f} MiB resident, Terrace {own:.0f} MiB). *fio* reads pages of Terrace's file at
random, without a server. Meta protocol, one core each for server and generator.

{rates}
"""


def measure(quick):
    records = RECORDS // 5 if quick else RECORDS
    # An eighth of the records with a copy's overhead, 5 bytes of index per record, buffers.
    mib = int(records * (230 + 60) / 8 / (1 << 20) + records * 5 / (1 << 20)) + 12
    found = {"records": records, "mib": mib, "systems": {}, "resident": {}, "held": {}, "fio": []}
    limit = mib + GROUP_BESIDES_MIB
    starts = {
        "Terrace": lambda: systems.on_flash(mib=mib, limit_mib=limit),
        "extstore": lambda: systems.extstore(mib=mib, limit_mib=limit, more=",ext_item_size=64"),
        "memcached (DRAM)": systems.in_dram,
    }
    how = {**LOAD, "records": records}
    for name, start in starts.items():
        with start() as server:
            say(server.command)
            systems.fill(server, records, slowly=name == "extstore", sizes="etc")
            found["systems"][name] = {}
            for mix, (workload, options) in MIXES.items():
                # Each load finds other records popular: those of a connection are its own.
                more = options | ({"back_end": sweep.BACK_END_US} if name == "extstore" else {})
                warm_up = {"connections": 120, "depth": 8, "seconds": 2 if quick else 12, "protocol": "meta"}
                systems.gets(server, workload, any_version=True, **warm_up, **how, **more)
                seconds = 0.7 if quick else 2
                found["systems"][name] |= sweep.points(server, name, {mix: (workload, options)}, quick, seconds, **how)
                if name == "Terrace":
                    found["held"][mix] = systems.in_memory(server) / records
            found["resident"][name] = server.usage().resident / (1 << 20)
            if name == "Terrace":
                found["fio"] = systems.fio_curve(server, quick)
    return found


def draw(found, path):
    sweep.draw(found, MIXES, path)


def text(found):
    told = TEXT.format(
        records=found["records"],
        mib=found["mib"],
        limit=found["mib"] + GROUP_BESIDES_MIB,
        back_end=sweep.BACK_END_US,
        held=" and ".join(f"{held:.1%} ({mix})" for mix, held in found["held"].items()),
        resident=found["resident"]["memcached (DRAM)"],
        own=found["resident"]["Terrace"],
        rates=sweep.rates(found, MIXES),
    )
    return told + sweep.NOTE + sweep.table(found)

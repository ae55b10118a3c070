"""SETs of 100-byte records against memcached with everything in DRAM."""

from measure.figure import alternate, at_least, say
from measure.load import load
from measure.server import memcached, terrace
from measure.tiers import of_terrace

SERVER_CPU, LOAD_CPU = {0}, {1}
TIER = ["-m", "64", "-t", "1", "--tier", "ssd:DIR/tier:1g"]
DRAM = ["-m", "4096", "-t", "1"]
NEW = 3_000_000
# Fills a tier of 1 GiB with 100-byte records and evicts some.
FULL = 10_000_000
STEP = 2_000_000
LOAD = {"batch": True, "connections": 8, "depth": 32, "cpus": LOAD_CPU}


def new_keys(quick):
    rounds, records = (3, NEW // 3) if quick else (5, NEW)

    def measure(start, flags):
        with start(*flags, cpus=SERVER_CPU) as server:
            return _rate(server, load(server, "fill", records=records, **LOAD))

    say("SETs of new keys per second of terrace on flash and memcached in DRAM")
    own, other, ratio = alternate(
        rounds, lambda: measure(terrace, TIER), lambda: measure(memcached, DRAM)
    )
    return [_figure("SET of new keys", own, other, ratio)]


def overwrites(quick):
    rounds, seconds = (3, 2) if quick else (5, 3)
    with (
        terrace(*TIER, cpus=SERVER_CPU) as ours,
        memcached(*DRAM, cpus=SERVER_CPU) as theirs,
    ):
        for server in (ours, theirs):
            say(server.command)
            for first in range(0, FULL, STEP):
                load(server, "fill", first=first, records=STEP, **LOAD)
        stats = of_terrace(ours)
        say(f"{stats['records']:,} records live, {stats['evictions']:,} evicted")
        measure = lambda server: _rate(
            server, load(server, "overwrite", records=FULL, seconds=seconds, **LOAD)
        )
        own, other, ratio = alternate(rounds, lambda: measure(ours), lambda: measure(theirs))
    return [_figure("SET over records of a full tier", own, other, ratio)]


def _rate(server, report):
    if report["errors"]:
        say(f"{server.name}: {report['errors']} errors: {report['examples']}")
    say(f"{server.name}: {report['server_cpu_us']:.2f} us of CPU per SET")
    return report["requests_per_second"]


def _figure(what, own, other, ratio):
    note = f"{own:,.0f}/s and {other:,.0f}/s"
    return at_least(f"{what}, 100 bytes, of memcached's rate", ratio, 1.0, "{:.2f}", note)

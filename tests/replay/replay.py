"""Replays Twitter's cluster52 trace, demand fill, through libmemcached against real servers.

Run by `tests/replay/run`, which finds the Python that has the client.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))

import trace  # noqa: E402  (of this folder)
from measure import server, table, tiers  # noqa: E402

MIB = 1 << 20
# Twice the objects' bytes, rounded up: a tier that holds the rest, also with extstore's headers.
TIER_MIB = {"1m": 128, "10m": 512}
# About as many slab classes as objects of these sizes use.
MEMCACHED_LEAST_MIB = 24
WORKERS = ["-t", "2"]
# extstore leaves items below ext_item_size in DRAM (512 bytes by default, more than most objects
# here have); at 64 it takes what it can. Its pages are made smaller so that the file has several.
EXTSTORE = "ext_page_size=8,ext_wbuf_size=2,ext_threads=8,ext_path=DIR/extstore:{tier}m"


def servers(dram, tier):
    """What is compared: a name, how to start it."""
    small = EXTSTORE.format(tier=tier)
    memory = ["-m", str(dram), *WORKERS]
    return {
        "terrace": lambda: server.terrace(*memory, "--tier", f"ssd:DIR/tier:{tier}m"),
        "memcached": lambda: server.memcached(*memory),
        "extstore": lambda: server.memcached(*memory, "-o", small),
        "extstore-64": lambda: server.memcached(*memory, "-o", small + ",ext_item_size=64"),
    }


class Trace:
    """The requests, and what a cache that never forgets would make of them."""

    def __init__(self, length):
        self.length = length
        self.objects, self.sizes = trace.load(length)
        distinct = dict(zip(self.objects, self.sizes))
        self.distinct = len(distinct)
        self.bytes = sum(len(f"{number:x}") + size for number, size in distinct.items())
        self.hits_possible = len(self.objects) - self.distinct

    def dram_mib(self):
        """A tenth of the objects' bytes."""
        return max(self.bytes // 10 // MIB, 1)


class Outcome:
    """The figures of one replay."""

    def __init__(self, running, counts, seconds):
        running.settle(timeout=10)
        self.name, self.command = running.name, running.command
        self.counts, self.seconds = counts, seconds
        self.flash = tiers.flash(running)
        self.dram = tiers.dram_for_data(running)
        self.usage = running.usage()
        self.from_flash = self.flash["hits"] if self.flash else 0

    def row(self, name, possible):
        counts, flash = self.counts, self.flash
        return [
            name,
            f"{counts.hits / counts.requests:.4f}",
            f"{possible / counts.requests:.4f}",
            table.percent(counts.hits - self.from_flash, counts.hits),
            f"{table.ratio(flash['reads'], flash['hits']):.4f}" if flash and flash["hits"] else "-",
            f"{table.ratio(flash['written'], counts.stored_bytes):.3f}" if flash else "-",
            table.mib(self.dram),
            table.mib(self.usage.resident),
            counts.wrong,
            counts.refused,
            f"{(counts.requests + counts.stored) / self.seconds:,.0f}",
        ]


HEADING = [
    "server", "hit ratio", "possible", "hits in DRAM", "reads/flash hit", "written/stored",
    "data in DRAM", "resident", "wrong", "refused", "commands/s",
]  # fmt: skip


def replay(name, start, requests, processes):
    from client import replay as run

    with start() as running:
        print(f"== {name}: {running.command}", flush=True)
        counts, seconds = run(running.port, requests.objects, requests.sizes, processes)
        return Outcome(running, counts, seconds)


def failures(outcome, requests, dram):
    """What Terrace must do here and did not: the tier holds every object, so none may be missed."""
    counts, flash = outcome.counts, outcome.flash
    lost = requests.hits_possible - counts.hits - counts.wrong
    resident_most = (dram + 32) * MIB + 4 * MIB
    rules = [
        (counts.requests == len(requests.objects), f"{counts.requests} requests were answered"),
        (counts.wrong == 0, f"{counts.wrong} values were wrong"),
        (lost == 0, f"{lost} hits were missed, {counts.refused} stores refused"),
        (flash and flash["hits"] > 0, "nothing was read from flash"),
        (not flash or flash["reads"] <= 1.01 * flash["hits"], f"reads of the drive: {flash}"),
        (outcome.usage.resident_max <= resident_most, f"resident: {outcome.usage.resident_max} B"),
    ]
    return [text for holds, text in rules if not holds]


def test_result(failed):
    """The line that scripts/test.sh counts; of a test that says that it was skipped it takes one off."""
    passed = 0 if failed else 1
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {len(failed) and 1} failed;"
          " 0 ignored", flush=True)  # fmt: skip
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", choices=["1m", "10m"], default="1m", help="requests")
    parser.add_argument("--dram", type=int, help="MiB of DRAM; a tenth of the objects if not given")
    parser.add_argument("--only", help="servers, separated by commas")
    parser.add_argument("--clients", type=int, default=4, help="client processes")
    parser.add_argument("--test", action="store_true", help="Terrace alone; fails on what is lost")
    arguments = parser.parse_args()
    try:
        import pylibmc  # noqa: F401

        requests = Trace(arguments.trace)
    except (ImportError, trace.Unavailable) as missing:
        print(f"skipped: replay of cluster52: {missing}")
        return test_result([])
    server.end_servers_when_terminated()
    dram = arguments.dram or requests.dram_mib()
    tier = TIER_MIB[requests.length]
    print(f"cluster52: {len(requests.objects):,} requests for {requests.distinct:,} objects of "
          f"{table.mib(requests.bytes)}; {dram} MiB of DRAM, {tier} MiB of flash", flush=True)  # fmt: skip
    known = servers(dram, tier)
    names = (arguments.only or ("terrace" if arguments.test else ",".join(known))).split(",")
    rows, failed = [HEADING], []
    for name in names:
        outcome = replay(name, known[name], requests, arguments.clients)
        rows.append(outcome.row(name, requests.hits_possible))
        print("   " + ", ".join(f"{a} {b}" for a, b in zip(HEADING[1:], rows[-1][1:])), flush=True)
        if name == "terrace":
            failed += failures(outcome, requests, dram)
    table.show(rows)
    if dram < MEMCACHED_LEAST_MIB and "memcached" in names:
        print("memcached gives every slab class a page of 1 MiB, however small -m is")
    for failure in failed:
        print(f"terrace: {failure}")
    return test_result(failed)


if __name__ == "__main__":
    sys.exit(main())

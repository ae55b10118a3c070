"""SETs of 100-byte records for a minute, while reclaim runs, beside memcached with all in DRAM."""

import contextlib

from measure import peer
from measure.figure import Figure, at_least, at_most, median, ratio, say
from measure.load import load
from measure.server import terrace
from measure.tiers import flash, of_terrace
from rows.sets import DRAM, FULL, LOAD, STEP, TIER
from rows.speed_dram import SERVER_CPU

# Terrace runs for a minute in parts, in which a tier of 1 GiB is written several times over; between two of them
# memcached has a short turn.
SECONDS, PARTS, PEER_SECONDS = 60, 10, 2
OF_MEMCACHED, LOAD_OF_PEAK = 1.4, 0.7
# Shares of the tier that records take when it is full (`--tier-full`), the default first.
FULL_AT = [80, 70, 60, 50]
# Overwrites before anything is measured, in seconds: what is alive lies as it will from then on.
WARM_SECONDS = 15


def sustained(quick):
    """Overwrites of a full tier, then new keys, a minute each."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(terrace(*TIER, cpus=SERVER_CPU))
        theirs = stack.enter_context(peer.candidates(*DRAM, cpus=SERVER_CPU))
        for server in (ours, *theirs):
            _fill(server)
        stats = of_terrace(ours)
        say(f"{stats['records']:,} records live, {stats['evictions']:,} evicted")
        kinds = {"SET over records of a full tier": _overwrite, "SET of new keys": _NewKeys()}
        return [
            figure
            for what, store in kinds.items()
            for figure in _sustained(ours, theirs, what, store, quick)
        ]


def _fill(server):
    say(server.command)
    for first in range(0, FULL, STEP):
        load(server, "fill", **{**LOAD, "first": first, "records": STEP})


def _overwrite(server, **how):
    return load(server, "overwrite", records=FULL, **{**LOAD, **how})


class _NewKeys:
    """Keys that no server has seen; each run begins where the last ended."""

    def __init__(self):
        self.next = FULL

    def __call__(self, server, **how):
        first, self.next = self.next, self.next + 200_000_000
        # Each record once, in order, for as long as it takes.
        return load(server, "fill", first=first, records=200_000_000, **{**LOAD, **how})


def _sustained(ours, theirs, what, store, quick):
    seconds = (20 if quick else SECONDS) / PARTS
    rate = lambda server: store(server, seconds=PEER_SECONDS)["requests_per_second"]
    best = peer.best(theirs, rate, max)
    own, other = [], []
    for part in range(PARTS):
        own.append(store(ours, seconds=seconds)["requests_per_second"])
        other.append(rate(best))
        say(f"part {part + 1} of {PARTS}: {own[-1]:,.0f}/s and {other[-1]:,.0f}/s")
    minutes = f"over {round(seconds * PARTS)} s"
    note = f"{median(own):,.0f}/s and {median(other):,.0f}/s; least of a part {min(own):,.0f}/s"
    return [
        at_least(f"{what}, {minutes}, of memcached's rate", ratio(own, other), OF_MEMCACHED, "{:.2f}", note),
        _tail(ours, best, what, store, (median(own), median(other)), quick),
    ]  # fmt: skip


def _tail(ours, theirs, what, store, peaks, quick):
    """p99 of each at the same share of its own peak."""
    rounds, seconds = (3, 1) if quick else (5, 2)
    results = ([], [])
    for _ in range(rounds):
        for server, peak, found in zip((ours, theirs), peaks, results):
            rate = round(LOAD_OF_PEAK * peak)
            report = store(server, seconds=seconds, rate=rate, batch=None)
            found.append(report["latency"]["p99_us"])
        say(f"p99 {results[0][-1]:,.0f} us and {results[1][-1]:,.0f} us")
    note = f"{median(results[0]):,.0f} us and {median(results[1]):,.0f} us"
    name = f"p99 of {what} at {LOAD_OF_PEAK:.0%} of its own peak, of memcached's"
    return at_most(name, ratio(*results), 1.0, "{:.2f}", note)


def fullness(quick):
    """Overwrites of tiers that are full at different shares of their size, by turns."""
    rounds, seconds = (3, 2) if quick else (5, 2)
    with contextlib.ExitStack() as stack:
        flags = lambda percent: [*TIER, "--tier-full", str(percent)]
        ours = [stack.enter_context(terrace(*flags(percent), cpus=SERVER_CPU)) for percent in FULL_AT]
        theirs = stack.enter_context(peer.candidates(*DRAM, cpus=SERVER_CPU))
        for server in (*ours, *theirs):
            _fill(server)
        for server in ours:
            _overwrite(server, seconds=WARM_SECONDS)
        best = peer.best(
            theirs, lambda server: _overwrite(server, seconds=seconds)["requests_per_second"], max
        )
        say(f"SETs per second, full at {FULL_AT} %, and memcached's")
        results = [[] for _ in ours]
        other = []
        for number in range(rounds):
            for server, found in zip(ours, results):
                found.append(_rate_and_written(server, seconds))
            other.append(_overwrite(best, seconds=seconds)["requests_per_second"])
            texts = [f"{found[-1][0]:,.0f}" for found in results]
            say(f"round {number + 1} of {rounds}: {', '.join(texts)} and {other[-1]:,.0f}")
        return [
            _at_fullness(percent, of_terrace(server)["records"], found, other)
            for percent, server, found in zip(FULL_AT, ours, results)
        ]


def _rate_and_written(server, seconds):
    """SETs per second, and bytes that the drive is written for each."""
    counted = lambda: (flash(server)["written"], server.stats()["cmd_set"])
    before = counted()
    rate = _overwrite(server, seconds=seconds)["requests_per_second"]
    written, sets = (after - since for after, since in zip(counted(), before))
    return rate, written / sets


def _at_fullness(percent, records, found, other):
    rates = [rate for rate, _ in found]
    written = median(bytes_ for _, bytes_ in found)
    text = f"{ratio(rates, other):.2f} ({median(rates):,.0f}/s and {median(other):,.0f}/s"
    text = f"{text}; {written:.0f} bytes written per SET, {records:,} records held)"
    return Figure(f"SET over records of a tier that is full at {percent} %, of memcached's rate", text)

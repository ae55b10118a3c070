"""Latencies at equal load: requests come when they are due, however the server does."""

import contextlib

from measure import peer
from measure.figure import at_most, median, ratio, say
from measure.load import load
from measure.server import terrace
from rows import speed_dram
from rows.speed_dram import LOAD_CPU, MEMORY, SERVER_CPU

# Of memcached's peak, which is that of a closed loop of so many connections and requests each.
LOADS = [0.2, 0.5, 0.8]
CONNECTIONS, DEPTH = 16, 8
MIXES = ["GET, meta", "80/20, meta"]
PERCENTILES = ["p50_us", "p99_us", "p999_us"]


def latency(quick):
    rounds, seconds = (3, 1) if quick else (9, 2)
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(terrace(*MEMORY, "-t", "1", cpus=SERVER_CPU))
        theirs = stack.enter_context(peer.candidates(*MEMORY, "-t", "1", cpus=SERVER_CPU))
        for server in (ours, *theirs):
            speed_dram.filled(server)
        figures = []
        for mix in MIXES:
            server, peak = _peak(theirs, mix, seconds)
            for share in LOADS:
                figures += _at(ours, server, mix, share, peak, rounds, seconds)
    return figures


def _peak(servers, mix, seconds):
    measure = lambda server: speed_dram.run(
        server, mix, DEPTH, seconds, LOAD_CPU, connections=CONNECTIONS, batch=None
    )["requests_per_second"]
    server = peer.best(servers, measure, max)
    peak = median(measure(server) for _ in range(3))
    say(f"{mix}: memcached's peak is {peak:,.0f}/s")
    return server, peak


def _at(ours, theirs, mix, share, peak, rounds, seconds):
    say(f"{mix} at {share:.0%} of memcached's peak: p50, p99 and p99.9 of both in us")
    own, other = [], []
    for number in range(rounds):
        for server, found in ((ours, own), (theirs, other)):
            report = speed_dram.run(
                server, mix, DEPTH, seconds, LOAD_CPU,
                connections=CONNECTIONS, batch=None, rate=round(share * peak),
            )  # fmt: skip
            if report["requests_per_second"] < 0.98 * share * peak:
                say(f"{server.name} did {report['requests_per_second']:,.0f}/s")
            found.append([report["latency"][name] for name in PERCENTILES])
        texts = [" ".join(f"{us:,.0f}" for us in found[-1]) for found in (own, other)]
        say(f"round {number + 1} of {rounds}: {texts[0]} and {texts[1]}")
    figures = []
    for at, name in enumerate(PERCENTILES):
        a, b = [[row[at] for row in rows] for rows in (own, other)]
        what = f"{name[:-3]} of {mix} at {share:.0%} of memcached's peak, of memcached's"
        note = f"{median(a):,.0f} us and {median(b):,.0f} us"
        figures.append(at_most(what, ratio(a, b), 1.0, "{:.2f}", note))
    return figures


# Mean latencies of ETC's sizes: from these loads upwards, by depth.
ETC_LOADS = {1: [0.8], 8: [0.5, 0.8], 16: [0.5, 0.8], 32: [0.5, 0.8]}
ETC_RECORDS, ETC_BYTES = 1_000_000, 230
ETC_SHARE = 1 / 8
ETC = {
    "records": ETC_RECORDS, "sizes": "etc", "popularity": "zipf-mandelbrot", "protocol": "meta",
    "connections": 8, "cpus": LOAD_CPU,
}  # fmt: skip


def etc(quick):
    """ETC's sizes and popularity, an eighth of the bytes in DRAM, beside memcached with all in DRAM."""
    rounds, seconds = (3, 1) if quick else (9, 2)
    data_mib = ETC_RECORDS * ETC_BYTES >> 20
    flags = ["-m", str(round(data_mib * ETC_SHARE * 1.3 + 36)), "-t", "1", "--tier", "ssd:DIR/tier:1g"]
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(terrace(*flags, cpus=SERVER_CPU))
        theirs = stack.enter_context(peer.candidates(*MEMORY, "-t", "1", cpus=SERVER_CPU))
        for server in (ours, *theirs):
            say(server.command)
            load(server, "fill", **{name: ETC[name] for name in ("records", "sizes", "cpus")})
        ours.settle()
        load(ours, "get", requests=8 * ETC_RECORDS, depth=32, **ETC)
        stats = ours.stats("tiers")
        held = stats["memory_hot"] / (data_mib << 20)
        say(f"copies take {held:.1%} of all bytes")
        figures = []
        for depth, loads in ETC_LOADS.items():
            rate = lambda server: load(
                server, "get", seconds=seconds, depth=depth, **ETC
            )["requests_per_second"]  # fmt: skip
            server = peer.best(theirs, rate, max)
            peak = median(rate(server) for _ in range(3))
            for share in loads:
                figures.append(_mean(ours, server, depth, share, peak, rounds, seconds))
    return figures


def _mean(ours, theirs, depth, share, peak, rounds, seconds):
    say(f"ETC, depth {depth}, {share:.0%} of {peak:,.0f}/s: mean us of terrace and memcached")
    means = ([], [])
    for _ in range(rounds):
        for server, found in zip((ours, theirs), means):
            report = load(
                server, "get", seconds=seconds, depth=depth, rate=round(share * peak), **ETC
            )
            found.append(report["latency"]["mean_us"])
        say(f"{means[0][-1]:,.0f} and {means[1][-1]:,.0f}")
    what = f"mean latency, ETC, depth {depth}, at {share:.0%} of memcached's peak, of memcached's"
    note = f"{median(means[0]):,.0f} us and {median(means[1]):,.0f} us"
    return at_most(what, ratio(*means), 1.0, "{:.2f}", note)

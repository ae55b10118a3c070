"""Latencies at equal load: requests come when they are due, however the server does."""

import contextlib

from measure import peer, steal
from measure.figure import Figure, at_most, median, ratio, say
from measure.load import load, load_held
from measure.server import terrace
from measure.tiers import of_terrace
from rows import policy, speed_dram
from rows.speed_dram import LOAD_CPU, MEMORY, SERVER_CPU

# Of memcached's peak, which is that of a closed loop of so many connections and requests each.
LOADS = [0.2, 0.5, 0.8]
CONNECTIONS, DEPTH = 16, 8
MIXES = ["GET, meta", "80/20, meta"]
PERCENTILES = ["p50_us", "p99_us", "p999_us"]


def latency(quick):
    rounds, seconds = (3, 1) if quick else (5, 2)
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
# Of `-m` for each copy in DRAM.
ETC_COPY_BYTES = 300
ETC_SHARE = 1 / 8
# Requests of a connection wait for the reads of flash before them: of more connections fewer do.
ETC_CONNECTIONS = [24, 64]
ETC = {
    "records": ETC_RECORDS, "sizes": "etc", "popularity": "zipf-mandelbrot", "protocol": "meta",
    "cpus": LOAD_CPU,
}  # fmt: skip


def etc(quick):
    """ETC's sizes and popularity, room in DRAM for an eighth of the records, beside memcached with all in DRAM."""
    rounds, seconds = (3, 1) if quick else (5, 1.5)
    data_mib = ETC_RECORDS * ETC_BYTES >> 20
    flags = ["-m", str(round(data_mib * ETC_SHARE * 1.3 + 36)), "-t", "1", "--tier", "ssd:DIR/tier:1g"]
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(terrace(*flags, cpus=SERVER_CPU))
        theirs = stack.enter_context(peer.candidates(*MEMORY, "-t", "1", cpus=SERVER_CPU))
        for server in (ours, *theirs):
            say(server.command)
            load(server, "fill", **{name: ETC[name] for name in ("records", "sizes", "cpus")})
        ours.settle()
        _room(ours, 8 * ETC_RECORDS)
        policy.fit(ours, ETC_RECORDS, ETC_SHARE, lambda: _room(ours, 2 * ETC_RECORDS), ETC_COPY_BYTES)
        # Which records are worth it for their length shows with time, which reads of flash count.
        _room(ours, 8 * ETC_RECORDS)
        in_dram = _in_dram(ours)
        clients = [(count, depth) for count in ETC_CONNECTIONS for depth in ETC_LOADS]
        return [in_dram] + [
            figure
            for connections, depth in clients
            for figure in _means(ours, theirs, connections, depth, rounds, seconds)
        ]


def _in_dram(server):
    before = of_terrace(server)["tier:hits"]
    requests = 4 * ETC_RECORDS
    room = _room(server, requests)
    stats = of_terrace(server)
    share = 1 - (stats["tier:hits"] - before) / requests
    note = f"copies of {stats['records_read_cache'] / ETC_RECORDS:.1%} of the records, in the room of {room:.1%}"
    return Figure("ETC: GETs that DRAM answers", f"{share:.4f} ({note})")


def _room(server, requests):
    """The part of the records that would fill the room which copies take in DRAM, after so many GETs: copies are of
    short records rather than long ones."""
    load_held(server, "get", requests=requests, connections=24, depth=32, **ETC)
    stats = of_terrace(server)
    return stats["memory_read_cache"] / (ETC_RECORDS * stats["tier:live_bytes"] / stats["tier:records"])


def _means(ours, theirs, connections, depth, rounds, seconds):
    # Pipelines come when they are due, so that the generator sends as much at once as for the peak.
    how = {**ETC, "connections": connections, "depth": depth, "batch": True, "seconds": seconds}
    rate = lambda server: load(server, "get", **how)["requests_per_second"]
    best = peer.best(theirs, rate, max)
    peak = median(rate(best) for _ in range(3))
    return [_mean(ours, best, how, share, peak, rounds) for share in ETC_LOADS[depth]]


def _mean(ours, theirs, how, share, peak, rounds):
    clients = f"ETC, {how['connections']} connections at depth {how['depth']}"
    say(f"{clients}, {share:.0%} of {peak:,.0f}/s: mean us of terrace and memcached")
    means, stolen = ([], []), ([], [])
    for _ in range(rounds):
        for server, found, shares in zip((ours, theirs), means, stolen):
            with steal.watch(SERVER_CPU | LOAD_CPU, shares):
                report = load(server, "get", rate=round(share * peak), **how)
            found.append(report["latency"]["mean_us"])
        say(f"{means[0][-1]:,.0f} and {means[1][-1]:,.0f}")
    what = f"mean latency, {clients}, at {share:.0%} of memcached's peak, of memcached's"
    # A machine that is stopped for a fiftieth of a second shows in a mean more than anything else.
    note = f"{median(means[0]):,.0f} us and {median(means[1]):,.0f} us; {steal.told(*stolen)}"
    return at_most(what, ratio(*means), 1.0, "{:.2f}", note)

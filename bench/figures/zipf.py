"""Zipf-Mandelbrot reads with DRAM for a few per cent of the records."""

from measure import tiers
from measure.figure import say

from . import plot, sweep, systems

RECORDS, RECORD = 1_000_000, {"key_bytes": 20, "value_bytes": 80}
SHARES = [3, 5, 7, 10, 12.5]
# extstore is started, filled and warmed up for each; three of them show its curve.
EXTSTORE_SHARES = [3, 7, 12.5]
# Beside `-m`: connections' buffers, and what memcached and the kernel take for themselves.
GROUP_BESIDES_MIB = 64
MIXES = {"100 % GET": ("get", {}), "80 % GET, 20 % SET": ("mixed", {"get_percent": 80})}
POPULARITY = {"popularity": "zipf-mandelbrot"}
LOAD = {**POPULARITY, "protocol": "meta", "connections": 120, "depth": 8}
# Warm is what changes by less than this share of hits from one round to the next. Rounds are as many requests
# as there are records, not seconds: how popular a record is shows by requests, on a slow machine too.
STEADY, ROUNDS_MAX = 0.005, 8
TITLE = "Popular records: Zipf-Mandelbrot (s = 2.5, beta = 0.03)"
TEXT = """
The popularity that MemStac's paper takes from Facebook's ETC: an eighth of the records gets 91.9 % of
requests. {records:,} records of 20 + 80 bytes; Terrace has them on flash, read past the page cache
(direct I/O), and copies of the popular ones in DRAM. Its memory is set by `cache_memlimit` so that 3, 5, 7, 10
and 12.5 % of the records fit besides the index; how many it really had is counted, and is where the points
stand: copies and what is not yet written out (`records_read_cache` and `records_write_buffer` of `stats tiers`; of those that
were only filled in, {fresh:,.0f}, which are not the popular ones; stores need room of their own, so that few
per cent are not to be had with them). memcached has all in DRAM. extstore gets the same limit as `-m` and keeps in it what it must know of each record that it has
on flash (`ext_item_size=64`); it can't hold all of them, so that what it misses is stored {back_end} us after,
and its misses stand in the table. Both are in control groups that count the page cache too. *Ideal* is the
share of requests for the most popular records that fit. Each point is warmed up until its hits from DRAM
change by less than {steady:.1%} within {records:,} requests, or with {most} times as many at most. 120 connections, depth 8, meta
protocol, one core each for server and generator. *fio* reads pages of Terrace's file at random, without a server; its line is
the most that it reads. With DRAM for {last} % of the records connections and depth were changed, too:

{rates}
"""


def measure(quick):
    records = RECORDS // 4 if quick else RECORDS
    seconds, rounds = (1, 2) if quick else (4, ROUNDS_MAX)
    found = {"records": records, "points": [], "extstore": [], "dram": {}, "rounds": rounds, "systems": {}}
    shares = SHARES[::2] if quick else SHARES
    most = _mib(records, SHARES[-1]) * 2
    with systems.on_flash(tier="256m", mib=most, limit_mib=most + GROUP_BESIDES_MIB) as server:
        say(server.command)
        systems.fill(server, records, **RECORD)
        found["fresh"] = tiers.of_terrace(server)["records_write_buffer"]
        for number, mix in enumerate(MIXES):
            # Each share finds the copies of the one before: the rarest of them take longest to be known.
            for share in shares if number == 0 else shares[::-1]:
                copies = records * share / 100
                server.tell(f"cache_memlimit {_mib(records, share)}")
                point = _run(server, records, mix, seconds, rounds, copies)
                found["points"].append(point | {"share": share, "mix": mix})
                if share == SHARES[-1]:
                    _sweep(found, "Terrace", server, records, mix, quick)
        found["fio"] = systems.fio_curve(server, quick)
    found["points"].sort(key=lambda p: (p["mix"], p["share"]))
    for share in EXTSTORE_SHARES[::2] if quick else EXTSTORE_SHARES:
        mib = next(p["mib"] for p in found["points"] if p["share"] == share)
        with _extstore(mib) as server:
            say(server.command)
            systems.fill(server, records, **RECORD)
            for mix in MIXES:
                point = _run(server, records, mix, seconds, rounds, back_end=sweep.BACK_END_US)
                found["extstore"].append(point | {"share": share, "mix": mix, "mib": mib})
                if share == SHARES[-1]:
                    _sweep(found, "extstore", server, records, mix, quick)
    with systems.in_dram() as server:
        systems.fill(server, records, **RECORD)
        for mix in MIXES:
            found["dram"][mix] = _run(server, records, mix, seconds, 1)
            _sweep(found, "memcached (DRAM)", server, records, mix, quick)
    return found


def _sweep(found, name, server, records, mix, quick):
    how = {**POPULARITY, **RECORD, "records": records}
    points = sweep.points(server, name, {mix: MIXES[mix]}, quick, 0.7 if quick else 2, **how)
    found["systems"][name] = found["systems"].get(name, {}) | points


def _mib(records, share):
    """A first guess: copies, index, and what the server needs besides; the warm-up corrects it."""
    return round(records * (4.8 + share / 100 * systems.COPY_BYTES) / (1 << 20) + 13)


def _extstore(mib):
    limit = mib + GROUP_BESIDES_MIB
    return systems.extstore(mib=mib, more=",ext_item_size=64", limit_mib=limit)


def _run(server, records, mix, seconds, rounds, copies=None, **more):
    workload, options = MIXES[mix]
    how = {**LOAD, **RECORD, **options, **more, "records": records, "any_version": True}
    before, warm = None, 0
    round_of = lambda: _measure(server, workload, how | {"requests": records})
    while warm < rounds:
        now, fits = systems.fitted(server, copies, round_of)
        warm += 1
        if fits and before is not None and abs(now["from_dram"] - before) < STEADY:
            break
        before = now["from_dram"]
    found = _measure(server, workload, how | {"seconds": seconds})
    found |= {"rounds": warm, "resident": server.usage().resident / (1 << 20)}
    if copies:
        found["held"] = systems.in_memory(server) / records * 100
        found["mib"] = tiers.of_terrace(server)["memory_limit"] >> 20
    say(
        f"{server.name}, {mix}: {found['rate']:,.0f}/s, of GETs {found['from_dram']:.3f} from DRAM, "
        f"{found['missed']:.3f} missed, {found.get('held', 0):.1f} % in DRAM, after {warm} rounds"
    )
    return found


def _measure(server, workload, how):
    before = tiers.flash(server)
    report = systems.gets(server, workload, **how)
    found = systems.point(report)
    gets = max(report["hits"] + report["misses"], 1)
    from_flash = tiers.flash(server)["hits"] - before["hits"] if before else 0
    found["missed"] = report["misses"] / gets
    found["from_dram"] = (report["hits"] - from_flash) / gets
    return found


def _ideal(share, s=2.5, beta=0.03):
    part = lambda x: beta ** (1 - s) - (x + beta) ** (1 - s)
    return part(share / 100) / part(1)


def draw(found, path):
    figure, (rates, hits) = plot.panels(["throughput", "GETs answered from DRAM"], width=6)
    lines = [(f"Terrace, {mix}", _points(found, mix, lambda p: p["rate"] / 1000)) for mix in MIXES]
    for mix, point in found["dram"].items():
        value = point["rate"] / 1000
        lines.append((f"memcached (DRAM), {mix}", [(SHARES[0], value), (SHARES[-1], value)]))
    lines += [(f"extstore, {mix}", _of_extstore(found, mix)) for mix in MIXES]
    most = max(p["rate"] for p in found["fio"]) / 1000
    lines.append(("fio", [(SHARES[0], most), (SHARES[-1], most)]))
    plot.curves(rates, lines, "DRAM for so many records, %", "thousand requests/s", styles=True)
    lines = [(f"Terrace, {mix}", _points(found, mix, lambda p: p["from_dram"] * 100)) for mix in MIXES]
    lines.append(("ideal", [(share, _ideal(share) * 100) for share in SHARES]))
    plot.curves(hits, lines, "DRAM for so many records, %", "GETs, %", styles=True)
    plot.save(figure, path)


def _points(found, mix, value):
    return [(p["held"], value(p)) for p in found["points"] if p["mix"] == mix]


def _of_extstore(found, mix):
    return [(p["share"], p["rate"] / 1000) for p in found["extstore"] if p["mix"] == mix]


def text(found):
    rows = [
        "",
        "| system | load | memory limit, MiB | resident, MiB | records in DRAM, % | requests/s | GETs from DRAM | ideal | missed | us of CPU per request |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    of = [("Terrace", found["points"]), ("extstore", found["extstore"])]
    of.append(("memcached (DRAM)", [p | {"mix": mix} for mix, p in found["dram"].items()]))
    for name, points in of:
        for p in points:
            held = p.get("held")
            cells = [
                name,
                p["mix"],
                str(p.get("mib", "2048")),
                f"{p['resident']:.0f}",
                f"{held:.1f}" if held is not None else "",
                f"{p['rate']:,.0f}",
                f"{p['from_dram']:.1%}",
                f"{_ideal(held):.1%}" if held is not None else "",
                f"{p['missed']:.1%}",
                f"{p['server_cpu_us']:.2f}" if p.get("server_cpu_us") else "",
            ]
            rows.append("| " + " | ".join(cells) + " |")
    text = TEXT.format(
        records=found["records"], back_end=sweep.BACK_END_US, steady=STEADY,
        most=found.get("rounds", ROUNDS_MAX), fresh=found["fresh"], last=SHARES[-1],
        rates=sweep.rates(found, MIXES),
    )  # fmt: skip
    return text + "\n".join(rows) + "\n"

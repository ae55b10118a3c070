"""What of the popular records is in DRAM, beside the ideal; and how soon a new hot set is."""

import os
import socket

from measure.figure import at_least, at_most, say
from measure.load import load, load_held, sized
from measure.server import terrace
from measure.tiers import of_terrace

RECORDS, SHARES = 1_000_000, [12.5, 7, 3]
RECORD_BYTES = 100
RECORD = sized(RECORD_BYTES)
# Of `-m`: a copy with its word in the table; index and sketch; the program's buffers.
BYTES_PER_COPY, INDEX_BYTES, BESIDES_MIB = 145, 5, 24
# Of the tier for each record: it is not to be full.
TIER_BYTES = 160
# How near to the room that was asked for is near enough.
NEAR = 0.03
MIXES = {"GET": ("get", {}), "80/20": ("mixed", {"get_percent": 80})}
# In a mixed load each connection has records of its own, so their number says which are popular.
LOAD = {"popularity": "zipf-mandelbrot", "connections": 24, "depth": 32, "any_version": True}
# Among so many of the records others are hot: their order depends on their number.
SHIFTED = 0.99
# Requests before each measurement, and in it, as multiples of the records.
WARM_UP, MEASURED = 6, 2
# Before a shift, in hot sets.
HOT_SETS_BEFORE, HOT_SETS_MOST = 40, 30
# Measures these rooms instead, such as "10,3".
ONLY = "TERRACE_BENCH_ROOMS"
OF_IDEAL = 0.97


def policy(quick):
    """What of the ideal DRAM answers, in the steady state."""
    return _of_all(quick, _of_ideal)


def adaptation(quick):
    """How soon another hot set is followed."""
    return _of_all(quick, _shift)


def _of_all(quick, measure):
    records = RECORDS // (4 if quick else 1)
    shares = SHARES[::2] if quick else SHARES
    if ONLY in os.environ:
        shares = [float(share) for share in os.environ[ONLY].split(",")]
    return [figure for share in shares for figure in _of_share(records, share, measure)]


def _of_share(records, share, measure):
    mib = round(records * (INDEX_BYTES + share / 100 * BYTES_PER_COPY) / (1 << 20) + BESIDES_MIB)
    tier = records * TIER_BYTES >> 20
    with terrace("-m", str(mib), "-t", "2", "--tier", f"ssd:DIR/tier:{tier}m") as server:
        say(server.command)
        load(server, "fill", records=records, connections=8, depth=32, **RECORD)
        server.settle()
        fit(server, records, share / 100)
        return measure(server, records, share)


def _of_ideal(server, records, share):
    figures = []
    for mix in MIXES:
        found = steady(server, records, mix)
        ideal = ideal_share(found["held"], found["waiting"])
        all_room = server.stats("tiers")["memory_limit"] / (records * RECORD_BYTES)
        note = (
            f"{found['share']:.4f} of GETs, copies of {found['held']:.2%}, "
            f"{found['waiting']:.2%} not yet written out, ideal {ideal:.4f}, {found['rate']:,.0f}/s; "
            f"{found['share'] / ideal_share(found['held'] + found['waiting'], 0):.3f} of the ideal for both, "
            f"{found['share'] / ideal_share(all_room, 0):.3f} if all of -m were records ({all_room:.1%})"
        )
        what = f"{mix}, DRAM for {share} % of {records:,} records: hits in DRAM of the ideal"
        figures.append(at_least(what, found["share"] / ideal, OF_IDEAL, "{:.3f}", note))
        say(f"{what}: {found['share'] / ideal:.3f}; {note}")
    return figures


def fit(server, records, part, held=None, copy_bytes=BYTES_PER_COPY):
    """Sets the memory so that DRAM holds about this part of the records; most of the rest of what it
    takes is known only then. `held` puts load on the server and tells the part that it holds. Answers the part that
    it came to."""
    held = held or (lambda: _round(server, records, "GET", records)["held"])
    for _ in range(4):
        found = held()
        if abs(found / part - 1) < NEAR:
            return found
        limit = server.stats("tiers")["memory_limit"] + (part - found) * records * copy_bytes
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            connection.sendall(f"cache_memlimit {round(limit / (1 << 20))}\r\n".encode())
            if connection.recv(100) != b"OK\r\n":
                return found
    return held()


def fit_to(server, records, mix, part, **options):
    """Sets the memory so that this part of the records is in DRAM under a load, be it as a copy or because it was not
    written out yet. Answers the part that it came to."""
    steady(server, records, mix, **options)

    def in_dram():
        found = _round(server, records, mix, records, **options)
        return found["held"] + found["waiting"]

    return fit(server, records, part, in_dram)


def steady(server, records, mix, **options):
    _round(server, records, mix, WARM_UP * records, **options)
    return _round(server, records, mix, MEASURED * records, **options)


def _shift(server, records, share):
    """Requests after which 90 % of the steady share is back, in hot sets."""
    _round(server, records, "GET", round(HOT_SETS_BEFORE * share / 100 * records))
    steady = _round(server, records, "GET", records)
    hot = round(steady["held"] * records)
    of_ideal = steady["share"] / ideal_share(steady["held"], steady["waiting"])
    say(f"before the shift: {steady['share']:.4f}, {of_ideal:.3f} of the ideal; copies of {steady['held']:.2%}")
    step, done = hot, 0
    while done < HOT_SETS_MOST * hot:
        found = _round(server, records, "GET", step, SHIFTED)
        done += step
        say(
            f"{done / hot:.0f} hot sets after the shift: {found['share']:.4f}, {found['promotions']:,} copies "
            f"made, {found['rate']:,.0f}/s"
        )
        if found["share"] >= 0.9 * steady["share"]:
            break
    what = f"DRAM for {share} %: requests until 90 % of the steady hits are back, in hot sets"
    return [at_most(what, done / hot, 10, "{:.0f}", f"steady hits {of_ideal:.3f} of the ideal")]


def _round(server, records, mix, requests, part=1, **options):
    workload, of_mix = MIXES[mix]
    how = {**LOAD, **RECORD, **of_mix, **options, "records": int(records * part)}
    before = of_terrace(server)
    report = load_held(server, workload, requests=requests, **how)
    after = of_terrace(server)
    from_flash = after["tier:hits"] - before["tier:hits"]
    return {
        "share": (report["hits"] - from_flash) / report["hits"],
        "held": after["records_read_cache"] / records,
        "waiting": after["records_write_buffer"] / records,
        "rate": report["requests_per_second"],
        "promotions": after["read_cache_insertions"] - before["read_cache_insertions"],
    }


def ideal_share(copies, waiting, s=2.5, beta=0.03):
    """Share of requests for the most popular part of the records, and for some of the others, as they
    come, that wait in DRAM to be written out."""
    weight = lambda x: beta ** (1 - s) - (x + beta) ** (1 - s)
    popular = weight(copies) / weight(1)
    return popular + (1 - popular) * waiting / (1 - copies)

"""What of the popular records is in DRAM, beside the ideal; and how soon a new hot set is."""

import socket

from measure.figure import at_least, at_most, say
from measure.load import load, sized
from measure.server import terrace
from measure.tiers import of_terrace

RECORDS, SHARES = 4_000_000, [12.5, 10, 7, 5, 3]
RECORD = sized(100)
# Of `-m`: a copy with its word in the table; index and sketch; the program's buffers.
BYTES_PER_COPY, INDEX_BYTES, BESIDES_MIB = 145, 5, 24
# Of the tier for each record: it is not to be full.
TIER_BYTES = 160
# How near to the room that was asked for is near enough.
NEAR = 0.03
MIXES = {"GET": ("get", {}), "80/20": ("mixed", {"get_percent": 80})}
LOAD = {"popularity": "zipf-mandelbrot", "connections": 16, "depth": 32, "any_version": True}
# Among so many of the records others are hot: their order depends on their number.
SHIFTED = 0.99
# Requests before each measurement, and in it, as multiples of the records.
WARM_UP, MEASURED = 8, 2
OF_IDEAL = 0.97


def policy(quick):
    records = RECORDS // (16 if quick else 1)
    shares = SHARES[::4] if quick else SHARES
    return [figure for share in shares for figure in _of_share(records, share)]


def _of_share(records, share):
    figures = []
    mib = round(records * (INDEX_BYTES + share / 100 * BYTES_PER_COPY) / (1 << 20) + BESIDES_MIB)
    tier = records * TIER_BYTES >> 20
    with terrace("-m", str(mib), "-t", "2", "--tier", f"ssd:DIR/tier:{tier}m") as server:
        say(server.command)
        load(server, "fill", records=records, connections=8, depth=32, **RECORD)
        server.settle()
        fit(server, records, share / 100)
        for mix in MIXES:
            found = steady(server, records, mix)
            ideal = ideal_share(found["held"], found["waiting"])
            note = (
                f"{found['share']:.4f} of GETs, copies of {found['held']:.2%}, "
                f"{found['waiting']:.2%} not yet written out, ideal {ideal:.4f}, {found['rate']:,.0f}/s; "
                f"{found['share'] / ideal_share(found['held'] + found['waiting'], 0):.3f} of the ideal for both"
            )
            what = f"{mix}, DRAM for {share} % of {records:,} records: hits in DRAM of the ideal"
            figures.append(at_least(what, found["share"] / ideal, OF_IDEAL, "{:.3f}", note))
            say(f"{what}: {found['share'] / ideal:.3f}; {note}")
        figures.append(_shift(server, records, share))
    return figures


def fit(server, records, part):
    """Sets the memory so that DRAM holds about this part of the records; most of the rest of what it
    takes is known only then."""
    for _ in range(4):
        held = _round(server, records, "GET", records)["held"]
        if abs(held / part - 1) < NEAR:
            return
        limit = server.stats("tiers")["memory_limit"] + (part - held) * records * BYTES_PER_COPY
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            connection.sendall(f"cache_memlimit {round(limit / (1 << 20))}\r\n".encode())
            if connection.recv(100) != b"OK\r\n":
                return


def steady(server, records, mix):
    _round(server, records, mix, WARM_UP * records)
    return _round(server, records, mix, MEASURED * records)


def _shift(server, records, share):
    """Requests after which 90 % of the steady share is back, in hot sets."""
    _round(server, records, "GET", WARM_UP // 2 * records)
    steady = _round(server, records, "GET", records)
    hot = round(steady["held"] * records)
    step, done = hot, 0
    while done < 30 * hot:
        found = _round(server, records, "GET", step, SHIFTED)
        done += step
        say(f"{done / hot:.0f} hot sets after the shift: {found['share']:.4f}")
        if found["share"] >= 0.9 * steady["share"]:
            break
    what = f"DRAM for {share} %: requests until 90 % of the steady hits are back, in hot sets"
    return at_most(what, done / hot, 10, "{:.0f}")


def _round(server, records, mix, requests, part=1):
    workload, options = MIXES[mix]
    how = {**LOAD, **RECORD, **options, "records": int(records * part)}
    before = of_terrace(server)
    report = load(server, workload, requests=requests, **how)
    after = of_terrace(server)
    if report["wrong"] or report["misses"]:
        raise RuntimeError(f"{report['wrong']} wrong, {report['misses']} missed: {report['examples']}")
    from_flash = after["tier:hits"] - before["tier:hits"]
    return {
        "share": (report["hits"] - from_flash) / report["hits"],
        "held": after["records_hot"] / records,
        "waiting": after["records_fresh"] / records,
        "rate": report["requests_per_second"],
        "promotions": after["promotions"] - before["promotions"],
    }


def ideal_share(copies, waiting, s=2.5, beta=0.03):
    """Share of requests for the most popular part of the records, and for some of the others, as they
    come, that wait in DRAM to be written out."""
    weight = lambda x: beta ** (1 - s) - (x + beta) ** (1 - s)
    popular = weight(copies) / weight(1)
    return popular + (1 - popular) * waiting / (1 - copies)

"""Several drives of which one fails, is drained or is slower than the others; on loop devices, as root."""

import json
import socket
import tempfile
import threading
import time
import urllib.request

from measure import loop_drives
from measure.figure import Figure, at_least, at_most, median, percentile, say
from measure.keys import KEY_BYTES, key_of
from measure.load import listed, load
from measure.loop_drives import Drives
from measure.server import terrace
from measure.side_load import Filler, Reader, Writer

SERVER_CPU, LOAD_CPU = {0}, {1}
RECORD = {"key_bytes": KEY_BYTES, "value_bytes": 800}
# With what lies around it on a drive.
RECORD_BYTES = 860
MIB = 1 << 20
TOKEN = "0123456789abcdef"
FLAGS = ["-m", "48", "-t", "1"]

# One of four fails. About half of each drive holds records.
FAIL_MIB, FAIL_RECORDS = 192, 450_000
FAIL_RATE, FAIL_AFTER = 4000, 3
OWN_KEYS = 10_000
STALL_SECONDS = 30


def _eio(drives):
    drives.drives[0].fail()


def _stall(drives):
    drives.stall(0)
    threading.Timer(STALL_SECONDS, drives.limit, (0,)).start()


def _gone(drives):
    drives.drives[0].vanish()


def _read_only(drives):
    drives.drives[0].set_read_only(True)


# With how long the load goes on.
FAULTS = {
    "EIO": (_eio, 15),
    f"no answer for {STALL_SECONDS} s": (_stall, STALL_SECONDS + 15),
    "gone": (_gone, 15),
    "read-only": (_read_only, 15),
}


def fails(quick):
    if not loop_drives.available():
        return [Figure("one of four drives fails", "skipped: needs root and control groups of drives")]
    figures = []
    for name, (fault, seconds) in FAULTS.items():
        say(f"one of four drives: {name}; p99 before and with it, longest wait for its own records")
        rounds = [_fail(fault, seconds) for _ in range(1 if quick else 3)]
        what = f"one of four drives, {name}"
        before, during = [[found[part]["p99_us"] for found in rounds] for part in ("before", "during")]
        ratio = median(b / a for a, b in zip(before, during))
        note = f"{median(before):,.0f} us and {median(during):,.0f} us; 99.9 % " + " and ".join(
            f"{median(found[part]['p999_us'] for found in rounds):,.0f} us" for part in ("before", "during")
        )
        most = lambda part: max(found[part] for found in rounds)
        others_longest = max(found["during"]["max_us"] for found in rounds) / 1e6
        own = f"{most('own_misses'):,} of {most('own_asked'):,} missed at most"
        figures += [
            at_most(f"{what}: p99 of GETs of the other drives' records, of before", ratio, 2.0, "{:.2f}", note),
            at_most(f"{what}: the same, ms", median(during) / 1000, 5.0, "{:.2f}"),
            at_most(f"{what}: longest wait for one of its own records, s", most("own_longest"), 1.0, "{:.2f}", own),
            Figure(f"{what}: longest wait for one of the other drives' records, s", f"{others_longest:.2f}"),
            at_most(f"{what}: records of the other drives that are missed", most("missed"), 0, "{:,}"),
            at_most(f"{what}: wrong values", most("wrong"), 0, "{:,}"),
            at_most(f"{what}: connections cut off", most("cut_off"), 0, "{:,}"),
            at_most(f"{what}: SETs refused", most("refused"), 0, "{:,}", f"of {most('stores'):,}"),
        ]
        for line in sorted({line for found in rounds for line in found["log"]}):
            say(line)
    return figures


def _fail(fault, seconds):
    with (
        Drives(4, FAIL_MIB * MIB, first_can_fail=fault is _eio) as drives,
        terrace(*FLAGS, *drives.flags(), cpus=SERVER_CPU, group=drives) as server,
    ):
        own, others = _filled(server, drives, FAIL_RECORDS)
        keys = [key_of(number) for number in own[:: max(1, len(own) // OWN_KEYS)]]
        with (
            listed(others) as path,
            Reader(server, keys) as reader,
            Writer(server) as writer,
            Filler(server) as filler,
        ):
            gets = lambda seconds: load(
                server, "get", cpus=LOAD_CPU, may_be_wrong=True, among=path, rate=FAIL_RATE, seconds=seconds,
                connections=256, depth=1, window=0, **RECORD,
            )  # fmt: skip
            gets(2)
            before = gets(8)
            counts = _counts(server)
            begin = time.monotonic() + FAIL_AFTER
            timer = threading.Timer(FAIL_AFTER, fault, (drives,))
            timer.start()
            during = gets(seconds)
            timer.join()
            counts = [now - then for now, then in zip(_counts(server), counts)]
        # Of those on the drive, too, what is left must be right.
        rest = load(
            server, "verify", may_be_wrong=True, records=FAIL_RECORDS, connections=8, depth=8, **RECORD
        )
        server.tell("version")
        if fault is _read_only:
            drives.drives[0].set_read_only(False)
        log = [line for line in server.output().splitlines() if "tier" in line and " INFO " not in line]
    asked, written = reader.since(begin), writer.answers + filler.answers
    new = writer.since(begin) + filler.since(begin)
    replies = {answer.what for answer in written if answer.kind == "refused"}
    of = lambda answers, kind: sum(answer.kind == kind for answer in answers)
    wrong = of(reader.answers, "wrong") + of(written, "wrong")
    own_longest = max((answer.seconds for answer in asked), default=0)
    found = {
        "before": before["latency"],
        "during": during["latency"],
        "own_longest": own_longest,
        "own_asked": len(asked),
        "own_misses": of(asked, "miss"),
        "missed": during["misses"],
        "wrong": before["wrong"] + during["wrong"] + rest["wrong"] + wrong,
        "cut_off": of(reader.answers, "cut off") + of(written, "cut off"),
        "refused": of(written, "refused"),
        "stores": of(written, "stored") + of(written, "refused"),
        "log": log,
    }
    p99 = [found[part]["p99_us"] for part in ("before", "during")]
    say(
        f"{p99[0]:,.0f} us, {p99[1]:,.0f} us (most {during['latency']['max_us']:,.0f} us), {own_longest:.2f} s; "
        f"{found['own_misses']} of {len(asked)} missed of its own, {during['misses']} of the others', "
        f"{found['refused']} of {found['stores']} SETs refused, longest SET or GET of new records "
        f"{max(answer.seconds for answer in new):.2f} s; {rest['misses']:,} records missed at the end; "
        f"of its reads {counts[0]} were false, {counts[1]} failed, {counts[2]} had no answer; {counts[3]} writes "
        f"failed; {counts[4]} SETs waited for DRAM{', refused: ' if replies else ''}{', '.join(sorted(replies))}"
    )
    return found


def _counts(server):
    """Reads of the first drive that found nothing, and those that failed or had no answer in time; writes that failed;
    SETs that waited."""
    stats = server.stats("tiers")
    names = ["false_reads", "read_errors", "errors_unresponsive", "write_errors"]
    return [*(stats[f"tier:0:{name}"] for name in names), stats["store_waits"]]


def _filled(server, drives, records):
    """Fills, and gives back the numbers of the records on the first drive, and on all others."""
    say(server.command)
    load(server, "fill", cpus=LOAD_CPU, records=records, batch=True, connections=8, depth=32, **RECORD)
    server.settle()
    on = [drive.records() for drive in drives.drives]
    say(f"records on each drive: {', '.join(f'{len(numbers):,}' for numbers in on)}")
    return on[0], [number for numbers in on[1:] for number in numbers]


# One of three is drained: so much of all holds records, so that the other two have room for them.
DRAIN_MIB, DRAIN_FULL = 512, 0.45
DRAIN_RATE = 4000
# Bytes per second that each drive is held to, so that a drain takes a while.
DRAIN_BYTES = 5 * MIB // 2


def drain(quick):
    if not loop_drives.available():
        return [Figure("one of three drives is drained", "skipped: needs root and control groups of drives")]
    rounds = [_drain() for _ in range(1 if quick else 3)]
    before, during = [[found[part] for found in rounds] for part in ("before", "during")]
    ratio = median(b / a for a, b in zip(before, during))
    note = f"{median(before):,.0f} us and {median(during):,.0f} us, {median(found['took'] for found in rounds):.0f} s"
    errors = [error for found in rounds for error in found["errors"]]
    usual = f"median {median(errors):.0%}, 90 % of them below {percentile(errors, 90):.0%}"
    most = lambda part: max(found[part] for found in rounds)
    return [
        at_most("drain of one of three drives: p99 of 80/20, of before", ratio, 2.0, "{:.2f}", note),
        at_most("drain of one of three drives: records lost", most("lost"), 0, "{:,}"),
        at_most("drain of one of three drives: wrong values", most("wrong"), 0, "{:,}"),
        at_most("drain of one of three drives: time left is off, from a tenth on", max(errors), 0.2, "{:.2f}", usual),
    ]


def _drain():
    records = int(3 * DRAIN_MIB * MIB * DRAIN_FULL / RECORD_BYTES)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile("w") as token, Drives(3, DRAIN_MIB * MIB) as drives:
        token.write(TOKEN + "\n")
        token.flush()
        admin = ["--admin", f"127.0.0.1:{port}", "--admin-token-file", token.name]
        with terrace(*FLAGS, *admin, *drives.flags(), cpus=SERVER_CPU, group=drives) as server:
            _filled(server, drives, records)
            for at in range(3):
                drives.limit(at, bytes_written=DRAIN_BYTES)
            # Some thousand records are overwritten again and again: the drives do not fill up.
            mixed = lambda seconds: load(
                server, "mixed", cpus=LOAD_CPU, may_be_wrong=True, any_version=True, records=records // 20,
                get_percent=80, rate=DRAIN_RATE, seconds=seconds, connections=32, depth=4, window=0, **RECORD,
            )  # fmt: skip
            mixed(2)
            before = mixed(10)
            waits = server.stats("tiers")["store_waits"]
            begin = time.monotonic()
            _admin(port, "/tiers/0/drain", "POST")
            reports, told = [], []
            ended = threading.Event()
            looker = threading.Thread(target=_look, args=(port, begin, told, ended))
            looker.start()
            while not ended.is_set() and time.monotonic() < begin + 300:
                reports.append(mixed(5))
            ended.set()
            looker.join()
            took = told[-1][0]
            rest = load(
                server, "verify", may_be_wrong=True, any_version=True, records=records, connections=8, depth=8, **RECORD
            )
            stats = server.stats("tiers")
    state = told[-1][1]["state"]
    if state != "drained":
        raise RuntimeError(f"the drain is not over, but {state}: {told[-1]}")
    # The last seconds are told in whole ones.
    left = [(at, tier) for at, tier in told if 0.1 * took <= at <= took - 5]
    errors = [abs((tier["drain_seconds_left"] or 0) - (took - at)) / (took - at) for at, tier in left]
    found = {
        "before": before["latency"]["p99_us"],
        "during": median(report["latency"]["p99_us"] for report in reports),
        "took": took,
        "errors": errors,
        "lost": rest["misses"] + sum(report["misses"] for report in reports),
        "wrong": rest["wrong"] + sum(report["wrong"] for report in reports),
    }
    say(
        f"p99 {found['before']:,.0f} us, then " + ", ".join(f"{r['latency']['p99_us']:,.0f}" for r in reports) + " us; "
        f"{took:.1f} s, off by {', '.join(f'{error:.0%}' for error in errors[:: max(1, len(errors) // 12)])}; "
        f"{found['lost']} lost, evictions {stats['evictions']}, SETs that waited {stats['store_waits'] - waits:,}, "
        f"errors {sum(report['errors'] for report in reports)}"
    )
    return found


def _look(port, begin, told, ended):
    while not ended.wait(0.25):
        tier = _admin(port, "/tiers")[0]
        told.append((time.monotonic() - begin, tier))
        if tier["state"] == "drained":
            ended.set()


def _admin(port, path, method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


# One of four has a tenth of what the others have.
SLOW_MIB = 512
FAST = {"reads": 8000, "bytes_written": 20 * MIB}
SLOW = {name: value // 10 for name, value in FAST.items()}
SLOW_RECORDS = 500_000


def slow(quick):
    if not loop_drives.available():
        return [Figure("one of four drives is slow", "skipped: needs root and control groups of drives")]
    return [*_slow_from_the_start(quick), *_slow_later(quick)]


def _slow_from_the_start(quick):
    seconds = 8 if quick else 15
    limits = [SLOW, FAST, FAST, FAST]
    rates = {}
    for name, of in (("all", limits), ("slow", [SLOW]), ("fast", [FAST])):
        with (
            Drives(len(of), SLOW_MIB * MIB) as drives,
            terrace(*FLAGS, *drives.flags(), cpus=SERVER_CPU, group=drives) as server,
        ):
            say(server.command)
            for at, limit in enumerate(of):
                drives.limit(at, **limit)
            # What DRAM takes is not measured, nor is what is read from it.
            room = sum(limit["bytes_written"] for limit in of) // RECORD_BYTES
            first = 120_000
            load(server, "fill", cpus=LOAD_CPU, records=first, connections=8, depth=32, **RECORD)
            sets = load(
                server, "fill", cpus=LOAD_CPU, first=first, records=20 * room, seconds=seconds, connections=8, depth=32,
                window=0, **RECORD,
            )  # fmt: skip
            server.settle()
            stats = server.stats("tiers")
            stored = [stats[f"tier:{at}:stored_payload_bytes"] for at in range(len(of))]
            on = [drive.records() for drive in drives.drives]
            with listed([number for numbers in on for number in numbers]) as path:
                gets = load(
                    server, "get", cpus=LOAD_CPU, may_be_wrong=True, among=path, seconds=seconds, connections=64,
                    depth=16, window=0, **RECORD,
                )  # fmt: skip
            rates[name] = {"sets": sets["stored"] / sets["seconds"], "gets": gets["hits"] / gets["seconds"]}
        shares = ", ".join(f"{part / sum(stored):.3f}" for part in stored)
        say(
            f"{name}: {rates[name]['sets']:,.0f} SET/s, {rates[name]['gets']:,.0f} GET/s ({gets['misses']} missed), "
            f"shares of what was stored {shares}, records on each {[len(numbers) for numbers in on]}"
        )
    figures = []
    for what in ("sets", "gets"):
        alone = rates["slow"][what] + 3 * rates["fast"][what]
        note = f"{rates['all'][what]:,.0f}/s and {alone:,.0f}/s"
        name = {"sets": "SETs", "gets": "uniform GETs"}[what]
        text = f"four drives, one with a tenth of the others' rate from the start: {name}, of the sum of each alone"
        figures.append(at_least(text, rates["all"][what] / alone, 0.85, "{:.2f}", note))
    return figures


def _slow_later(quick):
    rounds, seconds = (1, 5) if quick else (3, 8)
    before, after, shares = [], [], []
    for _ in range(rounds):
        with (
            Drives(4, SLOW_MIB * MIB) as drives,
            terrace(*FLAGS, *drives.flags(), cpus=SERVER_CPU, group=drives) as server,
        ):
            own, others = _filled(server, drives, SLOW_RECORDS)
            for at in range(4):
                drives.limit(at, **FAST)
            keys = [key_of(number) for number in own[:: max(1, len(own) // OWN_KEYS)]]
            with listed(others) as path, Reader(server, keys) as reader:
                gets = lambda: load(
                    server, "get", cpus=LOAD_CPU, among=path, seconds=seconds, connections=64, depth=8, window=0,
                    **RECORD,
                )["requests_per_second"]  # fmt: skip
                before.append(gets())
                drives.limit(0, **SLOW)
                after.append(gets())
                # A minute of new records, of which those of the last third count.
                write = lambda first, seconds: load(
                    server, "fill", cpus=LOAD_CPU, first=first, records=1_000_000, rate=8000, seconds=seconds,
                    connections=8, depth=32, window=0, **RECORD,
                )  # fmt: skip
                write(10_000_000, 40)
                begin = _stored(server)
                write(20_000_000, 20)
                change = [now - then for now, then in zip(_stored(server), begin)]
                shares.append(change[0] / sum(change))
        longest = max(answer.seconds for answer in reader.answers)
        say(f"{before[-1]:,.0f}/s, {after[-1]:,.0f}/s, {shares[-1]:.3f} of new records; longest wait {longest:.2f} s")
    note = f"{median(before):,.0f}/s and {median(after):,.0f}/s"
    what = "four drives, one slowed to a tenth later"
    ratio = median(b / a for a, b in zip(before, after))
    return [
        at_least(f"{what}: GETs of the other drives' records, of before", ratio, 0.9, "{:.2f}", note),
        at_most(f"{what}: its share of new records after 40 s", median(shares), 0.15),
    ]


def _stored(server):
    stats = server.stats("tiers")
    return [stats[f"tier:{at}:stored_payload_bytes"] for at in range(4)]

"""Remote drives over NVMe/TCP: this machine is target and host at the same time, with the drive below both."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from measure.examples import build_examples
from measure.figure import Figure, alternate, at_least, at_most, median, say
from measure.keys import KEY_BYTES, key_of
from measure.load import listed, load, sized
from measure.loop_drives import records_in
from measure.remote import Export, fill, folder, reads
from measure.server import terrace
from measure.side_load import Reader

MIB = 1 << 20
FILE_BYTES = 2048 * MIB


def of_file(quick):
    """Reads of a file, by itself and through a target, by turns; and through tgt's iSCSI."""
    rounds, seconds = (3, 2) if quick else (7, 4)
    build_examples()
    figures = []
    with folder() as at:
        local, shared = os.path.join(at, "local"), os.path.join(at, "shared")
        for path in (local, shared):
            fill(path, FILE_BYTES)
        with Export(shared) as export:
            for depth, must in ((128, 0.8), (32, 0.75)):
                say(f"reads per second at depth {depth}, remote and local")
                costs = []
                remote = lambda: _rate(costs, reads(export.place, FILE_BYTES, depth, seconds, export))
                own = lambda: reads(local, FILE_BYTES, depth, seconds)["reads_per_second"]
                a, b, ratio = alternate(rounds, remote, own)
                note = f"{a:,.0f}/s and {b:,.0f}/s; CPU per read {_cost(costs)}"
                what = f"remote drive, random 4 KiB reads at depth {depth}, of the same drive by itself"
                figures.append(at_least(what, ratio, must, "{:.2f}", note))
            latency = lambda place: reads(place, FILE_BYTES, 1, seconds)["p50_us"]
            say("p50 at depth 1, remote and local, us")
            a, b, _ = alternate(rounds, lambda: latency(export.place), lambda: latency(local))
            note = f"{a:.0f} us and {b:.0f} us"
            figures.append(at_most("remote drive, p50 of a read at depth 1 above local, us", a - b, 30, "{:.0f}", note))
            figures += _beside_iscsi(export, shared, rounds, seconds)
    return figures


def _rate(costs, found):
    costs.append(found)
    return found["reads_per_second"]


def _cost(found):
    host, target = (median(one[part] for one in found) for part in ("cpu_us", "target_cpu_us"))
    return f"{host:.1f} us host, {target:.1f} us target"


def _beside_iscsi(export, path, rounds, seconds):
    what = "remote drive, random 4 KiB reads at depth 32, of tgt's iSCSI on the same file"
    if not all(map(shutil.which, ("tgtd", "tgtadm", "iscsi-perf"))) or os.geteuid():
        return [Figure(what, "skipped: needs tgt and libiscsi-bin, as root")]
    say("reads per second at depth 32, remote and iSCSI")
    results = [[], []]
    for _ in range(rounds):
        results[0].append(reads(export.place, FILE_BYTES, 32, seconds)["reads_per_second"])
        # Both want the file for themselves.
        export.end(signal.SIGTERM)
        with _tgt(path) as url:
            results[1].append(_iscsi(url, seconds))
        export.start()
        say(f"{results[0][-1]:,.0f}, {results[1][-1]:,.0f}")
    ratio = median(a / b for a, b in zip(*results))
    return [at_least(what, ratio, 1.5, "{:.2f}", f"{median(results[0]):,.0f}/s and {median(results[1]):,.0f}/s")]


@contextlib.contextmanager
def _tgt(path):
    """Serves a file by tgt, in the faster of its ways here, past the page cache."""
    name = "iqn.2001-04.org.example:bench"
    run = lambda *words: subprocess.run(["tgtadm", "--lld", "iscsi", *words], check=True, capture_output=True)
    child = subprocess.Popen(["tgtd", "-f", "--iscsi", "portal=127.0.0.1:3269"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(subprocess.CalledProcessError):
                run("--mode", "target", "--op", "new", "--tid", "1", "--targetname", name)
                break
            time.sleep(0.1)
        options = ["--bstype", "rdwr", "--bsoflags", "direct"]
        run("--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "--backing-store", path, *options)
        run("--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL")
        yield f"iscsi://127.0.0.1:3269/{name}/1"
    finally:
        child.kill()
        child.wait()


def _iscsi(url, seconds):
    """Reads per second of `iscsi-perf`, the median of what it prints after its first second."""
    command = ["timeout", str(seconds + 2), "iscsi-perf", "-r", "-b", "8", "-m", "32", "-t", str(seconds), url]
    output = subprocess.run(command, capture_output=True, text=True).stdout.replace("\r", "\n")
    rates = [float(line.split("iops average")[1].split()[0]) for line in output.splitlines() if "iops average" in line]
    if not rates:
        raise RuntimeError(f"iscsi-perf said: {output[-400:]}")
    return rates[-1]


def of_memory(quick):
    """Reads of a file in memory through a target: what the protocol costs."""
    rounds, seconds = (3, 2) if quick else (7, 4)
    build_examples()
    with tempfile.TemporaryDirectory(prefix="terrace-bench-", dir="/dev/shm") as at:
        path = os.path.join(at, "memory")
        fill(path, 512 * MIB)
        with Export(path) as export:
            say("reads per second at depth 32 from memory, and processor time of both sides per read, us")
            found = [reads(export.place, 512 * MIB, 32, seconds, export) for _ in range(rounds)]
    rate = median(one["reads_per_second"] for one in found)
    cpu = median(one["cpu_us"] + one["target_cpu_us"] for one in found)
    return [
        at_least("remote memory, random 4 KiB reads per second at depth 32", rate, 120_000, "{:,.0f}"),
        at_most("remote memory, processor time of both sides per read, us", cpu, 14, "{:.1f}", _cost(found)),
    ]


GET_RECORDS = {816: 1_500_000, 100: 6_000_000}


def gets(quick):
    """GETs of records on a remote drive and on a local one, by turns."""
    rounds, seconds = (3, 3) if quick else (7, 5)
    figures = []
    for record, records in GET_RECORDS.items():
        with folder() as at:
            shared = os.path.join(at, "shared")
            flags = ["-m", "64", "-t", "1"]
            with (
                Export(shared, f"{FILE_BYTES >> 20}m") as export,
                terrace(*flags, "--tier", export.tier) as remote,
                terrace(*flags, "--tier", f"ssd:DIR/tier:{FILE_BYTES >> 20}m") as local,
            ):
                for server in (remote, local):
                    say(server.command)
                    load(server, "fill", records=records, connections=8, depth=32, **sized(record))
                    server.settle()
                costs = {remote: [], local: []}

                def measure(server):
                    report = load(
                        server, "get", records=records, seconds=seconds, protocol="meta", connections=64, depth=4,
                        **sized(record),
                    )  # fmt: skip
                    costs[server].append(report["server_cpu_us"])
                    if report["misses"]:
                        say(f"{report['misses']} missed")
                    return report["requests_per_second"]

                say(f"GETs of {record} bytes per second, remote and local")
                a, b, ratio = alternate(rounds, lambda: measure(remote), lambda: measure(local))
                more = median(x - y for x, y in zip(costs[remote], costs[local]))
        what = f"records of {record} bytes on a remote drive, 64 connections at depth 4: "
        figures += [
            at_least(what + "GETs, of those on a local one", ratio, 0.8, "{:.2f}", f"{a:,.0f}/s and {b:,.0f}/s"),
            at_most(what + "server's CPU per GET above local, us", more, 3.0, "{:.2f}"),
        ]
    return figures


def beside(quick):
    """GETs of a local tier's records, with a remote tier below it and without."""
    rounds, seconds = (5, 3) if quick else (11, 4)
    records = 800_000
    with folder() as at:
        shared = os.path.join(at, "shared")
        flags = ["-m", "64", "-t", "1", "--tier", "ssd:DIR/tier:1g"]
        with (
            Export(shared, "1g") as export,
            terrace(*flags, "--tier", f"{export.tier},below", cpus={0}) as both,
            terrace(*flags, cpus={0}) as alone,
        ):
            for server in (both, alone):
                say(server.command)
                load(server, "fill", cpus={1}, records=records, connections=8, depth=32, **sized(816))
                server.settle()
            measure = lambda server: load(
                server, "get", cpus={1}, records=records, seconds=seconds, protocol="meta", connections=8, depth=16,
                **sized(816),
            )["requests_per_second"]  # fmt: skip
            say("GETs per second, beside a remote tier and without")
            a, b, ratio = alternate(rounds, lambda: measure(both), lambda: measure(alone))
    what = "local tier beside a remote one: its GETs, of those without it"
    return [at_least(what, ratio, 0.98, "{:.3f}", f"{a:,.0f}/s and {b:,.0f}/s")]


FAIL_RECORDS, FAIL_RATE, STALL_SECONDS = 450_000, 4000, 30
RECORD = {"key_bytes": KEY_BYTES, "value_bytes": 800}


def fails(quick):
    """A target that stalls for 30 s, and one that is killed and comes back, beside two local drives."""
    figures = []
    for name, restarts in ((f"stalled for {STALL_SECONDS} s", False), (f"killed, back after {STALL_SECONDS} s", True)):
        rounds = [_fail(restarts) for _ in range(1 if quick else 3)]
        what = f"one of three drives remote, its target {name}"
        before, during = [[found[part]["p99_us"] for found in rounds] for part in ("before", "during")]
        ratio = median(b / a for a, b in zip(before, during))
        most = lambda part: max(found[part] for found in rounds)
        note = f"{median(before):,.0f} us and {median(during):,.0f} us"
        own = f"{most('own_misses'):,} of {most('own_asked'):,} missed at most"
        figures += [
            at_most(f"{what}: p99 of GETs of the other drives' records, of before", ratio, 2.0, "{:.2f}", note),
            at_most(f"{what}: longest wait for one of its own records, s", most("own_longest"), 1.0, "{:.2f}", own),
            at_most(f"{what}: wrong values", most("wrong"), 0, "{:,}"),
            at_most(f"{what}: records missed once it is back", most("missed_after"), 0, "{:,}"),
        ]
    return figures


def _fail(restarts):
    with folder() as at:
        shared = os.path.join(at, "shared")
        with (
            Export(shared, "256m") as export,
            terrace(
                "-m", "48", "-t", "1", "--tier", export.tier, "--tier", "ssd:DIR/a:256m", "--tier", "ssd:DIR/b:256m",
                cpus={0},
            ) as server,
        ):  # fmt: skip
            say(server.command)
            load(server, "fill", cpus={1}, records=FAIL_RECORDS, batch=True, connections=8, depth=32, **RECORD)
            server.settle()
            drives = [shared, os.path.join(server.dir, "a"), os.path.join(server.dir, "b")]
            on = [records_in(path) for path in drives]
            say(f"records on each drive: {', '.join(f'{len(numbers):,}' for numbers in on)}")
            own, others = on[0], [number for numbers in on[1:] for number in numbers]
            keys = [key_of(number) for number in own[:: max(1, len(own) // 10_000)]]
            with listed(others) as path:
                gets = lambda seconds: load(
                    server, "get", cpus={1}, may_be_wrong=True, among=path, rate=FAIL_RATE, seconds=seconds,
                    connections=64, depth=1, window=0, **RECORD,
                )  # fmt: skip
                with Reader(server, keys) as reader:
                    gets(2)
                    before = gets(8)
                    begin = time.monotonic() + 2
                    timers = [threading.Timer(2, export.signal, (signal.SIGKILL if restarts else signal.SIGSTOP,))]
                    again = _restart if restarts else lambda it: it.signal(signal.SIGCONT)
                    timers.append(threading.Timer(2 + STALL_SECONDS, again, (export,)))
                    for timer in timers:
                        timer.start()
                    during = gets(STALL_SECONDS + 10)
                    for timer in timers:
                        timer.join()
            rest = load(server, "verify", may_be_wrong=True, records=FAIL_RECORDS, connections=8, depth=8, **RECORD)
            asked = reader.since(begin)
            longest = max(asked, key=lambda answer: answer.seconds)
            say(
                f"p99 {before['latency']['p99_us']:,.0f} us, {during['latency']['p99_us']:,.0f} us; longest "
                f"{longest.seconds:.2f} s, {longest.at - begin:.1f} s after the fault; missed at the end "
                f"{rest['misses']:,}"
            )
            for line in server.output().splitlines()[-6:]:
                say(line)
    return {
        "before": before["latency"],
        "during": during["latency"],
        "own_longest": longest.seconds,
        "own_asked": len(asked),
        "own_misses": sum(answer.kind == "miss" for answer in asked),
        "wrong": before["wrong"] + during["wrong"] + rest["wrong"]
        + sum(answer.kind == "wrong" for answer in reader.answers),
        "missed_after": rest["misses"],
    }  # fmt: skip


def _restart(export):
    export.child.wait()
    export.start()

"""Bytes written to the drive per byte stored: Terrace, RocksDB and LevelDB, by the kernel's count."""

import os
import re
import shutil
import subprocess
import tempfile
from concurrent import futures

from measure.figure import say
from measure.load import load
from measure.server import ROOT, terrace

from . import plot, systems

KEY, VALUE = 16, 800
MILLIONS = [1, 2, 4]
# Of the drive, per byte stored: a store keeps what it has not compacted yet, and both run at once.
ROOM, ROOM_TOGETHER = 2.2, 4.5
WORKLOADS = ["fillseq", "fillrandom", "overwrite"]
TIMEOUT_SECONDS = 600
# What ends with this process when it fails or is told to.
_RUNNING = set()
TITLE = "Write amplification: fillseq, fillrandom, overwrite with 16 + 800 bytes"
TEXT = """
db_bench's workloads: `fillseq` stores each record once in order, `fillrandom` as many random ones into
an empty store, `overwrite` as many random ones over those of `fillseq`. Bytes written are the kernel's
count for the process (`/proc/PID/io` of the server; `ru_oublock` of processes that have ended; both count
what is handed to the page cache, so that of a file that is deleted at once too), divided by the bytes of keys
and values stored. RocksDB and LevelDB: write-ahead log on, no sync, no compression,
write buffers of 64 MiB, and compaction has come to rest before the count; both run at the same time, on all
cores, since bytes are counted and not seconds. Terrace: `-m 256`, one file of
half as much again as the records, `fillseq` and `overwrite` on the same server. The ordered stores can
do what Terrace cannot (scan ranges, keep all that they were given); the figure is about caches.
"""


def measure(quick):
    numbers = [100_000, 200_000] if quick else [million * 1_000_000 for million in MILLIONS]
    parent = os.environ.get("TERRACE_BENCH_DIR") or os.path.join(ROOT, "target")
    free = shutil.disk_usage(parent).free
    fit = [number for number in numbers if number * (KEY + VALUE) * ROOM < free]
    for number in set(numbers) - set(fit):
        say(f"left out: {number:,} records, for which {free >> 30} GiB of drive are too little")
    together = all(number * (KEY + VALUE) * ROOM_TOGETHER < free for number in fit)
    found = {"numbers": fit, "systems": {"Terrace": [_terrace(number) for number in fit]}}
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        if shutil.which("db_bench"):
            stores["RocksDB"] = _db_bench
        else:
            say("skipped: RocksDB: db_bench is not installed")
        driver = _build_leveldb(folder)
        if driver:
            stores["LevelDB"] = lambda *what: _leveldb(driver, *what)
        with futures.ThreadPoolExecutor(max_workers=2 if together else 1) as pool:
            one = lambda run: [_stores(number, run) for number in fit]
            begun = {name: pool.submit(one, run) for name, run in stores.items()}
            try:
                found["systems"] |= {name: future.result() for name, future in begun.items()}
            except BaseException:
                for child in list(_RUNNING):
                    child.terminate()
                pool.shutdown(cancel_futures=True)
                raise
    return found


def _terrace(number):
    mib = number * (KEY + VALUE) * 3 // 2 // (1 << 20) + 64
    flags = ["-m", "256", "-t", "1", "--tier", f"ssd:DIR/tier:{mib}m"]
    how = {"records": number, "key_bytes": KEY, "value_bytes": VALUE, "cpus": systems.LOAD_CPU}
    found = {}
    for steps in (["fillseq", "overwrite"], ["fillrandom"]):
        with terrace(*flags, cpus=systems.SERVER_CPU) as server:
            for step in steps:
                before = server.usage()
                report = load(server, step, connections=8, depth=32, **how)
                server.settle(timeout=30)
                written = server.usage().since(before).drive_written
                found[step] = _result("Terrace", number, step, written, report["seconds"])
    return found


def _result(name, number, step, written, seconds):
    times = written / (number * (KEY + VALUE))
    say(f"{name}, {number:,} records, {step}: {times:.2f}, {number / seconds:,.0f}/s")
    return {"times": times, "rate": number / seconds}


def _stores(number, run):
    """All three workloads of a store that runs within its driver's process."""
    parent = os.environ.get("TERRACE_BENCH_DIR") or os.path.join(ROOT, "target")
    found = {}
    for steps in (["fillseq", "overwrite"], ["fillrandom"]):
        with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as folder:
            for step in steps:
                found[step] = run(folder, step, number)
    return found


def _db_bench(folder, step, number):
    command = ["db_bench", f"--db={folder}/db", f"--num={number}", f"--key_size={KEY}"]
    command += [f"--value_size={VALUE}", "--compression_type=none"]
    command += [f"--benchmarks={step},waitforcompaction"]
    command += [f"--use_existing_db={int(step == 'overwrite')}"]
    output, written = _run(command)
    seconds = re.search(rf"^{step}\s*:.* ([\d.]+) seconds", output, re.M)
    return _result("RocksDB", number, step, written, float(seconds.group(1)))


def _leveldb(driver, folder, step, number):
    output, written = _run([driver, f"{folder}/db", step, str(number), str(VALUE)])
    return _result("LevelDB", number, step, written, float(output.split()[-1]))


def _run(command):
    """What it printed, and the bytes that it wrote to drives."""
    child = subprocess.Popen(
        ["timeout", str(TIMEOUT_SECONDS), *command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    _RUNNING.add(child)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    _RUNNING.discard(child)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)}: {output[-500:]}")
    return output, usage.ru_oublock * 512


def _build_leveldb(folder):
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "leveldb.cpp")
    driver = os.path.join(folder, "leveldb")
    command = ["g++", "-O2", "-std=c++17", source, "-o", driver, "-lleveldb", "-lpthread"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"skipped: LevelDB: {error}")
        return None
    return driver


def draw(found, path):
    figure, panels = plot.panels(WORKLOADS, width=4.4)
    groups = [f"{number / 1e6:g}" for number in found["numbers"]]
    for panel, step in zip(panels, WORKLOADS):
        lines = [
            (name, [point[step]["times"] for point in points])
            for name, points in found["systems"].items()
        ]
        plot.bars(panel, groups, lines, "million records", "bytes written per byte stored")
    plot.save(figure, path)


def text(found):
    rows = ["", "| system | million records | " + " | ".join(WORKLOADS) + " |", "|---|---|---|---|---|"]
    for name, points in found["systems"].items():
        for number, point in zip(found["numbers"], points):
            cells = [f"{point[step]['times']:.2f}" for step in WORKLOADS]
            rows.append(f"| {name} | {number / 1e6:g} | " + " | ".join(cells) + " |")
    return TEXT + "\n".join(rows) + "\n"

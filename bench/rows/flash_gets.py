"""Random GETs that the drive must answer: against the drive itself, and against extstore."""

import json
import os
import subprocess

from measure import cgroup
from measure.figure import Figure, alternate, at_least, say
from measure.load import load, sized
from measure.server import memcached, terrace
from measure.tiers import flash

SERVER_CPU, LOAD_CPU = {0}, {1}
RECORD = 816
CONNECTIONS, DEPTH = 8, 16
# Against fio, the file is written all over first: reads of never-written places need no drive.
STORED, READ = 1_500_000, 700_000
# Both within one limit that counts the page cache. extstore keeps about 100 bytes of DRAM per
# record, and evicts what it can't write out in time: records come slowly. Terrace gets
# less, lest its copies of hot records turn this into a measurement of DRAM.
LIMIT_MIB, TERRACE_MIB, EXTSTORE_MIB = 160, 64, 128
EXTSTORE_RECORDS = 400_000
# As it comes, memcached looks every 30 s whether headers need memory that items have: a fill is over by
# then, and has evicted what had no room for its header. With these it loses nothing of the same fill.
EXTSTORE = (
    "ext_threads=8,ext_page_size=16,ext_wbuf_size=4,ext_recache_rate=0,ext_path=DIR/ext:2g,"
    "slab_automove_window=3,slab_automove_freeratio=0.05"
)
EXTSTORE_PER_SECOND = 20_000


def against_fio(quick):
    rounds, seconds = (3, 2) if quick else (7, 3)
    with terrace("-m", "64", "-t", "1", "--tier", "ssd:DIR/tier:1g", cpus=SERVER_CPU) as server:
        say(server.command)
        load(server, "fill", cpus=LOAD_CPU, records=STORED, **sized(RECORD))
        server.settle()
        say("reads per second of terrace and fio")
        own, fio, ratio = alternate(
            rounds,
            lambda: _gets(server, STORED - READ, READ, seconds),
            lambda: _fio(os.path.join(server.dir, "tier"), seconds),
        )
    return [
        at_least(
            "random GETs from flash, one worker, of fio's 4 KiB reads on the same file and core",
            ratio, 0.85, "{:.2f}", f"{own:,.0f}/s and {fio:,.0f}/s",
        ),
    ]  # fmt: skip


def against_extstore(quick):
    if not cgroup.available():
        return [Figure("random GETs from flash against extstore", "skipped: no control groups")]
    rounds, seconds = (3, 2) if quick else (5, 4)
    own_flags = ["-m", str(TERRACE_MIB), "-t", "1", "--tier", "ssd:DIR/tier:1g"]
    other_flags = ["-m", str(EXTSTORE_MIB), "-t", "1", "-o", EXTSTORE]
    limit = LIMIT_MIB << 20
    with (
        cgroup.MemoryLimit(limit, "terrace") as own_group,
        cgroup.MemoryLimit(limit, "extstore") as other_group,
        terrace(*own_flags, cpus=SERVER_CPU, group=own_group) as ours,
        memcached(*other_flags, cpus=SERVER_CPU, group=other_group) as theirs,
    ):
        for server in (ours, theirs):
            say(server.command)
            slowly = {"connections": 8, "depth": 32, "rate": EXTSTORE_PER_SECOND, "cpus": LOAD_CPU}
            load(server, "fill", records=EXTSTORE_RECORDS, **slowly, **sized(RECORD))
            server.settle()
        say(f"flash hits per second of terrace and extstore, each within {LIMIT_MIB} MiB")
        own, other, ratio = alternate(
            rounds,
            lambda: _gets(ours, 0, EXTSTORE_RECORDS, seconds),
            lambda: _gets(theirs, 0, EXTSTORE_RECORDS, seconds),
        )
    return [
        at_least(
            "random GETs from flash, one worker and core, of extstore's with 8 threads",
            ratio, 1.5, "{:.2f}", f"{own:,.0f}/s and {other:,.0f}/s",
        ),
    ]  # fmt: skip


def _gets(server, first, records, seconds):
    """Hits from flash per second."""
    before = flash(server)["hits"]
    report = load(
        server, "get", cpus=LOAD_CPU, first=first, records=records, seconds=seconds,
        protocol="meta", connections=CONNECTIONS, depth=DEPTH, **sized(RECORD),
    )  # fmt: skip
    hits = flash(server)["hits"] - before
    say(
        f"{server.name}: {report['requests_per_second']:,.0f} GET/s, {report['misses']:,} misses, "
        f"{hits:,} hits from flash, {report['server_cpu_us']:.1f} us of CPU each, "
        f"median {report['latency']['p50_us']:,.0f} us, 99 % {report['latency']['p99_us']:,.0f} us"
    )
    return hits / report["seconds"]


def _fio(path, seconds):
    """Random 4 KiB reads per second, with as many in flight."""
    command = ["fio", "--name=reads", f"--filename={path}", "--readonly", "--rw=randread"]
    command += ["--bs=4k", "--ioengine=io_uring", "--direct=1", "--norandommap", "--randrepeat=0"]
    command += [f"--iodepth={CONNECTIONS * DEPTH}", "--time_based", f"--runtime={seconds}"]
    command += ["--registerfiles=1", "--fixedbufs=1", "--output-format=json"]
    command += [f"--cpus_allowed={','.join(map(str, SERVER_CPU))}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(result.stdout)["jobs"][0]["read"]["iops"]

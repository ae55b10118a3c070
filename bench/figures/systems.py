"""The servers that figures compare: Terrace, extstore in as much memory, and memcached in DRAM."""

import contextlib
import os

from measure import cgroup, fio, tiers
from measure.figure import say
from measure.load import load
from measure.server import memcached, terrace

SERVER_CPU, LOAD_CPU = {0}, {1}
# What both servers with a drive may use in all, page cache included.
LIMIT_MIB, SERVER_MIB = 192, 128
# What a record of 100 bytes takes in DRAM, its word in the table included.
COPY_BYTES = 145
# As it comes, memcached looks every 30 s whether headers need memory that items have: a fill is over by
# then, and has evicted what had no room for its header. With these it loses nothing of the same fill.
SLAB_MOVER = "slab_automove_window=3,slab_automove_freeratio=0.05"
EXTSTORE = (
    "ext_threads={threads},ext_page_size=16,ext_wbuf_size=4,ext_recache_rate=0,ext_path=DIR/ext:{gib}g,"
    + SLAB_MOVER
)


@contextlib.contextmanager
def limited(name, limit_mib=LIMIT_MIB):
    """A control group of so much memory, or none where this user may not make one."""
    if not cgroup.available():
        say(f"{name}: no control group; the page cache is not limited")
        yield None
        return
    with cgroup.MemoryLimit(limit_mib << 20, name) as group:
        yield group


def on_flash(workers=1, tier="1g", mib=SERVER_MIB, limit_mib=LIMIT_MIB):
    """Terrace with one file, limited."""
    flags = ["-m", str(mib), "-t", str(workers), "--tier", f"ssd:DIR/tier:{tier}", "-c", "4096"]
    start = lambda group: terrace(*flags, cpus=SERVER_CPU, group=group)
    return _within("terrace", limit_mib, start)


def extstore(threads=8, gib=2, mib=SERVER_MIB, more="", limit_mib=LIMIT_MIB):
    """memcached with extstore, limited alike."""
    option = EXTSTORE.format(threads=threads, gib=gib) + more
    flags = ["-m", str(mib), "-t", "1", "-c", "4096", "-o", option]
    start = lambda group: memcached(*flags, cpus=SERVER_CPU, group=group)
    return _within("extstore", limit_mib, start)


def in_dram(mib=2048):
    """memcached with everything in DRAM."""
    return memcached("-m", str(mib), "-t", "1", "-c", "4096", cpus=SERVER_CPU)


@contextlib.contextmanager
def _within(name, limit_mib, start):
    with limited(name, limit_mib) as group, start(group) as server:
        if "direct I/O" in server.output():
            say(f"{name}: no direct I/O here; the page cache may answer in the drive's place")
        yield server


def fill(server, records, slowly=False, **options):
    """Stores the records. Slowly: extstore evicts what it can't write out in time."""
    how = {"connections": 8, "depth": 32, "cpus": LOAD_CPU, **options}
    if slowly:
        size = options.get("key_bytes", 20) + options.get("value_bytes", 80)
        how["rate"] = min(60_000, 16_000_000 // size)
    load(server, "fill", records=records, **how)
    server.settle(timeout=20)


def in_memory(server):
    """Records that a Terrace has in DRAM: copies of hot ones, and those not yet written out."""
    stats = tiers.of_terrace(server)
    return stats["records_read_cache"] + stats["records_write_buffer"]


# What `stats tiers` accounts for under the limit.
ACCOUNTED = [
    "tier_index", "page_tables", "segment_table", "dram_index", "write_buffer", "read_cache", "free", "staging",
]  # fmt: skip


def fitted(server, records, measure):
    """Measures; then raises or lowers the memory of a Terrace towards so many records in DRAM. Gives
    back what was measured, and whether their number was right (or is nobody's wish)."""
    if records is None:
        return measure(), True
    before = tiers.of_terrace(server)
    found = measure()
    after = tiers.of_terrace(server)
    is_full = after["read_cache_evictions"] - before["read_cache_evictions"] > records / 1000
    off_mib = round((records - in_memory(server)) * COPY_BYTES / (1 << 20))
    if off_mib == 0 or (off_mib > 0 and not is_full):
        return found, True
    limit, taken = after["memory_limit"] >> 20, _taken_mib(after)
    if taken > limit + 1:
        # An earlier, lower limit is still on its way: another now would go past what is wanted.
        return found, False
    # A limit that is not reached yet says nothing of what these records take.
    answer = server.tell(f"cache_memlimit {(limit if is_full else min(limit, taken)) + off_mib}")
    # No less is possible: stores need their room.
    return found, answer != "OK"


def _taken_mib(stats):
    return sum(stats["memory_" + part] for part in ACCOUNTED) >> 20


def gets(server, workload="get", **options):
    """One run of the generator on its own core."""
    return load(server, workload, cpus=LOAD_CPU, **options)


def fio_curve(server, quick):
    """What the drive itself does with random reads of a page of what a Terrace has written, one to 256 in flight: the
    line that no server passes whose every request is one read."""
    stats = tiers.of_terrace(server)
    path, span = os.path.join(server.dir, "tier"), stats["tier:segments_used"] * stats["tier:segment_bytes"]
    depths = (1, 16, 128) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256)
    found = [fio.reads(path, 1 if quick else 3, LOAD_CPU, span, depth=depth) for depth in depths]
    return [{"depth": depth, "rate": f.iops, "mean_us": f.mean_us} for depth, f in zip(depths, found)]


def rate_at(points, mean_us=1000):
    """The highest rate of a sweep at that mean latency, between two points or, where all are below it, of the last;
    None where none is."""
    best = None
    for before, after in zip(points, points[1:] + [None]):
        if before["mean_us"] > mean_us:
            continue
        rate = before["rate"]
        if after and after["mean_us"] > mean_us:
            part = (mean_us - before["mean_us"]) / (after["mean_us"] - before["mean_us"])
            rate += part * (after["rate"] - rate)
        best = max(best or 0, rate)
    return best


def point(report):
    """What curves need of a report."""
    latency = report["latency"]
    reads = report["hits"] + report["misses"]
    return {
        "connections": report["connections"],
        "depth": report["depth"],
        "rate": report["requests_per_second"],
        "mean_us": latency["mean_us"],
        "p50_us": latency["p50_us"],
        "p90_us": latency["p90_us"],
        "p99_us": latency["p99_us"],
        "p999_us": latency["p999_us"],
        "hits": report["hits"] / reads if reads else None,
        "server_cpu_us": report["server_cpu_us"],
    }

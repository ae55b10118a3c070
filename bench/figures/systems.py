"""The servers that figures compare: Terrace, extstore in as much memory, and memcached in DRAM."""

import contextlib

from measure import cgroup
from measure.figure import say
from measure.load import load
from measure.server import memcached, terrace

SERVER_CPU, LOAD_CPU = {0}, {1}
# What both servers with a drive may use in all, page cache included.
LIMIT_MIB, SERVER_MIB = 192, 128
EXTSTORE = "ext_threads={threads},ext_page_size=16,ext_wbuf_size=4,ext_recache_rate=0,ext_path=DIR/ext:{gib}g"


@contextlib.contextmanager
def limited(name):
    """A control group of `LIMIT_MIB`, or none where this user may not make one."""
    if not cgroup.available():
        say(f"{name}: no control group; the page cache is not limited")
        yield None
        return
    with cgroup.MemoryLimit(LIMIT_MIB << 20, name) as group:
        yield group


def on_flash(workers=1, gib=1):
    """Terrace with one file, limited."""
    flags = ["-m", str(SERVER_MIB), "-t", str(workers), "--tier", f"ssd:DIR/tier:{gib}g"]
    return _within("terrace", lambda group: terrace(*flags, "-c", "4096", cpus=SERVER_CPU, group=group))


def extstore(threads=8, gib=2, mib=SERVER_MIB, more=""):
    """memcached with extstore, limited alike."""
    option = EXTSTORE.format(threads=threads, gib=gib) + more
    flags = ["-m", str(mib), "-t", "1", "-c", "4096", "-o", option]
    return _within("extstore", lambda group: memcached(*flags, cpus=SERVER_CPU, group=group))


def in_dram(mib=2048):
    """memcached with everything in DRAM."""
    return memcached("-m", str(mib), "-t", "1", "-c", "4096", cpus=SERVER_CPU)


@contextlib.contextmanager
def _within(name, start):
    with limited(name) as group, start(group) as server:
        yield server


def fill(server, records, slowly=False, **options):
    """Stores the records. Slowly: extstore evicts what it can't write out in time."""
    how = {"connections": 1, "depth": 1} if slowly else {"connections": 8, "depth": 32}
    report = load(server, "fill", records=records, cpus=LOAD_CPU, **how, **options)
    server.settle(timeout=20)
    return report


def gets(server, workload="get", **options):
    """One run of the generator on its own core; raises at wrong values."""
    report = load(server, workload, cpus=LOAD_CPU, **options)
    if report["wrong"]:
        raise RuntimeError(f"{server.name}: {report['wrong']} wrong: {report['examples']}")
    return report


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

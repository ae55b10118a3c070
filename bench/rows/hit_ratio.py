"""Hit ratios without tiers beside memcached's with the same memory, on published traces."""

import concurrent.futures
import os

from measure.figure import at_least, say
from measure.load import load
from measure.server import ROOT, memcached, terrace
from rows.traces import BINARY, KEY_BYTES, published

PERCENT = [1, 5, 10, 20]
# A server that holds a hundredth of the bytes has so many MiB at least, since memcached gives each class of
# sizes a page of 1 MiB: shorter traces have their values made longer.
LEAST_MIB = 24
# The longest value that both take with the default of -I.
VALUE_BYTES_MAX = 1_000_000
MUST = -0.002


def hit_ratio(quick):
    """Per point at least memcached's less 0.002, and on average at least memcached's."""
    figures, above = [], []
    for name, requests in _traces(quick):
        path, of_all, count = _written(name, requests)
        for percent in PERCENT:
            mebibytes = str(round(of_all * percent / 100 / (1 << 20)))
            flags = ["-m", mebibytes, "-t", "1"]
            # At once, since no hit depends on how long it took.
            with concurrent.futures.ThreadPoolExecutor() as together:
                ours, theirs = together.map(lambda start: _hits(start(*flags), path), (terrace, memcached))
            above.append(ours - theirs)
            note = f"{ours:.4f} and {theirs:.4f} with -m {mebibytes}, {count:,} requests"
            say(f"{name} at {percent} %: {note}")
            what = f"{name}, {percent} % of the bytes: hit ratio above memcached's"
            figures.append(at_least(what, ours - theirs, MUST, "{:+.4f}", note))
    mean = sum(above) / len(above)
    return [*figures, at_least("mean of all points", mean, 0, "{:+.4f}", "")]


def _traces(quick):
    """Names, and lists of objects and of their bytes."""
    names, sizes = published.load("1m")
    most = len(names) // (4 if quick else 1)
    yield "cluster52", (names[:most], sizes[:most])
    if os.environ.get("TERRACE_BENCH_TRACE") == "10m":
        yield "cluster52, 10 million requests", published.load("10m")
    with open(published.fetch(published.BLOCKS), "rb") as file:
        blocks = [(name, size) for _, name, size, _ in BINARY.iter_unpack(file.read())]
    yield "CloudPhysics", tuple(zip(*blocks))


def _written(name, requests):
    """The trace as a file, with longer values where it needs them; bytes of all objects, and requests."""
    sizes = dict(zip(*requests))
    of_all = sum(sizes.values())
    least = LEAST_MIB * 100 << 20
    times = max(1, -(-least // of_all))
    folder = os.path.join(ROOT, "target", "bench-traces")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name.replace(',', '').replace(' ', '-')}.csv")

    def stored(size):
        return min(max(size * times, KEY_BYTES), VALUE_BYTES_MAX)

    with open(path, "w") as lines:
        lines.writelines(f"0,{at},{stored(size)}\n" for at, size in zip(*requests))
    of_all, count = sum(map(stored, sizes.values())), len(requests[0])
    say(f"{name}: {count:,} requests for {len(sizes):,} objects of {of_all >> 20} MiB, sizes times {times}")
    return path, of_all, count


def _hits(server, path):
    with server as running:
        say(running.command)
        # One worker and one connection at depth 1: the order of the requests is the trace's.
        report = load(running, "replay", trace=path, connections=1, depth=1, key_bytes=KEY_BYTES)
    return report["hits"] / (report["hits"] + report["misses"])

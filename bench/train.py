#!/usr/bin/env python3
"""Puts all kinds of load on an instrumented build, for `make release`.

`bench/train.py BINARY`: what is never called here is built to be small, not fast. So every protocol, both
sides of a tier, reclaim, a restart and the tools have their turn, in about a minute.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

from measure.load import load, sized  # noqa: E402
from measure.server import Server, end_servers_when_terminated  # noqa: E402

DEPTHS = [1, 8, 32]
PROTOCOLS = ["ascii", "meta", "binary"]
WORKLOADS = [("get", {}), ("overwrite", {}), ("mixed", {"get_percent": 80, "delete_percent": 2})]
POPULAR = {"popularity": "zipf-mandelbrot", "batch": True}
LARGE_FIRST, LARGE_BYTES = 1 << 32, 64 << 10


def main():
    [binary] = sys.argv[1:]
    end_servers_when_terminated()
    for part in (dram, small_records, longer_records, tools):
        start = time.monotonic()
        part(binary)
        print(f"   {part.__name__.replace('_', ' ')}: {time.monotonic() - start:.0f} s", flush=True)


@contextlib.contextmanager
def served(binary, *flags):
    """A server that ends by SIGTERM: what it counted is written at an orderly end only."""
    with Server("terrace", [binary, "-t", "1", *flags]) as server:
        yield server
        server.child.send_signal(signal.SIGTERM)
        server.child.wait()


def dram(binary):
    with served(binary, "-m", "128") as server:
        load(server, "fill", records=200_000)
        all_kinds(server, 200_000, 60_000)
        load(server, "fill", records=1_500_000, batch=True)


def small_records(binary):
    """Of 100 bytes in a tier that is full, before and after a crash and a restart."""
    records = 2_500_000
    with served(binary, "-m", "64", "--tier", "ssd:DIR/tier:256m") as server:
        load(server, "fill", records=records, batch=True)
        load(server, "overwrite", records=records, requests=3_000_000, batch=True)
        all_kinds(server, records, 40_000)
        for end in (signal.SIGKILL, signal.SIGTERM):
            server.restart(end)
            load(server, "get", records=records, requests=300_000, any_version=True, **POPULAR)
            for requests in (500_000, 1_000_000):
                load(server, "mixed", records=records, requests=requests, get_percent=80, any_version=True, **POPULAR)


def longer_records(binary):
    """Of 816 bytes, of ETC's sizes, and large ones."""
    with served(binary, "-m", "64", "--tier", "ssd:DIR/tier:512m") as server:
        load(server, "fill", records=400_000, **sized(816))
        server.settle()
        all_kinds(server, 400_000, 20_000, **sized(816))
        load(server, "fill", records=500_000, sizes="etc")
        load(server, "get", records=500_000, requests=300_000, sizes="etc", **POPULAR)
        large = {"first": LARGE_FIRST, "records": 1000, "value_bytes": LARGE_BYTES, "depth": 4}
        load(server, "fill", **large)
        load(server, "get", **large)


def tools(binary):
    """`terrace bench` and `plan`, which are in the same program."""
    with served(binary, "-m", "128") as server:
        bench = [binary, "bench", "--server", server.address, "--pid", str(server.pid)]
        for workload in ("fill", "get", "mixed"):
            for protocol in PROTOCOLS:
                subprocess.run([*bench, workload, "--protocol", protocol, "--any-version"], **QUIET)
        subprocess.run([binary, "plan", "--server", server.address], **QUIET)


QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}


def all_kinds(server, records, requests, **how):
    """Each request, protocol and depth; every fourth as often one by one, where each takes longest."""
    how |= {"records": records, "any_version": True}
    for protocol in PROTOCOLS:
        for depth in DEPTHS:
            asked = requests // 4 if depth == 1 else requests
            for workload, more in WORKLOADS:
                load(server, workload, requests=asked, protocol=protocol, depth=depth, batch=True, **more, **how)
    for depth in DEPTHS[:2]:
        load(server, "get", requests=requests // 8, multiget=24, depth=depth, **how)


if __name__ == "__main__":
    main()

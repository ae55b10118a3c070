"""What a router costs: the same requests through it and past it, by turns."""

import json
import os
import statistics
import subprocess
import time

from measure.server import ROOT

RECORDS = 20_000
ROUNDS = 3
ROUND_SECONDS = 1


def _load(address, pid, workload, *more):
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    command = [os.path.join(target, "release", "terrace-load"), workload, "--json"]
    command += ["--server", address, "--pid", str(pid)]
    command += ["--records", str(RECORDS), "--value-bytes", "800", *more]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode:
        raise RuntimeError(f"terrace-load {workload} at {address}: {result.stdout}{result.stderr}")
    return json.loads(result.stdout)


def through(router, fleet):
    """For 1 and 32 requests in flight on each of 8 connections: reads per second through `router`
    to all of the fleet, the same past it to one node, and the ratio, each the median of rounds."""
    node = fleet.nodes[0]
    ways = [(router.socket, router.child.pid), (node.address, node.pid)]
    # Each way finds every record: the fleet's shares, and one node that has them all.
    for address, pid in ways:
        _load(address, pid, "fill")
    return {depth: _by_turns(ways, depth) for depth in (1, 32)}


def _by_turns(ways, depth):
    rounds = []
    for number in range(ROUNDS):
        more = ["--depth", str(depth), "--seconds", str(ROUND_SECONDS), "--seed", str(number + 1)]
        reports = [_load(address, pid, "get", *more) for address, pid in ways]
        misses = sum(report["misses"] for report in reports)
        if misses:
            raise RuntimeError(f"{misses} misses of records that were stored")
        rounds.append([report["requests_per_second"] for report in reports])
    return _medians(rounds)


def _medians(rounds):
    ratio = statistics.median(first / second for first, second in rounds)
    return *(statistics.median(column) for column in zip(*rounds)), ratio


def in_process(ring, plain):
    """Reads per second through a ring within the client, those of a client that knows one node
    only, and the ratio."""
    keys = [f"rate{number}" for number in range(200)]
    for cache in (ring, plain):
        for key in keys:
            cache.set(key, b"x" * 800)
    rounds = []
    for _ in range(ROUNDS):
        rounds.append([_reads_per_second(cache, keys) for cache in (ring, plain)])
    return _medians(rounds)


def _reads_per_second(cache, keys):
    start, count = time.monotonic(), 0
    while time.monotonic() - start < ROUND_SECONDS / 2:
        if any(cache.get(key) is None for key in keys):
            raise RuntimeError("a record that was stored is missed")
        count += len(keys)
    return count / (time.monotonic() - start)

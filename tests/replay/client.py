"""Demand fill by a real client: libmemcached, through pylibmc, in several processes.

Each process replays the objects that fall to it in the order of the trace; all wait for each other
every `CHUNK` requests of the trace, so that none runs ahead.
"""

import dataclasses
import multiprocessing
import random
import sys
import threading
import time

import pylibmc

CHUNK = 20_000
STAMP = 8
PLACES = 1 << 16
SIZE_MAX = 1 << 20
PROGRESS_SECONDS = 5
STALL_SECONDS = 120

_POOL = random.Random(52).randbytes(PLACES + SIZE_MAX)


@dataclasses.dataclass
class Counts:
    """What the client saw."""

    requests: int = 0
    hits: int = 0
    wrong: int = 0
    stored: int = 0
    refused: int = 0
    stored_bytes: int = 0

    def add(self, other):
        for field in dataclasses.fields(self):
            name = field.name
            setattr(self, name, getattr(self, name) + getattr(other, name))


def key(number):
    return f"{number:x}"


def value(number, size):
    """Bytes that only this object has: its number, then a part of the pool that follows from it."""
    place = (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 48
    content = number.to_bytes(STAMP, "little") + _POOL[place : place + max(size - STAMP, 0)]
    return content[:size]


def replay(port, objects, sizes, processes, progress=True):
    """Replays the whole trace; gives back counts and seconds."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes + 1)
    results = context.Queue()

    def run(part):
        try:
            results.put(_replay_part(port, objects, sizes, part, processes, barrier))
        except BaseException as error:
            results.put(f"client {part}: {error!r}")
            barrier.abort()

    workers = [context.Process(target=run, args=(part,), daemon=True) for part in range(processes)]
    for worker in workers:
        worker.start()
    seconds = _pace(barrier, len(objects), progress)
    total = Counts()
    for _ in workers:
        result = results.get(timeout=STALL_SECONDS)
        if isinstance(result, str):
            raise RuntimeError(result)
        total.add(result)
    for worker in workers:
        worker.join()
    return total, seconds


def _pace(barrier, requests, progress):
    """Takes part in the barriers, to time the replay and tell how far it is."""
    start = told = None
    try:
        for done in range(0, requests + CHUNK, CHUNK):
            barrier.wait(STALL_SECONDS)
            now = time.monotonic()
            start, told = start or now, told or now
            if progress and now - told > PROGRESS_SECONDS:
                told = now
                print(f"  {min(done, requests):,} of {requests:,} requests", file=sys.stderr)
    except threading.BrokenBarrierError:
        pass  # The client that broke it says why.
    return time.monotonic() - (start or time.monotonic())


def _replay_part(port, objects, sizes, part, parts, barrier):
    client = pylibmc.Client([f"127.0.0.1:{port}"], binary=False)
    client.behaviors = {"tcp_nodelay": True}
    get, store = client.get, client.set
    counts = Counts()
    for start in range(0, len(objects), CHUNK):
        barrier.wait(STALL_SECONDS)
        chunk = zip(objects[start : start + CHUNK], sizes[start : start + CHUNK])
        for number, size in chunk:
            if number % parts != part:
                continue
            counts.requests += 1
            name = key(number)
            found = get(name)
            if found is None:
                content = value(number, size)
                if _stored(store, name, content):
                    counts.stored += 1
                    counts.stored_bytes += len(name) + size
                else:
                    counts.refused += 1
            elif found == value(number, size):
                counts.hits += 1
            else:
                counts.wrong += 1
                print(f"  wrong value for {name}: {found[:40]!r}", file=sys.stderr)
    barrier.wait(STALL_SECONDS)
    return counts


def _stored(store, name, content):
    """memcached may be out of memory for a moment; that is a fact to count, not to stop at."""
    try:
        return store(name, content)
    except pylibmc.Error:
        return False

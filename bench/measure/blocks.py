"""What a drive takes for each read of another program, as the kernel's block layer sees it."""

import collections
import contextlib
import os
import re
import subprocess

TRACING = "/sys/kernel/tracing"
INSTANCE = f"{TRACING}/instances/terrace-bench"
BUFFER_KIB = 96 << 10
# In order of time: handed over, done. In between lies waiting for a place in the drive's queue, too.
EVENTS = "block:block_bio_queue", "block:block_rq_complete"
LINE = re.compile(rb" (\d+\.\d+): (block_\w+): \d+,\d+ R\w* (?:\(\) )?(\d+) \+")


def is_there():
    """Whether the kernel can be asked: by root, with tracefs."""
    if not os.path.isdir(f"{TRACING}/instances"):
        subprocess.run(["mount", "-t", "tracefs", "none", TRACING], capture_output=True, check=False)
    return os.access(f"{TRACING}/instances", os.W_OK)


@contextlib.contextmanager
def reads_of(path):
    """A list that holds, once the block was left, the microseconds of each read of the drive below `path` in it."""
    drive = os.stat(path).st_dev
    number = os.major(drive) << 20 | os.minor(drive)
    microseconds = []
    # A run that was killed has left its own.
    if os.path.isdir(INSTANCE):
        os.rmdir(INSTANCE)
    os.mkdir(INSTANCE)
    try:
        _write("buffer_size_kb", BUFFER_KIB)
        for event in EVENTS:
            _write(f"events/{event.replace(':', '/')}/filter", f"dev == {number}")
            _write(f"events/{event.replace(':', '/')}/enable", 1)
        try:
            yield microseconds
        finally:
            _write("tracing_on", 0)
        with open(f"{INSTANCE}/trace", "rb") as trace:
            microseconds += _match(trace)
    finally:
        os.rmdir(INSTANCE)


def _write(name, value):
    with open(f"{INSTANCE}/{name}", "w", encoding="ascii") as file:
        file.write(str(value))


def _match(lines):
    """Reads are told apart by where they begin; of several at once in one place the first is done first."""
    waiting = collections.defaultdict(collections.deque)
    for line in lines:
        if not (found := LINE.search(line)):
            continue
        at, event, sector = float(found[1]), found[2], found[3]
        if event == b"block_bio_queue":
            waiting[sector].append(at)
        elif waiting[sector]:
            yield (at - waiting[sector].popleft()) * 1e6

"""The kernel's trace of a few events, in an instance of tracefs of its own."""

import contextlib
import os
import subprocess

TRACING = "/sys/kernel/tracing"
INSTANCE = f"{TRACING}/instances/terrace-bench"
BUFFER_KIB = 96 << 10
# The filter of an event that has none.
ALL = "0"


def is_there():
    """Whether the kernel can be asked: by root, with tracefs."""
    if not os.path.isdir(f"{TRACING}/instances"):
        subprocess.run(["mount", "-t", "tracefs", "none", TRACING], capture_output=True, check=False)
    return os.access(f"{TRACING}/instances", os.W_OK)


@contextlib.contextmanager
def watch(events, take):
    """Traces `events`, each as `system:name` with its filter, and has `take` read the lines, which are in order of
    time, once the block was left."""
    # A run that was killed has left its own.
    if os.path.isdir(INSTANCE):
        os.rmdir(INSTANCE)
    os.mkdir(INSTANCE)
    try:
        _write("buffer_size_kb", BUFFER_KIB)
        for event, wanted in events.items():
            _write(f"events/{event.replace(':', '/')}/filter", wanted)
            _write(f"events/{event.replace(':', '/')}/enable", 1)
        try:
            yield
        finally:
            _write("tracing_on", 0)
        with open(f"{INSTANCE}/trace", "rb") as trace:
            take(trace)
    finally:
        os.rmdir(INSTANCE)


def drive_of(path):
    """The filter for events of the drive below `path`."""
    drive = os.stat(path).st_dev
    return f"dev == {os.major(drive) << 20 | os.minor(drive)}"


def _write(name, value):
    with open(f"{INSTANCE}/{name}", "w", encoding="ascii") as file:
        file.write(str(value))

"""Runs `terrace-load` against a server."""

import contextlib
import itertools
import json
import os
import subprocess
import tempfile

from .server import ROOT

TIMEOUT_SECONDS = 1800
# Each run asks in another order: one that repeats the last would find what it asked for in DRAM.
_SEEDS = itertools.count(1)


def load(server, workload, cpus=None, may_be_wrong=False, **options):
    """The report of one run, as a dictionary; options are the flags' names.

    Raises where the run can't be finished, or a value is wrong unless `may_be_wrong`.
    """
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    command = [os.path.join(target, "release", "terrace-load"), workload, "--json"]
    command += ["--server", server.address, "--pid", str(server.pid), "--seed", str(next(_SEEDS))]
    for name, value in options.items():
        if value is True:
            command.append("--" + name.replace("_", "-"))
        elif value is not None and value is not False:
            command += ["--" + name.replace("_", "-"), str(value)]
    pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus is not None else None
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, preexec_fn=pin
    )
    if result.returncode > 1:
        raise RuntimeError(f"{result.stderr.strip()}; the server said: {server.output()}")
    report = json.loads(result.stdout)
    if report["wrong"] and not may_be_wrong:
        raise RuntimeError(f"{server.name}: {report['wrong']} wrong: {report['examples']}")
    return report


@contextlib.contextmanager
def listed(numbers):
    """A file with these numbers, for `terrace-load --among`."""
    with tempfile.NamedTemporaryFile("w", suffix=".numbers") as file:
        file.write("\n".join(map(str, numbers)) + "\n")
        file.flush()
        yield file.name


def load_held(server, workload, **options):
    """The same, of records that the server holds: it raises where one is missed, too."""
    report = load(server, workload, **options)
    if report["misses"] or report["errors"]:
        counts = f"{report['misses']} missed, {report['errors']} errors"
        raise RuntimeError(f"{server.name}: {counts}: {report['examples']}; {_told(server)}")
    return report


def _told(server):
    """What the server counts of records that went, and of reads that failed."""
    tiers = server.stats("tiers") if server.name == "terrace" else {}
    told = ("evict", "lost", "expired", "false", "corrupt", "error", "failed", "unresponsive", "memory_limit")
    return {name: value for name, value in tiers.items() if any(word in name for word in told)}


def sized(record):
    """The flags for records of 100 bytes (20 + 80) or 816 (16 + 800)."""
    return {100: {"key_bytes": 20, "value_bytes": 80}, 816: {"key_bytes": 16, "value_bytes": 800}}[
        record
    ]

"""Runs `terrace-load` against a server."""

import itertools
import json
import os
import subprocess

from .server import ROOT

TIMEOUT_SECONDS = 1800
# Each run asks in another order: one that repeats the last would find what it asked for in DRAM.
_SEEDS = itertools.count(1)


def load(server, workload, cpus=None, **options):
    """The report of one run, as a dictionary; options are the flags' names.

    Wrong values are in the report; a run that can't be finished raises.
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
    return json.loads(result.stdout)


def sized(record):
    """The flags for records of 100 bytes (20 + 80) or 816 (16 + 800)."""
    return {100: {"key_bytes": 20, "value_bytes": 80}, 816: {"key_bytes": 16, "value_bytes": 800}}[
        record
    ]

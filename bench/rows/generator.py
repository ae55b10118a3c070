"""What the load generator itself costs, beside the least that a client can do, and memcslap."""

import os
import resource
import shutil
import subprocess

from measure.examples import build_examples, example
from measure.figure import Figure, alternate, at_most, say
from measure.floor import Floor
from measure.load import load
from measure.server import memcached

SERVER_CPU, LOAD_CPU = {0}, {1}
CONNECTIONS, VALUE = 8, 80
MOST = {1: 2.0, 8: None, 32: 0.3}
SLAP_REQUESTS = 20_000


def generator(quick):
    rounds, seconds = (5, 0.5) if quick else (7, 1.0)
    build_examples()
    with Floor(VALUE, "meta", SERVER_CPU) as floor:
        figures = [_cost(floor, depth, rounds, seconds) for depth in MOST]
    return figures + _beside_memcslap(rounds)


def _cost(floor, depth, rounds, seconds):
    say(f"depth {depth}: us of CPU per request of terrace-load and of the least client")
    theirs, seen = [], []

    def ours():
        report = load(
            floor, "get", cpus=LOAD_CPU, protocol="meta", blind=True, batch=True, seconds=seconds,
            connections=CONNECTIONS, depth=depth,
        )  # fmt: skip
        seen.append(report["own_user_us"])
        return report["own_cpu_us"]

    def least():
        words = [floor.address, CONNECTIONS, depth, seconds, VALUE]
        told = _pinned([example("least"), *map(str, words)]).stdout
        theirs.append(float(told.split()[1]))
        return theirs[-1]

    own, other, _ = alternate(rounds, ours, least)
    user = sorted(seen)[len(seen) // 2]
    what = f"generator, depth {depth}: us of CPU per request above the least client's"
    note = f"{own:.2f} and {other:.2f}; {user:.2f} of them outside the kernel"
    if MOST[depth] is None:
        return Figure(what, f"{own - other:.2f} ({note})")
    return at_most(what, own - other, MOST[depth], "{:.2f}", note)


def _beside_memcslap(rounds):
    if not shutil.which("memcslap"):
        return [Figure("generator beside memcslap", "skipped: memcslap is not installed")]
    with memcached("-m", "256", "-t", "1", cpus=SERVER_CPU) as server:
        load(server, "fill", records=100_000, cpus=LOAD_CPU)

        def ours():
            return load(
                server, "get", cpus=LOAD_CPU, records=100_000, requests=CONNECTIONS * SLAP_REQUESTS,
                connections=CONNECTIONS, depth=1,
            )["own_cpu_us"]  # fmt: skip

        say("depth 1 against memcached: us of CPU per GET of terrace-load and of memcslap")
        own, other, _ = alternate(min(rounds, 5), ours, lambda: _memcslap(server))
    figure = f"{own:.2f} and {other:.2f}"
    return [Figure("CPU per GET at depth 1, us: terrace-load, checking, and memcslap, not", figure)]


def _memcslap(server):
    """Its processor time per GET: that of a run less that of one with hardly any."""

    def cpu(number):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["memcslap", f"--servers={server.address}", f"--concurrency={CONNECTIONS}"]
        _pinned([*command, f"--execute-number={number}", "--test=get", "--initial-load=1000"])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return (cpu(SLAP_REQUESTS) - cpu(1)) * 1e6 / (CONNECTIONS * (SLAP_REQUESTS - 1))


def _pinned(command):
    pin = lambda: os.sched_setaffinity(0, LOAD_CPU)
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, preexec_fn=pin
    )

"""Processor time of the server per GET with everything in DRAM, against memcached."""

from measure.figure import alternate, at_most, say
from measure.load import load, load_held
from measure.server import memcached, terrace

SERVER_CPU, LOAD_CPU = {0}, {1}
RECORDS = 1_000_000
DEPTHS = [1, 8, 32]
FLAGS = ["-m", "1024", "-t", "1"]


def cpu(quick):
    rounds, seconds = (5, 0.4) if quick else (7, 0.5)
    with terrace(*FLAGS, cpus=SERVER_CPU) as ours, memcached(*FLAGS, cpus=SERVER_CPU) as theirs:
        for server in (ours, theirs):
            say(server.command)
            stored = load(server, "fill", cpus=LOAD_CPU, records=RECORDS)["stored"]
            assert stored == RECORDS, f"{server.name} stored {stored}"
        figures = []
        for protocol in ("meta", "ascii"):
            for depth in DEPTHS:
                figures.append(_compare(ours, theirs, protocol, depth, rounds, seconds))
    return figures


def _compare(ours, theirs, protocol, depth, rounds, seconds):
    say(f"{protocol}, depth {depth}: us of CPU per GET of terrace and memcached")

    def measure(server):
        report = load_held(
            server, "get", cpus=LOAD_CPU, records=RECORDS, seconds=seconds,
            protocol=protocol, depth=depth, batch=True, connections=8,
        )  # fmt: skip
        return report["server_cpu_us"]

    own, other, ratio = alternate(rounds, lambda: measure(ours), lambda: measure(theirs))
    return at_most(
        f"CPU per GET, {protocol}, depth {depth}, against memcached's", ratio, 1.0, "{:.2f}",
        f"{own:.2f} us and {other:.2f} us",
    )  # fmt: skip

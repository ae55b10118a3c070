"""Everything in DRAM: processor time per operation against memcached and the floor, throughput with as
many workers as cores, and what an idle server takes."""

import contextlib
import socket
import time

from measure import peer
from measure.examples import build_examples
from measure.figure import Figure, at_least, at_most, median, ratio, say, take_turns
from measure.floor import Floor
from measure.load import load, load_held
from measure.server import terrace

SERVER_CPU, LOAD_CPU, BOTH_CPUS = {0}, {1}, {0, 1}
RECORDS, VALUE = 1_000_000, 80
# Times that each record is overwritten: a GiB in all.
TOUCHES = 8
CONNECTIONS = 8
MEMORY = ["-m", "1024"]
DEPTHS = [1, 8, 32]
# Terrace as it comes, and with huge pages; memcached's are in `measure/peer.py`.
SETTINGS = [[], ["-L"]]
# What load is put on, and which of the demands are for it.
MIXES = {
    "GET": ("get", {"protocol": "ascii"}, "read"),
    "GET, meta": ("get", {"protocol": "meta"}, "read"),
    "GET, binary": ("get", {"protocol": "binary"}, "read"),
    "multiget of 24": ("get", {"protocol": "ascii", "multiget": 24}, "read"),
    "80/20": ("mixed", {"protocol": "ascii", "get_percent": 80}, "write"),
    "80/20, meta": ("mixed", {"protocol": "meta", "get_percent": 80}, "write"),
    "SET": ("overwrite", {"protocol": "ascii"}, "write"),
    "SET, meta": ("overwrite", {"protocol": "meta"}, "write"),
}
OF_MEMCACHED = {
    "read": {1: 0.75, 8: 0.68, 32: 0.38},
    "write": {1: 0.75, 8: 0.65, 32: 0.45},
}
# The floor answers these, and at these depths its time does not scatter too much to be compared with.
FLOORS = {"GET": "ascii", "GET, meta": "meta"}
FLOOR_DEPTHS, ABOVE_FLOOR_US = [8, 32], 0.3
THROUGHPUT = {1: 1.0, 8: 1.0, 32: 1.3}
IDLE_SECONDS, IDLE_CONNECTIONS, IDLE_PERCENT = 10, 100, 0.5


def filled(server, records=RECORDS):
    """Stores all records."""
    say(server.command)
    stored = load(server, "fill", cpus=LOAD_CPU, records=records, batch=True)["stored"]
    assert stored == records, f"{server.name} stored {stored}"
    return server


def touched(server):
    """Overwrites records until the server has used most of its memory once: what the system takes for pages
    that were never used is not a server's."""
    load(server, "overwrite", cpus=LOAD_CPU, records=RECORDS, requests=TOUCHES * RECORDS, depth=32, batch=True)


def cpu(quick):
    """Processor time per operation, one worker on a core of its own."""
    rounds, seconds = (3, 0.3) if quick else (5, 0.4)
    build_examples()
    with contextlib.ExitStack() as stack:
        how = {"cpus": SERVER_CPU}
        ours = stack.enter_context(
            peer.candidates(*MEMORY, "-t", "1", settings=SETTINGS, make=terrace, **how)
        )
        theirs = stack.enter_context(peer.candidates(*MEMORY, "-t", "1", **how))
        for server in (*ours, *theirs):
            touched(filled(server))
        floors = {
            protocol: stack.enter_context(Floor(VALUE, protocol, SERVER_CPU))
            for protocol in set(FLOORS.values())
        }
        cells = [(mix, depth) for mix in MIXES for depth in DEPTHS]
        return [
            figure
            for mix, depth in cells
            for figure in _cell(ours, theirs, floors, mix, depth, rounds, seconds)
        ]


def _cell(ours, theirs, floors, mix, depth, rounds, seconds):
    measure = lambda server: _cpu_us(server, mix, depth, seconds)
    own_server, peer_server = (peer.best(servers, measure) for servers in (ours, theirs))
    measures = [lambda: measure(own_server), lambda: measure(peer_server)]
    floor = floors.get(FLOORS.get(mix))
    if floor:
        measures.append(lambda: measure(floor))
    say(f"{mix}, depth {depth}: us of CPU of terrace, memcached" + (" and the floor" * bool(floor)))
    own, other, *least = take_turns(rounds, *measures)
    limit = OF_MEMCACHED[MIXES[mix][2]][depth]
    note = f"{median(own):.2f} us and {median(other):.2f} us"
    what = f"CPU per {mix}, depth {depth}, of memcached's"
    figures = [at_most(what, ratio(own, other), limit, "{:.2f}", note)]
    if floor:
        above = median(a - b for a, b in zip(own, least[0]))
        what = f"us of CPU per {mix}, depth {depth}, above the floor's"
        note = f"{median(own):.2f} and {median(least[0]):.2f}"
        if depth in FLOOR_DEPTHS:
            figures.append(at_most(what, above, ABOVE_FLOOR_US, "{:.2f}", note))
        else:
            figures.append(Figure(what, f"{above:.2f} ({note})"))
    return figures


def _cpu_us(server, mix, depth, seconds):
    return run(server, mix, depth, seconds, LOAD_CPU)["server_cpu_us"]


def run(server, mix, depth, seconds, cpus, **options):
    """One run of a mix; its report. Nothing is missed, and nothing is wrong."""
    workload, of_mix, _ = MIXES[mix]
    floor = server.name == "floor"
    how = {"blind": True, "may_be_wrong": True} if floor else {"any_version": True}
    return (load if floor else load_held)(
        server, workload, cpus=cpus, records=RECORDS, seconds=seconds, depth=depth,
        **{"connections": CONNECTIONS, "batch": True, **of_mix, **how, **options},
    )  # fmt: skip


def cores(quick):
    """Throughput with two workers on the two cores that the generator uses too."""
    rounds, seconds = (3, 0.3) if quick else (5, 0.5)
    settings = [["-t", threads, *more] for threads in ("2", "4") for more in peer.SETTINGS[1:]]
    with (
        terrace(*MEMORY, "-t", "2", cpus=BOTH_CPUS) as ours,
        peer.candidates(*MEMORY, settings=settings, cpus=BOTH_CPUS) as theirs,
    ):
        for server in (ours, *theirs):
            filled(server)
        return [
            _throughput(ours, theirs, mix, depth, rounds, seconds)
            for mix in MIXES
            for depth in DEPTHS
        ]


def _throughput(ours, theirs, mix, depth, rounds, seconds):
    how = {"threads": 2, "connections": 16}
    measure = lambda server: run(server, mix, depth, seconds, BOTH_CPUS, **how)["requests_per_second"]
    best = peer.best(theirs, measure, max)
    say(f"{mix}, depth {depth}: requests per second of terrace and memcached")
    own, other = take_turns(rounds, lambda: measure(ours), lambda: measure(best))
    note = f"{median(own):,.0f}/s and {median(other):,.0f}/s"
    what = f"{mix} with 2 workers beside the generator, depth {depth}, of memcached's rate"
    return at_least(what, ratio(own, other), THROUGHPUT[depth], "{:.2f}", note)


def idle(quick):
    """Processor time of a server that has clients and records and nothing to do."""
    seconds = 3 if quick else IDLE_SECONDS
    figures = []
    for name, flags in {"in DRAM": [], "with a tier": ["--tier", "ssd:DIR/tier:256m"]}.items():
        with terrace("-m", "256", "-t", "2", *flags) as server, contextlib.ExitStack() as clients:
            load(server, "fill", records=100_000)
            for _ in range(IDLE_CONNECTIONS):
                socket_ = socket.create_connection(("127.0.0.1", server.port), 5)
                clients.enter_context(socket_)
            server.settle()
            before, since = server.usage(), time.monotonic()
            time.sleep(seconds)
            used = server.usage().since(before).cpu_ns / 1e9 / (time.monotonic() - since)
        what = f"processor time when idle, {IDLE_CONNECTIONS} connections, {name}, % of a core"
        figures.append(at_most(what, 100 * used, IDLE_PERCENT, "{:.2f}"))
    return figures

"""Which records of a fill are left: those stored last, of the whole cache; and keys in use beside a fill."""

import socket
import threading
import time

from measure.figure import at_least, at_most, say
from measure.load import load
from measure.server import terrace

GIB = 1 << 30
MIB = 1 << 20
HALF, QUARTER = 0.98, 0.995
# Flags, what the cache can hold, and what is stored.
DRAM = (["-m", "64"], 64 * MIB, 2 * GIB)
SMALL = ["-m", "24", "-t", "2", "--tier", "ssd:DIR/tier:144m"]
FILLS = {
    "DRAM only": DRAM,
    "144 MiB, 1 thread": ([*SMALL, "--background-threads", "1"], 144 * MIB, 720 * MIB),
    "144 MiB, 2 threads": ([*SMALL, "--background-threads", "2"], 144 * MIB, 720 * MIB),
    "144 MiB, 4 threads": ([*SMALL, "--background-threads", "4"], 144 * MIB, 720 * MIB),
    "1 GiB, 2 threads": (["-m", "64", "--tier", "ssd:DIR/tier:1g"], GIB, 4 * GIB),
    "two levels": ([*SMALL, "--tier", "ssd:DIR/below:144m,below"], 288 * MIB, 1440 * MIB),
}
# Bytes of values; of the longest all but one of the newest quarter must be there.
SIZES = [1000, 10_000, 100_000, 1_000_000]
PIECE = 32_480 - 100
USED = ["-m 16", "-m 64", "-m 256", "-m 24 --tier ssd:DIR/tier:144m"]
KEYS = 320


def fills(quick):
    figures = []
    for name, (flags, capacity, stored) in FILLS.items():
        for value in SIZES[1:3] if quick else SIZES:
            figures += _filled(f"{name}, values of {value:,}", flags, capacity, stored // (2 if quick else 1), value)
    return figures


def _filled(what, flags, capacity, stored, value):
    records = stored // value
    with terrace(*flags, "-I", "2m") as server:
        say(f"{server.command}: {records:,} values of {value:,}")
        load(server, "fill", records=records, value_bytes=value, connections=1, depth=4)
        server.settle()
        # What there is at rest is what it holds: index, headers and gaps take some of the capacity.
        worth = server.stats()["curr_items"] // _pieces(value)
        newest = lambda part: _there(server, records, worth // part, value)
        half, quarter = newest(2), newest(4)
    note = f"{worth:,} of {capacity // value:,} there"
    least = QUARTER if value < SIZES[-1] else 1 - 1.01 / (worth // 4)
    return [
        at_least(f"{what}: newest half", half, HALF if value < SIZES[-1] else 0, "{:.4f}", note),
        at_least(f"{what}: newest quarter", quarter, least, "{:.4f}", note),
    ]


def _pieces(value):
    """Records of a value: longer ones are stored in pieces, and one that names them."""
    return 1 if value <= PIECE else -(-value // PIECE) + 1


def _there(server, records, count, value):
    read = load(server, "verify", first=records - count, records=count, value_bytes=value, connections=1, depth=1)
    return read["hits"] / count


def used(quick):
    """Keys that are read or rewritten four times and more while the memory is stored once, beside a fill."""
    figures = []
    for flags in USED:
        figures.append(_lost(flags.split(), 10 if quick else 30))
    return figures


def _lost(flags, seconds):
    with terrace(*flags, "-t", "2") as server:
        say(server.command)
        over = threading.Event()
        fill = threading.Thread(target=_fill, args=(server, over))
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            answers = connection.makefile("rb")

            def ask(requests):
                connection.sendall("".join(requests).encode())
                return [answers.readline() for _ in requests]

            ask([_store("set", n) for n in range(KEYS)])
            fill.start()
            lost, rounds, end = 0, 0, time.monotonic() + seconds
            while time.monotonic() < end:
                said = ask([_store("replace", n) if n % 2 else f"touch used{n} 0\r\n" for n in range(KEYS)])
                gone = [n for n, answer in enumerate(said) if answer not in (b"STORED\r\n", b"TOUCHED\r\n")]
                ask([_store("set", n) for n in gone])
                lost, rounds = lost + len(gone), rounds + 1
        stored = server.stats()["bytes_read"]
        over.set()
        fill.join()
    note = f"{rounds:,} rounds of {KEYS} keys, {stored >> 20:,} MiB received"
    return at_most(f"{' '.join(flags)}: used keys lost in {seconds} s", lost, 0, "{:,}", note)


def _store(command, n):
    value = "x" * (50 + n * 37 % 3000)
    return f"{command} used{n} 0 0 {len(value)}\r\n{value}\r\n"


def _fill(server, over):
    first = 10_000_000
    while not over.is_set():
        load(server, "fill", first=first, records=200_000, value_bytes=1000, connections=2, depth=8)
        first += 200_000

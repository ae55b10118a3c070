"""What readers of the live page's stream cost requests."""

import contextlib
import socket
import threading
import time

from measure.figure import Figure, at_most, median, say, take_turns
from measure.server import terrace
from rows import speed_dram
from rows.speed_dram import LOAD_CPU, MEMORY, SERVER_CPU

READERS = 5
# Of the peak of a closed loop of as many connections and requests each.
LOAD = 0.5
CONNECTIONS, DEPTH, MIX = 16, 8, "80/20, meta"
LIMIT = 1.05


def page(quick):
    """Open-loop requests beside readers of the stream and without them, by turns."""
    rounds, seconds = (3, 2) if quick else (5, 4)
    admin = f"127.0.0.1:{_free_port()}"
    with terrace(*MEMORY, "-t", "1", "--admin", admin, cpus=SERVER_CPU) as server:
        speed_dram.filled(server)
        measure = lambda **how: speed_dram.run(
            server, MIX, DEPTH, seconds, LOAD_CPU, connections=CONNECTIONS, batch=None, **how
        )
        rate = round(LOAD * median(measure()["requests_per_second"] for _ in range(3)))
        say(f"{MIX} at {rate:,}/s: p99 in us with {READERS} readers of the stream, and without")
        events = []

        def beside_readers():
            with _reading(admin, READERS, events):
                return measure(rate=rate)["latency"]["p99_us"]

        alone = lambda: measure(rate=rate)["latency"]["p99_us"]
        read, unread = take_turns(rounds, beside_readers, alone)
        processor = _processor_ms(server, admin, seconds)
    due = READERS * rounds * seconds
    assert sum(events) >= 0.8 * due, f"{sum(events)} events were read, of {due}"
    what = f"p99 of {MIX} at half of the peak, with {READERS} readers of the live page's stream, of that without"
    note = f"{median(read):,.0f} us and {median(unread):,.0f} us"
    return [
        at_most(what, median(read) / median(unread), LIMIT, "{:.2f}", note),
        Figure(f"processor time per second of {READERS} readers of the live page's stream", f"{processor:.1f} ms"),
    ]


def _processor_ms(server, admin, seconds):
    """Of a server without requests, less what it takes without readers."""
    used = []
    for readers in (READERS, 0):
        before = server.usage()
        with _reading(admin, readers, []):
            time.sleep(2 * seconds)
            used.append(server.usage().since(before).cpu_ns)
    return (used[0] - used[1]) / (2 * seconds) / 1e6


@contextlib.contextmanager
def _reading(admin, count, events):
    """So many readers, which do nothing with what they read; appends how many events each has read."""
    readers = [socket.create_connection(tuple(admin.split(":"))) for _ in range(count)]
    threads = [threading.Thread(target=_read, args=(reader, events)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for reader in readers:
            reader.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _read(reader, events):
    with reader:
        reader.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        seen = 0
        with contextlib.suppress(OSError):
            while piece := reader.recv(1 << 16):
                seen += piece.count(b"data: ")
        events.append(seen)


def _free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]

"""Instructions that a server executes outside the kernel per operation, counted by callgrind.

They hardly depend on what else the machine does: a count is the same to a per cent on the busiest one.
Counted is the one thread that serves: what the requests add to it, over a run without any.
"""

import collections
import concurrent.futures
import functools
import glob
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

RECORDS, KEY_BYTES, VALUE_BYTES = 1000, 20, 80
MULTIGET = 24
# Requests that are counted, each kind in a run of its own.
REQUESTS = 4800
START_SECONDS = 60
# Records that a server with a tier is asked for, each once, and those stored after them, which are more than
# what stays in DRAM until it is written.
OLD_RECORDS, NEWER_RECORDS = REQUESTS, 60_000
SETTLE_SECONDS = 120


def available():
    """Whether instructions can be counted here."""
    return shutil.which("valgrind") is not None


def key(number):
    return b"key-%0*d" % (KEY_BYTES - 4, number * 7919 % RECORDS)


VALUE = b"v" * VALUE_BYTES


def _get(number):
    value = b"VALUE %s 0 %d\r\n%s\r\n" % (key(number), VALUE_BYTES, VALUE)
    return b"get %s\r\n" % key(number), value + b"END\r\n"


def _meta_get(number):
    return b"mg %s v\r\n" % key(number), b"VA %d\r\n%s\r\n" % (VALUE_BYTES, VALUE)


def _binary(opcode, number, extras=b"", value=b""):
    body = extras + key(number) + value
    lengths = KEY_BYTES.to_bytes(2, "big") + bytes([len(extras), 0, 0, 0])
    return b"\x80" + bytes([opcode]) + lengths + len(body).to_bytes(4, "big") + bytes(12) + body


def _binary_get(number):
    # What matters of the answer is its length: header, client flags, value.
    return _binary(0, number), bytes(24 + 4 + VALUE_BYTES)


def _set(number):
    return b"set %s 0 0 %d\r\n%s\r\n" % (key(number), VALUE_BYTES, VALUE), b"STORED\r\n"


def _meta_set(number):
    return b"ms %s %d\r\n%s\r\n" % (key(number), VALUE_BYTES, VALUE), b"HD\r\n"


def _binary_set(number):
    return _binary(1, number, bytes(8), VALUE), bytes(24)


def _multiget(number):
    numbers = range(number * MULTIGET, (number + 1) * MULTIGET)
    values = [b"VALUE %s 0 %d\r\n%s\r\n" % (key(n), VALUE_BYTES, VALUE) for n in numbers]
    return b"get %s\r\n" % b" ".join(key(n) for n in numbers), b"".join(values) + b"END\r\n"


# How a request of each kind, by its number, looks, and what answers it.
KINDS = {
    "GET": _get,
    "GET, meta": _meta_get,
    "GET, binary": _binary_get,
    "multiget of 24": _multiget,
    "SET": _set,
    "SET, meta": _meta_set,
    "SET, binary": _binary_set,
}


def count(command, cells, fills=True):
    """Instructions per operation, by cell: kind and depth. `command` is that of a server, which chooses
    its port itself and tells it, and in which DIR stands for a folder; without `fills` nothing is
    stored before."""
    asks = {cell: functools.partial(_ask, kind=KINDS[cell[0]], depth=cell[1], requests=_requests(cell))
            for cell in cells}  # fmt: skip
    spent = _count(command, _fill if fills else None, asks)
    return {cell: spent[cell] / _requests(cell) for cell in cells}


def count_from_flash(command, depth):
    """Instructions per GET by meta of a record that is on the server's only tier; `command` as for `count`."""
    asks = {depth: functools.partial(_ask_for_old, depth=depth)}
    return _count(command, _fill_flash, asks)[depth] / OLD_RECORDS


def _count(command, fill, asks):
    """What each of `asks` adds to a run in which nothing is asked, in the thread that serves: the one that
    it adds most to.

    A thread is known again by what it executes. Its number tells nothing: a thread that ended leaves its
    number to the next one, in one run before that begins, in another after it."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        nothing = threads.submit(_run, command, fill, None)
        runs = {name: threads.submit(_run, command, fill, ask) for name, ask in asks.items()}
        nothing = nothing.result()
        spent = {name: run.result() for name, run in runs.items()}
    return {
        name: max(thread.instructions - _counterpart(thread, nothing).instructions for thread in threads)
        for name, threads in spent.items()
    }


def _counterpart(thread, others):
    """The one of `others` that executes most of the same functions."""
    def alike(other):
        return len(thread.functions & other.functions) / max(len(thread.functions | other.functions), 1)
    return max(others, key=alike)


def _requests(cell):
    return REQUESTS // (MULTIGET if cell[0] == "multiget of 24" else 1)


def _run(command, fill, ask):
    """The threads of a server that `fill` and then `ask` talk with, each on a connection of its own, since a
    connection speaks one protocol."""
    with tempfile.TemporaryDirectory() as folder:
        command = [word.replace("DIR", folder) for word in command]
        out, log = os.path.join(folder, "callgrind"), os.path.join(folder, "log")
        ports = os.path.join(folder, "ports")
        words = ["valgrind", "--tool=callgrind", "--separate-threads=yes"]
        words += [f"--callgrind-out-file={out}", *command]
        with open(log, "w") as told:
            child = subprocess.Popen(
                words, stdout=told, stderr=subprocess.STDOUT, preexec_fn=_limit_files,
                env={**os.environ, "MEMCACHED_PORT_FILENAME": ports},
            )  # fmt: skip
        try:
            with _connect(child, ports, log) as filler, _connect(child, ports, log) as asker:
                if fill:
                    fill(filler)
                if ask:
                    ask(asker)
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=START_SECONDS)
        finally:
            child.kill()
            child.wait()
        return [_thread(path) for path in glob.glob(f"{out}*-*")]


def _limit_files():
    """valgrind lets a server set this limit only to what it is: memcached sets it to 1024."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))


Thread = collections.namedtuple("Thread", "functions instructions")


def _thread(path):
    """From what callgrind writes of a thread: there each function's name stands once, behind its number."""
    with open(path) as file:
        told = file.read()
    functions = frozenset(re.findall(r"^c?fn=\(\d+\) (.+)$", told, re.MULTILINE))
    total = re.search(r"^(?:summary|totals): (\d+)", told, re.MULTILINE)
    return Thread(functions, int(total.group(1)) if total else 0)


def _connect(child, ports, log):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and child.poll() is None:
        port = _port(ports, log)
        if port:
            connection = socket.create_connection(("127.0.0.1", port), START_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        time.sleep(0.05)
    with open(log) as told:
        raise RuntimeError(f"{' '.join(child.args)} does not start: {told.read()[-2000:]}")


def _port(ports, log):
    """From the file that servers write, or the line that the floor prints."""
    for path in (ports, log):
        if os.path.exists(path):
            with open(path) as file:
                found = re.search(r"(?:TCP INET: |listening on 127\.0\.0\.1:)(\d+)", file.read())
            if found:
                return int(found.group(1))
    return None


def _fill(connection):
    """Stores all records by way of classic SETs."""
    for number in range(0, RECORDS, 100):
        pairs = [_set(n) for n in range(number, number + 100)]
        connection.sendall(b"".join(request for request, _ in pairs))
        _receive(connection, sum(len(answer) for _, answer in pairs))


def _old_key(number):
    return b"old-%0*d" % (KEY_BYTES - 4, number)


def _fill_flash(connection):
    """Stores more than stays in DRAM, and waits until the first of it is on the tier."""
    line = b"ms %s %d\r\n" + VALUE + b"\r\n"
    for number in range(0, OLD_RECORDS + NEWER_RECORDS, 100):
        stores = [line % (_old_key(n), VALUE_BYTES) for n in range(number, number + 100)]
        connection.sendall(b"".join(stores))
        _receive(connection, len(stores) * len(b"HD\r\n"))
    end = time.monotonic() + SETTLE_SECONDS
    # Segments are written in the order in which their records came, shard by shard.
    while (on_tier := _tier_figure(connection, b"records")) < OLD_RECORDS + NEWER_RECORDS // 2:
        if time.monotonic() > end:
            raise RuntimeError(f"only {on_tier} records were written to the tier")
        time.sleep(0.2)


def _tier_figure(connection, name):
    connection.sendall(b"stats tiers\r\n")
    told = bytearray()
    while not told.endswith(b"END\r\n"):
        told += connection.recv(1 << 16)
    return int(re.search(rb"STAT tier:0:%s (\d+)" % name, told).group(1))


def _ask_for_old(connection, depth):
    before = _tier_figure(connection, b"hits")
    get = lambda number: (b"mg %s v\r\n" % _old_key(number), _meta_get(number)[1])  # noqa: E731
    _ask(connection, get, depth, OLD_RECORDS)
    hits = _tier_figure(connection, b"hits") - before
    if hits < 0.99 * OLD_RECORDS:
        raise RuntimeError(f"the tier answered only {hits} of {OLD_RECORDS} GETs")


def _ask(connection, kind, depth, requests):
    for number in range(0, requests, depth):
        pairs = [kind(n) for n in range(number, min(number + depth, requests))]
        connection.sendall(b"".join(request for request, _ in pairs))
        wanted = b"".join(answer for _, answer in pairs)
        received = _receive(connection, len(wanted))
        if wanted.strip(b"\0") and received != wanted:
            raise RuntimeError(f"{received[:200]!r} in place of {wanted[:200]!r}")


def _receive(connection, length):
    received = bytearray()
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            raise RuntimeError("the server has closed the connection")
        received += part
    return bytes(received)

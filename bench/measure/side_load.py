"""A little load besides that of `terrace-load`, of which each request is looked at: when it was answered, and how."""

import dataclasses
import hashlib
import random
import socket
import threading
import time


@dataclasses.dataclass
class Answer:
    """`kind` is hit, miss, stored, refused, wrong or cut off."""

    at: float
    seconds: float
    kind: str
    what: str = ""


class SideLoad:
    """So many connections, a thread for each, that ask `per_second` times each, in a `with` block."""

    def __init__(self, server, connections, per_second):
        self.server, self.per_second = server, per_second
        self.answers, self._end = [], threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(at,)) for at in range(connections)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        for thread in self._threads:
            thread.join()

    def since(self, at):
        """The answers to what was asked from `at` on, and what was in flight then."""
        return [answer for answer in self.answers if answer.at + answer.seconds >= at]

    def _run(self, at):
        connection, chance = None, random.Random(at)
        while not self._end.wait(chance.random() * 2 / self.per_second):
            begin = time.monotonic()
            try:
                connection = connection or Connection(self.server.port)
                self._ask(connection, chance, at)
            except OSError as error:
                self._note(begin, "cut off", str(error))
                connection = None

    def _note(self, begin, kind, what=""):
        self.answers.append(Answer(begin, time.monotonic() - begin, kind, what))


class Reader(SideLoad):
    """Reads records with these keys, whose values it knows from a first look."""

    def __init__(self, server, keys, connections=4, per_second=50):
        super().__init__(server, connections, per_second)
        self.keys = keys
        look = Connection(server.port)
        self.values = {key: look.get(key) for key in keys}

    def _ask(self, connection, chance, _):
        key = chance.choice(self.keys)
        begin = time.monotonic()
        value = connection.get(key)
        is_right = value == self.values[key]
        kind = "miss" if value is None else "hit" if is_right else "wrong"
        self._note(begin, kind, key if kind == "wrong" else "")


class Writer(SideLoad):
    """Stores records of its own again and again, and reads them: what was overwritten must never come back."""

    KEYS, VALUE_BYTES = 500, 800

    def __init__(self, server, connections=2, per_second=50):
        super().__init__(server, connections, per_second)
        # Which version each key has, by connection; `None` where a store was refused, so that it may be either.
        self._versions = [{} for _ in range(connections)]

    def _ask(self, connection, chance, at):
        versions = self._versions[at]
        key = f"side-{at}-{chance.randrange(self.KEYS)}"
        if key not in versions or chance.random() < 0.5:
            version = chance.getrandbits(64)
            begin = time.monotonic()
            # Until it is acknowledged, either is right.
            versions[key] = None
            reply = connection.set(key, self._value(key, version))
            is_stored = reply == b"STORED"
            versions[key] = version if is_stored else None
            return self._note(begin, "stored" if is_stored else "refused", reply.decode())
        begin = time.monotonic()
        value, version = connection.get(key), versions[key]
        is_wrong = value is not None and version is not None and value != self._value(key, version)
        kind = "wrong" if is_wrong else "miss" if value is None else "hit"
        self._note(begin, kind, key if is_wrong else "")

    def _value(self, key, version):
        return hashlib.shake_128(f"{key} {version}".encode()).digest(self.VALUE_BYTES)


class Filler(SideLoad):
    """Stores new records, `BURST` at a time, and reads some of those before."""

    BURST, READS = 50, 5

    def __init__(self, server, connections=2, per_second=20):
        super().__init__(server, connections, per_second)
        self._stored = [0] * connections

    def _ask(self, connection, chance, at):
        begin, first = time.monotonic(), self._stored[at]
        keys = [f"new-{at}-{first + number}" for number in range(self.BURST)]
        for reply in connection.set_all([(key, self._value(key)) for key in keys]):
            is_stored = reply == b"STORED"
            self._note(begin, "stored" if is_stored else "refused", reply.decode())
        self._stored[at] += self.BURST
        for _ in range(self.READS):
            begin, key = time.monotonic(), f"new-{at}-{chance.randrange(self._stored[at])}"
            value = connection.get(key)
            kind = "miss" if value is None else "hit" if value == self._value(key) else "wrong"
            self._note(begin, kind, key if kind == "wrong" else "")

    def _value(self, key):
        return (key.encode() + b" ") * (800 // (len(key) + 1))


class Connection:
    """To a memcached server; an answer that does not come within a minute is an error."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def get(self, key):
        self.socket.sendall(f"get {key}\r\n".encode())
        line = self._line()
        if line == b"END":
            return None
        value = self.file.read(int(line.split()[3]) + 2)[:-2]
        self._line()
        return value

    def set(self, key, value):
        return self.set_all([(key, value)])[0]

    def set_all(self, records):
        """The replies."""
        line = lambda key, value: f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n"
        self.socket.sendall(b"".join(line(key, value) for key, value in records))
        return [self._line() for _ in records]

    def _line(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        return line.rstrip()

"""A client of the memcached protocol that knows what it stored: a wrong value shows by its content."""

import dataclasses
import socket

BATCH = 64


def value_of(key, version, size):
    """The content of a record, which no other record and no other version has."""
    stamp = f"{key}#{version};".encode()
    return (stamp * (size // len(stamp) + 1))[:size]


class Client:
    """A connection. Requests go in batches; replies are in their order."""

    def __init__(self, port, seconds=60):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.connection.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.connection.close()

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the server closed the connection")
        return line.rstrip(b"\r\n")

    def set_all(self, records):
        """Stores `(key, value)` pairs; yields each key and the reply."""
        for at in range(0, len(records), BATCH):
            batch = records[at : at + BATCH]
            pieces = [b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value) for key, value in batch]
            self.connection.sendall(b"".join(pieces))
            for key, _ in batch:
                yield key, self.line().decode()

    def get_all(self, keys):
        """Yields each key and its value, `None` for a miss."""
        for at in range(0, len(keys), BATCH):
            batch = keys[at : at + BATCH]
            self.connection.sendall(b"".join(b"get %s\r\n" % key.encode() for key in batch))
            for key in batch:
                head = self.line().split()
                if head == [b"END"]:
                    yield key, None
                    continue
                if head[:2] != [b"VALUE", key.encode()]:
                    raise ConnectionError(f"get {key}: {head}")
                value = self.file.read(int(head[3]) + 2)[:-2]
                if self.line() != b"END":
                    raise ConnectionError(f"get {key}: no end")
                yield key, value

    def stats(self, group=""):
        self.connection.sendall(f"stats {group}".strip().encode() + b"\r\n")
        found = {}
        while (line := self.line().decode()) != "END":
            _, name, value = line.split(" ", 2)
            found[name] = value
        return found


@dataclasses.dataclass
class Tally:
    """What became of records that were read."""

    hits: int = 0
    misses: int = 0
    wrong: list = dataclasses.field(default_factory=list)

    def __str__(self):
        return f"{self.hits} hits, {self.misses} misses, {len(self.wrong)} wrong"


class Records:
    """Records that were stored, each with the versions that may be read: more than one where a store failed."""

    def __init__(self, count, prefix="key", sizes=(200, 1000, 3000)):
        self.sizes = sizes
        self.keys = [f"{prefix}{at}" for at in range(count)]
        self.versions = {}
        # What the server last said to a store that it did not take.
        self.refusal = ""
        self.next = 0

    def size(self, key):
        return self.sizes[sum(key.encode()) % len(self.sizes)]

    def store(self, client, keys=None):
        """Stores a new version of each record; returns how many were taken."""
        self.next += 1
        keys, version, stored = keys or self.keys, self.next, 0
        for key in keys:
            # It may be any of them, until there is a reply.
            self.versions[key] = {*self.versions.get(key, ()), version}
        for key, reply in client.set_all([(key, value_of(key, version, self.size(key))) for key in keys]):
            if reply == "STORED":
                self.versions[key] = {version}
                stored += 1
            else:
                self.refusal = reply
        return stored

    def read(self, client, keys=None):
        tally = Tally()
        for key, value in client.get_all(keys or self.keys):
            if value is None:
                tally.misses += 1
            elif any(value == value_of(key, version, self.size(key)) for version in self.versions.get(key, ())):
                tally.hits += 1
            else:
                tally.wrong.append((key, value[:40]))
        return tally

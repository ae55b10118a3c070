"""What an application sees whose fleet loses a node and gets it back."""

import dataclasses
import random
import time

KEYS = 15_000
VALUE_BYTES = 1400
UPDATES = 0.01
WINDOW_SECONDS = 0.25
# Clients that compress gain nothing.
_POOL = random.Random(7).randbytes(VALUE_BYTES + KEYS)


@dataclasses.dataclass
class Counts:
    """Answers to reads, and the writes that were refused."""

    reads: int = 0
    hits: int = 0
    stale: int = 0
    wrong: int = 0
    refused: int = 0

    @property
    def ratio(self):
        return self.hits / self.reads if self.reads else 0.0

    @property
    def misses(self):
        return self.reads - self.hits


class Application:
    """Reads keys, fills what it misses from a back end that knows each key's version, and now and
    then changes one: in the back end first, then in the cache."""

    def __init__(self, ring, seed=1):
        self.ring = ring
        self.keys = [f"key{number:06}" for number in range(KEYS)]
        self.versions = [0] * KEYS
        self.windows = []
        self._random = random.Random(seed)
        self._start = time.monotonic()

    def _value(self, number, version):
        """Bytes that only this version of this key has."""
        stamp = b"%s#%d;" % (self.keys[number].encode(), version)
        return stamp + _POOL[number : number + VALUE_BYTES - len(stamp)]

    def _store(self, number, counts):
        value = self._value(number, self.versions[number])
        if not self.ring.set(self.keys[number], value):
            counts.refused += 1

    def _read(self, number, counts):
        counts.reads += 1
        value = self.ring.get(self.keys[number])
        if value is None:
            self._store(number, counts)
            return
        counts.hits += 1
        version = int(value.partition(b"#")[2].partition(b";")[0] or b"-1")
        if value != self._value(number, version) or version > self.versions[number]:
            counts.wrong += 1
        elif version < self.versions[number]:
            counts.stale += 1

    def fill(self):
        """Stores each key once."""
        counts = Counts()
        for number in range(KEYS):
            self._store(number, counts)
        return counts

    def sweep(self):
        """Reads each key once, and fills what is missing."""
        counts = Counts()
        for number in range(KEYS):
            self._read(number, counts)
        return counts

    def run(self, seconds):
        """Reads and changes keys, all alike, and notes the hit ratio of each window."""
        total, end = Counts(), time.monotonic() + seconds
        while time.monotonic() < end:
            window, window_end = Counts(), time.monotonic() + WINDOW_SECONDS
            while time.monotonic() < window_end:
                self._step(window)
            self.windows.append((window_end - WINDOW_SECONDS / 2, window.ratio))
            for field in dataclasses.fields(total):
                name = field.name
                setattr(total, name, getattr(total, name) + getattr(window, name))
        return total

    def _step(self, counts):
        number = self._random.randrange(KEYS)
        if self._random.random() < UPDATES:
            self.versions[number] += 1
            self._store(number, counts)
        else:
            self._read(number, counts)


@dataclasses.dataclass
class Outcome:
    """What a journey showed. Times are seconds of the monotonic clock."""

    filled: Counts
    before: Counts
    outage: Counts
    after: Counts
    swept: Counts
    remapped: float
    moved_needlessly: float
    errors: int
    answered: float
    killed_at: float
    back_at: float
    windows: list

    @property
    def reloaded(self):
        """Keys that the back end had to give once more because a node came back."""
        return self.after.misses + self.swept.misses


def journey(fleet, ring, lost, steady, outage, after):
    """Kills node `lost` and brings it back while an application reads through `ring`; three lengths
    in seconds."""
    application = Application(ring)
    filled = application.fill()
    homes = [fleet.holders(at, application.keys) for at in range(len(fleet.nodes))]
    before = application.run(steady)
    killed_at = time.monotonic()
    fleet.kill(lost)
    during = application.run(outage)
    # Whatever is missing is filled, so that what is missed later is due to the return.
    application.sweep()
    remapped, needlessly = _moves(fleet, application.keys, homes, lost)
    errors = ring.errors
    back_at = time.monotonic()
    answered = fleet.bring_back(lost)
    returned = application.run(after)
    swept = application.sweep()
    return Outcome(
        filled, before, during, returned, swept, remapped, needlessly, errors, answered,
        killed_at, back_at, application.windows,
    )  # fmt: skip


def _moves(fleet, keys, homes, lost):
    """Shares of all keys: those that another node has now, and those of them whose node lives."""
    moved = needless = 0
    for at in range(len(fleet.nodes)):
        if at == lost:
            continue
        new = fleet.holders(at, keys) - homes[at]
        moved += len(new)
        needless += len(new - homes[lost])
    return moved / len(keys), needless / len(keys)

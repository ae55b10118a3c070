"""What a drive takes for each read of another program, as the kernel's block layer sees it."""

import collections
import contextlib
import re

from measure import tracing

# In order of time: handed over, done. In between lies waiting for a place in the drive's queue, too.
EVENTS = "block:block_bio_queue", "block:block_rq_complete"
LINE = re.compile(rb" (\d+\.\d+): (block_\w+): \d+,\d+ R\w* (?:\(\) )?(\d+) \+")


@contextlib.contextmanager
def reads_of(path):
    """A list that holds, once the block was left, the microseconds of each read of the drive below `path` in it."""
    microseconds = []
    with tracing.watch(
        dict.fromkeys(EVENTS, tracing.drive_of(path)),
        lambda lines: microseconds.extend(_match(lines)),
    ):
        yield microseconds


def _match(lines):
    """Reads are told apart by where they begin; of several at once in one place the first is done first."""
    waiting = collections.defaultdict(collections.deque)
    for line in lines:
        if not (found := LINE.search(line)):
            continue
        at, event, sector = float(found[1]), found[2], found[3]
        if event == b"block_bio_queue":
            waiting[sector].append(at)
        elif waiting[sector]:
            yield (at - waiting[sector].popleft()) * 1e6

"""What a virtual machine's host gives to others of the time that the machine's cores wanted: *stolen* time."""

import contextlib
import os
import time

from measure.figure import median

STAT = "/proc/stat"
# Behind the name of a core: user, nice, system, idle, iowait, irq, softirq, steal.
STEAL_FIELD = 8


def _stolen(cpus):
    """Seconds of all these cores since the machine started; of a machine that is not virtual none."""
    names = {f"cpu{cpu}" for cpu in cpus}
    with open(STAT) as file:
        fields = [line.split() for line in file]
    ticks = sum(int(line[STEAL_FIELD]) for line in fields if line[0] in names)
    return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def watch(cpus, shares):
    """Appends the part of these cores' time to `shares` that is stolen meanwhile."""
    before, start = _stolen(cpus), time.monotonic()
    yield
    wall = time.monotonic() - start
    shares.append((_stolen(cpus) - before) / (wall * len(cpus)))


def told(*shares):
    """The median of each list that was watched."""
    return ", ".join(f"{median(found):.0%}" for found in shares) + " stolen"

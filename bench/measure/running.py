"""Whether a core has anything left while a drive is read: of the time in which the machine runs, how much it is idle.

A virtual machine that used up its host's allowance is stopped as a whole, for tens of milliseconds at a time. Its clocks
go on meanwhile, so that what the system tells of idle and stolen time is of no use.
"""

import contextlib
import re
import threading
import time

from measure import tracing

# When all that is measured is under way, and for how long a trace is short enough to be read.
AFTER_S, SECONDS = 1.0, 0.25
# While a drive has a hundred reads nothing is silent for so long, unless the machine is stopped; or the drive is one
# that brings some more seldom, which this takes for stops, too.
STOPPED_S = 300e-6
LINE = re.compile(rb"\[(\d+)\] \S+ +(\d+\.\d+): (\w+): (.*)")


@contextlib.contextmanager
def watch(path, cpu, shares):
    """Appends two parts to `shares`, of a moment in which the drive below `path` is read: of the time, for how much the
    machine was stopped; and of the rest, for how much this core was idle."""
    events = {"block:block_rq_complete": tracing.drive_of(path), "sched:sched_switch": tracing.ALL}

    def sample():
        time.sleep(AFTER_S)
        with tracing.watch(events, lambda lines: shares.append(_shares(lines, cpu))):
            time.sleep(SECONDS)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        sampler.join()


def _shares(lines, cpu):
    stopped = idle = 0.0
    first = before = None
    is_idle = False
    for line in lines:
        if not (found := LINE.search(line)):
            continue
        now = float(found[2])
        if before is None:
            first = before = now
        passed, before = now - before, now
        if passed > STOPPED_S:
            stopped += passed
        elif is_idle:
            idle += passed
        if found[3] == b"sched_switch" and int(found[1]) == cpu:
            is_idle = b"next_pid=0 " in found[4]
    whole = before - first
    return stopped / whole, idle / (whole - stopped)


def told(shares):
    """What was found, in percent."""
    stopped, idle = shares
    return f"{idle:.0%} idle (stopped for {stopped:.0%})"

"""Only looks at the clock. `stall.py SECONDS` prints for how much of the time it was stopped, in percent."""

import sys
import time

GAP_NS = 500_000


def watch(seconds):
    clock = time.perf_counter_ns
    start = before = clock()
    stopped = 0
    while before - start < seconds * 1e9:
        now = clock()
        if now - before > GAP_NS:
            stopped += now - before
        before = now
    return 100 * stopped / (before - start)


if __name__ == "__main__":
    print(watch(float(sys.argv[1])))

"""Only looks at the clock. `stall.py SECONDS` prints for how much of the time it was stopped, in percent."""

import contextlib
import subprocess
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


def start(cpu, seconds):
    """A program that only looks at the clock, on such a core."""
    command = ["taskset", "-c", str(cpu), sys.executable, __file__, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


@contextlib.contextmanager
def keep_busy(cpus, seconds):
    """Cores that do nothing else meanwhile, for as long at most."""
    running = [start(cpu, seconds) for cpu in sorted(cpus)]
    try:
        yield
    finally:
        for program in running:
            program.kill()
            program.communicate()


if __name__ == "__main__":
    print(watch(float(sys.argv[1])))

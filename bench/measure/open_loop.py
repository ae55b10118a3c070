"""What a drive takes for reads that become due at their times, whatever it does."""

import json
import os
import subprocess

from .examples import example


def p99_us(path, rate, seconds, cpus, span, long_percent):
    """Of so many reads per second of the first `span` bytes of a file, from when each is due; so many percent of
    them are of 8 KiB, the others of 4 KiB. `build_examples` comes first."""
    words = [path, span, round(rate), seconds, long_percent]
    result = subprocess.run(
        [example("open_loop"), *map(str, words)],
        stdout=subprocess.PIPE, check=True, timeout=seconds + 120,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )  # fmt: skip
    return json.loads(result.stdout)["p99_us"]

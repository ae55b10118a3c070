"""Counts instructions per operation and compares them with `counts.json`; see `run`."""

import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))

from measure import instructions  # noqa: E402
from measure.server import terrace_binary  # noqa: E402

COUNTS = os.path.join(HERE, "counts.json")
# Other processors have other ways to copy bytes, and compilers change; runs alike differ by 1 %.
MOST = 1.05
# How many reads a turn of the worker's loop finds done depends on the drive: one that is slow at the moment makes
# for more turns. That only ever adds, so that the least of so many tries counts.
TRIES_FROM_FLASH = 3
FLAGS = ["-m", "64", "-t", "1", "-l", "127.0.0.1", "-p", "-1", "-u", "root", "-c", "512"]
SERVERS = {
    "": ([], [("GET", 1), ("GET", 32), ("GET, meta", 32), ("GET, binary", 32), ("multiget of 24", 1),
              ("SET", 1), ("SET", 32), ("SET, meta", 32)]),
    " with a tier": (["--tier", "ssd:DIR/tier:64m", "--state", "DIR"], [("GET", 32), ("SET", 32)]),
}  # fmt: skip

FLAGS_FLASH = [*FLAGS, "--tier", "ssd:DIR/tier:64m", "--state", "DIR", "-m", "16"]


def count_from_flash(depth, enough):
    """The least of some tries, or the first that is no more than `enough`."""
    least = float("inf")
    for _ in range(TRIES_FROM_FLASH):
        count = instructions.count_from_flash([terrace_binary(), *FLAGS_FLASH], depth)
        least = min(least, count)
        if least <= enough:
            break
    return least


def measure(most):
    counts = {}
    for name, (flags, cells) in SERVERS.items():
        found = instructions.count([terrace_binary(), *FLAGS, *flags], cells)
        counts |= {f"{kind}{name}, depth {depth}": n for (kind, depth), n in found.items()}
    for depth in (4, 32):
        name = f"GET from flash, depth {depth}"
        counts[name] = count_from_flash(depth, most.get(name, 0))
    return {name: round(count) for name, count in counts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the table anew")
    parser.add_argument("--most", type=float, default=MOST, help="share of the table's counts that is accepted")
    arguments = parser.parse_args()
    if arguments.record:
        counts = measure({})
        with open(COUNTS, "w") as file:
            json.dump(counts, file, indent=1)
            file.write("\n")
        return 0
    with open(COUNTS) as file:
        before = json.load(file)
    most = {name: count * arguments.most for name, count in before.items()}
    counts = measure(most)
    failed = 0
    for name, count in counts.items():
        is_good = count <= most[name]
        failed += not is_good
        print(f"{name}: {count} instructions, {before[name]} before" + ("" if is_good else ": TOO MANY"))
    # In the words that the suites add up.
    verdict = "FAILED" if failed else "ok"
    print(f"test result: {verdict}. {len(counts) - failed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

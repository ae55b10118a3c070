"""Three nodes behind a router or a client's own ring, one killed and back, and a ring of four.

Run by `tests/routers/run`, which builds what it needs and finds the Python that has the clients.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))

import journey  # noqa: E402  (of this folder)
import rates  # noqa: E402
import rings  # noqa: E402
from measure import server, table  # noqa: E402
from nodes import Fleet  # noqa: E402

NODES = 3
LOST = 1
RINGS = {"twemproxy": rings.Twemproxy, "hashclient": rings.HashClient, "ketama": rings.Ketama}
HEADING = ["servers", "ring", "remapped", "of living nodes", "hits before", "in the outage",
           "after the return", "to be reloaded", "stale after it", "wrong", "first answer"]  # fmt: skip


def row(kind, name, seen):
    return [
        kind, name, f"{seen.remapped:.1%}", f"{seen.moved_needlessly:.1%}", f"{seen.before.ratio:.2%}",
        f"{seen.outage.ratio:.2%}", f"{seen.after.ratio:.2%}",
        f"{seen.reloaded / journey.KEYS:.2%} of keys", table.percent(seen.after.stale, seen.after.hits),
        seen.before.wrong + seen.outage.wrong + seen.after.wrong + seen.swept.wrong,
        f"{seen.answered:.3f} s",
    ]  # fmt: skip


def failures(seen, flash_reads):
    """What must not be, of a fleet of Terrace."""
    wrong = seen.before.wrong + seen.outage.wrong + seen.after.wrong + seen.swept.wrong
    rules = [
        (seen.filled.refused == 0, f"{seen.filled.refused} stores were refused"),
        (seen.before.misses == 0, f"{seen.before.misses} misses before anything failed"),
        (seen.before.stale == 0, f"{seen.before.stale} old values before anything failed"),
        (wrong == 0, f"{wrong} values were wrong"),
        (seen.moved_needlessly == 0, f"{seen.moved_needlessly:.1%} of keys moved from living nodes"),
        (0.2 < seen.remapped < 0.5, f"{seen.remapped:.1%} of keys were remapped"),
        # A third of all keys was on the node; a cold one would have lost them.
        (seen.reloaded <= journey.KEYS // 300, f"{seen.reloaded} keys were lost by the return"),
        (flash_reads > 0, "nothing was read from flash"),
    ]
    return [text for holds, text in rules if not holds]


def lose_one(kind, name, seconds):
    """One journey; gives back its row, what failed, and the outcome."""
    with Fleet(kind, NODES) as fleet, RINGS[name](fleet.ports) as ring:
        seen = journey.journey(fleet, ring, LOST, *seconds)
        failed = failures(seen, fleet.flash_reads()) if kind == "terrace" else []
        return row(kind, ring.name, seen), failed, seen


def cost():
    """What routers cost, as text, a line each."""
    lines = []
    with Fleet("terrace", NODES) as fleet, rings.Twemproxy(fleet.ports) as router:
        for depth, (routed, direct, ratio) in rates.through(router, fleet).items():
            lines.append(f"twemproxy, 8 connections with {depth} in flight: {routed:,.0f} reads/s, "
                         f"{direct:,.0f} past it: {ratio:.2f}")  # fmt: skip
    with Fleet("terrace", NODES) as fleet:
        for ring in (rings.HashClient, rings.Ketama):
            ways = ring(fleet.ports), ring(fleet.ports[:1])
            routed, direct, ratio = rates.in_process(*ways)
            lines.append(f"{ring.name}, one request in flight: {routed:,.0f} reads/s, "
                         f"{direct:,.0f} with one node: {ratio:.2f}")  # fmt: skip
    return lines


def ring_of_four():
    """The meta protocol over a client's own ring of four nodes; what failed."""
    with Fleet("terrace", 4) as fleet:
        ring = rings.MetaRing(fleet.ports)
        application = journey.Application(ring)
        application.fill()
        held = [len(fleet.holders(at, application.keys)) for at in range(4)]
        run, swept = application.run(2), application.sweep()
        shares = ", ".join(f"{count / journey.KEYS:.1%}" for count in held)
        print(f"meta-memcache, ring of four: shares {shares}; {run.reads + swept.reads:,} reads, "
              f"{run.ratio:.2%} hits, {ring.errors} errors", flush=True)  # fmt: skip
        rules = [
            (sum(held) == journey.KEYS, f"{sum(held)} records on all nodes together"),
            (min(held) > journey.KEYS // 10, f"one node holds {min(held)} records"),
            (run.misses + swept.misses == 0, f"{run.misses + swept.misses} misses"),
            (run.wrong + swept.wrong + run.stale + swept.stale == 0, "wrong or old values"),
            (ring.errors == 0, f"{ring.errors} errors"),
            (fleet.flash_reads() > 0, "nothing was read from flash"),
        ]
        return [text for holds, text in rules if not holds]


class Results:
    """Passed, failed and skipped tests, for the line that scripts/test.sh counts."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, 0, 0

    def of(self, name, test):
        """Runs one test: a function that gives back what failed."""
        start = time.monotonic()
        try:
            failed = test()
        except rings.Unavailable as missing:
            print(f"skipped: {name}: {missing}", flush=True)
            # The line above is counted by itself, as one that the harness took for passed.
            self.passed += 1
            return
        for text in failed:
            print(f"{name}: {text}", flush=True)
        self.failed += bool(failed)
        self.passed += not failed
        print(f"   {name}: {time.monotonic() - start:.0f} s", flush=True)

    def line(self):
        verdict = "FAILED" if self.failed else "ok"
        return f"test result: {verdict}. {self.passed} passed; {self.failed} failed; 0 ignored"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", action="store_true", help="Terrace alone; fails on what is lost")
    parser.add_argument("--figure", metavar="SVG", help="draw hit ratios there (needs matplotlib)")
    parser.add_argument("--only", help="rings, separated by commas: " + ", ".join(RINGS))
    arguments = parser.parse_args()
    server.end_servers_when_terminated()
    results, rows, curves = Results(), [HEADING], {}
    # Before the failure, in the outage, and after the return.
    seconds = (1, 3, 2) if arguments.test else (3, 6, 6)
    kinds = ["terrace"] if arguments.test else ["terrace", "memcached"]
    for name in arguments.only.split(",") if arguments.only else RINGS:
        for kind in kinds:

            def one(kind=kind, name=name):
                cells, failed, seen = lose_one(kind, name, seconds)
                rows.append(cells)
                curves[kind, name] = seen
                return failed

            results.of(f"{name} over three nodes of {kind}", one)
    table.show(rows)
    if not arguments.only:
        results.of("meta-memcache over a ring of four", ring_of_four)

        def routers_cost():
            print("\n".join(cost()), flush=True)
            return []

        results.of("cost of routers", routers_cost)
    if arguments.figure:
        import figure

        figure.draw(curves, arguments.figure)
    print(results.line(), flush=True)
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())

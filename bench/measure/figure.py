"""One figure with what it must be."""

import dataclasses
import statistics
import sys


@dataclasses.dataclass(frozen=True)
class Figure:
    """`holds` is `None` where nothing is demanded."""

    what: str
    figure: str
    must: str = ""
    holds: bool | None = None

    def verdict(self):
        return {None: "", True: "yes", False: "NO"}[self.holds]


def at_most(what, value, limit, text="{:.3f}", note=""):
    """A figure that must not be above `limit`."""
    figure = text.format(value) + (f" ({note})" if note else "")
    return Figure(what, figure, "<= " + text.format(limit), value <= limit)


def at_least(what, value, limit, text="{:.3f}", note=""):
    """A figure that must not be below `limit`."""
    figure = text.format(value) + (f" ({note})" if note else "")
    return Figure(what, figure, ">= " + text.format(limit), value >= limit)


def alternate(rounds, first, second):
    """Calls both in turn, so that what changes on the machine meanwhile falls on both alike.

    Gives back the two medians and the median of the rounds' ratios, first to second.
    """
    pairs = []
    for number in range(rounds):
        pairs.append((first(), second()))
        a, b = pairs[-1]
        say(f"round {number + 1} of {rounds}: {a:,.2f} and {b:,.2f}, ratio {a / b:.3f}")
    median = lambda values: statistics.median(list(values))
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(a / b for a, b in pairs)


def say(text):
    """Progress."""
    print(f"   {text}", file=sys.stderr, flush=True)

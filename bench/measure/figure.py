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
    a, b = take_turns(rounds, first, second)
    return median(a), median(b), ratio(a, b)


def take_turns(rounds, *measures):
    """Calls all in turn; the results of each."""
    results = [[] for _ in measures]
    for number in range(rounds):
        for measure, values in zip(measures, results):
            values.append(measure())
        texts = [f"{values[-1]:,.2f}" for values in results]
        say(f"round {number + 1} of {rounds}: {', '.join(texts)}")
    return results


def median(values):
    return statistics.median(list(values))


def percentile(values, percent):
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def ratio(first, second):
    """The median of the rounds' ratios."""
    return median(a / b for a, b in zip(first, second))


def say(text):
    """Progress."""
    print(f"   {text}", file=sys.stderr, flush=True)

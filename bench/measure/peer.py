"""Servers at their best settings: one for each that may be, and each comparison takes the one that does
best in it."""

import contextlib

from .figure import say, take_turns
from .server import memcached

TRIES = 2
# As it comes; with as many requests of a connection in one turn as there are; and with huge pages too.
SETTINGS = [[], ["-R", "1000"], ["-R", "1000", "-L"]]


@contextlib.contextmanager
def candidates(*flags, settings=SETTINGS, make=memcached, **how):
    """A running server for each of the settings that work here: memcached, or what else `make` makes."""
    with contextlib.ExitStack() as stack:
        servers = []
        for setting in settings:
            try:
                servers.append(stack.enter_context(make(*flags, *setting, **how)))
            except RuntimeError as error:
                say(f"left out: {error}")
        yield servers


def best(servers, measure, choose=min):
    """The one of which `measure` is the least, or the most, in its best try: a machine that is busy for a moment makes
    none better than it is."""
    if len(servers) == 1:
        return servers[0]
    say(f"the best of {len(servers)} settings of {servers[0].name}")
    tried = take_turns(TRIES, *[lambda server=server: measure(server) for server in servers])
    found = choose(range(len(servers)), key=lambda at: choose(tried[at]))
    say(f"taken: {servers[found].command}")
    return servers[found]

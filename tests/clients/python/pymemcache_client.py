"""pymemcache (classic ASCII): usage: pymemcache_client.py HOST:PORT"""

import os
import sys
import time

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

from report import report, tls_context, with_tls

RECORDS = int(os.environ.get("RECORDS", 60_000))


def value(number):
    return (b"%d;" % number) * (1000 // len(b"%d;" % number))


def main():
    cache = Client(sys.argv[1], timeout=20, connect_timeout=5, tls_context=tls_context())

    assert cache.set("greeting", b"hello", noreply=False)
    assert cache.get("greeting") == b"hello"
    assert cache.get("nothing") is None
    assert cache.add("greeting", b"x", noreply=False) is False
    assert cache.replace("greeting", b"hi", noreply=False)
    assert cache.append("greeting", b"!", noreply=False)
    assert cache.prepend("greeting", b">", noreply=False)
    assert cache.get("greeting") == b">hi!"
    assert cache.delete("greeting", noreply=False)
    assert cache.delete("greeting", noreply=False) is False

    cache.set("count", b"10", noreply=False)
    assert cache.incr("count", 5) == 15
    assert cache.decr("count", 20) == 0
    assert cache.incr("nothing", 1) is None

    cache.set("swap", b"one", noreply=False)
    _, unique = cache.gets("swap")
    assert cache.cas("swap", b"two", unique, noreply=False)
    assert cache.cas("swap", b"three", unique, noreply=False) is False
    assert cache.get("swap") == b"two"

    cache.set("brief", b"x", expire=1, noreply=False)
    assert cache.touch("swap", 1000, noreply=False)
    time.sleep(2.2)
    assert cache.get("brief") is None

    for size in (0, 1, 4095, 4096, 100_000, 1_000_000):
        assert cache.set("sized", b"s" * size, noreply=False)
        assert cache.get("sized") == b"s" * size

    for bad in ("", "k" * 251, "with blank", "control\n"):
        try:
            cache.set(bad, b"x", noreply=False)
            raise SystemExit(f"{bad!r} was taken for a key")
        except (MemcacheClientError, MemcacheServerError):
            pass

    for start in range(0, RECORDS, 500):
        batch = {f"r{n}": value(n) for n in range(start, start + 500)}
        assert cache.set_many(batch, noreply=False) == []
    for start in range(0, RECORDS, 500):
        found = cache.get_many([f"r{n}" for n in range(start, start + 500)])
        assert len(found) == 500, f"{500 - len(found)} records are lost"
        assert all(found[f"r{n}"] == value(n) for n in range(start, start + 500))

    assert b"curr_items" in cache.stats()
    assert cache.version()
    cache.quit()
    exercised = "get, gets, set, add, replace, append, prepend, cas, touch, delete, incr, decr, multi forms, stats, version"
    report("pymemcache", with_tls("ASCII"), exercised, RECORDS)


main()

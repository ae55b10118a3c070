"""python-binary-memcached (binary): usage: binary_client.py HOST:PORT [USER PASSWORD]"""

import os
import sys
import time

import bmemcached

from report import report, tls_context, with_tls

RECORDS = int(os.environ.get("RECORDS", 20_000))


def value(number):
    return f"{number};" * 200


def single(cache):
    assert cache.set("greeting", "hello", time=1000)
    assert cache.get("greeting") == "hello"
    assert cache.get("nothing") is None
    assert cache.get("nothing", "default") == "default"
    assert not cache.add("greeting", "x", time=1000)
    assert cache.add("added", "x", time=1000)
    assert cache.replace("greeting", "hi", time=1000)
    assert not cache.replace("nothing", "x")
    found, unique = cache.gets("greeting")
    assert found == "hi" and unique > 0
    assert cache.cas("greeting", "two", unique, time=1000)
    assert not cache.cas("greeting", "three", unique, time=1000)
    assert cache.get("greeting") == "two"
    _, unique = cache.gets("greeting")
    assert not cache.delete("greeting", cas=unique + 1)
    assert cache.delete("greeting", cas=unique)
    assert cache.get("greeting") is None

    assert cache.incr("count", 5, default=10) == 10
    assert cache.incr("count", 5) == 15
    assert cache.decr("count", 20) == 0
    for number in (0, -1, 2**62, True, None, b"\x00\xff\r\n", {"a": [1, 2]}):
        assert cache.set("typed", number)
        assert cache.get("typed") == number

    assert cache.set("brief", "x", time=1)
    time.sleep(2.2)
    assert cache.get("brief") is None
    for size in (0, 1, 4095, 4096, 100_000, 1_000_000):
        assert cache.set("sized", b"s" * size, compress_level=0)
        assert cache.get("sized") == b"s" * size


def many(cache):
    for start in range(0, RECORDS, 500):
        batch = {f"b{n}": value(n) for n in range(start, start + 500)}
        assert cache.set_multi(batch, time=1000, compress_level=0) == []
    for start in range(0, RECORDS, 500):
        found = cache.get_multi([f"b{n}" for n in range(start, start + 500)])
        assert len(found) == 500, f"{500 - len(found)} records are lost"
        assert all(found[f"b{n}"] == value(n) for n in range(start, start + 500))
    assert cache.delete_multi([f"b{n}" for n in range(500)])
    assert cache.get_multi([f"b{n}" for n in range(600)]).keys() == {f"b{n}" for n in range(500, 600)}


def refused(server, user):
    """A wrong password gets nowhere."""
    cache = bmemcached.Client([server], user, "wrong")
    try:
        assert not cache.set("greeting", "x")
        assert cache.get("greeting") is None
    except bmemcached.exceptions.MemcachedException:
        pass


def main():
    server, credentials = sys.argv[1], sys.argv[2:]
    cache = bmemcached.Client([server], *credentials, socket_timeout=20, tls_context=tls_context())
    single(cache)
    many(cache)
    stats = next(iter(cache.stats().values()))
    assert int(stats["curr_items"]) > 0
    if credentials:
        refused(server, credentials[0])
    assert cache.flush_all()
    assert cache.get("b1000") is None
    cache.disconnect_all()
    protocol = "binary, SASL" if credentials else with_tls("binary")
    exercised = "get, gets, set, add, replace, cas, delete, incr, decr, multi forms of them, stats, flush_all"
    report("python-binary-memcached", protocol, exercised, RECORDS)


main()

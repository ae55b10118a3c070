"""pylibmc, which is libmemcached: usage: pylibmc_client.py HOST:PORT ascii|binary [USER PASSWORD]"""

import os
import sys

import pylibmc

from report import report

RECORDS = int(os.environ.get("RECORDS", 20_000))


def value(number):
    return f"{number};" * 200


def single(cache, is_binary):
    assert cache.set("greeting", "hello", time=1000)
    assert cache.get("greeting") == "hello"
    assert cache.get("nothing") is None
    assert not cache.add("greeting", "x")
    assert cache.replace("greeting", "hi")
    assert cache.append("greeting", "!")
    assert cache.prepend("greeting", ">")
    assert cache.get("greeting") == ">hi!"
    found, unique = cache.gets("greeting")
    assert found == ">hi!"
    assert cache.cas("greeting", "two", unique)
    assert not cache.cas("greeting", "three", unique)
    assert cache.touch("greeting", 1000)
    assert cache.delete("greeting")
    assert not cache.delete("greeting")
    assert cache.set("count", 10)
    assert cache.incr("count", 5) == 15
    assert cache.decr("count", 20) == 0
    if is_binary:
        try:
            cache.incr("nothing")
            raise SystemExit("a missing counter was counted")
        except pylibmc.NotFound:
            pass
    assert cache.set("packed", "p" * 100_000, min_compress_len=1)
    assert cache.get("packed") == "p" * 100_000


def many(cache):
    for start in range(0, RECORDS, 500):
        batch = {f"p{n}": value(n) for n in range(start, start + 500)}
        assert cache.set_multi(batch, time=1000) == []
    for start in range(0, RECORDS, 500):
        found = cache.get_multi([f"p{n}" for n in range(start, start + 500)])
        assert len(found) == 500, f"{500 - len(found)} records are lost"
        assert all(found[f"p{n}"] == value(n) for n in range(start, start + 500))
    assert cache.delete_multi([f"p{n}" for n in range(500)])


def main():
    server, protocol, credentials = sys.argv[1], sys.argv[2], sys.argv[3:]
    is_binary = protocol == "binary"
    user, password = credentials or (None, None)
    behaviors = {"cas": True, "tcp_nodelay": True}
    cache = pylibmc.Client([server], binary=is_binary, username=user, password=password, behaviors=behaviors)
    single(cache, is_binary)
    many(cache)
    assert int(cache.get_stats()[0][1]["curr_items"]) > 0
    assert cache.flush_all()
    assert cache.get("p1000") is None
    exercised = "get, gets, set, add, replace, append, prepend, cas, touch, delete, incr, decr, multi forms, stats, flush_all"
    report("pylibmc", f"{protocol}, SASL" if credentials else protocol.replace("ascii", "ASCII"), exercised, RECORDS)


main()

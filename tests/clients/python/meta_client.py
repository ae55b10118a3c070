"""meta-memcache (meta commands): usage: meta_client.py HOST:PORT"""

import sys

from meta_memcache import CacheClient, Key, ServerAddress, connection_pool_factory_builder

from report import report

RECORDS = 20_000


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    cache = CacheClient.cache_client_from_servers(
        servers=[ServerAddress(host, int(port))],
        connection_pool_factory_fn=connection_pool_factory_builder(),
    )
    assert cache.set(Key("greeting"), "hello", ttl=1000)
    assert cache.get(Key("greeting")) == "hello"
    assert cache.get(Key("nothing")) is None
    value, unique = cache.get_cas_typed(Key("greeting"), str)
    assert value == "hello"
    # Its parser can't read numbers of 2**32 and more, so those of a new server must be smaller.
    assert unique is not None
    assert cache.set(Key("greeting"), "two", ttl=1000, cas_token=unique)
    assert not cache.set(Key("greeting"), "three", ttl=1000, cas_token=unique)
    assert cache.get(Key("greeting")) == "two"
    assert cache.touch(Key("greeting"), ttl=500)
    assert cache.refill(Key("greeting"), "late", ttl=500) is False
    assert cache.delete(Key("greeting"))
    assert cache.get(Key("greeting")) is None

    # An item that never was is a counter from its initial value on.
    assert cache.delta_initialize_and_get(
        Key("count"), delta=1, initial_value=10, initial_ttl=1000
    ) == 10
    assert cache.delta_and_get(Key("count"), delta=5) == 15

    # Keys that are no plain text travel in base64.
    assert cache.set(Key("schlüssel mit leerzeichen"), b"\x00\xff", ttl=1000)
    assert cache.get(Key("schlüssel mit leerzeichen")) == b"\x00\xff"

    for number in range(RECORDS):
        assert cache.set(Key(f"m{number}"), f"{number};" * 200, ttl=1000)
    for start in range(0, RECORDS, 200):
        keys = [Key(f"m{number}") for number in range(start, start + 200)]
        found = cache.multi_get(keys)
        assert len(found) == 200
        for key, text in found.items():
            assert text == f"{key.key[1:]};" * 200, key
    exercised = "get, set, cas, touch, refill, delete, delta with and without initialisation, multi_get, base64 keys"
    report("meta-memcache", "meta", exercised, RECORDS)


main()

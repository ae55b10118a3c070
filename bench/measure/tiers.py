"""The counters of a server's drives, whatever server it is."""


def of_terrace(server):
    """`stats tiers`, with the numbers of all tiers added up under `tier:NAME`."""
    sums = {}
    for name, value in server.stats("tiers").items():
        words = name.split(":", 2)
        if words[0] != "tier":
            sums[name] = value
        elif isinstance(value, int):
            sum_name = f"tier:{words[2]}"
            sums[sum_name] = sums.get(sum_name, 0) + value
    return sums


def flash(server):
    """Hits from flash, reads for requests, bytes written; `None` for a server without a tier."""
    if server.name == "terrace":
        stats = of_terrace(server)
        if "tier:reads" not in stats:
            return None
        return {key: stats[name] for key, name in _TERRACE}
    stats = server.stats()
    if "extstore_objects_read" not in stats:
        return None
    return {key: stats[name] for key, name in _EXTSTORE}


def dram_for_data(server):
    """Bytes of DRAM that the server says it has taken for records and indexes."""
    if server.name == "terrace":
        stats = server.stats("tiers")
        return sum(stats[name] for name in MEMORY if name in stats)
    return server.stats("slabs")["total_malloced"] + server.stats()["hash_bytes"]


# Where Terrace's DRAM goes: all that `-m` bounds, the program, and the connections' buffers.
MEMORY = [
    "memory_tier_index",
    "memory_page_tables",
    "memory_segment_table",
    "memory_dram_index",
    "memory_write_buffer",
    "memory_read_cache",
    "memory_free",
    "memory_staging",
    "memory_program",
    "memory_connections",
]

_TERRACE = [("hits", "tier:hits"), ("reads", "tier:reads"), ("written", "tier:written_bytes")]
_EXTSTORE = [
    ("hits", "get_extstore"),
    ("reads", "extstore_objects_read"),
    ("written", "extstore_bytes_written"),
]

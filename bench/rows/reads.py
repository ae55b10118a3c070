"""How often the drive is read per hit from flash and per miss, and how much at once."""

from measure.figure import Figure, at_most, say
from measure.load import load, sized
from measure.server import terrace
from measure.tiers import of_terrace

RECORDS = {100: 4_000_000, 816: 700_000}
GETS = 300_000
# Numbers that are never stored.
ABSENT = 1 << 40


def reads(quick):
    return [figure for record in RECORDS for figure in _of_record(record, quick)]


def _of_record(record, quick):
    records = RECORDS[record] // (4 if quick else 1)
    gets = GETS // (4 if quick else 1)
    with terrace("-m", "64", "-t", "2", "--tier", "ssd:DIR/tier:1g") as server:
        say(server.command)
        load(server, "fill", records=records, **sized(record))
        server.settle()
        say(f"{records:,} records of {record} bytes stored")
        hit = _phase(server, "get", records=records, requests=gets, **sized(record))
        miss = _phase(server, "get", first=ABSENT, records=records, requests=gets, **sized(record))
    what = f"{record}-byte records:"
    bytes_per_read = hit["read_bytes"] / max(hit["reads"], 1)
    by_system = hit["drive_read"] / max(hit["reads"], 1)
    return [
        at_most(f"{what} lost or wrong", hit["report"]["misses"] + hit["report"]["wrong"], 0, "{:,}"),
        at_most(
            f"{what} drive reads per flash hit", hit["reads"] / max(hit["hits"], 1), 1.01, "{:.4f}",
            f"{hit['hits']:,} of {hit['report']['hits']:,} hits came from flash",
        ),
        at_most(f"{what} drive reads per miss", miss["reads"] / gets, 0.002, "{:.5f}"),
        at_most(f"{what} bytes per read", bytes_per_read, 8192, "{:,.0f}"),
        Figure(f"{what} bytes per read, by /proc/PID/io", f"{by_system:,.0f}"),
    ]  # fmt: skip


def _phase(server, workload, **options):
    """Counters of the drive during one run."""
    before, used = of_terrace(server), server.usage()
    report = load(server, workload, **options)
    after = of_terrace(server)
    counts = {name: after[f"tier:{name}"] - before[f"tier:{name}"] for name in ("hits", "reads", "read_bytes")}
    return counts | {"drive_read": server.usage().since(used).drive_read, "report": report}

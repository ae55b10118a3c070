"""Bytes written to the drive per byte that clients stored, while nothing is evicted."""

from measure.figure import Figure, at_most, say
from measure.load import load, sized
from measure.server import terrace
from measure.table import mib, ratio
from measure.tiers import of_terrace

RECORDS = {100: 6_000_000, 816: 1_000_000}
MOST = {100: 1.25, 816: 1.05}
WITH_TTL = {"ttl": 86_400, "flags": 7}


def writes(quick):
    figures = []
    for record in RECORDS:
        figures.append(_amplification(record, quick, {}, MOST[record]))
        figures.append(_amplification(record, quick, WITH_TTL, None))
    return figures


def _amplification(record, quick, options, most):
    records = RECORDS[record] // (4 if quick else 1)
    with terrace("-m", "64", "-t", "2", "--tier", "ssd:DIR/tier:1g") as server:
        say(server.command)
        before = server.usage()
        load(server, "fill", records=records, **sized(record), **options)
        server.settle()
        stats, used = of_terrace(server), server.usage().since(before)
    payload = stats["tier:stored_payload_bytes"]
    own = ratio(stats["tier:written_bytes"], payload)
    by_system = ratio(used.drive_written, payload)
    note = (
        f"{by_system:.3f} by /proc/PID/io; {mib(payload)} of {mib(records * record)} had left DRAM, "
        f"{stats['evictions']} evicted"
    )
    what = f"{record}-byte inserts: bytes written per byte"
    if most is None:
        return Figure(what + ", with TTL and flags", f"{max(own, by_system):.3f} ({note})")
    return at_most(what, max(own, by_system), most, "{:.3f}", note)

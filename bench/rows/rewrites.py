"""What overwriting popular records costs the drive."""

from measure.figure import at_most, say
from measure.load import load, sized
from measure.server import terrace
from measure.table import ratio
from measure.tiers import of_terrace

RECORDS, RECORD = 1_000_000, 100
# Overwrites before each measurement, and in it, as multiples of the records.
WARM_UP, MEASURED = 3, 4
MOST = 0.5
STREAMS = {
    "Zipf 0.99": {"popularity": "zipf", "exponent": 0.99},
    "Zipf-Mandelbrot 2.5": {"popularity": "zipf-mandelbrot"},
}


def rewrites(quick):
    figures = []
    for name, stream in STREAMS.items():
        with terrace("-m", "64", "-t", "2", "--tier", "ssd:DIR/tier:1g") as server:
            say(server.command)
            records = RECORDS // (4 if quick else 1)
            load(server, "fill", records=records, connections=8, **sized(RECORD))
            _overwrite(server, records, WARM_UP, stream)
            before, used = of_terrace(server), server.usage()
            _overwrite(server, records, MEASURED, stream)
            after, used = of_terrace(server), server.usage().since(used)
        stored = MEASURED * records * RECORD
        written = sum(after[row] - before[row] for row in WRITTEN)
        own, by_system = ratio(written, stored), ratio(used.drive_written, stored)
        waiting = after["records_write_buffer"] / records
        note = f"{by_system:.3f} by /proc/PID/io; {waiting:.1%} of {records:,} records waited in DRAM"
        what = f"overwrites by {name}: bytes written per byte"
        figures.append(at_most(what, max(own, by_system), MOST, "{:.3f}", note))
    return figures


WRITTEN = ["tier:written_bytes", "tier:tombstone_log_written_bytes"]


def _overwrite(server, records, times, stream):
    requests = records * times
    load(server, "overwrite", records=records, requests=requests, connections=8, **sized(RECORD), **stream)

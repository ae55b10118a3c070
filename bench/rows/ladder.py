"""Two drives of different speed: one below the other on the ladder, and side by side."""

import os
import tempfile

from measure.figure import Figure, at_least, say
from measure.load import load, load_held, sized
from measure.server import ROOT, terrace
from measure.slow_drive import SlowDrive

RECORDS, FAST_MIB, SLOW_MIB = 200_000, 6, 64
# A tenth or less of what a drive does here.
SLOW_READS = 5000
LOAD = {"popularity": "zipf", "exponent": 0.99, "connections": 16, "depth": 8, **sized(100)}
# Seconds, before and while it is measured.
WARM_UP, MEASURED = 45, 15


def ladder(quick):
    figures, rates = [], {}
    part = f"{FAST_MIB / (FAST_MIB + SLOW_MIB):.0%} of the room"
    for name, option in [("one below the other", ",below"), ("side by side", "")]:
        found = _measure(name, option, WARM_UP // (4 if quick else 1))
        rates[name] = found["rate"]
        note = f"{found['rate']:,.0f} GET/s, {found['dram']:.1%} of all from DRAM, mean {found['mean']:,.0f} us"
        what = f"two drives {name}: share of their hits that the fast one answers, with {part}"
        figures.append(Figure(what, f"{found['fast']:.1%} ({note})"))
        what = f"two drives {name}: bytes written to fast and slow per byte stored"
        figures.append(Figure(what, "{:.2f}, {:.2f}".format(*found["written"])))
    faster = rates["one below the other"] / rates["side by side"]
    return [*figures, at_least("GETs of the ladder, of those side by side", faster, 1.0, "{:.2f}")]


def _measure(name, option, warm_up):
    parent = os.environ.get("TERRACE_BENCH_DIR") or os.path.join(ROOT, "target")
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        with SlowDrive(os.path.join(folder, "slow"), SLOW_MIB << 20, SLOW_READS) as drive:
            tiers = ["--tier", f"ssd:DIR/fast:{FAST_MIB}m", "--tier", f"ssd:{drive.device}{option}"]
            with terrace("-m", "8", "-t", "1", *tiers, group=drive) as server:
                say(server.command)
                load(server, "fill", records=RECORDS, **{**LOAD, "popularity": None, "exponent": None})
                server.settle()
                _get(server, warm_up)
                before = server.stats("tiers")
                report = _get(server, MEASURED)
                after = server.stats("tiers")
    hits = [after[f"tier:{tier}:hits"] - before[f"tier:{tier}:hits"] for tier in (0, 1)]
    say(f"{name}: {report['requests_per_second']:,.0f}/s, hits of the drives {hits}")
    return {
        "rate": report["requests_per_second"],
        "mean": report["latency"]["mean_us"],
        "fast": hits[0] / max(sum(hits), 1),
        "dram": 1 - sum(hits) / report["hits"],
        "written": [after[f"tier:{tier}:written_bytes"] / (RECORDS * 100) for tier in (0, 1)],
    }


def _get(server, seconds):
    return load_held(server, "get", records=RECORDS, seconds=seconds, **LOAD)

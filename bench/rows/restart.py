"""Coming back warm: how long it takes, and what it costs while nothing happens."""

import signal
import time

from measure.figure import Figure, alternate, at_most, say
from measure.load import load, sized
from measure.server import terrace
from measure.tiers import of_terrace

TIER = ["-m", "80", "-t", "1", "--tier", "ssd:DIR/tier:1536m"]
RECORDS = 10_000_000
LOAD = {"batch": True, "connections": 8, "depth": 32}


def restart(quick):
    records = RECORDS // 10 if quick else RECORDS
    figures = []
    with terrace(*TIER) as server:
        say(server.command)
        load(server, "fill", records=records, **LOAD)
        for end, name, limit in ((signal.SIGKILL, "kill -9", 3.0), (signal.SIGTERM, "SIGTERM", 1.0)):
            start = time.monotonic()
            first = server.restart(end)
            stopped = time.monotonic() - start - first
            start = time.monotonic()
            while server.stats("tiers")["recovery"] != "ready":
                time.sleep(0.005)
            ready = first + time.monotonic() - start
            say(f"{name}: stopped in {stopped:.2f} s, first answer {first:.3f} s, ready {ready:.2f} s")
            read = load(server, "verify", may_be_wrong=True, records=records, requests=records, **LOAD)
            what = f"{records:,} records, restart after {name}"
            figures += [
                at_most(f"{what}: first answer, s", first, 0.2),
                at_most(f"{what}: until all are back, s", ready, limit, "{:.2f}"),
                at_most(f"{what}: missed", read["misses"], 0, "{:,}"),
                at_most(f"{what}: wrong", read["wrong"], 0, "{:,}"),
            ]
            tier_bytes = of_terrace(server)["tier:live_bytes"]
            per_tb = ready * 1e12 / tier_bytes / 60
            figures.append(Figure(f"{what}: minutes per TB of records, calculated", f"{per_tb:.0f}"))
    return figures


def kill_log(quick):
    figures = []
    for size, records, limit in ((100, 5_000_000, 0.08), (816, 700_000, 0.01)):
        requests = records // 5 if quick else records
        with terrace("-m", "64", "-t", "1", "--tier", "ssd:DIR/tier:1g") as server:
            say(server.command)
            load(server, "fill", records=records, **sized(size), **LOAD)
            # The second half, when places are reused and the log is cleaned.
            for version in (1, 2):
                before = of_terrace(server)
                load(
                    server,
                    "overwrite",
                    records=records,
                    requests=requests,
                    version_of_values=version,
                    **sized(size),
                    **LOAD,
                )
                after = of_terrace(server)
        change = lambda name: after[f"tier:{name}"] - before[f"tier:{name}"]
        share = change("tombstone_log_written_bytes") / change("written_bytes")
        what = f"kill log, 100 % overwrites of {size}-byte records"
        figures += [
            at_most(f"{what}: bytes written beside segments", share, limit, "{:.4f}"),
            Figure(f"{what}: place it takes, of the tier", f"{after['tier:tombstone_log_bytes'] / 2**30:.3f}"),
        ]
    return figures


def strict(quick):
    rounds, seconds = (2, 2) if quick else (5, 3)
    flags = ["-m", "64", "-t", "1", "--tier", "ssd:DIR/tier:1g"]
    figures = []
    with terrace(*flags, "--durability", "strict") as ours, terrace(*flags) as theirs:
        for server in (ours, theirs):
            load(server, "fill", records=1_000_000, **LOAD)
        for connections, depth in ((8, 1), (8, 32), (64, 8)):
            rate = lambda server: load(
                server,
                "overwrite",
                records=1_000_000,
                seconds=seconds,
                batch=True,
                connections=connections,
                depth=depth,
                version_of_values=1,
            )["requests_per_second"]
            own, other, ratio = alternate(rounds, lambda: rate(ours), lambda: rate(theirs))
            what = f"overwrites in strict mode, {connections} connections, depth {depth}"
            note = f"{ratio:.2f} ({own:,.0f}/s and {other:,.0f}/s)"
            figures.append(Figure(f"{what}, of the default's rate", note))
    return figures

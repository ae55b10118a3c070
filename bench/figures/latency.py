"""Latencies by clients and by what works on the drive: threads of extstore, depth of Terrace."""

from measure import tiers
from measure.figure import say

from . import plot, systems

RECORDS, RECORD = 400_000, {"key_bytes": 16, "value_bytes": 800}
THREADS = [1, 4, 8]
CLIENTS = [8, 32, 128]
MULTIGET = 24
# So little that most of what extstore keeps in it are headers of items, not items.
MEMORY_MIB, LIMIT_MIB = 64, 96
PARTS = ["p50_us", "p90_us", "p99_us", "p999_us"]
NAMES = ["median", "90 %", "99 %", "99.9 %"]
TITLE = "Latency from flash by clients and I/O threads, multiget included"
TEXT = """
As in memcached's post on extstore: clients that each wait for their answer (depth 1), reads of records
that lie on flash, and extstore with 1 to 8 I/O threads. Terrace has no such threads: its one worker
keeps reads of all connections in flight in one io_uring, so that its bars have no number. Both have
`-m {memory}`, within {limit} MiB of memory that count the page cache. Top: one key per GET; bottom: {multiget} keys per `get`, classic
protocol, and a quarter of the clients. Of the hits, flash gave {shares}; DRAM the others. Misses: {misses}.
"""


def measure(quick):
    records = RECORDS
    seconds = 0.6 if quick else 2
    found = {"points": []}
    threads = [1, 8] if quick else THREADS
    within = {"mib": MEMORY_MIB, "limit_mib": LIMIT_MIB}
    starts = {"Terrace": lambda: systems.on_flash(**within)}
    starts |= {f"extstore, {n}": lambda n=n: systems.extstore(threads=n, **within) for n in threads}
    for name, start in starts.items():
        with start() as server:
            say(server.command)
            systems.fill(server, records, slowly=name != "Terrace", **RECORD)
            for clients in CLIENTS:
                for keys in (1, MULTIGET):
                    before = tiers.flash(server)["hits"]
                    report = systems.gets(
                        server, records=records, seconds=seconds,
                        connections=clients if keys == 1 else clients // 4, depth=1,
                        multiget=keys, **RECORD,
                    )  # fmt: skip
                    point = systems.point(report)
                    from_flash = tiers.flash(server)["hits"] - before
                    point["from_flash"] = from_flash / max(report["hits"], 1)
                    point["missed"] = report["misses"] / max(report["hits"] + report["misses"], 1)
                    say(f"{name}, {clients} clients, {keys} keys: {point['rate']:,.0f}/s, 99 % {point['p99_us']:,.0f} us")
                    found["points"].append(point | {"name": name, "clients": clients, "keys": keys})
    return found


def draw(found, path):
    import matplotlib.pyplot as plt

    most = max(p["p999_us"] for p in found["points"])
    figure, axes = plt.subplots(2, len(CLIENTS), figsize=(14, 6.6), squeeze=False)
    for row, keys in zip(axes, (1, MULTIGET)):
        for panel, clients in zip(row, CLIENTS):
            points = [p for p in found["points"] if (p["clients"], p["keys"]) == (clients, keys)]
            names = [p["name"] for p in points]
            for at, (part, label) in reversed(list(enumerate(zip(PARTS, NAMES)))):
                shades = ["#0b3c5d", "#328cc1", "#8fc1e3", "#d9e8f5"]
                panel.bar(names, [p[part] for p in points], color=shades[at], label=label)
            number = clients if keys == 1 else clients // 4
            panel.set_title(f"{number} clients, {keys} key{'s' if keys > 1 else ''} per get")
            panel.set_yscale("log")
            panel.set_ylim(100, most * 1.6)
            panel.set_ylabel("latency, us")
            panel.tick_params(axis="x", labelrotation=25, labelsize=8)
            panel.grid(axis="x", visible=False)
            for place, p in enumerate(points):
                panel.text(place, p["p999_us"], f"{p['rate'] / 1000:.1f}k/s", ha="center", va="bottom", fontsize=7)  # fmt: skip
    names = axes[0][0].get_legend_handles_labels()
    figure.legend(*names, loc="outside upper center", ncols=len(PARTS), fontsize=8)
    plot.save(figure, path)


def text(found):
    shares, misses = _means(found, "from_flash", ".0%"), _means(found, "missed", ".1%")
    rows = [
        "",
        "| system | clients | keys per get | gets/s | " + " | ".join(f"{n}, us" for n in NAMES) + " |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for p in found["points"]:
        clients = p["clients"] if p["keys"] == 1 else p["clients"] // 4
        cells = [p["name"], str(clients), str(p["keys"]), f"{p['rate']:,.0f}"]
        rows.append("| " + " | ".join(cells + [f"{p[part]:,.0f}" for part in PARTS]) + " |")
    text = TEXT.format(
        memory=MEMORY_MIB, limit=LIMIT_MIB, multiget=MULTIGET, shares=shares, misses=misses
    )
    return text + "\n".join(rows) + "\n"


def _means(found, what, form):
    shares = {}
    for point in found["points"]:
        shares.setdefault(point["name"].partition(",")[0], []).append(point[what])
    told = [f"{sum(each) / len(each):{form}} with {name}" for name, each in shares.items()]
    return " and ".join(told)

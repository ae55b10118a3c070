"""What flash answers, beside the drive itself; and popular records, most of them copied into DRAM."""

import contextlib
import os
import time

from measure import blocks, fio, open_loop, peer, running, stall, steal, tracing
from measure.examples import build_examples
from measure.figure import Figure, at_least, at_most, median, percentile, ratio, say, take_turns
from measure.load import load, load_held, sized
from measure.server import terrace
from measure.tiers import flash
from rows import policy, speed_dram
from rows.speed_dram import LOAD_CPU, MEMORY, SERVER_CPU

# The file is written all over before anything is read: reads of places that were never written need
# no drive. What is read was stored first, and so is on flash.
RECORDS = {100: 7_000_000, 816: 1_200_000}
READ_SHARE = 0.8
# How many of Terrace's reads are of 8 KiB and not of 4, in percent: see `bench/run reads`.
LONG_READS = {100: 0, 816: 20}
# Requests at once by pipeline depth: twice what fio has in flight, so that the drive always has as many as it
# has of fio and is the limit; what is on its way to or from a client is not at the drive.
CONNECTIONS = {4: 64, 16: 16}
FIO_DEPTH = 128
# A few clients do not fill a drive: what they get is told, at the depth that they have.
FEW = 8
OF_FIO, CPU_ABOVE_FIO_US, OF_DEVICE_P99 = 0.95, 2.5, 2.0
SERVER = ["-m", "64", "-t", "1", "--tier", "ssd:DIR/tier:1g"]


def reads(quick):
    """Uniform GETs from flash of both sizes, and 80/20."""
    build_examples()
    rounds, seconds = (3, 1) if quick else (5, 2)
    figures = []
    for size, records in RECORDS.items():
        with terrace(*SERVER, cpus=SERVER_CPU) as server:
            say(server.command)
            load(server, "fill", cpus=LOAD_CPU, records=records, **sized(size))
            server.settle()
            for depth, connections in CONNECTIONS.items():
                figures += _against_fio(server, size, records, (connections, depth), rounds, seconds)
            figures += _against_fio(server, size, records, (FEW, 4), rounds, seconds)
            figures += _tail(server, size, records, rounds, seconds)
            figures += _mixed(server, size, records, rounds, seconds)
    return figures


def _gets(server, size, records, seconds, workload="get", **options):
    """A run of uniform requests for records on flash, and how many of its hits flash answered."""
    before = flash(server)
    report = load(
        server, workload, cpus=LOAD_CPU, records=round(records * READ_SHARE), seconds=seconds,
        protocol="meta", any_version=True, **{"connections": CONNECTIONS[16], **sized(size), **options},
    )  # fmt: skip
    after = flash(server)
    used = {name: after[name] - before[name] for name in before}
    return report, used


def _written(server):
    """The tier's file, and how many bytes of it were written for sure."""
    path = os.path.join(server.dir, "tier")
    return path, int(0.9 * min(os.path.getsize(path), flash(server)["written"]))


def _drive(server, seconds, **how):
    """fio's reads of the tier's file."""
    path, span = _written(server)
    return fio.reads(path, seconds, SERVER_CPU, span, **how)


def _alike(size):
    """The sizes of reads like Terrace's of such records, for fio."""
    long = LONG_READS[size]
    return {"size": f"4k/{100 - long}:8k/{long}" if long else "4k"}


def _against_fio(server, size, records, clients, rounds, seconds):
    """Beside fio on the same core, and, told, beside fio with the other core as busy as the generator's is at most: a
    virtual drive has its work done by processors, too, and may take the time from those of the machine. What the
    machine lost of its time is told for the same reason."""
    connections, depth = clients
    at_drive = min(connections * depth, FIO_DEPTH)
    what = f"GETs of {size} bytes from flash, {connections} connections at depth {depth}"
    say(f"{what}: per second, us of CPU, stolen of both cores; of fio, {at_drive} in flight; with the other core busy")

    def gets():
        report, used = _gets(server, size, records, seconds, connections=connections, depth=depth)
        return used["hits"] / report["seconds"], report["server_cpu_us"]

    def reads():
        found = _drive(server, seconds, **_alike(size), depth=at_drive)
        return found.iops, found.cpu_us

    def reads_beside():
        with stall.keep_busy(LOAD_CPU, 60):
            return reads()

    found, stolen = [[], [], []], [[], [], []]
    for _ in range(rounds):
        for measure, results, shares in zip((gets, reads, reads_beside), found, stolen):
            with steal.watch(SERVER_CPU | LOAD_CPU, shares):
                results.append(measure())
        say("; ".join(f"{r[-1][0]:,.0f} {r[-1][1]:.2f} {s[-1]:.0%}" for r, s in zip(found, stolen)))
    own, *others = found
    (alone, above_alone), (beside, above_beside) = [_of(own, other) for other in others]
    names = f"{what}, of fio's reads on the same core", f"{what}: us of CPU above fio's"
    figures = [
        Figure(names[0], f"{alone[0]:.2f} ({alone[1]})"),
        Figure(names[1], f"{above_alone[0]:.2f} ({above_alone[1]})"),
    ]
    if at_drive == FIO_DEPTH:
        figures = [
            at_least(names[0], alone[0], OF_FIO, "{:.2f}", alone[1]),
            at_most(names[1], above_alone[0], CPU_ABOVE_FIO_US, "{:.2f}", above_alone[1]),
        ]
    note = f"{beside[0]:.2f} ({beside[1]}), {above_beside[0]:.2f} us above ({above_beside[1]})"
    return [
        *figures,
        Figure(f"{what}, of fio's with the other core busy", note),
        Figure(f"{what}: of both cores' time, with fio, and with fio beside a busy core", steal.told(*stolen)),
        Figure(f"{what}: the server's core while the machine runs, and with fio", _idle(server, gets, reads)),
    ]


def _idle(server, *measures):
    """Whether the drive is the limit, or the core: what is left of that in a moment of each."""
    if not tracing.is_there():
        return "skipped: needs root and tracefs"
    found = []
    for measure in measures:
        with running.watch(server.dir, *SERVER_CPU, found):
            measure()
    return ", ".join(map(running.told, found))


def _of(own, other):
    """Rate, of the other's, and processor time above it, each with both figures as a note."""
    [rates, times], [other_rates, other_times] = [list(zip(*results)) for results in (own, other)]
    above = median(a - b for a, b in zip(times, other_times))
    return (
        (ratio(rates, other_rates), f"{median(rates):,.0f}/s and {median(other_rates):,.0f}/s"),
        (above, f"{median(times):.2f} and {median(other_times):.2f}"),
    )


def _tail(server, size, records, rounds, seconds):
    """Beside what the device takes for as many reads that become due at their times, as those of Terrace's clients do.
    What it took for Terrace's own reads is told, of which no more than a queue holds meet a pause; and fio's, of
    which as few do, and which begins none in the time in which they would have waited."""
    report, _ = _gets(server, size, records, seconds, depth=16)
    rate = report["requests_per_second"] / 2
    path, span = _written(server)
    say(f"{size} bytes: p99 in us at {rate:,.0f}/s: of terrace; of reads when due; of terrace's at the device; of fio")
    took = []

    def own():
        with blocks.reads_of(server.dir) if tracing.is_there() else contextlib.nullcontext() as reads:
            report, _ = _gets(server, size, records, seconds, depth=16, rate=round(rate))
        took.append(percentile(reads, 99) if reads else None)
        return report["latency"]["p99_us"]

    due = lambda: open_loop.p99_us(path, rate, seconds, SERVER_CPU, span, LONG_READS[size])
    of_fio = lambda: _drive(server, seconds, **_alike(size), rate=rate).p99_us
    own, due, other = take_turns(rounds, own, due, of_fio)
    what = f"p99 of GETs of {size} bytes from flash at half of the peak, of "
    note = lambda theirs: f"{median(own):,.0f} us and {median(theirs):,.0f} us"
    told = lambda theirs: f"{ratio(own, theirs):.2f} ({note(theirs)})"
    at_device = "skipped: needs root and tracefs" if None in took else told(took)
    name = f"{what}the device's own for reads that become due alike"
    return [
        at_most(name, ratio(own, due), OF_DEVICE_P99, "{:.2f}", note(due)),
        Figure(f"{what}the device's for Terrace's own reads", at_device),
        Figure(f"{what}fio's at that rate", told(other)),
    ]


def _mixed(server, size, records, rounds, seconds):
    """80/20, beside reads of a drive that is written to at the same rate; and, told, with the other core busy."""
    say(f"{size} bytes: 80/20 per second; what fio's reads beside such writes would allow; with the other core busy")
    other = os.path.join(server.dir, "written")
    written, stolen = [], []

    def requests():
        how = {"workload": "mixed", "get_percent": 80, "depth": 16}
        with steal.watch(SERVER_CPU | LOAD_CPU, stolen):
            report, used = _gets(server, size, records, seconds, **how)
        written.append(used["written"] / report["seconds"])
        return report["requests_per_second"]

    def allowed():
        beside = _drive(server, seconds, **_alike(size), writes=(other, written[-1]))
        return beside.iops / 0.8

    def allowed_beside():
        with stall.keep_busy(LOAD_CPU, 60):
            return allowed()

    own, alone, beside = take_turns(rounds, requests, allowed, allowed_beside)
    what = f"80/20 of {size} bytes, uniform over flash, of (fio's reads beside the same writes / 0.8)"
    note = f"{median(own):,.0f}/s and {median(alone):,.0f}/s; {steal.told(stolen)}"
    return [
        at_least(what, ratio(own, alone), 1.0, "{:.2f}", note),
        Figure(f"{what}, the other core busy", f"{ratio(own, beside):.2f} ({median(beside):,.0f}/s)"),
    ]


POPULAR_RECORDS, POPULAR_SHARE = 2_000_000, 1 / 8
# About as much of a drive for each record as memcached may take of DRAM.
POPULAR_TIER_BYTES = 256
# The few have too few reads of flash at once to fill a drive: each waits for those of its pipeline.
POPULAR_CONNECTIONS = [24, 64]


def popular(quick):
    """Zipf-Mandelbrot, an eighth of the records in DRAM, beside memcached with all of them there."""
    records = POPULAR_RECORDS // (4 if quick else 1)
    rounds, seconds = (3, 1) if quick else (5, 1.5)
    mib = round(records * (policy.INDEX_BYTES + POPULAR_SHARE * policy.BYTES_PER_COPY) / (1 << 20))
    mib, tier = mib + policy.BESIDES_MIB, records * POPULAR_TIER_BYTES >> 20
    flags = ["-m", str(mib), "-t", "1", "--tier", f"ssd:DIR/tier:{tier}m"]
    with (
        terrace(*flags, cpus=SERVER_CPU) as ours,
        peer.candidates(*MEMORY, "-t", "1", cpus=SERVER_CPU) as theirs,
    ):
        for server in (ours, *theirs):
            speed_dram.filled(server, records)
        ours.settle()
        return [
            _popular(ours, theirs, records, mix, connections, rounds, seconds)
            for mix in policy.MIXES
            for connections in POPULAR_CONNECTIONS
        ]


def _popular(ours, theirs, records, mix, connections, rounds, seconds):
    held = policy.fit_to(ours, records, mix, POPULAR_SHARE, connections=connections)
    workload, options = policy.MIXES[mix]
    how = {
        **policy.LOAD, **policy.RECORD, **options, "connections": connections, "records": records,
        "protocol": "meta",
    }  # fmt: skip

    def run(server):
        return load_held(server, workload, cpus=LOAD_CPU, seconds=seconds, **how)

    measure = lambda server: run(server)["requests_per_second"]
    best = peer.best(theirs, measure, max)
    before = flash(ours)["reads"]
    requests = run(ours)["requests"]
    reads_each = (flash(ours)["reads"] - before) / requests
    # Requests per second of which the drive could answer its part, if nothing else took time.
    enough = lambda: _drive(ours, seconds, size="4k", depth=FIO_DEPTH).iops / reads_each
    stolen = ([], [])

    def watched(server, shares):
        with steal.watch(SERVER_CPU | LOAD_CPU, shares):
            return measure(server)

    mix = f"{mix}, {connections} connections"
    say(f"{mix}, depth 32: requests per second of terrace and memcached, and what fio's reads would be enough for")
    measures = lambda: watched(ours, stolen[0]), lambda: watched(best, stolen[1]), enough
    own, other, drive = take_turns(rounds, *measures)
    what = f"{mix}, Zipf-Mandelbrot, {held:.1%} of records in DRAM, of memcached's rate with all"
    note = (
        f"{median(own):,.0f}/s and {median(other):,.0f}/s; {ratio(own, drive):.2f} of {median(drive):,.0f}/s, "
        f"for which fio's reads would be enough; {steal.told(*stolen)}"
    )
    return at_least(what, ratio(own, other), 1.0, "{:.2f}", note)


# Bytes of all values of a size, and bytes per value.
LARGE_BYTES = 1 << 30
LARGE = {"64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
LARGE_FLAGS = ["-m", "64", "-t", "1", "-I", "128m", "--tier", "ssd:DIR/tier:2g"]
LARGE_IN_FLIGHT = 4 << 20
# What clients ask for at once, of that: a value that is there, or waits for the last of its reads, is not at the
# drive. With half as much the drive has less at once of values of 1 MiB than of fio.
CLIENTS_IN_FLIGHT = 4
# Of `-m`, of the program, and for the buffers of so many transfers.
LARGE_CONNECTIONS, RESIDENT_MIB, TRANSFER_MIB = 8, 64 + 32, 4


def large(quick):
    """Large values from flash, beside sequential reads."""
    rounds, seconds = (3, 1) if quick else (5, 2)
    figures = []
    for name, bytes_ in LARGE.items():
        with terrace(*LARGE_FLAGS, cpus=SERVER_CPU) as server:
            say(server.command)
            records = LARGE_BYTES // bytes_
            how = {"records": records, "value_bytes": bytes_, "cpus": LOAD_CPU}
            load(server, "fill", connections=LARGE_CONNECTIONS, depth=1, **how)
            server.settle()
            figures += _large(server, name, bytes_, how, rounds, seconds)
    return figures


def _large(server, name, bytes_, how, rounds, seconds):
    # Not looked at: checking takes the generator's core longer than sending takes the server's.
    depth = max(1, CLIENTS_IN_FLIGHT * LARGE_IN_FLIGHT // LARGE_CONNECTIONS // bytes_)
    gets = {"connections": LARGE_CONNECTIONS, "depth": depth, **how}

    def rate():
        report = load(server, "get", seconds=seconds, blind=True, protocol="meta", **gets)
        return report["requests_per_second"] * bytes_

    checked = load(server, "get", requests=2 * how["records"], protocol="meta", **gets)
    say(f"{name}: bytes per second of terrace, of fio's sequential reads, and of its random reads of that size")
    how_fio = {"rw": "read", "size": "256k", "depth": LARGE_IN_FLIGHT // (256 << 10)}
    drive = lambda: _drive(server, seconds, **how_fio).bytes_per_second
    # Clients ask for values in any order, which the drive may like less.
    of_size = {"size": str(bytes_), "depth": max(1, LARGE_IN_FLIGHT // bytes_)}
    at_random = lambda: _drive(server, seconds, **of_size).bytes_per_second
    own, other, scattered = take_turns(rounds, rate, drive, at_random)
    note = f"{median(own) / 1e6:,.0f} and {median(other) / 1e6:,.0f} MB/s"
    at_random_text = f"{ratio(own, scattered):.2f} ({median(scattered) / 1e6:,.0f} MB/s)"
    resident = server.usage().resident_max / (1 << 20)
    most = RESIDENT_MIB + LARGE_CONNECTIONS * TRANSFER_MIB
    bad = checked["misses"] + checked["wrong"] + checked["errors"]
    what = f"values of {name} from flash"
    return [
        at_most(f"{what}: missed or wrong of {checked['requests']:,}", bad, 0, "{:.0f}"),
        at_least(f"{what}, of fio's sequential reads", ratio(own, other), OF_FIO, "{:.2f}", note),
        Figure(f"{what}, of fio's random reads of that size", at_random_text),
        at_most(f"{what}: MiB resident, {LARGE_CONNECTIONS} at once", resident, most, "{:.0f}"),
    ]


# Records, and what a figure per record may grow by from the least to the most.
GROWTH, GROWTH_MOST = [1_000_000, 10_000_000], 1.15
# Of `-m` and of the tier for each record.
GROWTH_MEMORY_BYTES, GROWTH_TIER_BYTES = 48, 150
# So short that few of a million records are read twice, and copied into DRAM.
GROWTH_GET_SECONDS, GROWTH_SET_SECONDS = 0.4, 1
# SETs per record before they are measured: reclaim goes on by then.
GROWTH_OVERWRITES = 0.5


def growth(quick):
    """Processor time per operation and DRAM per record, as records become more; 100,000,000 too if
    TERRACE_BENCH_GROWTH=100m, which takes 17 GB of drive and a quarter of an hour."""
    counts = [1_000_000, 4_000_000] if quick else list(GROWTH)
    if os.environ.get("TERRACE_BENCH_GROWTH") == "100m":
        counts.append(100_000_000)
    with contextlib.ExitStack() as stack:
        servers = {count: stack.enter_context(_grown(count)) for count in counts}
        index = ", ".join(f"{_index_bytes(server) / count:.2f}" for count, server in servers.items())
        answered = {count: _answered(server) for count, server in servers.items()}
        rounds = 3 if quick else 5
        figures, of_fio = _growth_of_gets(servers, rounds)
        shares = []
        for count, server in servers.items():
            from_flash, gets = (b - a for a, b in zip(answered[count], _answered(server)))
            shares.append(f"{from_flash / gets:.1%}")
            overwrites = round(GROWTH_OVERWRITES * count)
            _cpu_of_grown(count, server, "overwrite", requests=overwrites, depth=32, batch=True)
        say(f"us of CPU per SET with {_counts(servers)} records")
        how = {"seconds": GROWTH_SET_SECONDS, "depth": 32}
        sets = lambda item: lambda: _cpu_of_grown(*item, "overwrite", **how)
        figures += _growth_of("SET", servers, take_turns(rounds, *map(sets, servers.items())))
    return [
        *figures,
        of_fio,
        Figure("GETs answered from flash, as records become more", ", ".join(shares)),
        Figure("index and page tables, bytes of DRAM per record, as it grows", index),
    ]


@contextlib.contextmanager
def _grown(count):
    """A server with so many records on flash."""
    tier = count * GROWTH_TIER_BYTES >> 20
    flags = ["-m", str(count * GROWTH_MEMORY_BYTES >> 20), "-t", "1", "--tier", f"ssd:DIR/tier:{tier}m"]
    with terrace(*flags, cpus=SERVER_CPU) as server:
        say(server.command)
        start = time.monotonic()
        for first in range(0, count, 1_000_000):
            part = {"first": first, "records": min(1_000_000, count - first)}
            load(server, "fill", cpus=LOAD_CPU, batch=True, **part, **sized(100))
        server.settle()
        say(f"{count:,} records after {time.monotonic() - start:.0f} s")
        yield server


def _index_bytes(server):
    tables = ("memory_tier_index", "memory_page_tables", "memory_segment_table")
    stats = server.stats("tiers")
    return sum(stats[name] for name in tables)


def _answered(server):
    """GETs that flash answered, and all."""
    return flash(server)["hits"], server.stats()["cmd_get"]


def _cpu_of_grown(count, server, workload, **how):
    """Microseconds of processor time per request."""
    held = load_held if workload == "get" else load
    report = held(
        server, workload, records=count, cpus=LOAD_CPU, protocol="meta", any_version=True,
        **sized(100), **how,
    )  # fmt: skip
    return report["server_cpu_us"]


def _growth_of_gets(servers, rounds):
    """GETs, and beside them fio's reads of the same files: a drive that answers some of them sooner, as a virtual
    one does those that its host keeps in memory, brings more at once, and each takes less of the processor."""
    say(f"us of CPU per GET with {_counts(servers)} records, and per read of fio")
    seconds = GROWTH_GET_SECONDS
    measures = []
    for item in servers.items():
        measures.append(lambda item=item: _cpu_of_grown(*item, "get", seconds=seconds, depth=16))
        measures.append(lambda item=item: _drive(item[1], seconds, size="4k", depth=FIO_DEPTH).cpu_us)
    results = take_turns(rounds, *measures)
    own, drive = results[::2], results[1::2]
    of_fio = ", ".join(f"{median(reads):.2f}" for reads in drive)
    above = ", ".join(
        f"{median(a - b for a, b in zip(gets, reads)):.2f}" for gets, reads in zip(own, drive)
    )
    note = Figure("us of CPU per read of fio's of the same files; of GETs above that", f"{of_fio}; {above}")
    return _growth_of("GET", servers, own), note


def _counts(servers):
    return ", ".join(f"{count:,}" for count in servers)


def _growth_of(what, servers, results):
    """Processor time per operation of each but the first server, of that."""
    least, *others = results
    first, *more = servers
    figures = []
    for count, own in zip(more, others):
        name = f"CPU per {what} with {count:,} records on flash, of that with {first:,}"
        note = f"{median(own):.2f} and {median(least):.2f} us"
        figures.append(at_most(name, ratio(own, least), GROWTH_MOST, "{:.2f}", note))
    return figures

"""More workers on more cores: half of the machine's are the server's, the others the generator's, and at last both
share all. What stands in the way of more cores shows as processor time per operation that grows with them."""

import os
import signal
import time

from measure import fio, process
from measure.figure import Figure, median, say, take_turns
from measure.load import load, load_held, sized
from measure.server import memcached, terrace
from measure.tiers import flash

LEAST_CPUS = 4
CONNECTIONS_PER_WORKER = 8
MEMORY = ["-m", "2048"]
RECORDS = 1_000_000
GET, SET = ("get", {}), ("overwrite", {})
MIXED = ("mixed", {"get_percent": 80})
IN_DRAM = {
    "GET, depth 1": (*GET, 1), "GET, depth 8": (*GET, 8), "GET, depth 32": (*GET, 32),
    "80/20, depth 32": (*MIXED, 32), "SET, depth 32": (*SET, 32),
}  # fmt: skip
# Records of 816 bytes, as many as fill four fifths of the tier.
ON_FLASH_BYTES, ON_FLASH = 816, 1_800_000
TIER = ["-m", "256", "--tier", "ssd:DIR/tier:2g"]
FROM_FLASH = (*GET, 16)
# So long a drive that may be held back after some load is left alone before it is measured.
REST_SECONDS = 2
# SETs over records of 100 bytes, of which a GiB holds some more, by so many background threads.
TO_FLASH_BYTES, TO_FLASH = 100, 6_000_000
FULL_TIER = ["-m", "256", "--tier", "ssd:DIR/tier:1g"]
TO_FLASH_SET = (*SET, 32)
BACKGROUND = [1, 2, 4]


def _on_many_cores(row):
    """A row that is skipped where there are too few cores; it gets the server's and the generator's."""

    def measured(quick):
        split = _split()
        if not split:
            return [Figure(f"scaling {row.__name__}", f"skipped: needs {LEAST_CPUS} cores")]
        return row(quick, split)

    return measured


@_on_many_cores
def in_dram(quick, split):
    """Everything in DRAM, beside memcached with as many threads."""
    rounds, seconds = (3, 0.3) if quick else (5, 0.5)
    found = {}
    for workers, cpus in _steps(split):
        threads = ["-t", str(workers)]
        with terrace(*MEMORY, *threads, cpus=cpus[0]) as ours:
            with memcached(*MEMORY, *threads, "-R", "1000", cpus=cpus[0]) as theirs:
                for server in (ours, theirs):
                    say(server.command)
                    load(server, "fill", cpus=cpus[1], records=RECORDS, batch=True)
                for name, mix in IN_DRAM.items():
                    say(f"{name}, {workers} workers: requests per second of terrace and memcached")
                    runs = [lambda s=server: _run(s, mix, workers, cpus, seconds) for server in (ours, theirs)]
                    found[name, workers] = _take_turns(rounds, runs)
    return [_figure(name, workers, found) for name in IN_DRAM for workers, _ in _steps(split)]


@_on_many_cores
def from_flash(quick, split):
    """GETs of records on a tier, beside fio's reads by as many jobs."""
    rounds, seconds = (3, 0.5) if quick else (5, 0.7)
    found, figures = {}, []
    span = int(0.9 * ON_FLASH * ON_FLASH_BYTES)
    how = {**sized(ON_FLASH_BYTES), "records": ON_FLASH}
    with terrace(*TIER, "-t", "1", cpus=split[0]) as server:
        say(server.command)
        load(server, "fill", cpus=split[1], records=ON_FLASH, **sized(ON_FLASH_BYTES))
        for workers, cpus in _steps(split):
            _restart(server, cpus, "-t", workers)
            say(f"{workers} workers: GETs and fio's reads per second")
            before = flash(server)["hits"], server.stats()["cmd_get"]

            def run():
                time.sleep(REST_SECONDS)
                return _run(server, FROM_FLASH, workers, cpus, seconds, **how)

            def reads():
                time.sleep(REST_SECONDS)
                path = os.path.join(server.dir, "tier")
                drive = fio.reads(path, seconds, sorted(cpus[0]), span, jobs=workers)
                return drive.iops, drive.cpu_us

            found["GET", workers] = _take_turns(rounds, [run, reads])
            hits, gets = flash(server)["hits"] - before[0], server.stats()["cmd_get"] - before[1]
            what = f"GET of {ON_FLASH_BYTES} bytes, depth 16, {workers} workers"
            (own, _), (others, cpu) = found["GET", workers]
            note = f"{_of_one(0, 'GET', workers, found)}, {hits / gets:.0%} from flash; "
            note += f"{own / others:.2f} of fio's {others:,.0f}/s, {cpu:.2f} us each"
            figures.append(Figure(f"{what}: of one worker's rate", note))
    return figures


@_on_many_cores
def to_flash(quick, split):
    """SETs over the records of a full tier, by one background thread and by more, beside memcached's in DRAM with as many
    threads as there are workers."""
    rounds, seconds = (3, 1) if quick else (5, 1.5)
    found = {}
    how = {**sized(TO_FLASH_BYTES), "records": TO_FLASH}
    with terrace(*FULL_TIER, "-t", str(len(split[0])), cpus=split[0]) as server:
        say(server.command)
        load(server, "fill", cpus=split[1], threads=len(split[1]), **how)
        # Until reclaim goes on as it does then.
        load(server, "overwrite", cpus=split[1], threads=len(split[1]), requests=2 * TO_FLASH, **how)
        for workers, cpus in _steps(split):
            with memcached(*MEMORY, "-t", str(workers), "-R", "1000", cpus=cpus[0]) as peer:
                say(peer.command)
                load(peer, "fill", cpus=cpus[1], records=RECORDS, batch=True)
                for background in BACKGROUND:
                    _restart(server, cpus, "-t", workers, "--background-threads", background)
                    say(f"{workers} workers, {background} background threads: SETs per second of terrace and memcached")
                    run = lambda: _run(server, TO_FLASH_SET, workers, cpus, seconds, **how)
                    beside = lambda: _run(peer, TO_FLASH_SET, workers, cpus, seconds)
                    found[background, workers] = _take_turns(rounds, [run, beside])
    what = f"SET over records of {TO_FLASH_BYTES} bytes of a full tier"
    figures = []
    for workers, _ in _steps(split):
        for background in BACKGROUND:
            (rate, _), (peer_rate, _) = found[background, workers]
            note = f"{_of_one(0, background, workers, found)}; "
            note += f"{rate / found[BACKGROUND[0], workers][0][0]:.2f} of that with one; "
            note += f"{rate / peer_rate:.2f} of memcached's {peer_rate:,.0f}/s in DRAM"
            name = f"{what}, {workers} workers, {background} background threads: of one worker's rate"
            figures.append(Figure(name, note))
    return figures


def _restart(server, cpus, *flags):
    server.settle()
    server.restart(signal.SIGTERM, *map(str, flags))
    process.pin(server.pid, cpus[0])
    server.settle()


def _split():
    """The server's cores and the generator's; `None` where there are too few."""
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    return (set(cpus[:half]), set(cpus[half:])) if len(cpus) >= LEAST_CPUS else None


def _steps(split):
    """Numbers of workers, each with the server's cores and the generator's."""
    half, workers = len(split[0]), 1
    while workers <= half:
        yield workers, split
        workers *= 2
    everywhere = split[0] | split[1]
    yield len(everywhere), (everywhere, everywhere)


def _run(server, mix, workers, cpus, seconds, **records):
    workload, options, depth = mix
    # What a tier lets go when it is full is missed.
    held = load if records else load_held
    report = held(
        server, workload, cpus=cpus[1], threads=len(cpus[1]), seconds=seconds, depth=depth, batch=True,
        connections=CONNECTIONS_PER_WORKER * workers, any_version=True, protocol="meta",
        **{"records": RECORDS, **options, **records},
    )  # fmt: skip
    return report["requests_per_second"], report["server_cpu_us"]


def _take_turns(rounds, runs):
    """For each, the medians of rates and of processor times."""
    cpu_us = [[] for _ in runs]

    def rate(number):
        rate, cpu = runs[number]()
        cpu_us[number].append(cpu)
        return rate

    rates = take_turns(rounds, *[lambda at=at: rate(at) for at in range(len(runs))])
    return [(median(rate), median(cpu)) for rate, cpu in zip(rates, cpu_us)]


def _figure(name, workers, found):
    own, *others = [_of_one(at, name, workers, found) for at in range(len(found[name, workers]))]
    (rate, _), *peer = found[name, workers]
    beside = f"; memcached {others[0]}; {rate / peer[0][0]:.2f} of its rate" if others else ""
    return Figure(f"{name}, {workers} workers: of one worker's rate", f"{own}{beside}")


def _of_one(at, name, workers, found):
    """Rate and processor time of a server, of those of one worker, and how busy its workers' cores are."""
    (rate, cpu), (rate_of_one, _) = found[name, workers][at], found[name, 1][at]
    busy = rate * cpu / 1e6 / workers
    return f"{rate / rate_of_one:.2f} ({rate:,.0f}/s, {cpu:.2f} us each, {busy:.0%} of {workers} cores)"

"""The rows of the table."""

import collections.abc
import dataclasses

from . import (
    capacity, cpu, drives, eviction, flash_gets, generator, hit_ratio, ladder, page, policy, reads, remote, restart, rewrites, sets, speed_dram, speed_flash,
    speed_instructions, speed_latency, speed_scaling, speed_sets, stalls, trace, traces, write_budget,
    write_budgets, writes,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Row:
    """Figures that are measured together: a function from `quick` to a list of them, and what they say."""

    measure: collections.abc.Callable
    # An estimate for two cores and a drive of 100,000 reads per second.
    minutes: float
    what: str
    # A machine with fewer cores skips the row.
    cores: int = 2


# Measured where no row is named: each takes at most some minutes.
USUAL = {
    "capacity": Row(capacity.two_million, 0.5, "two million records on a tier: none lost, DRAM taken"),
    "full": Row(capacity.full, 1, "a full tier: DRAM per record, share of it that is records"),
    "reads": Row(reads.reads, 1, "reads of the drive per hit and per miss"),
    "writes": Row(writes.writes, 1, "bytes written per byte stored"),
    "rewrites": Row(rewrites.rewrites, 1, "bytes written per byte overwritten, popular records more often"),
    "fio": Row(flash_gets.against_fio, 1, "GETs from flash beside fio's reads"),
    "extstore": Row(flash_gets.against_extstore, 1.5, "GETs from flash beside extstore, as root"),
    "restart": Row(restart.restart, 1, "ten million records back after kill -9 and SIGTERM"),
    "killlog": Row(restart.kill_log, 0.5, "bytes written to the tombstone log"),
    "strict": Row(restart.strict, 1.5, "overwrites with strict durability"),
    "cpu": Row(cpu.cpu, 1, "processor time per GET in DRAM, beside memcached"),
    "sets": Row(sets.new_keys, 1, "SETs of new keys, beside memcached"),
    "overwrites": Row(sets.overwrites, 1, "SETs over records of a full tier, beside memcached"),
    "page": Row(page.page, 1.5, "what readers of the live page cost requests"),
    "stalls": Row(stalls.stalls, 0.5, "how often the machine stops its programs"),
    "generator": Row(generator.generator, 1.5, "what the load generator itself costs"),
}

# How fast it is beside memcached and the drive.
SPEED = {
    "speed-instructions": Row(speed_instructions.per_operation, 2, "instructions per operation, beside memcached"),
    "speed-cpu": Row(speed_dram.cpu, 5, "processor time per operation, beside memcached"),
    "speed-cores": Row(speed_dram.cores, 4.5, "two workers beside the generator, of memcached's rate"),
    "speed-scaling": Row(speed_scaling.in_dram, 3, "1 to 16 workers with all in DRAM", cores=speed_scaling.LEAST_CPUS),
    "speed-scaling-reads": Row(speed_scaling.from_flash, 2, "1 to 16 workers that read flash", cores=speed_scaling.LEAST_CPUS),
    "speed-scaling-sets": Row(speed_scaling.to_flash, 5, "1 to 16 workers that write to flash", cores=speed_scaling.LEAST_CPUS),
    "speed-idle": Row(speed_dram.idle, 1, "processor time of an idle server"),
    "speed-latency": Row(speed_latency.latency, 3, "latency at equal load, beside memcached"),
    "speed-reads": Row(speed_flash.reads, 7.5, "GETs and 80/20 from flash, rate, processor time and p99, beside fio"),
    "speed-popular": Row(speed_flash.popular, 4, "popular records, an eighth in DRAM, beside memcached with all"),
    "speed-etc": Row(speed_latency.etc, 6, "ETC sizes, an eighth in DRAM: mean latency, beside memcached with all"),
    "speed-large": Row(speed_flash.large, 2.5, "values of 64 KiB to 64 MiB from flash, beside fio"),
    "speed-growth": Row(speed_flash.growth, 1.5, "processor time and DRAM per record as records become more"),
    "speed-sets": Row(speed_sets.sustained, 5.5, "SETs for a minute each, beside memcached"),
    "speed-full": Row(speed_sets.fullness, 4, "SETs over tiers that are full at 80 to 50 %"),
}

# What it decides: which records stay in DRAM and on drives, and what that costs them.
DECISIONS = {
    "eviction": Row(eviction.fills, 2.5, "which records of a fill are left"),
    "used": Row(eviction.used, 2, "keys in use beside a fill: none lost"),
    "hit-ratio": Row(hit_ratio.hit_ratio, 3.5, "hit ratios of traces without tiers, beside memcached"),
    "policy": Row(policy.policy, 4, "GETs that DRAM answers, of the ideal"),
    "adaptation": Row(policy.adaptation, 1.5, "how soon DRAM follows another hot set"),
    "trace": Row(trace.trace, 2.5, "misses and flash writes of each write policy, of a trace"),
    "traces": Row(traces.traces, 3, "misses of traces, of an LRU's"),
    "ladder": Row(ladder.ladder, 2.5, "two drives one below the other, and side by side; as root"),
    "budget": Row(write_budget.overload, 3.5, "bytes written while ten times the write budget is asked for"),
    "budgets": Row(write_budgets.falling, 5.5, "hits and latency with ever smaller write budgets"),
}

# Several drives of which one is not as the others.
DRIVES = {
    "drive-fails": Row(drives.fails, 12, "one of four drives fails under load, as root"),
    "drive-drain": Row(drives.drain, 5, "one of three drives is drained under load, as root"),
    "drive-slow": Row(drives.slow, 8, "one of four drives has a tenth of the others' rate, as root"),
}

# Drives behind NVMe/TCP; host and target share the machine.
REMOTE = {
    "remote-reads": Row(remote.of_file, 5, "reads of a remote drive, beside a local one and iSCSI; as root"),
    "remote-memory": Row(remote.of_memory, 1, "reads of a target in memory, and what they cost both sides"),
    "remote-gets": Row(remote.gets, 6, "GETs of records on a remote drive, beside a local one"),
    "remote-beside": Row(remote.beside, 3, "GETs of a local tier, with a remote one below it"),
    "remote-fails": Row(remote.fails, 8, "a target stalls, and is killed and comes back, under load"),
}

# What `bench/run NAME` measures, and names that stand for several.
ROWS = {**USUAL, **SPEED, **DECISIONS, **DRIVES, **REMOTE}
GROUPS = {"usual": list(USUAL), "speed": list(SPEED), "decisions": list(DECISIONS), "drives": list(DRIVES), "remote": list(REMOTE), "all": list(ROWS)}

# The parts of docs/measured.md.
SECTIONS = {
    "Memory and space": ["capacity", "full", "speed-growth"],
    "Reads and writes of the drive": ["reads", "writes", "rewrites", "killlog"],
    "GETs from the drive": ["fio", "extstore", "speed-reads", "speed-large"],
    "What is evicted, and what stays in DRAM": [
        "eviction", "used", "hit-ratio", "policy", "adaptation", "trace", "traces", "ladder", "speed-popular", "speed-etc",
    ],
    "Several drives": ["drive-fails", "drive-drain", "drive-slow"],
    "Remote drives": ["remote-reads", "remote-memory", "remote-gets", "remote-beside", "remote-fails"],
    "Drive life": ["budget", "budgets", "speed-full"],
    "Restarts": ["restart", "strict"],
    "Processor time and rates beside memcached": [
        "cpu", "speed-cpu", "speed-instructions", "speed-cores", "speed-scaling", "speed-scaling-reads", "sets", "overwrites",
        "speed-sets", "speed-scaling-sets",
    ],
    "Latency and idleness": ["speed-latency", "page", "speed-idle"],
    "The machine and the load generator": ["stalls", "generator"],
}  # fmt: skip
assert sorted(row for rows in SECTIONS.values() for row in rows) == sorted(ROWS)

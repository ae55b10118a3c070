"""The rows of the table, each a function from `quick` to a list of figures."""

from . import (
    capacity, cpu, eviction, flash_gets, generator, hit_ratio, ladder, page, policy, reads, restart, rewrites, sets, speed_dram, speed_flash,
    speed_instructions, speed_latency, speed_scaling, speed_sets, stalls, trace, traces, write_budget,
    write_budgets, writes,
)  # fmt: skip

# Faster than memcached, as fast as the drive: see docs/speed.md. `bench/run speed` measures all of them.
SPEED = {
    "speed-instructions": speed_instructions.per_operation,
    "speed-cpu": speed_dram.cpu,
    "speed-cores": speed_dram.cores,
    "speed-scaling": speed_scaling.in_dram,
    "speed-scaling-reads": speed_scaling.from_flash,
    "speed-scaling-sets": speed_scaling.to_flash,
    "speed-idle": speed_dram.idle,
    "speed-latency": speed_latency.latency,
    "speed-reads": speed_flash.reads,
    "speed-popular": speed_flash.popular,
    "speed-etc": speed_latency.etc,
    "speed-large": speed_flash.large,
    "speed-growth": speed_flash.growth,
    "speed-sets": speed_sets.sustained,
    "speed-full": speed_sets.fullness,
}

# Measured only if named: a minute, two, an hour, twenty minutes, six, seven, ten or more twice, four (as root), and more
# than two hours.
LONG = {"stalls", "page", "policy", "adaptation", "budget", "budgets", "trace", "traces", "ladder", "hit-ratio", "eviction", "used", *SPEED}

# What `bench/run NAME` measures, in the order of the table.
ROWS = {
    "capacity": capacity.two_million,
    "full": capacity.full,
    "reads": reads.reads,
    "writes": writes.writes,
    "cpu": cpu.cpu,
    "fio": flash_gets.against_fio,
    "extstore": flash_gets.against_extstore,
    "sets": sets.new_keys,
    "overwrites": sets.overwrites,
    "policy": policy.policy,
    "adaptation": policy.adaptation,
    "budget": write_budget.overload,
    "budgets": write_budgets.falling,
    "rewrites": rewrites.rewrites,
    "trace": trace.trace,
    "traces": traces.traces,
    "ladder": ladder.ladder,
    "hit-ratio": hit_ratio.hit_ratio,
    "eviction": eviction.fills,
    "used": eviction.used,
    "restart": restart.restart,
    "killlog": restart.kill_log,
    "strict": restart.strict,
    "generator": generator.generator,
    "stalls": stalls.stalls,
    "page": page.page,
    **SPEED,
}

# Names that stand for several rows.
GROUPS = {"usual": [name for name in ROWS if name not in LONG], "speed": list(SPEED)}

# The parts of docs/measured.md.
SECTIONS = {
    "Memory and space": ["capacity", "full", "speed-growth"],
    "Reads and writes of the drive": ["reads", "writes", "fio", "extstore", "speed-reads", "speed-large"],
    "What is evicted, and what stays in DRAM": [
        "eviction", "used", "hit-ratio", "policy", "adaptation", "trace", "traces", "ladder", "speed-popular", "speed-etc",
    ],
    "Drive life": ["budget", "budgets", "rewrites", "speed-full"],
    "Restarts": ["restart", "killlog", "strict"],
    "Processor time and rates": [
        "cpu", "speed-instructions", "speed-cpu", "speed-cores", "speed-scaling", "speed-scaling-reads", "sets", "overwrites",
        "speed-sets", "speed-scaling-sets",
    ],
    "Latency": ["speed-latency", "stalls", "page", "speed-idle"],
    "The load generator": ["generator"],
}  # fmt: skip
assert sorted(row for rows in SECTIONS.values() for row in rows) == sorted(ROWS)

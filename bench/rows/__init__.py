"""The rows of the table, each a function from `quick` to a list of figures."""

from . import capacity, cpu, flash_gets, generator, policy, reads, restart, sets, write_budget, writes

# Measured only if named: an hour, and six minutes.
LONG = {"policy", "budget"}

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
    "budget": write_budget.overload,
    "restart": restart.restart,
    "killlog": restart.kill_log,
    "strict": restart.strict,
    "generator": generator.generator,
}

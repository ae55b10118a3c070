"""The page that explains the figures, written from what was measured."""

import datetime
import os
import platform
import time

from measure import record

HEAD = """# Figures

What `make figures` measured and drew, as the papers and posts that made the questions known drew it:
the shape is to be compared, not the machines. Every value that was read was checked.

{conditions}

`make figures` takes about {minutes} minutes, `make figures QUICK=1` a few; `bench/figures/run NAME...` does some
of them, `--resume` what is missing, and `--draw` draws again what was measured last, from
`docs/figures/data.json`. It needs root (control groups), Debian's `memcached`, `rocksdb-tools`, `libleveldb-dev` and `g++`; what it has
not is left out and told.
"""


def conditions(quick):
    """What there is to know of the machine, in words that fit any."""
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    with open("/proc/loadavg") as file:
        load = file.read().split()[0]
    return {
        "day": datetime.date.today().isoformat(),
        "at": round(time.time()),
        "cores": os.cpu_count(),
        "model": models[0] if models else platform.machine(),
        "kernel": platform.release().partition("-")[0],
        "load": float(load),
        "quick": quick,
        "version": record.version(),
        "sources": record.sources(),
    }


def is_fresh(entry):
    """Whether a figure was measured in full within a day."""
    if not entry or entry["conditions"]["quick"]:
        return False
    return time.time() - entry["conditions"].get("at", 0) < 86_400


def write(path, scenarios, data):
    """`scenarios` are names and modules; those that were never measured are left out."""
    first = next(iter(data.values()))["conditions"]
    # Those that are not measured yet take their time, too.
    minutes = sum(entry["seconds"] for entry in data.values()) / 60
    minutes = round(minutes) if set(data) >= set(scenarios) else 25
    missing = [module.TITLE for name, module in scenarios.items() if name not in data]
    parts = [HEAD.format(conditions=_told(first), minutes=max(minutes, 1))]
    if missing:
        parts.append("Not measured yet: " + "; ".join(missing) + ".\n")
    for name, module in scenarios.items():
        if name not in data:
            continue
        entry = data[name]
        note = ""
        if entry["conditions"]["quick"]:
            note = "\n*A quick run: less of everything, and not for quoting.*\n"
        parts.append(
            f"## {module.TITLE}\n\n![{module.TITLE}](figures/{name}.svg)\n"
            f"{module.text(entry['found'])}{note}\n"
            f"`bench/figures/run {name}` ({entry['seconds']:.0f} s, load {entry['conditions']['load']:.1f} "
            f"before it, {entry['conditions']['day']})\n"
        )
    with open(path, "w") as file:
        file.write("\n".join(part.strip() + "\n" for part in parts))


def _told(conditions):
    return (
        f"Measured on {conditions['cores']} cores of {conditions['model']}, Linux {conditions['kernel']}, a virtual "
        "machine\nwith a virtual drive: one core for the server, one for the generator. Where the load before a\n"
        "figure is much above 0, something else ran beside it: counts are as good then, rates and times not."
    )

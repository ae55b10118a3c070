"""Keeps what was measured, and tells what is stale: one file for each row in bench/results."""

import dataclasses
import datetime
import glob
import hashlib
import json
import os
import re
import subprocess

from measure.figure import Figure

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
RESULTS = os.path.join(ROOT, "bench", "results")
# What a server's figures depend on.
SERVER = ["crates/server/src", "crates/protocol/src", "crates/cache/src", "crates/policy/src", "crates/device/src", "crates/nvme/src",
          "crates/remote/src", "crates/export/src"]
# What no build to install has: tests, which end a file here, comments, and empty lines.
TESTS = re.compile(rb"^#\[cfg\([^\n]*\btest\b[^\n]*\)\]\nmod .*", re.MULTILINE | re.DOTALL)
COMMENTS = re.compile(rb"^[ \t]*(//.*)?\n", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Result:
    """A row as it was measured."""

    row: str
    command: str
    date: str
    version: str
    machine: str
    sources: str
    figures: list[Figure]
    # The first files did not say it; the commit that brought them did.
    build: str = "guided"


def sources(folders=SERVER):
    """A hash of the code in `folders` without tests and comments, of the tracked files as the working tree has them."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, check=True)
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
        path = os.path.join(ROOT, name)
        if os.path.exists(path):
            digest.update(name.encode() + b"\0")
            with open(path, "rb") as file:
                digest.update(hashlib.sha256(_code(name, file.read())).digest())
    return digest.hexdigest()[:16]


def _code(name, content):
    return COMMENTS.sub(b"", TESTS.sub(b"", content)) if name.endswith(".rs") else content


def version():
    """The version of the tree, and the commit."""
    with open(os.path.join(ROOT, "Cargo.toml")) as file:
        number = next(line.split('"')[1] for line in file if line.startswith("version = "))
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"], cwd=ROOT, capture_output=True, text=True
    )
    return f"{number} ({commit.stdout.strip()})" if commit.returncode == 0 else number


def machine():
    """The class of this machine: cores, processor, memory, kernel."""
    with open("/proc/cpuinfo") as file:
        models = {line.partition(":")[2].strip() for line in file if line.startswith("model name")}
    gibibytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    kernel = ".".join(os.uname().release.split("-")[0].split(".")[:2])
    model = " and ".join(sorted(models)) or os.uname().machine
    return f"{os.cpu_count()} cores, {model}, {gibibytes:.0f} GiB, Linux {kernel}"


def build():
    """Which build is measured: `guided` (`make release`), `release`, or the name of another binary."""
    binary = os.environ.get("TERRACE_BENCH_SERVER")
    if not binary:
        return "release"
    folder, name = os.path.split(os.path.abspath(binary))
    return "guided" if (os.path.basename(folder), name) == ("guided", "terrace") else name


def write(row, figures):
    """Keeps the figures of a row, measured in full just now."""
    os.makedirs(RESULTS, exist_ok=True)
    result = Result(
        row, f"bench/run {row}", datetime.date.today().isoformat(), version(), machine(), sources(), figures, build()
    )
    with open(os.path.join(RESULTS, f"{row}.json"), "w") as file:
        json.dump(dataclasses.asdict(result), file, indent=1)
        file.write("\n")


def read():
    """All results, by row."""
    found = {}
    for path in glob.glob(os.path.join(RESULTS, "*.json")):
        with open(path) as file:
            kept = json.load(file)
        kept["figures"] = [Figure(**figure) for figure in kept["figures"]]
        found[kept["row"]] = Result(**kept)
    return found


def stale(results):
    """The rows and figures whose sources have changed since they were measured, each with date and version."""
    now = sources()
    found = {row: (r.date, r.version) for row, r in results.items() if r.sources != now}
    for name, conditions in figures().items():
        if conditions.get("sources") != now:
            found[f"figure {name}"] = conditions["day"], conditions.get("version", "unknown version")
    return found


def figures():
    """The conditions of each figure in docs/figures."""
    path = os.path.join(ROOT, "docs", "figures", "data.json")
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return {name: entry["conditions"] for name, entry in json.load(file).items()}

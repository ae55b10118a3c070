"""The trace of Twitter's cluster52, from the source distribution of PyPI's libcachesim.

It is fetched once into `.cache`, which git ignores, and kept there as two arrays: object numbers
(8 bytes each) and sizes (4 bytes each), in the order of the requests. Run as a program, this fetches all
traces of the package that the laboratory is tried on (docs/policy.md), a block trace too.
"""

import array
import os
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(ROOT, ".cache", "cluster52")
PACKAGE = "libcachesim==0.3.5"
FILES = {"1m": "twitter_cluster52.csv", "10m": "twitter_cluster52_10m.csv.zst"}
BLOCKS = "cloudPhysicsIO.oracleGeneral.bin"
FETCH_SECONDS = 120


class Unavailable(Exception):
    """The trace can't be had here."""


def load(length):
    """Objects and sizes of the trace of `1m` or `10m` requests; fetches it if need be."""
    path = os.path.join(CACHE, f"{length}.bin")
    if not os.path.exists(path):
        _convert(fetch(FILES[length]), path)
    count = os.path.getsize(path) // 12
    objects, sizes = array.array("Q"), array.array("I")
    with open(path, "rb") as file:
        objects.fromfile(file, count)
        sizes.fromfile(file, count)
    return objects, sizes


def fetch(name):
    """The path of a file of the package."""
    path = os.path.join(CACHE, name)
    if os.path.exists(path):
        return path
    os.makedirs(CACHE, exist_ok=True)
    print(f"fetching {PACKAGE} for {name}", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--no-binary", "libcachesim", "--dest", folder, PACKAGE]
        _persist(pip)
        (archive,) = [file for file in os.listdir(folder) if file.endswith(".tar.gz")]
        with tarfile.open(os.path.join(folder, archive)) as tar:
            for member in tar:
                if os.path.basename(member.name) in [*FILES.values(), BLOCKS]:
                    target = os.path.join(CACHE, os.path.basename(member.name))
                    with open(target + ".part", "wb") as file:
                        file.write(tar.extractfile(member).read())
                    os.rename(target + ".part", target)
    if not os.path.exists(path):
        raise Unavailable(f"{PACKAGE} has no {name}")
    return path


def _persist(command):
    """Runs a command that needs the network, again if it fails."""
    for nap in (10, None):
        try:
            return subprocess.run(command, check=True, timeout=FETCH_SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            if nap is None:
                raise Unavailable(f"{PACKAGE}: {error}") from error
            time.sleep(nap)


def _convert(source, path):
    """Lines are `time, object, size, next access`."""
    objects, sizes = array.array("Q"), array.array("I")
    with lines(source) as all_lines:
        for line in all_lines:
            if line[:1].isdigit():
                fields = line.split(",")
                objects.append(int(fields[1]))
                sizes.append(int(fields[2]))
    with open(path + ".part", "wb") as file:
        objects.tofile(file)
        sizes.tofile(file)
    os.rename(path + ".part", path)


def lines(source):
    """The lines of a CSV trace, packed or not; to be closed."""
    if not source.endswith(".zst"):
        return open(source)
    try:
        return subprocess.Popen(["zstd", "-dc", source], stdout=subprocess.PIPE, text=True).stdout
    except FileNotFoundError as error:
        raise Unavailable("zstd is not installed") from error


if __name__ == "__main__":
    for name in [*FILES.values(), BLOCKS]:
        print(fetch(name))

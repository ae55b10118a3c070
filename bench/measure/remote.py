"""A target in a process of its own, and reads from it or from a file."""

import json
import os
import signal
import subprocess
import tempfile
import time

from . import process
from .examples import example
from .server import ROOT, terrace_binary

NQN = "nqn.2014-08.org.nvmexpress:terrace:bench"


class Export:
    """`terrace export` of a file on loopback; gone at the end of a `with` block."""

    def __init__(self, path, size=None, cpus=None):
        self.path, self.cpus = path, cpus
        self._named = f"{path}:{size}" if size else path
        self.log = tempfile.TemporaryFile("w+")
        self.port = 0
        self.start()

    def start(self):
        prepare = (lambda: os.sched_setaffinity(0, self.cpus)) if self.cpus else None
        command = [terrace_binary(), "export", self._named, "--nqn", NQN, "--listen", f"127.0.0.1:{self.port}"]
        self._begin = self.log.seek(0, os.SEEK_END)
        self.child = subprocess.Popen(command, stdout=self.log, stderr=self.log, preexec_fn=prepare)
        end = time.monotonic() + 60
        while not (place := self._place()):
            if self.child.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"terrace export: {self.output()}")
            time.sleep(0.02)
        self.port = int(place.split("/")[0].rsplit(":", 1)[1])
        self.place = place

    def _place(self):
        """What it says that a client would write."""
        for word in self.output().split():
            if word.startswith("nvme-tcp:"):
                return word
        return None

    def output(self):
        self.log.seek(self._begin)
        return self.log.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGKILL)
        self.log.close()

    def end(self, how):
        self.child.send_signal(signal.SIGCONT)
        self.child.send_signal(how)
        self.child.wait()

    def signal(self, which):
        self.child.send_signal(which)

    @property
    def tier(self):
        return self.place

    def cpu_ns(self):
        return process.usage(self.child.pid).cpu_ns


def reads(place, size, at_once, seconds, export=None, cpus=None):
    """Random reads of 4 KiB of the first `size` bytes, always `at_once` of them: what `random_reads` prints, and with an
    export the processor time that each takes there. `build_examples` comes first."""
    before = export.cpu_ns() if export else 0
    words = [example("random_reads"), place, str(size), str(at_once), str(seconds)]
    prepare = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    result = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=seconds + 120, preexec_fn=prepare)
    found = json.loads(result.stdout)
    if export:
        count = found["reads_per_second"] * seconds
        found["target_cpu_us"] = (export.cpu_ns() - before) / 1000 / max(count, 1)
    return found


def folder():
    """A folder for files on the drive to be measured."""
    parent = os.environ.get("TERRACE_BENCH_DIR") or os.path.join(ROOT, "target")
    os.makedirs(parent, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="remote-", dir=parent)


def fill(path, size):
    """Writes a file all over, past the page cache at the end: what was never written is read without a drive."""
    block = os.urandom(4 << 20)
    with open(path, "wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

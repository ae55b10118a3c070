"""The server that answers every line alike: what no server can be cheaper than."""

import os
import re
import subprocess
import tempfile
import time

from .examples import example


class Floor:
    """It looks like a server to `load`, which must be told not to look at values (`blind`)."""

    name = "floor"

    def __init__(self, value_bytes, protocol, cpus):
        self._words, self._cpus = [str(value_bytes), protocol], cpus

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        log = os.path.join(self.folder.name, "log")
        pin = lambda: os.sched_setaffinity(0, self._cpus)
        with open(log, "w") as out:
            self.child = subprocess.Popen(
                [example("floor"), "127.0.0.1:0", *self._words], stdout=out, preexec_fn=pin
            )
        self.pid = self.child.pid
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with open(log) as told:
                found = re.search(r"listening on (\S+)", told.read())
            if found:
                self.address = found.group(1)
                return self
            time.sleep(0.02)
        self.__exit__()
        raise RuntimeError("floor does not start")

    def output(self):
        return ""

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.folder.cleanup()

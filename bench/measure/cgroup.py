"""A memory limit that counts the page cache too."""

import os
import time

_V1 = "/sys/fs/cgroup/memory"
_V2 = "/sys/fs/cgroup"


class MemoryLimit:
    """A control group of its own; removed at the end of a `with` block. Needs root."""

    def __init__(self, limit_bytes, name):
        self.limit = limit_bytes
        self.v2 = os.path.exists(f"{_V2}/cgroup.controllers")
        self.path = f"{_V2 if self.v2 else _V1}/bench-{os.getpid()}-{name}"

    def __enter__(self):
        if self.v2:
            _write(f"{_V2}/cgroup.subtree_control", "+memory")
        os.mkdir(self.path)
        try:
            _write(f"{self.path}/{'memory.max' if self.v2 else 'memory.limit_in_bytes'}", self.limit)
        except OSError:
            os.rmdir(self.path)
            raise
        return self

    def add(self, pid):
        """Moves a process in; what it allocates from now on counts."""
        _write(f"{self.path}/cgroup.procs", pid)

    def used(self):
        """Bytes that count now, page cache included."""
        name = "memory.current" if self.v2 else "memory.usage_in_bytes"
        with open(f"{self.path}/{name}") as file:
            return int(file.read())

    def __exit__(self, *_):
        # The kernel lets go of a group some time after its last process.
        for _ in range(50):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)
        os.rmdir(self.path)


def available():
    """Whether groups can be made here."""
    return os.geteuid() == 0 and (
        os.access(_V1, os.W_OK) or os.access(f"{_V2}/cgroup.subtree_control", os.W_OK)
    )


def _write(path, value):
    with open(path, "w") as file:
        file.write(str(value))

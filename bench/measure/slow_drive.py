"""A drive that is slower than the others: a loop device whose reads are counted out by the kernel."""

import os
import subprocess

_V1 = "/sys/fs/cgroup/blkio"
_V2 = "/sys/fs/cgroup"


class SlowDrive:
    """A block device of so many bytes in a file, and a control group (`add`) whose processes get so many
    reads a second of it. Both are gone at the end of a `with` block. Needs root."""

    def __init__(self, path, size, reads_per_second):
        self.path, self.size, self.reads = path, size, reads_per_second
        self.v2 = os.path.exists(f"{_V2}/cgroup.controllers")
        self.group = f"{_V2 if self.v2 else _V1}/bench-{os.getpid()}-drive"

    def __enter__(self):
        with open(self.path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.size)
        # Without direct I/O the page cache would answer instead of the drive.
        command = ["losetup", "--direct-io=on", "--find", "--show", self.path]
        self.device = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        try:
            number = os.stat(self.device).st_rdev
            number = f"{os.major(number)}:{os.minor(number)}"
            if self.v2:
                _write(f"{_V2}/cgroup.subtree_control", "+io")
            os.mkdir(self.group)
            if self.v2:
                _write(f"{self.group}/io.max", f"{number} riops={self.reads}")
            else:
                _write(f"{self.group}/blkio.throttle.read_iops_device", f"{number} {self.reads}")
        except OSError:
            self.__exit__()
            raise
        return self

    def add(self, pid):
        """Moves a process into the group."""
        _write(f"{self.group}/cgroup.procs", pid)

    def __exit__(self, *_):
        subprocess.run(["losetup", "--detach", self.device], check=False)
        if os.path.isdir(self.group):
            os.rmdir(self.group)
        os.remove(self.path)


def _write(path, value):
    with open(path, "w") as file:
        file.write(str(value))

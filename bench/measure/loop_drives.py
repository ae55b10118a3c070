"""Block devices over files, that are slowed down and made to fail. Needs root."""

import contextlib
import fcntl
import os
import struct
import subprocess
import tempfile
import time

from .keys import KEY, KEY_BYTES, number_of
from .server import ROOT

_V1 = "/sys/fs/cgroup/blkio"
_V2 = "/sys/fs/cgroup"
LOOP_SET_CAPACITY = 0x4C07
EXT4_IOC_SHUTDOWN = 0x8004587D


def available():
    """Whether there can be such drives here."""
    return os.geteuid() == 0 and (
        os.access(_V1, os.W_OK) or "io" in _read(f"{_V2}/cgroup.controllers").split()
    )


def records_in(path):
    """The numbers of the records of `terrace-load` whose keys lie in a file."""
    found = set()
    with open(path, "rb") as file:
        rest = b""
        while part := file.read(16 << 20):
            found.update(KEY.findall(rest + part))
            rest = part[1 - KEY_BYTES :]
    return sorted(map(number_of, found))


class LoopDrive:
    """A loop device of so many bytes over a file in `folder`, past the page cache.

    With `can_fail` the file has a file system of its own, on another loop device: that one can be shut down, so that
    all reads and writes fail.
    """

    def __init__(self, folder, name, size, can_fail=False):
        self._ends = contextlib.ExitStack()
        try:
            self.file = os.path.join(folder, name)
            if can_fail:
                self._mount(folder, name, size)
            with open(self.file, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            self.device = self._attach(self.file)
        except BaseException:
            self._ends.close()
            raise

    def _mount(self, folder, name, size):
        outer = os.path.join(folder, f"{name}-below")
        with open(outer, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size + (48 << 20))
        device = self._attach(outer)
        _run("mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", device)
        self.mount = tempfile.mkdtemp(prefix=f"{name}-", dir=folder)
        _run("mount", device, self.mount)
        # One that was shut down is busy until the device over it is gone.
        self._ends.callback(_run, "umount", "--lazy", self.mount)
        self.file = os.path.join(self.mount, name)

    def _attach(self, file):
        device = _run("losetup", "--direct-io=on", "--find", "--show", file)
        self._ends.callback(_run, "losetup", "--detach", device)
        return device

    @property
    def number(self):
        """As control groups name it."""
        number = os.stat(self.device).st_rdev
        return f"{os.major(number)}:{os.minor(number)}"

    def records(self):
        return records_in(self.file)

    def fail(self):
        """All reads and writes are errors from now on; only of one that can."""
        folder = os.open(self.mount, os.O_RDONLY)
        # 2: without writing anything first.
        fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack("I", 2))
        os.close(folder)

    def vanish(self):
        """It has no bytes any more, as a drive that was pulled."""
        os.truncate(self.file, 0)
        device = os.open(self.device, os.O_RDONLY)
        fcntl.ioctl(device, LOOP_SET_CAPACITY)
        os.close(device)

    def set_read_only(self, is_read_only):
        _run("blockdev", "--setro" if is_read_only else "--setrw", self.device)

    def close(self):
        self._ends.close()


class Drives:
    """So many drives of `size` bytes, and a control group (`add`) whose processes are held to limits on each; gone at
    the end of a `with` block. The first one can fail if `first_can_fail`."""

    def __init__(self, count, size, first_can_fail=False):
        self.count, self.size, self.first_can_fail = count, size, first_can_fail

    def __enter__(self):
        self._ends = contextlib.ExitStack()
        with self._ends:
            parent = os.environ.get("TERRACE_BENCH_DIR") or os.path.join(ROOT, "target")
            folder = self._ends.enter_context(
                tempfile.TemporaryDirectory(prefix="drives-", dir=parent, ignore_cleanup_errors=True)
            )
            self.drives = []
            for at in range(self.count):
                can_fail = self.first_can_fail and at == 0
                drive = LoopDrive(folder, f"drive{at}", self.size, can_fail)
                self.drives.append(drive)
                self._ends.callback(drive.close)
            self.v2 = "io" in _read(f"{_V2}/cgroup.controllers").split()
            self.group = f"{_V2 if self.v2 else _V1}/bench-{os.getpid()}-drives"
            if self.v2:
                _write(f"{_V2}/cgroup.subtree_control", "+io")
            os.mkdir(self.group)
            self._ends.callback(_remove_group, self.group)
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_):
        self._ends.close()

    def flags(self):
        return [flag for drive in self.drives for flag in ("--tier", f"ssd:{drive.device}")]

    def add(self, pid):
        """Moves a process into the group."""
        _write(f"{self.group}/cgroup.procs", pid)

    def limit(self, at, reads=0, bytes_written=0, bytes_read=0):
        """Reads and bytes per second that drive `at` has for the group; 0 for as many as it can."""
        number = self.drives[at].number
        limits = {"read_iops": reads, "write_bps": bytes_written, "read_bps": bytes_read}
        if self.v2:
            names = {"read_iops": "riops", "write_bps": "wbps", "read_bps": "rbps"}
            words = [f"{names[name]}={value or 'max'}" for name, value in limits.items()]
            return _write(f"{self.group}/io.max", f"{number} {' '.join(words)}")
        for name, value in limits.items():
            _write(f"{self.group}/blkio.throttle.{name}_device", f"{number} {value}")

    def stall(self, at):
        """Drive `at` answers nothing until its limit is set anew."""
        self.limit(at, 0, 1, 1)


def _remove_group(path):
    # The kernel lets go of a group some time after its last process.
    for _ in range(100):
        try:
            return os.rmdir(path)
        except OSError:
            time.sleep(0.1)


def _run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout.strip()


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _write(path, value):
    with open(path, "w") as file:
        file.write(str(value))

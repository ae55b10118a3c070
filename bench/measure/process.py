"""Counters of a process, as Linux keeps them."""

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Usage:
    """Counters at one moment. Bytes, except for `cpu_ns`."""

    cpu_ns: int
    resident: int
    resident_max: int
    drive_read: int
    drive_written: int

    def since(self, earlier):
        """What was used after `earlier`; memory as it is now."""
        return dataclasses.replace(
            self,
            cpu_ns=self.cpu_ns - earlier.cpu_ns,
            drive_read=self.drive_read - earlier.drive_read,
            drive_written=self.drive_written - earlier.drive_written,
        )


def usage(pid):
    """The counters of process `pid` now; processor time of all threads that still run."""
    status = _fields(f"/proc/{pid}/status")
    io = _fields(f"/proc/{pid}/io")
    return Usage(
        cpu_ns=sum(_cpu_ns(pid, thread) for thread in os.listdir(f"/proc/{pid}/task")),
        resident=status["VmRSS"] * 1024,
        resident_max=status["VmHWM"] * 1024,
        drive_read=io["read_bytes"],
        drive_written=io["write_bytes"],
    )


def pin(pid, cpus):
    """Has all threads of process `pid` run on such cores."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cpus)


def _cpu_ns(pid, thread):
    try:
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            return int(file.read().split()[0])
    except FileNotFoundError:
        return 0


def _fields(path):
    """Lines such as `VmRSS:   123 kB`, numbers only."""
    fields = {}
    with open(path) as file:
        for line in file:
            name, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdigit():
                fields[name] = int(words[0])
    return fields

"""Servers under measurement: Terrace, and memcached to compare with."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from . import process

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START_SECONDS = 60


class Server:
    """One server process on loopback, with a directory of its own; ends with its `with` block.

    `DIR` in an argument stands for the directory, which lies on the same drive as the tree: the
    figures of a tier in memory would say nothing. `cpus` pins all its threads; `group` (a
    `MemoryLimit`) is joined before it allocates anything.
    """

    def __init__(self, name, command, cpus=None, group=None):
        self.name = name
        parent = os.environ.get("TERRACE_BENCH_DIR") or os.path.join(ROOT, "target")
        os.makedirs(parent, exist_ok=True)
        self.dir = tempfile.mkdtemp(prefix="bench-", dir=parent)
        # What outlives a process lies on a tmpfs, as it does by default, but goes with the server.
        shm = "/dev/shm" if os.path.isdir("/dev/shm") else self.dir
        self.state = tempfile.mkdtemp(prefix="terrace-bench-", dir=shm)
        self._ports = os.path.join(self.dir, "ports")
        arguments = [argument.replace("DIR", self.dir) for argument in command]
        if name == "terrace" and "--tier" in command:
            arguments += ["--state", self.state]
        # The server chooses its port itself: one found beforehand may be another's by then.
        self.port = None
        arguments += ["-l", "127.0.0.1", "-p", "-1"]
        if os.geteuid() == 0:
            arguments += ["-u", "root"]
        self.command = " ".join([name, *arguments[1:]])
        self.log = open(os.path.join(self.dir, "log"), "w+")

        def prepare():
            if group:
                group.add(os.getpid())
            if cpus is not None:
                os.sched_setaffinity(0, cpus)

        self._arguments, self._prepare = arguments, prepare
        try:
            self._start()
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        self.child = subprocess.Popen(
            self._arguments,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            preexec_fn=self._prepare,
            env={**os.environ, "MEMCACHED_PORT_FILENAME": self._ports},
        )
        self.pid = self.child.pid

    def restart(self, end, *flags):
        """Ends the process by a signal and starts it again with the same files, and with other `flags`, which
        count for more than those before; seconds from that start to the first answer."""
        self.child.send_signal(end)
        self.child.wait()
        self._arguments += flags
        # Clients come back to the port that they know.
        self._arguments[self._arguments.index("-p") + 1] = str(self.port)
        start = time.monotonic()
        self._start()
        self._wait(0.002)
        return time.monotonic() - start

    def _wait(self, nap=0.02):
        end = time.monotonic() + START_SECONDS
        while True:
            if self.child.poll() is not None:
                raise RuntimeError(f"{self.command} ended: {self.output()}")
            try:
                self.port = self.port or self._chosen_port()
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    return
            except OSError:
                if time.monotonic() > end:
                    raise RuntimeError(f"{self.command} does not answer: {self.output()}")
                time.sleep(nap)

    def _chosen_port(self):
        with open(self._ports) as file:
            for line in file:
                if line.startswith("TCP INET: "):
                    return int(line.split()[-1])
        raise FileNotFoundError(self._ports)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends the process and removes its directory."""
        child = getattr(self, "child", None)
        if child:
            child.kill()
            child.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        shutil.rmtree(self.state, ignore_errors=True)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def output(self):
        """The last of what it printed."""
        self.log.flush()
        with open(self.log.name, errors="replace") as file:
            return file.read()[-2000:].strip()

    def usage(self):
        return process.usage(self.pid)

    def stats(self, what=""):
        """The answer of `stats WHAT`; whole numbers as such."""
        stats = {}
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            connection.sendall(f"stats {what}".strip().encode() + b"\r\n")
            for line in connection.makefile("rb"):
                words = line.decode().split(None, 2)
                if words[0] != "STAT":
                    if words[0] != "END":
                        raise RuntimeError(f"stats {what}: {line!r}")
                    return stats
                value = words[2].strip() if len(words) > 2 else ""
                stats[words[1]] = int(value) if value.lstrip("-").isdigit() else value
        raise RuntimeError(f"stats {what}: {self.name} closed the connection")

    def tell(self, line):
        """The first line of the answer to a command."""
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            connection.sendall(line.encode() + b"\r\n")
            return connection.makefile("rb").readline().decode().strip()

    def settle(self, quiet=1.0, timeout=60):
        """Waits until the process has written nothing to its drive for `quiet` seconds."""
        end = time.monotonic() + timeout
        last, since = None, time.monotonic()
        while time.monotonic() < end:
            written = self.usage().drive_written
            if written != last:
                last, since = written, time.monotonic()
            elif time.monotonic() - since >= quiet:
                return
            time.sleep(0.1)


def terrace_binary():
    """`TERRACE_BENCH_SERVER`, or the release build."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.environ.get("TERRACE_BENCH_SERVER", os.path.join(target, "release", "terrace"))


def memcached_binary():
    """Debian's."""
    binary = shutil.which("memcached")
    if not binary:
        raise RuntimeError("memcached is not installed; `make tools` installs it")
    return binary


def terrace(*flags, **how):
    """Terrace with `flags`."""
    return Server("terrace", [terrace_binary(), *flags], **how)


def memcached(*flags, **how):
    """memcached with `flags`."""
    return Server("memcached", [memcached_binary(), *flags], **how)


def end_servers_when_terminated():
    """Lets `with` blocks end their servers when a time limit ends this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

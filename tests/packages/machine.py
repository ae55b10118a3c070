"""A small Debian machine under systemd-nspawn, with systemd as its first process, for one test."""

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Seconds; a machine with other work to do takes long to boot another.
PATIENCE = 180
CLONE_NEWNET = 0x40000000


class Failed(Exception):
    """A test found something that is not as it must be."""


def expect(holds, text):
    if not holds:
        raise Failed(text)


def wait_for(what, probe, seconds=PATIENCE):
    """Calls `probe` until it gives back something; fails after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        expect(time.monotonic() < end, f"{what}: not within {seconds} s")
        time.sleep(0.05)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def end_when_terminated():
    """Has SIGTERM unwind, so that machines and containers end, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    atexit.register(lambda: [machine.__exit__() for machine in list(Machine.LEFT)])


class Machine:
    """What is written to it lies in memory, over the files of `base`, but for /var/lib/terrace, which is a folder of
    this machine's drive: tiers are files that are read past the page cache."""

    NUMBER = 0
    LEFT = []

    def __init__(self, base, megabytes=1024):
        Machine.NUMBER += 1
        Machine.LEFT.append(self)
        self.process = self.leader = None
        self.name = f"terrace-test-{os.getpid()}-{Machine.NUMBER}"
        self.folder = tempfile.mkdtemp(prefix="terrace-packages-")
        self.drive = tempfile.mkdtemp(prefix="terrace-packages-drive-", dir="/var/tmp")
        self.root = os.path.join(self.folder, "root")
        self.memory = memory = os.path.join(self.folder, "memory")
        os.mkdir(memory)
        os.mkdir(self.root)
        mount("-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", self.name, memory)
        for folder in ("changed", "work"):
            os.mkdir(os.path.join(memory, folder))
        layers = f"lowerdir={base},upperdir={memory}/changed,workdir={memory}/work"
        mount("-t", "overlay", "-o", layers, self.name, self.root)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self in Machine.LEFT:
            Machine.LEFT.remove(self)
        if self.process:
            # The first process takes all others of the machine with it.
            for pid in self.children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
        for path in (self.root, self.memory):
            subprocess.run(["umount", "--lazy", path], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.drive, ignore_errors=True)

    def grow(self, megabytes):
        mount("-o", f"remount,size={megabytes}m", self.memory)

    def copy(self, file):
        """Puts a file of this machine into its /srv, and gives back its path there."""
        path = f"/srv/{os.path.basename(file)}"
        shutil.copy(file, self.path(path))
        return path

    def path(self, path):
        return os.path.join(self.root, path.lstrip("/"))

    def read(self, path):
        with open(self.path(path)) as file:
            return file.read()

    def write(self, path, text):
        with open(self.path(path), "w") as file:
            file.write(text)

    def exists(self, path):
        return os.path.lexists(self.path(path))

    # Without systemd: as an image is built.

    def chroot(self, *command):
        """Exit code and all that was printed."""
        done = subprocess.run(["chroot", self.root, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, env=self.environment())  # fmt: skip
        return done.returncode, done.stdout

    @staticmethod
    def environment():
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}

    # With systemd.

    def boot(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        self.log = open(os.path.join(self.folder, "console"), "w")
        command = ["systemd-nspawn", "--quiet", "--directory", self.root, "--machine", self.name, "--boot",
                   "--register=no", "--keep-unit", "--private-network", "--bind", f"{self.drive}:/var/lib/terrace"]  # fmt: skip
        # Apart from signals that are for the tests: it would end and leave the machine.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True)  # fmt: skip
        self.leader = wait_for("a first process", self.first_process)
        wait_for("systemd", lambda: self.ran("systemctl", "is-system-running")[1].strip() in ("running", "degraded"))

    def children(self):
        """Processes that systemd-nspawn started itself."""
        with contextlib.suppress(OSError):
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
                return [int(pid) for pid in file.read().split()]
        return []

    def first_process(self):
        """The child that has the number 1 in the machine. Another one comes before it and goes."""
        expect(self.process.poll() is None, f"systemd-nspawn ended: {self.console()}")
        for pid in self.children():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/status") as file:
                    [numbers] = [line.split()[1:] for line in file if line.startswith("NSpid:")]
                if len(numbers) > 1 and numbers[-1] == "1":
                    return pid
        return None

    def console(self):
        with open(os.path.join(self.folder, "console"), errors="replace") as file:
            return file.read()[-2000:]

    def ran(self, *command):
        """Exit code, and all that was printed, of a command in the running machine."""
        entered = ["nsenter", "--target", str(self.leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--root",
                   "--wdns=/", *command]  # fmt: skip
        done = subprocess.run(entered, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, env=self.environment())  # fmt: skip
        return done.returncode, done.stdout

    def run(self, *command):
        """What a command printed that must succeed."""
        code, output = self.ran(*command)
        expect(code == 0, f"{' '.join(command)}: exit code {code}: {output}")
        return output

    def journal(self):
        return self.ran("journalctl", "--no-pager", "--output=cat", "--unit=terrace")[1]

    def expect_logged(self, text, seconds=10):
        """Fails unless the service logs this; the journal may have it a moment after the service ended."""
        end = time.monotonic() + seconds
        while text not in self.journal():
            expect(time.monotonic() < end, f"{text!r} is not logged: {self.journal()}")
            time.sleep(0.1)

    def show(self, name):
        return self.run("systemctl", "show", "--value", f"--property={name}", "terrace").strip()

    def connect(self, port=11211):
        return connect(self.leader, port)

    def client(self):
        return Client(wait_for("a connection", self.connect))

    def listener(self, port):
        """A socket that takes a port of the machine."""
        return in_network_of(self.leader, lambda: socket.create_server(("127.0.0.1", port)))


def in_network_of(pid, action):
    """What `action` gives back in the network of a process; `None` where either is not there."""
    made = []

    def inside():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/ns/net") as network:
                if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET) != 0:
                    return
            made.append(action())

    # A thread of its own, which ends there.
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    return made[0] if made else None


def connect(pid, port=11211):
    """A connection to a port on loopback, IPv4 or IPv6, in the network of a process."""
    for host in ("127.0.0.1", "::1"):
        made = in_network_of(pid, lambda host=host: socket.create_connection((host, port), timeout=PATIENCE))
        if made:
            return made
    return None


class Client:
    """Enough of memcached's protocol."""

    def __init__(self, connection):
        self.connection = connection
        self.file = connection.makefile("rb")

    def line(self):
        return self.file.readline().decode().rstrip("\r\n")

    def set(self, key, value):
        self.connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value))
        answer = self.line()
        expect(answer == "STORED", f"set {key}: {answer}")

    def get(self, key):
        self.connection.sendall(b"get %s\r\n" % key.encode())
        head = self.line().split()
        if head == ["END"]:
            return None
        expect(head[:2] == ["VALUE", key], f"get {key}: {head}")
        value = self.file.read(int(head[3]))
        self.file.read(2)
        expect(self.line() == "END", f"get {key}: no end")
        return value

    def stats(self, group=""):
        self.connection.sendall(f"stats {group}".strip().encode() + b"\r\n")
        found = {}
        while (line := self.line()) != "END":
            expect(line.startswith("STAT "), f"stats {group}: {line!r}")
            _, name, value = line.split(" ", 2)
            found[name] = value
        return found

    def wait_until_recovered(self):
        """A start answers at once; records of the last run are back a moment later."""
        wait_for("recovery", lambda: self.stats("tiers").get("recovery") != "recovering")
        return self

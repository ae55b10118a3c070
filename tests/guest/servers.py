"""Terrace's own programs, and the examples of crates/nvme, as processes on this machine."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from cache import Client
from guest import PATIENCE, Unavailable, expect, spawn, wait_for


class Server:
    """A Terrace with tiers; it keeps its port and its state over `restart`."""

    LEFT = []

    def __init__(self, binary, *tiers, memory=16, flags=()):
        self.folder = tempfile.mkdtemp(prefix="terrace-guest-server-", dir="/dev/shm")
        self.port = None
        self.command = [binary, "-m", str(memory), "-t", "1", "-l", "127.0.0.1", "-u", "root"]
        self.command += ["--state", self.folder, *flags]
        for tier in tiers:
            self.command += ["--tier", tier]
        self.log = os.path.join(self.folder, "log")
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def launch(self):
        """Starts it, and does not wait until it serves."""
        ports = os.path.join(self.folder, "ports")
        with contextlib.suppress(FileNotFoundError):
            os.remove(ports)
        environment = os.environ | {"MEMCACHED_PORT_FILENAME": ports}
        with open(self.log, "a") as log:
            command = [*self.command, "-p", str(self.port or -1)]
            self.process = spawn(command, stdout=log, stderr=log, env=environment)
        return self

    def start(self, seconds=PATIENCE):
        self.launch()

        def port():
            expect(self.process.poll() is None, f"the server ended with {self.process.poll()}: {self.logged()}")
            with contextlib.suppress(FileNotFoundError, IndexError), open(os.path.join(self.folder, "ports")) as file:
                return int(file.read().split("TCP INET: ")[1].split()[0])

        self.port = wait_for("the server's port", port, seconds)
        self.wait_until_recovered(seconds)
        return self

    def wait_until_recovered(self, seconds=PATIENCE):
        with self.client() as client:
            wait_for("recovery", lambda: client.stats("tiers").get("recovery") != "recovering", seconds)

    def client(self):
        return Client(self.port)

    def logged(self):
        with contextlib.suppress(OSError), open(self.log, errors="replace") as file:
            return file.read()[-3000:]
        return ""

    def stop(self):
        """In order."""
        self.process.terminate()
        expect(self.process.wait(PATIENCE) == 0, f"exit code {self.process.returncode}: {self.logged()}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def tier(self, client, name, number=0):
        """A counter of a tier."""
        return int(client.stats("tiers")[f"tier:{number}:{name}"])


class Peer:
    """The example `over_tcp` of crates/nvme."""

    def __init__(self, binary):
        self.binary = binary

    def run(self, *words, seconds=180):
        """Lines that a step printed, all of which must succeed."""
        command = [self.binary, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
        expect(done.returncode == 0, f"{' '.join(command[1:])}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        return done.stdout.splitlines()

    def run_beside(self, action, *words, seconds=180):
        """The same of a step that says when it is ready for `action`."""
        process = spawn([self.binary, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, end, is_ready = b"", time.monotonic() + seconds, False
        try:
            while True:
                expect(time.monotonic() < end, f"{words[0]}: not done after {seconds} s: {output.decode()}")
                if not select.select([process.stdout], [], [], 1)[0]:
                    continue
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    break
                output += piece
                if not is_ready and b"ready\n" in output:
                    is_ready = True
                    action()
            expect(process.wait() == 0, f"{words[0]}: {output.decode()}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        return output.decode().splitlines()


class Target:
    """A process that exports namespaces at `(address, port)`; `restart` keeps what it exports."""

    def __init__(self, address, port=4420):
        self.to = (address, port)
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.kill()

    def command(self):
        raise NotImplementedError

    def start(self):
        self.log = tempfile.NamedTemporaryFile("w+")
        self.process = spawn(self.command(), stdout=self.log, stderr=self.log)
        address, port = self.to

        def is_listening():
            expect(self.process.poll() is None, f"the target ended with {self.process.poll()}: {self.logged()}")
            told = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=False)
            return address in told.stdout

        wait_for("the target's port", is_listening)
        return self

    def logged(self):
        with open(self.log.name) as file:
            return file.read()[-2000:]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        expect(self.process.wait(PATIENCE) == 0, f"exit code {self.process.returncode}: {self.logged()}")

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


class MemoryTarget(Target):
    """The controller of crates/nvme over memory."""

    nqn = "nqn.2014-08.org.nvmexpress:uuid:7ac3e0f4-0000-4000-8000-000000000009"

    def __init__(self, peer, address, block_bytes, megabytes=64):
        super().__init__(address)
        self.peer, self.block_bytes, self.megabytes = peer, block_bytes, megabytes

    def command(self):
        address, port = self.to
        return [self.peer.binary, "serve", f"{address}:{port}", self.nqn, str(self.block_bytes), str(self.megabytes)]


class Export(Target):
    """`terrace export` of files, each with the options of a namespace behind it."""

    nqn = "nqn.2014-08.org.nvmexpress:uuid:7ac3e0f4-0000-4000-8000-00000000000e"

    def __init__(self, binary, address, files, hosts=(), flags=()):
        super().__init__(address)
        self.binary, self.files, self.hosts, self.flags = binary, files, hosts, flags

    def command(self):
        address, port = self.to
        command = [self.binary, "export", "--nqn", self.nqn, "--listen", f"{address}:{port}"]
        for host in self.hosts:
            command += ["--host", host]
        return [*command, *self.flags, *self.files]


def require_export(binary):
    """Skips a test where a binary does not export."""
    told = subprocess.run([binary, "export", "--help"], capture_output=True, text=True, check=False)
    if told.returncode != 0 or "namespace" not in told.stdout:
        raise Unavailable(f"{os.path.basename(binary)} has no `export`")


def require_remote_tiers(binary):
    """Skips a test where a binary has no such tiers."""
    with open(binary, "rb") as file:
        if b"nvme-tcp:" not in file.read():
            raise Unavailable(f"{os.path.basename(binary)} has no tiers `nvme-tcp:`")

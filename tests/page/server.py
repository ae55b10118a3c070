"""The server whose page is opened, and its load."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

BINARY = os.environ["TERRACE_E2E_BINARY"]
START_S = 30


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Server:
    """Terrace with a page, in a folder of its own; ends with its `with` block. `DIR` in a flag is the folder,
    and `folders` are made in it."""

    def __init__(self, *flags, folders=(), token=None):
        self.dir = tempfile.mkdtemp(prefix="terrace-page-")
        for name in folders:
            os.mkdir(os.path.join(self.dir, name))
        self.port, self.page_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.page_port}/"
        self.flags = ["-l", "127.0.0.1", "-p", str(self.port), "--admin", f"127.0.0.1:{self.page_port}"]
        self.flags += [flag.replace("DIR", self.dir) for flag in flags]
        if os.geteuid() == 0:
            self.flags += ["-u", "root"]
        if token:
            file = os.path.join(self.dir, "token")
            with open(file, "w") as text:
                text.write(token + "\n")
            self.flags += ["--admin-token-file", file]
        self.loads = []
        self.child = None
        self.start()

    def start(self):
        with open(os.path.join(self.dir, "log"), "a") as log:
            self.child = subprocess.Popen([BINARY, *self.flags], stdout=log, stderr=log)
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.child.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"the server does not start: {self.log()}") from None
                time.sleep(0.05)

    def log(self):
        with open(os.path.join(self.dir, "log")) as text:
            return text.read()

    def stop(self, how=signal.SIGTERM):
        self.child.send_signal(how)
        self.child.wait()

    def load(self, workload, *options):
        """Begins a load beside everything else."""
        command = [BINARY, "bench", workload, "--server", f"127.0.0.1:{self.port}", *options]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.loads.append(child)
        return child

    def fill(self, *options):
        child = self.load("fill", *options)
        _, errors = child.communicate()
        assert child.returncode == 0, errors

    def stats(self, what=""):
        """The rows of `stats`, by name."""
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(f"stats {what}".strip().encode() + b"\r\n")
            text = b""
            while not text.endswith(b"END\r\n"):
                text += client.recv(65536)
        rows = (line.split(" ", 2) for line in text.decode().splitlines() if line.startswith("STAT "))
        return {name: value for _, name, value in rows}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in [*self.loads, self.child]:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
                child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

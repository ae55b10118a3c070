"""Emulated Linux guests, on which shell scripts run. See `parts` for what they boot from, and `init` for their side."""

import atexit
import base64
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Seconds. Guests are emulated, and the machine has other work to do.
PATIENCE = 60
# A start that takes longer hangs: about one in eighty does.
BOOT_SECONDS = 30
BOOT_ATTEMPTS = 3
# What a console never shows where all is well.
BAD_LINES = ("Kernel panic", "BUG:", "Oops:", "general protection fault")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Failed(Exception):
    """A test found something that is not as it must be."""


class Unavailable(Exception):
    """A part that this machine does not have."""


def expect(holds, text):
    if not holds:
        raise Failed(text)


def wait_for(what, probe, seconds=PATIENCE):
    """Calls `probe` until it returns something; fails after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        expect(time.monotonic() < end, f"{what}: not within {seconds} s")
        time.sleep(0.1)


def spawn(command, **options):
    """Starts a process that ends with this one, however that ends."""

    def end_with_parent():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    # Apart from signals of the terminal, which are for the tests: they end what they started.
    options = {"stdin": subprocess.DEVNULL, "start_new_session": True} | options
    return subprocess.Popen(command, preexec_fn=end_with_parent, **options)


def end_when_terminated():
    """Has SIGTERM unwind, so that guests and servers end, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    atexit.register(lambda: [guest.close() for guest in list(Guest.LEFT)])


class Reply:
    """What comes of a script: exit code and output."""

    def __init__(self):
        self._done = threading.Event()
        self.code, self.output = None, ""

    def arrived(self, code, output):
        self.code, self.output = code, output
        self._done.set()

    @property
    def is_there(self):
        return self._done.is_set()

    def wait(self, seconds):
        return self._done.wait(seconds)


class Port:
    """This machine's end of the virtio port on which a guest takes scripts."""

    def __init__(self, path):
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(1)
        self.connection = None
        self.lock = threading.Lock()
        self.ready = Reply()
        self.replies = {0: self.ready}
        self.number = 0

    def accept(self, seconds):
        """Takes the connection of the emulator."""
        self.server.settimeout(seconds)
        self.connection, _ = self.server.accept()
        threading.Thread(target=self._receive, daemon=True).start()

    def submit(self, script):
        with self.lock:
            self.number += 1
            reply = self.replies[self.number] = Reply()
            encoded = base64.b64encode(script.encode()).decode()
            with contextlib.suppress(OSError):
                self.connection.sendall(f"{self.number} {encoded}\n".encode())
        return reply

    def _receive(self):
        with contextlib.suppress(OSError, ValueError), self.connection.makefile("r", errors="replace") as lines:
            for line in lines:
                number, code, output = line.rstrip("\n").split(" ", 2)
                with self.lock:
                    reply = self.replies.pop(int(number), None)
                if reply:
                    text = base64.b64decode(output).decode(errors="replace")
                    reply.arrived(int(code or 0), text)

    def close(self):
        for end in (self.connection, self.server):
            if end:
                end.close()


class Guest:
    """A guest. `drives` are by serial number: the path of a file, or an address of the emulator (`nbd:unix:...`).

    It has a link to this machine, with `outside` at this end and `address` at its own, where IPv6 is `address6`. The
    emulator's network without a link would not do: it ends (`soread: Assertion`) when a connection is reset while data
    wait for the guest. `run` gives the tests a network of their own, with which links go."""

    LEFT = []
    NUMBER = 0

    def __init__(self, parts, name, drives=None, megabytes=1024):
        Guest.NUMBER += 1
        self.parts, self.name, self.drives, self.megabytes = parts, name, drives or {}, megabytes
        self.number = Guest.NUMBER
        self.outside, self.address = f"10.77.{self.number}.1", f"10.77.{self.number}.2"
        self.address6 = f"fd77:{self.number}::2"
        self.folder = tempfile.mkdtemp(prefix=f"terrace-guest-{name}-")
        self.process = self.port = None
        self.starts = 0
        Guest.LEFT.append(self)
        link = self.link = f"guest{self.number}"
        for command in (f"tuntap add dev {link} mode tap", f"addr add {self.outside}/30 dev {link}",
                        f"addr add fd77:{self.number}::1/64 dev {link} nodad", f"link set {link} up"):  # fmt: skip
            subprocess.run(["ip", *command.split()], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self in Guest.LEFT:
            Guest.LEFT.remove(self)
        self.kill()
        subprocess.run(["ip", "link", "delete", self.link], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    # Life and death.

    def boot(self):
        """Starts it, and returns once it takes scripts. A start that hangs is tried again."""
        for attempt in range(BOOT_ATTEMPTS):
            self._start()
            end = time.monotonic() + BOOT_SECONDS
            while time.monotonic() < end and self.process.poll() is None:
                if self.port.ready.wait(0.1):
                    return self
            why = f"exit code {self.process.poll()}; {self.console()}"
            self.kill()
            print(f"   {self.name}: start {attempt + 1} of {BOOT_ATTEMPTS} failed", flush=True)
        raise Failed(f"{self.name} does not start: {why}")

    def _start(self):
        self.starts += 1
        there = os.path.join(self.folder, f"port-{self.starts}")
        self.port = Port(there)
        command = [
            "qemu-system-x86_64", "-machine", "q35,usb=off,vmport=off", "-cpu", "max", "-accel", "tcg,thread=multi",
            "-smp", "2", "-m", str(self.megabytes), "-nographic", "-nodefaults", "-no-reboot",
            "-serial", f"file:{self.folder}/console",
            "-qmp", f"unix:{self.folder}/qmp-{self.starts},server=on,wait=off",
            "-kernel", os.path.join(self.parts, "vmlinuz"), "-initrd", os.path.join(self.parts, "root.img"),
            "-append", "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr tsc=unstable "
            f"terrace.guest={self.number}",
            "-netdev", f"tap,id=n0,ifname={self.link},script=no,downscript=no",
            "-device", "virtio-net-pci,netdev=n0,romfile=",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci", "-chardev", f"socket,id=c0,path={there}",
            "-device", "virtserialport,chardev=c0",
        ]  # fmt: skip
        tools = os.path.join(self.parts, "tools.img")
        drives = {"tools": f"{tools},format=raw,read-only=on"}
        for serial, file in self.drives.items():
            cache = "" if file.startswith("nbd:") else ",cache=none,aio=threads"
            drives[serial] = f"{file},format=raw{cache}"
        for serial, drive in drives.items():
            command += ["-drive", f"if=none,id={serial},file={drive}"]
            command += ["-device", f"virtio-blk-pci,drive={serial},serial={serial}"]
        log = os.path.join(self.folder, "emulator")
        with open(log, "a") as file:
            self.process = spawn(command, stdout=file, stderr=file)
        try:
            self.port.accept(BOOT_SECONDS)
        except TimeoutError:
            with open(log) as file:
                raise Failed(f"the emulator does not start: {file.read()[-1000:]}") from None

    def kill(self):
        """As a loss of power, but for what the drives have taken."""
        if self.process:
            self.process.kill()
            self.process.wait()
        if self.port:
            self.port.close()
        self.process = self.port = None

    def pause(self):
        """It answers nothing until `resume`, while connections to it stay open."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def console(self):
        with contextlib.suppress(OSError), open(f"{self.folder}/console", errors="replace") as file:
            return file.read()[-2000:].strip()
        return ""

    def expect_sound(self):
        """Fails where its kernel, or the emulator, came to harm."""
        console = self.console()
        bad = [line for line in console.splitlines() if any(word in line for word in BAD_LINES)]
        expect(not bad, f"{self.name}: {bad[0] if bad else ''}")
        expect(self.process is None or self.process.poll() is None, f"{self.name} ended: {console}")

    # Scripts.

    def start(self, script):
        """Starts a script, and returns what will have its outcome."""
        return self.port.submit(script)

    def ran(self, script, seconds=PATIENCE):
        """Exit code and output of a script."""
        reply = self.start(script)
        self.wait(reply, script, seconds)
        return reply.code, reply.output

    def run(self, script, seconds=PATIENCE):
        """The output of a script that must succeed."""
        code, output = self.ran(script, seconds)
        expect(code == 0, f"{self.name}: {script.strip()}: exit code {code}: {output.strip()[-2000:]}")
        return output

    def wait(self, reply, script, seconds=PATIENCE):
        """Waits for the outcome of a script."""
        end = time.monotonic() + seconds
        while not reply.wait(0.2):
            expect(self.process and self.process.poll() is None, f"{self.name} ended: {self.console()}")
            late = f"{self.name}: {script.strip()}: not done after {seconds} s: {self.console()}"
            expect(time.monotonic() < end, late)

    def jump(self, seconds):
        """Sets its clock so many seconds on, or back."""
        self.run(f"date -s @$(($(date +%s) + {seconds}))")

    # The emulator.

    def command(self, execute, **arguments):
        """A command of the emulator's own protocol."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(f"{self.folder}/qmp-{self.starts}")
            lines = connection.makefile("r")
            lines.readline()
            for what in ({"execute": "qmp_capabilities"}, {"execute": execute, "arguments": arguments}):
                connection.sendall(json.dumps(what).encode() + b"\n")
                answer = {}
                while not answer.keys() & {"return", "error"}:
                    answer = json.loads(lines.readline())
                expect("return" in answer, f"{execute}: {answer}")
        return answer["return"]

    def resize(self, serial, size):
        """Changes the size of a drive in bytes, while the guest runs."""
        self.command("block_resize", device=serial, size=size)

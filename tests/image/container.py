"""A container of the image, run by runc as Docker and Kubernetes run it unless told otherwise."""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import tarfile
import tempfile

from machine import PATIENCE, Client, connect, expect, mount, wait_for

# What Podman and Buildah allow, and Docker much alike: no io_uring.
SECCOMP = "/usr/share/containers/seccomp.json"
# Names in image manifests.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MIB = 1 << 20


class Image:
    """The OCI archive, unpacked: one root and one configuration for each architecture."""

    def __init__(self, archive, folder):
        self.layout = os.path.join(folder, "layout")
        with tarfile.open(archive) as file:
            file.extractall(self.layout)
        with open(os.path.join(self.layout, "index.json")) as file:
            [index] = json.load(file)["manifests"]
        self.manifests = {it["platform"]["architecture"]: self.json(it) for it in self.json(index)["manifests"]}
        self.roots, self.configs = {}, {}
        for architecture, manifest in self.manifests.items():
            root = os.path.join(folder, architecture)
            os.mkdir(root)
            for layer in manifest["layers"]:
                with tarfile.open(self.blob(layer)) as file:
                    file.extractall(root)
            self.roots[architecture] = root
            self.configs[architecture] = self.json(manifest["config"])["config"]

    def blob(self, descriptor):
        kind, digest = descriptor["digest"].split(":")
        return os.path.join(self.layout, "blobs", kind, digest)

    def json(self, descriptor):
        with open(self.blob(descriptor)) as file:
            return json.load(file)


def seccomp(errno=None):
    """The profile in runc's words, for a process without capabilities on this machine."""
    with open(SECCOMP) as file:
        profile = json.load(file)
    here = ARCHITECTURES[platform.machine()]
    calls = []
    for rule in profile["syscalls"]:
        arches, caps = rule["includes"].get("arches"), rule["includes"].get("caps")
        if caps or (arches and here not in arches):
            continue
        call = {"names": rule["names"], "action": rule["action"]}
        if rule["args"]:
            call["args"] = rule["args"]
        if "errnoRet" in rule:
            call["errnoRet"] = rule["errnoRet"]
        calls.append(call)
    expect(not any("io_uring_setup" in call["names"] for call in calls), f"{SECCOMP} allows io_uring")
    name = f"SCMP_ARCH_{platform.machine().upper()}"
    [architectures] = [[name, *it["subArchitectures"]] for it in profile["archMap"] if it["architecture"] == name]
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": errno or profile["defaultErrnoRet"],
            "architectures": architectures, "syscalls": calls}  # fmt: skip


def mounted(at, kind, source, *options):
    return {"destination": at, "type": kind, "source": source, "options": list(options)}


class Volume:
    """A folder on a drive, or in memory, that outlives containers and belongs to a user."""

    def __init__(self, owner, in_memory=False, megabytes=512):
        self.in_memory = in_memory
        self.path = tempfile.mkdtemp(prefix="terrace-image-", dir="/var/tmp")
        if in_memory:
            mount("-t", "tmpfs", "-o", f"size={megabytes}m", "terrace-image", self.path)
        os.chown(self.path, owner, owner)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.in_memory:
            subprocess.run(["umount", "--lazy", self.path], check=False)
        shutil.rmtree(self.path, ignore_errors=True)


class Container:
    """One that runs; it is gone at the end of the block."""

    NUMBER = 0

    def __init__(self, image, arguments, command=None, volumes=None, memory=None, errno=None, root=False):
        Container.NUMBER += 1
        self.name = f"terrace-image-{os.getpid()}-{Container.NUMBER}"
        self.bundle = tempfile.mkdtemp(prefix="terrace-image-")
        here = ARCHITECTURES[platform.machine()]
        config = image.configs[here]
        words = [*(command or config["Entrypoint"]), *arguments]
        user, group = (int(number) for number in config["User"].split(":"))
        capabilities = {}
        if root:
            # Of those that Docker gives to root, the two that it takes to become another user.
            user, group = 0, 0
            names = ["CAP_SETUID", "CAP_SETGID"]
            capabilities = {kind: names for kind in ("bounding", "effective", "permitted")}
        mounts = [
            mounted("/proc", "proc", "proc", "nosuid", "noexec", "nodev"),
            mounted("/dev", "tmpfs", "tmpfs", "nosuid", "mode=755", "size=65536k"),
            mounted("/dev/shm", "tmpfs", "shm", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
            mounted("/sys", "sysfs", "sysfs", "nosuid", "noexec", "nodev", "ro"),
            mounted("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro"),
        ]
        mounts += [mounted(at, "bind", volume.path, "rbind", "rw") for at, volume in (volumes or {}).items()]
        description = {
            "ociVersion": "1.0.2",
            "root": {"path": image.roots[here], "readonly": True},
            "process": {
                "terminal": False, "user": {"uid": user, "gid": group}, "args": words, "env": config["Env"],
                "cwd": config.get("WorkingDir") or "/", "capabilities": capabilities, "noNewPrivileges": True,
            },
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
                "resources": {"memory": {"limit": memory * MIB}} if memory else {},
                "seccomp": seccomp(errno),
                "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"],
                "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            },
        }  # fmt: skip
        with open(os.path.join(self.bundle, "config.json"), "w") as file:
            json.dump(description, file)
        self.log = os.path.join(self.bundle, "log")
        with open(self.log, "w") as log:
            command = ["runc", "run", "--bundle", self.bundle, "--pid-file", os.path.join(self.bundle, "pid"), self.name]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["runc", "delete", "--force", self.name], check=False, capture_output=True)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.bundle, ignore_errors=True)

    def output(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def pid(self):
        with contextlib.suppress(OSError, ValueError), open(os.path.join(self.bundle, "pid")) as file:
            return int(file.read())
        return None

    def connect(self):
        expect(self.process.poll() is None, f"it ended, {self.process.returncode}: {self.output()}")
        pid = self.pid()
        return pid and connect(pid)

    def client(self):
        return Client(wait_for("an answer from a container", self.connect))

    def ended(self):
        """The exit code, once it ended."""
        return self.process.wait(PATIENCE)

    def end(self, number):
        """Sends a signal to its first process, and gives back how it ended."""
        os.kill(self.pid(), number)
        return self.ended()

    def kill(self):
        return self.end(signal.SIGKILL)

    def stop(self):
        return self.end(signal.SIGTERM)

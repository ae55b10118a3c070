"""A rendered pod as a bundle of runc: what the kubelet and a container runtime make of its template."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

# Calls that container runtimes refuse by default, of those that the server would use.
REFUSED_CALLS = ["io_uring_setup", "io_uring_enter", "io_uring_register"]
DEFAULT_SHM = "size=64m"


class Pod:
    """The volumes of a pod of `objects`, a rendered chart; its container runs `binary`."""

    def __init__(self, objects, binary):
        [workload] = [one for one in objects if one["kind"] == "StatefulSet"]
        self.secrets = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "Secret"}
        self.spec = workload["spec"]["template"]["spec"]
        [self.container] = self.spec["containers"]
        self.claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
        self.binary = binary
        self.dir = tempfile.mkdtemp(prefix="terrace-pod-")
        self.name = os.path.basename(self.dir)
        self.volumes = {}

    def __enter__(self):
        self.user = self.spec["securityContext"]["runAsUser"]
        self.group = self.spec["securityContext"]["fsGroup"]
        os.chmod(self.dir, 0o755)
        for claim in self.claims:
            self._volume(claim)
        self.schedule()
        return self

    def __exit__(self, *_):
        self.delete()
        shutil.rmtree(self.dir)

    def _volume(self, name):
        path = os.path.join(self.dir, name)
        os.makedirs(path)
        os.chown(path, 0, self.group)
        os.chmod(path, 0o2775)
        self.volumes[name] = path
        return path

    def schedule(self):
        """Makes the volumes that live as long as the pod: of secrets and in memory."""
        self.mounted = []
        for volume in self.spec["volumes"]:
            path = self._volume(volume["name"])
            if "secret" in volume:
                data = self.secrets[volume["secret"]["secretName"]]
                for item in volume["secret"].get("items", [{"key": key, "path": key} for key in data]):
                    with open(os.path.join(path, item["path"]), "wb") as file:
                        file.write(base64.b64decode(data[item["key"]]))
            else:
                size = volume["emptyDir"]["sizeLimit"].replace("Mi", "m")
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
                os.chown(path, 0, self.group)
                os.chmod(path, 0o2775)
                self.mounted.append(path)

    def delete(self):
        """Ends the container, as the pod's deletion does, and drops what lived as long as the pod."""
        self.stop()
        for path in self.mounted:
            subprocess.run(["umount", path], check=True)
        for volume in self.spec["volumes"]:
            shutil.rmtree(self.volumes.pop(volume["name"]))

    def start(self):
        """Starts the container anew."""
        bundle = os.path.join(self.dir, "bundle")
        shutil.rmtree(bundle, ignore_errors=True)
        os.makedirs(os.path.join(bundle, "rootfs"))
        with open(os.path.join(bundle, "config.json"), "w") as file:
            json.dump(self._config(), file)
        self.log = open(os.path.join(self.dir, "log"), "ab")
        command = ["runc", "run", "--bundle", bundle, self.name]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def stop(self, by=signal.SIGTERM):
        """Ends the container's process and waits for it; its exit status."""
        if getattr(self, "child", None) is None:
            return None
        subprocess.run(["runc", "kill", self.name, by.name[3:]], capture_output=True)
        status = self.child.wait(timeout=60)
        subprocess.run(["runc", "delete", "--force", self.name], capture_output=True)
        self.child = None
        self.log.close()
        return status

    def output(self):
        with open(os.path.join(self.dir, "log"), errors="replace") as file:
            return file.read()

    def port(self, name):
        return next(port["containerPort"] for port in self.container["ports"] if port["name"] == name)

    def probe(self, kind):
        """The status that the kubelet's probe would see; None where nothing answers."""
        get = self.container[kind]["httpGet"]
        return self.get(get["path"])[0]

    def get(self, path, token=None):
        """Status and body of the admin port's answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port('admin')}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return None, ""

    def wait_ready(self):
        self._wait_for(lambda: self.probe("readinessProbe"))

    def wait_recovered(self):
        self._wait_for(lambda: self.get("/readyz?recovered")[0])

    def _wait_for(self, status, seconds=60):
        deadline = time.monotonic() + seconds
        while status() != 200:
            ended = self.child.poll()
            if ended is not None or time.monotonic() > deadline:
                raise AssertionError(f"the pod is not ready ({ended}): {self.output()}")
            time.sleep(0.05)

    def _config(self):
        def mount(at, kind, source, *options):
            return {"destination": at, "type": kind, "source": source, "options": list(options)}

        mounts = [
            mount("/proc", "proc", "proc"),
            mount("/sys/fs/cgroup", "cgroup", "cgroup", "ro"),
            mount("/dev", "tmpfs", "tmpfs", "nosuid", "mode=755", "size=64k"),
            mount("/dev/shm", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777", DEFAULT_SHM),
            mount("/usr/bin/terrace", "bind", self.binary, "bind", "ro"),
        ]
        mounts += [mount(path, "bind", path, "rbind", "ro") for path in ("/lib", "/lib64", "/usr/lib") if os.path.exists(path)]
        for one in self.container["volumeMounts"]:
            how = ["bind", "ro"] if one.get("readOnly") else ["bind"]
            mounts.append(mount(one["mountPath"], "bind", self.volumes[one["name"]], *how))
        context = self.container["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]} and not context["allowPrivilegeEscalation"], context
        limit = int(self.container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
        seccomp = {
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
            "syscalls": [{"names": REFUSED_CALLS, "action": "SCMP_ACT_ERRNO"}],
        }
        return {
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs", "readonly": context["readOnlyRootFilesystem"]},
            "process": {
                "terminal": False,
                "user": {"uid": self.user, "gid": self.spec["securityContext"]["runAsGroup"],
                         "additionalGids": [self.group]},
                "args": ["/usr/bin/terrace", *self.container["args"]],
                "env": ["PATH=/usr/bin"],
                "cwd": "/",
                "capabilities": {},
                "noNewPrivileges": True,
            },
            "mounts": mounts,
            # The host's network: its ports are free ones, and the tests reach them.
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
                "resources": {"memory": {"limit": limit}},
                "seccomp": seccomp,
            },
        }  # fmt: skip


def can_run():
    """Why no pod can be run here, or None."""
    if os.geteuid() != 0:
        return "this is not root"
    if shutil.which("runc") is None:
        return "no runc"
    with contextlib.suppress(OSError):
        probe = subprocess.run(["runc", "list"], capture_output=True, text=True)
        if probe.returncode == 0:
            return None
        return probe.stderr.strip()
    return "runc does not run"

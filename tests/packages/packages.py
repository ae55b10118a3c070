"""Installs, upgrades and removes the packages on a small Debian machine; see `run`."""

import argparse
import contextlib
import glob
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from machine import PATIENCE, Client, Failed, Machine, end_when_terminated, expect, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
SETTINGS = "/etc/terrace.toml"
TIER = "/var/lib/terrace/cache"
KEYS = 400
# What bash does at a Tab behind its arguments.
COMPLETE = """source /usr/share/bash-completion/completions/terrace
COMP_WORDS=(terrace "$@")
COMP_CWORD=$#
_terrace terrace "${@: -1}" "${@: -2:1}"
echo "${COMPREPLY[@]}"
"""


class Unavailable(Exception):
    """A part that this machine does not have."""


class Packages:
    """Packages of this tree under several versions, each made once."""

    def __init__(self, binary, static, next_format, folder):
        self.binary, self.static, self.next_format, self.folder = binary, static, next_format, folder

    def make(self, kind, version, binary=None):
        name = {"deb": f"terrace_{version}_*.deb", "rpm": f"terrace-{version}-*.rpm", "tar": f"terrace-{version}-*.tar.xz"}
        where = os.path.join(self.folder, "next" if binary else "this")
        pattern = os.path.join(where, name[kind])
        if not glob.glob(pattern):
            command = [os.path.join(TREE, "scripts", "packages.sh"), "--version", version, "--output", where, kind]
            command += ["--static", self.static] if kind == "tar" else ["--binary", binary or self.binary]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [file] = glob.glob(pattern)
        return file


def value(at):
    return f"value {at} ".encode() * (1 + at % 40)


def fill(machine):
    client = machine.client()
    for at in range(KEYS):
        client.set(f"key{at}", value(at))


def check_all_there(machine, what):
    client = machine.client().wait_until_recovered()
    wrong = [at for at in range(KEYS) if client.get(f"key{at}") != value(at)]
    expect(not wrong, f"{what}: {len(wrong)} of {KEYS} values are missing or wrong: {machine.journal()}")


def make_small(machine):
    """What an operator edits: a machine for tests has no 32 GiB."""
    text = machine.read(SETTINGS)
    small = text.replace('memory-limit = "1g"', 'memory-limit = "64m"').replace("cache:32g", "cache:64m")
    expect(small != text, f"{SETTINGS} has other words than this test knows")
    machine.write(SETTINGS, small)
    return small


def install(machine, file):
    return machine.run("dpkg", "--install", machine.copy(file))


def started(machine):
    machine.run("systemctl", "enable", "--now", "terrace")
    fill(machine)


def pid(machine):
    return machine.show("MainPID")


class Tests:
    def __init__(self, base, packages, version):
        self.base, self.packages, self.version = base, packages, version

    def machine(self, **options):
        return Machine(self.base, **options)

    def deb(self, version=None):
        return self.packages.make("deb", version or self.version)

    def install_serves_and_is_warm_after_a_kill(self):
        with self.machine().boot() as machine:
            said = install(machine, self.deb())
            expect("systemctl enable --now terrace" in said, f"it does not say how to start it: {said}")
            expect(machine.show("ActiveState") == "inactive", "it was started with 32 GiB to reserve")
            expect(machine.run("terrace", "--version").strip() == f"terrace {self.version}", "another version")
            account = machine.run("getent", "passwd", "terrace").strip()
            expect(account.endswith(":/usr/sbin/nologin"), account)
            machine.run("zsh", "-n", "/usr/share/zsh/vendor-completions/_terrace")
            for words in ("--dura", "plan --drives", "serve --tier-f"):
                completed = machine.run("bash", "-c", COMPLETE, "bash", *words.split()).strip()
                expect(completed.startswith("--"), f"terrace {words} is completed to {completed!r}")
            make_small(machine)
            started(machine)
            before = pid(machine)
            owner = machine.run("stat", "--format=%U", f"/proc/{before}").strip()
            expect(owner == "terrace", f"it runs as {owner}")
            machine.run("sh", "-c", f"kill -9 {before}")
            wait_for("a restart", lambda: machine.show("NRestarts") == "1" and pid(machine) not in ("0", before))
            check_all_there(machine, "after kill -9")
            machine.expect_logged(" warm: ")
            # The unit leaves it to the server.
            machine.expect_logged("I/O engine: io_uring")

    def taken_ports_are_named(self):
        with self.machine().boot() as machine:
            install(machine, self.deb())
            text = make_small(machine).replace("# admin = ", "admin = ")
            machine.write(SETTINGS, text)
            for port in (11211, 11212):
                taken = machine.listener(port)
                code, _ = machine.ran("systemctl", "start", "terrace")
                expect(code != 0, f"it started without port {port}")
                machine.expect_logged(f"127.0.0.1:{port}")
                made = os.listdir(machine.drive)
                expect(not made, f"port {port} was taken, and {made} was made")
                taken.close()
                machine.run("systemctl", "stop", "terrace")
                machine.ran("systemctl", "reset-failed", "terrace")
            started(machine)
            check_all_there(machine, "with both ports")

    def upgrade_keeps_settings_and_content(self):
        with self.machine().boot() as machine:
            install(machine, self.deb("0.0.9"))
            text = make_small(machine)
            started(machine)
            before = pid(machine)
            install(machine, self.deb())
            expect(machine.read(SETTINGS) == text, f"{SETTINGS} was changed")
            expect(pid(machine) not in ("0", before), f"it was not restarted: {machine.journal()}")
            expect(machine.show("NRestarts") == "0", "it ended by itself")
            check_all_there(machine, "after the upgrade")
            machine.expect_logged(" warm: ")
            enabled = machine.run("systemctl", "is-enabled", "terrace").strip()
            expect(enabled == "enabled", f"it is {enabled} after the upgrade")
            machine.run("systemctl", "stop", "terrace")
            install(machine, self.deb("0.0.9"))
            expect(machine.show("ActiveState") == "inactive", "an upgrade started what was stopped")

    def upgrade_with_other_settings_keeps_the_edited_ones(self):
        with self.machine() as machine:
            # The version before had other settings.
            old = os.path.join(machine.folder, "old")
            subprocess.run(["dpkg-deb", "--raw-extract", self.deb("0.0.9"), old], check=True)
            with open(old + SETTINGS, "a") as file:
                file.write("# A line of the version before.\n")
            built = os.path.join(machine.folder, "old.deb")
            subprocess.run(["dpkg-deb", "--root-owner-group", "--build", old, built], check=True, stdout=subprocess.DEVNULL)
            code, said = machine.chroot("dpkg", "--install", machine.copy(built))
            expect(code == 0, said)
            text = make_small(machine)
            code, said = machine.chroot("dpkg", "--force-confdef", "--force-confold", "--install", machine.copy(self.deb()))
            expect(code == 0, said)
            expect(machine.read(SETTINGS) == text, f"{SETTINGS} was changed")
            expect(machine.exists(f"{SETTINGS}.dpkg-dist"), "the new settings are nowhere")

    def upgrade_from_another_format_destroys_nothing(self):
        if not self.packages.next_format:
            raise Unavailable("no build with another format; scripts/next-format.sh makes it")
        with self.machine().boot() as machine:
            other = self.packages.make("deb", "0.0.8", self.packages.next_format)
            install(machine, other)
            make_small(machine)
            started(machine)
            said = install(machine, self.deb())
            expect("the new version did not start" in said, f"the upgrade does not say so: {said}")
            machine.expect_logged("format")
            expect(machine.ran("systemctl", "is-active", "terrace")[1].strip() != "active", "it serves")
            install(machine, other)
            machine.ran("systemctl", "reset-failed", "terrace")
            machine.run("systemctl", "start", "terrace")
            check_all_there(machine, "with the version before")

    def remove_and_purge_leave_tiers(self):
        with self.machine().boot() as machine:
            install(machine, self.deb())
            make_small(machine)
            started(machine)
            said = machine.run("dpkg", "--remove", "terrace")
            expect(f"is left in {TIER}" in said, f"it does not say what stays: {said}")
            expect(machine.ran("systemctl", "is-active", "terrace")[1].strip() != "active", "it still runs")
            for path in ("/usr/bin/terrace", "/usr/lib/systemd/system/terrace.service"):
                expect(not machine.exists(path), f"{path} is left")
            expect(machine.exists(SETTINGS), f"{SETTINGS} went before a purge")
            said = machine.run("dpkg", "--purge", "terrace")
            expect("is left in /var/lib/terrace" in said, f"it does not say what stays: {said}")
            expect(not machine.exists(SETTINGS), f"{SETTINGS} is left")
            expect(machine.ran("getent", "passwd", "terrace")[0] != 0, "the user is left")
            expect(os.path.getsize(os.path.join(machine.drive, "cache")) == 64 << 20, "the tier is gone")
            # Another user takes the number that went.
            machine.run("useradd", "--system", "another")
            install(machine, self.deb())
            make_small(machine)
            machine.run("systemctl", "start", "terrace")
            check_all_there(machine, "installed again")

    def full_disk_is_told_and_mended(self):
        with self.machine(megabytes=8) as machine:
            file = machine.copy(self.deb())
            code, said = machine.chroot("dpkg", "--install", file)
            expect(code != 0 and "No space left" in said, f"exit code {code}: {said}")
            expect(not machine.exists("/usr/bin/terrace"), "half a package is left")
            machine.grow(64)
            code, said = machine.chroot("dpkg", "--install", file)
            expect(code == 0, said)
            # An upgrade on a full disk leaves the version before.
            with open(machine.path("/filler"), "wb") as filler, contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(1 << 20))
            newer = machine.path("/newer.deb")
            open(newer, "w").close()
            subprocess.run(["mount", "--bind", self.deb("9.9.9"), newer], check=True)
            try:
                code, said = machine.chroot("dpkg", "--install", "/newer.deb")
            finally:
                subprocess.run(["umount", newer], check=True)
            expect(code != 0 and "No space left" in said, f"exit code {code}: {said}")
            code, said = machine.chroot("terrace", "--version")
            expect(said.strip() == f"terrace {self.version}", f"the version before does not run: {said}")

    def rpm_installs_upgrades_and_goes(self):
        if not shutil.which("rpm"):
            raise Unavailable("rpm is not installed")
        with self.machine() as machine:

            def rpm(*arguments):
                command = ["rpm", "--root", machine.root, *arguments]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                expect(done.returncode == 0, f"{' '.join(command)}: {done.stdout}")
                return done.stdout

            file = self.packages.make("rpm", "0.0.9")
            required = subprocess.run(["rpm", "-qpR", file], check=True, stdout=subprocess.PIPE, text=True).stdout
            for name in ("libc.so.6(GLIBC_", "libgcc_s.so.1()(64bit)", "shadow-utils"):
                expect(name in required, f"it does not require {name}: {required}")
            rpm("--initdb")
            # The root knows its libraries as Debian's packages, not rpm's.
            rpm("--install", "--nodeps", file)
            for path in rpm("--query", "--list", "terrace").split():
                expect(machine.exists(path), f"{path} is not there")
            expect(machine.chroot("getent", "passwd", "terrace")[0] == 0, "its scriptlet made no user")
            text = make_small(machine)
            rpm("--upgrade", "--nodeps", self.packages.make("rpm", self.version))
            expect(machine.read(SETTINGS) == text, f"{SETTINGS} was changed")
            machine.boot()
            started(machine)
            machine.run("systemctl", "stop", "terrace")
            said = rpm("--erase", "terrace")
            expect(not machine.exists("/usr/bin/terrace"), "it is still there")
            expect(machine.read(f"{SETTINGS}.rpmsave") == text, "edited settings are gone")
            expect(machine.exists("/var/lib/terrace") and "is left in" in said, f"what stays is not named: {said}")

    def static_binary_needs_only_passwd_and_hosts(self):
        if not self.packages.static:
            raise Unavailable("no static binary; `rustup target add` gets what it takes")
        with tempfile.TemporaryDirectory() as root:
            subprocess.run(["tar", "--extract", "--xz", "--strip-components=1", "--directory", root, "--file",
                            self.packages.make("tar", self.version), "--wildcards", "*/bin/terrace"], check=True)  # fmt: skip
            os.chmod(root, 0o755)
            os.mkdir(f"{root}/etc")
            for name, text in (("passwd", "cache:x:4711:4712::/:/bin/false\n"), ("hosts", "127.0.0.1 cache-host\n")):
                with open(f"{root}/etc/{name}", "w") as file:
                    file.write(text)
            with socket.create_server(("127.0.0.1", 0)) as found:
                port = found.getsockname()[1]
            command = ["chroot", root, "/bin/terrace", "-m", "64", "-l", "cache-host", "-p", str(port)]
            missing = subprocess.run([*command, "-u", "nobody-here"], capture_output=True, text=True, check=False)
            expect(missing.returncode == 67, f"exit code {missing.returncode}: {missing.stderr}")
            server = subprocess.Popen([*command, "-u", "cache"], stdout=subprocess.DEVNULL)

            def connect():
                expect(server.poll() is None, f"it ended with {server.returncode}")
                with contextlib.suppress(OSError):
                    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)

            try:
                client = Client(wait_for("an answer", connect))
                client.set("a", b"b")
                with open(f"/proc/{server.pid}/status") as file:
                    status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
                expect(status["Uid"].split() == ["4711"] * 4, f"users {status['Uid']}")
                expect(status["Gid"].split() == ["4712"] * 4, f"groups {status['Gid']}")
                client.connection.close()
                server.terminate()
                expect(server.wait(PATIENCE) == 0, f"exit code {server.returncode}")
            finally:
                server.kill()

    def sums_are_right(self):
        folder = os.path.dirname(self.deb())
        done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=False)
        expect(done.returncode == 0, "SHA256SUMS has other sums")
        with open(os.path.join(folder, "SHA256SUMS")) as file:
            listed = {line.split()[1] for line in file}
        expect(listed == set(os.listdir(folder)) - {"SHA256SUMS"}, f"SHA256SUMS lists {sorted(listed)}")
        again = os.path.join(self.packages.folder, "again")
        apart = Packages(self.packages.binary, self.packages.static, None, again)
        with open(apart.make("deb", self.version), "rb") as one, open(self.deb(), "rb") as other:
            same = hashlib.sha256(one.read()).digest() == hashlib.sha256(other.read()).digest()
        expect(same, "made again, the package has other bytes")


    def bill_of_materials_lists_what_is_built_in(self):
        tool = os.path.join(TREE, ".cache", "cyclonedx", "bin", "cargo-cyclonedx")
        if not os.access(tool, os.X_OK) and not os.environ.get("TERRACE_PACKAGES_SBOM"):
            raise Unavailable("cargo-cyclonedx is not installed; TERRACE_PACKAGES_SBOM=1 has it built in three minutes")
        folder = os.path.join(self.packages.folder, "sbom")
        command = [os.path.join(TREE, "scripts", "packages.sh"), "--output", folder, "sbom"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, f"terrace-{self.version}.cdx.json")) as file:
            bill = json.load(file)
        listed = {(it["name"], it["version"]) for it in bill["components"]}
        tree = ["cargo", "tree", "--locked", "--package", "terrace", "--edges", "normal", "--prefix", "none"]
        built = subprocess.run(tree, check=True, stdout=subprocess.PIPE, text=True, cwd=TREE).stdout.splitlines()
        built = {(words[0], words[1].lstrip("v")) for words in map(str.split, built)} - {("terrace", self.version)}
        expect(built <= listed, f"not listed: {sorted(built - listed)}")
        expect(not any(name == "proptest" for name, _ in listed), "what only tests use is listed")
        unlicensed = [it["name"] for it in bill["components"] if not it.get("licenses")]
        expect(not unlicensed, f"without a licence: {unlicensed}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True, help="the Debian root")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--static", default="")
    parser.add_argument("--next-format", default="")
    parser.add_argument("--version", required=True)
    parser.add_argument("only", nargs="*", help="names of tests")
    arguments = parser.parse_args()
    end_when_terminated()
    passed = failed = 0
    try:
        with Machine(arguments.base) as machine:
            machine.boot()
    except (Failed, OSError, subprocess.SubprocessError) as why:
        # Nothing of ours is in it yet.
        print(f"skipped: packages: no systemd in a container: {why}")
        print("test result: ok. 1 passed; 0 failed; 0 ignored")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        packages = Packages(arguments.binary, arguments.static, arguments.next_format, folder)
        tests = Tests(arguments.base, packages, arguments.version)
        names = [name for name in vars(Tests) if not name.startswith("_") and name not in ("machine", "deb")]
        for name in arguments.only or names:
            start = time.monotonic()
            try:
                getattr(tests, name)()
                passed += 1
            except Unavailable as why:
                print(f"skipped: {name}: {why}")
                # The line above is taken off the passed ones.
                passed += 1
            except (Failed, OSError, subprocess.SubprocessError) as error:
                print(f"{name}: {error}")
                failed += 1
            print(f"   {name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the container image; see `run`."""

import argparse
import contextlib
import itertools
import os
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "packages"))

from container import MIB, Container, Image, Volume  # noqa: E402
from machine import Failed, end_when_terminated, expect, wait_for  # noqa: E402

CHARTS = os.path.join(HERE, "..", "e2e", "tests", "charts.txt")
# Unpacked, for each architecture.
BYTES_MAX = 12_000_000
# Of ELF headers.
MACHINES = {"amd64": 62, "arm64": 183}
USER = 11211
KEYS = 300
TIER = ["-m", "64", "--tier", "ssd:/data/tier:256m"]


def charts():
    """Title, arguments and expected settings of every list."""
    lists = []
    with open(CHARTS) as file:
        for line in file.read().splitlines():
            if not line or line.startswith("#"):
                continue
            if not line.startswith("  "):
                lists.append((line, [], {}))
            elif line.startswith("  = "):
                name, value = line[4:].split(" ", 1)
                lists[-1][2][name] = value
            else:
                lists[-1][1].append(line[3:-1])
    expect(len(lists) > 30, f"only {len(lists)} lists")
    return lists


def value(at):
    return f"value {at} ".encode() * (1 + at % 300)


def fill(container):
    client = container.client()
    for at in range(KEYS):
        client.set(f"key{at}", value(at))


def found(container):
    client = container.client().wait_until_recovered()
    values = [client.get(f"key{at}") for at in range(KEYS)]
    expect(all(it in (None, value(at)) for at, it in enumerate(values)), "a value is wrong")
    return sum(it is not None for it in values)


def expect_warm(container):
    count = found(container)
    expect(count == KEYS, f"{count} of {KEYS} are back: {container.output()}")
    wait_for("a warm start", lambda: " warm: " in container.output())


class Tests:
    def __init__(self, image):
        self.image = image

    def container(self, *arguments, **options):
        return Container(self.image, arguments, **options)

    def image_is_small_and_has_one_program(self):
        expect("amd64" in self.image.roots, f"architectures {list(self.image.roots)}")
        for architecture, root in self.image.roots.items():
            paths = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
            programs = [path for path in paths if os.access(path, os.X_OK)]
            names = {os.path.relpath(path, root) for path in programs}
            expect(names == {"usr/bin/terrace", "usr/bin/memcached"}, f"{architecture}: programs {names}")
            size = sum(os.path.getsize(path) for path in paths if not os.path.islink(path))
            expect(size <= BYTES_MAX, f"{architecture}: {size} bytes")
            with open(os.path.join(root, "usr/bin/terrace"), "rb") as file:
                [machine] = struct.unpack_from("<H", file.read(20), 18)
            expect(machine == MACHINES[architecture], f"{architecture}: a binary for machine {machine}")
            config = self.image.configs[architecture]
            expect(config["User"] == f"{USER}:{USER}", f"{architecture}: user {config['User']}")
            owner = os.stat(os.path.join(root, "data")).st_uid
            expect(owner == USER, f"{architecture}: /data belongs to {owner}")
            print(f"   {architecture}: {size / 1e6:.1f} MB", flush=True)

    def argument_lists_of_charts_start_and_serve(self):
        # As arguments of the entry point, behind `memcached`, and with that as the command.
        ways = [([], None), (["memcached"], None), ([], ["memcached"])]
        for (title, arguments, settings), (words, command) in itertools.product(charts(), ways):
            words = [*words, *arguments]
            with contextlib.ExitStack() as stack:
                volumes = {"/data": stack.enter_context(Volume(USER))}
                # Our values for these charts have a volume in memory there.
                if "--state /run/terrace" in arguments:
                    volumes["/run/terrace"] = stack.enter_context(Volume(USER, in_memory=True, megabytes=528))
                container = stack.enter_context(self.container(*words, command=command, volumes=volumes))
                client = container.client()
                client.set("chart", b"value")
                expect(client.get("chart") == b"value", f"{title}: the value is gone")
                shown = client.stats("settings")
                for name, wanted in settings.items():
                    expect(shown.get(name) == wanted, f"{title}: {name} is {shown.get(name)}, not {wanted}")

    def other_programs_run_or_are_told_of(self):
        plan = ["plan", "--items", "1m", "--value-bytes", "200"]
        for words in (plan, ["terrace", *plan], ["--version"], ["memcached", "--version"]):
            with self.container(*words) as container:
                expect(container.ended() == 0, f"{words}: {container.output()}")
                expect("terrace" in container.output(), f"{words}: {container.output()}")
        with self.container("sh") as container:
            expect(container.ended() != 0, "there is a shell")
            expect("terrace --help" in container.output(), f"sh: {container.output()}")

    def root_becomes_a_user_of_the_image(self):
        for name in ("memcache", "memcached", "terrace", "nobody"):
            with self.container("-u", name, root=True) as container:
                container.client()
                with open(f"/proc/{container.pid()}/status") as file:
                    [line] = [line for line in file if line.startswith("Uid:")]
                expect(set(line.split()[1:]) == {"65534" if name == "nobody" else str(USER)}, f"{name}: {line}")
        with self.container(root=True) as container:
            expect(container.ended() == 64, f"root without -u: {container.output()}")

    def tier_is_read_without_io_uring(self):
        for errno in (None, 1):
            with Volume(USER) as data:
                with self.container(*TIER, volumes={"/data": data}, errno=errno) as container:
                    fill(container)
                    told = "since io_uring can't be had" in container.output()
                    expect(told, f"it says nothing of io_uring: {container.output()}")
                    expect(found(container) == KEYS, "values are missing")

    def first_process_ends_by_signals(self):
        with Volume(USER) as data:
            with self.container(*TIER, volumes={"/data": data}) as container:
                with open(f"/proc/{container.client() and container.pid()}/status") as file:
                    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
                expect(status["NSpid"].split()[-1] == "1", f"its process id is {status['NSpid']}")
                expect(status["Uid"].split() == [str(USER)] * 4, f"it runs as {status['Uid']}")
                expect(int(status["CapEff"], 16) == 0, f"it has capabilities {status['CapEff']}")
                expect(status["Seccomp"] == "2", "system calls are not filtered")
                fill(container)
                start = time.monotonic()
                code = container.stop()
                expect(code == 0, f"exit code {code}: {container.output()}")
                print(f"   a stop took {time.monotonic() - start:.1f} s", flush=True)
            with self.container(*TIER, volumes={"/data": data}) as container:
                expect_warm(container)

    def state_in_memory_is_warm_after_a_kill(self):
        flags = [*TIER, "--state", "/state"]
        with Volume(USER) as data, Volume(USER, in_memory=True) as state:
            volumes = {"/data": data, "/state": state}
            with self.container(*flags, volumes=volumes) as container:
                fill(container)
                code = container.kill()
                expect(code == 137, f"exit code {code}")
            for end in (Container.kill, Container.stop):
                with self.container(*flags, volumes=volumes) as container:
                    expect_warm(container)
                    end(container)
            with self.container(*flags, volumes=volumes) as container:
                expect_warm(container)

    def state_on_the_volume_is_warm_after_a_stop(self):
        flags = [*TIER, "--state", "/data"]
        with Volume(USER) as data:
            volumes = {"/data": data}
            with self.container(*flags, volumes=volumes) as container:
                fill(container)
                expect("WARN" in container.output(), f"it does not say that a kill is cold: {container.output()}")
                container.stop()
            with self.container(*flags, volumes=volumes) as container:
                expect_warm(container)
                container.kill()
            with self.container(*flags, volumes=volumes) as container:
                expect(found(container) == 0, "something came back that may be old")
                expect("COLD START" in container.output(), container.output())

    def small_dev_shm_is_told(self):
        with Volume(USER) as data:
            flags = ["-m", "512", "--tier", "ssd:/data/tier:1g"]
            with self.container(*flags, volumes={"/data": data}) as container:
                fill(container)
                told = [line for line in container.output().splitlines() if "WARN" in line and "/dev/shm" in line]
                expect(told, f"it does not say that a kill is cold: {container.output()}")

    def limited_memory_is_kept_to(self):
        with self.container("-m", "128", memory=154) as container:
            client = container.client()
            large = bytes(900_000)
            for at in range(400):
                client.set(f"large{at}", large)
            expect(container.process.poll() is None, f"it ended: {container.output()}")
            expect("154 MiB" in container.output(), container.output())
            held = sum(client.get(f"large{at}") is not None for at in range(400))
            expect(held * len(large) > 60 * MIB, f"{held} values are held")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", required=True)
    parser.add_argument("only", nargs="*", help="names of tests")
    arguments = parser.parse_args()
    end_when_terminated()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        tests = Tests(Image(arguments.archive, folder))
        for name in arguments.only or [name for name in vars(Tests) if name[0] != "_" and name != "container"]:
            start = time.monotonic()
            try:
                getattr(tests, name)()
                passed += 1
            except (Failed, OSError, subprocess.SubprocessError) as error:
                print(f"{name}: {error}")
                failed += 1
            print(f"   {name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""NVMe/TCP against Linux, in guests; see `run` and docs/testing.md."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time

from export import Exports
from guest import Failed, Guest, Unavailable, end_when_terminated
from protocol import Protocol
from roles import KernelInitiator, KernelTarget, sparse_file
from servers import Peer
from tier import Tiers

DRIVE_MEGABYTES = 256


class Place:
    """What tests share: guests, which are started with the first test that needs them, and files. What a test that
    failed had to do with is not used again."""

    def __init__(self, parts, binary, peer):
        self.parts, self.binary, self.peer = parts, binary, Peer(peer)
        self._target = self._initiator = None
        # Not in memory: drives of guests are read and written past the page cache.
        self._base = tempfile.mkdtemp(prefix="terrace-guest-files-", dir="/var/tmp")

    def folder(self):
        return tempfile.mkdtemp(dir=self._base)

    def target(self):
        if not self._target:
            drive = sparse_file(self.folder(), "drive", DRIVE_MEGABYTES)
            self._target = KernelTarget(self.parts, drive)
            self._target.drive_megabytes = DRIVE_MEGABYTES
            self._target.start()
        return self._target

    def initiator(self):
        if not self._initiator:
            self._initiator = KernelInitiator(self.parts)
            self._initiator.__enter__()
        return self._initiator

    def expect_sound(self):
        for role in (self._target, self._initiator):
            if role:
                role.guest.expect_sound()

    def forget(self):
        for role in (self._target, self._initiator):
            if role:
                role.guest.close()
        self._target = self._initiator = None

    def close(self):
        self.forget()
        shutil.rmtree(self._base, ignore_errors=True)


def tests_of(place):
    """All tests by name, and the names of the fast ones."""
    tests, fast = {}, []
    for group in (Protocol(place), Exports(place), Tiers(place)):
        names = [name for name in vars(type(group)) if not name.startswith("_") and name != "FAST"]
        tests.update({name: getattr(group, name) for name in names})
        fast += [test.__name__ for test in group.FAST]
    return tests, fast


def run(place, name, test):
    """Runs one test: passed or not."""
    start = time.monotonic()
    try:
        test()
        place.expect_sound()
        passed = True
    except Unavailable as why:
        # This line is taken off the passed ones.
        print(f"skipped: {name}: {why}")
        passed = True
    except (Failed, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"{name}: {type(error).__name__}: {error}")
        place.forget()
        passed = False
    print(f"   {name}: {time.monotonic() - start:.0f} s", flush=True)
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", required=True, help="the folder that `parts` made")
    parser.add_argument("--binary", required=True, help="terrace")
    parser.add_argument("--peer", required=True, help="the example over_tcp of crates/nvme")
    parser.add_argument("--fast", action="store_true", help="those for make test-long")
    parser.add_argument("only", nargs="*", help="names of tests")
    arguments = parser.parse_args()
    end_when_terminated()
    # In a network of its own, where guests are the only other machines, and reach each other.
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with open("/proc/sys/net/ipv4/ip_forward", "w") as forward:
        forward.write("1")
    place = Place(arguments.parts, arguments.binary, arguments.peer)
    try:
        try:
            Guest(place.parts, "first").boot().close()
        except (Failed, OSError, subprocess.SubprocessError) as why:
            # Nothing of ours is in it yet.
            print(f"skipped: guest: no guest starts: {why}")
            print("test result: ok. 1 passed; 0 failed; 0 ignored")
            return 0
        tests, fast = tests_of(place)
        unknown = set(arguments.only) - set(tests)
        if unknown:
            parser.error(f"no such tests: {', '.join(sorted(unknown))}")
        chosen = arguments.only or (fast if arguments.fast else list(tests))
        failed = sum(not run(place, name, tests[name]) for name in chosen)
    finally:
        place.close()
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(chosen) - failed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""A Terrace server with tier `nvme-tcp:` on Linux' target."""

import contextlib
import os
import subprocess
import threading
import time

from cache import Records
from guest import expect, wait_for
from relay import Relay
from roles import DRIVE, MEMORY, NULL, KernelTarget
from servers import Server, require_remote_tiers
from volatile_disk import VolatileDisk

# Records of 1.4 KiB on average: thrice the DRAM of a server.
COUNT = 30_000
ANOTHER_HOST = "nqn.2014-08.org.nvmexpress:uuid:7ac3e0f4-0000-4000-8000-0000000000b1"
# Seconds within which a request is answered whose record is on a target that does not answer: a second, and what a
# machine takes besides that has other work to do. A request that waits for the target takes 30.
MISS_SECONDS = 10


class Tiers:
    def __init__(self, place):
        self.place = place

    def _tier(self, address, nsid, target):
        require_remote_tiers(self.place.binary)
        # A server takes no namespace that holds what others wrote, as other tests did.
        target.wipe(nsid)
        return f"nvme-tcp:{address}/{target.nqn}/{nsid}"

    def _server(self, *tiers, **options):
        return Server(self.place.binary, *tiers, **options)

    def _fill(self, server, records):
        with server.client() as client:
            stored = records.store(client)
        expect(stored == len(records.keys), f"{stored} of {len(records.keys)} were stored: {records.refusal}")

    def _read(self, server, records, keys=None):
        with server.client() as client:
            tally = records.read(client, keys)
        expect(not tally.wrong, f"{tally}: {tally.wrong[:3]}")
        return tally

    def _expect_all(self, server, records, what):
        tally = self._read(server, records)
        expect(tally.misses == 0, f"{what}: {tally}")

    def _wait_for_all(self, server, records, what, seconds=120):
        """Reads until all records are there again; a wrong one is an error at any time."""
        wait_for(what, lambda: self._read(server, records).misses == 0, seconds)

    def _expect_whole_again(self, server, records):
        """Records of a write that was not confirmed may be gone. The tier takes them again, once it is back."""

        def stored_all():
            with server.client() as client:
                stored = records.store(client)
            if stored < len(records.keys):
                print(f"   {len(records.keys) - stored} stores were refused: {records.refusal}", flush=True)
            return stored == len(records.keys)

        wait_for("stores of all records", stored_all)
        self._expect_all(server, records, "stored again")

    def _fills_and_restarts(self, nsid, address, options=""):
        target = self.place.target()
        with self._server(self._tier(address, nsid, target) + options) as server:
            records = Records(COUNT)
            self._fill(server, records)
            self._expect_all(server, records, "filled")
            with server.client() as client:
                expect(server.tier(client, "reads") > 0, "nothing was read from the tier")
            server.stop()
            server.start()
            self._expect_all(server, records, "started again")
            server.kill()
            server.start()
            tally = self._read(server, records)
            expect(tally.hits >= 0.999 * COUNT, f"after kill -9: {tally}")

    def memory_namespace_is_a_tier(self):
        """Over IPv6."""
        self._fills_and_restarts(MEMORY, self.place.target().address6)

    def null_namespace_is_a_tier(self):
        """Of blocks of 4096 bytes."""
        self._fills_and_restarts(NULL, self.place.target().address)

    def drive_namespace_is_a_tier(self):
        """With digests."""
        self._fills_and_restarts(DRIVE, self.place.target().address, ",digests")

    def _probe(self, tier):
        command = [self.place.binary, "probe", "--destroy", "--seconds", "10", tier]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)

    def probe_measures_a_namespace(self):
        target = self.place.target()
        tier = self._tier(target.address, MEMORY, target)
        done = self._probe(tier)
        expect(done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-500:]}{done.stderr[-1000:]}")
        expect("nvme-tcp:" in done.stdout, f"it does not name what it measured: {done.stdout[:1000]}")

    def target_that_stalls_costs_misses_only(self):
        """30 seconds without an answer: requests are answered, and afterwards all records are there."""
        target = self.place.target()
        with self._server(self._tier(target.address, DRIVE, target)) as server:
            records = Records(COUNT)
            self._fill(server, records)
            target.guest.pause()
            try:
                end, longest, hits, misses = time.monotonic() + 30, 0, 0, 0
                at = 0
                with server.client() as client:
                    while time.monotonic() < end:
                        start = time.monotonic()
                        tally = records.read(client, [records.keys[at % COUNT]])
                        longest = max(longest, time.monotonic() - start)
                        expect(not tally.wrong, f"a wrong value: {tally.wrong}")
                        hits, misses, at = hits + tally.hits, misses + tally.misses, at + 7919
            finally:
                target.guest.resume()
            expect(longest < MISS_SECONDS, f"a request took {longest:.1f} s")
            expect(hits > 0 and misses > 0, f"{hits} hits from DRAM, {misses} misses of the tier")
            print(f"   stalled: {hits} hits, {misses} misses, the longest request {longest * 1000:.0f} ms", flush=True)
            self._wait_for_all(server, records, "all records after the stall")

    def target_that_is_killed_comes_back_with_its_records(self):
        target = self.place.target()
        with self._server(self._tier(target.address, DRIVE, target)) as server:
            records = Records(COUNT)
            self._fill(server, records)
            target.guest.kill()
            time.sleep(5)
            start = time.monotonic()
            tally = self._read(server, records, records.keys[::97])
            each = (time.monotonic() - start) / len(records.keys[::97])
            expect(tally.misses > 0, "the tier's records are hits without the tier")
            print(f"   without the target: {tally}, {each * 1000:.1f} ms each", flush=True)
            target.start()
            self._wait_for_all(server, records, "all records after the return")

    def target_whose_clock_jumps_is_used_on(self):
        target = self.place.target()
        with self._server(self._tier(target.address, DRIVE, target)) as server:
            records = Records(COUNT)
            self._fill(server, records)
            for seconds in (3600, -7200, 86_400):
                target.guest.jump(seconds)
                self._expect_all(server, records, f"after a jump of {seconds} s")

    def target_that_loses_what_was_not_flushed_gives_no_wrong_value(self):
        """Power losses of a target whose drive has a volatile cache, under stores: records may be gone, never wrong."""
        folder = self.place.folder()
        with contextlib.closing(VolatileDisk(folder, "volatile", 256)) as disk:
            with KernelTarget(self.place.parts, disk.address, name="volatile") as target:
                with self._server(self._tier(target.address, DRIVE, target)) as server:
                    records = Records(COUNT)
                    self._fill(server, records)
                    for turn in range(4):
                        self._cut_under_stores(server, records, turn, target, disk)
                        for _ in range(3):
                            tally = self._read(server, records)
                            time.sleep(2)
                        if turn == 2:
                            server.kill()
                            server.start()
                            tally = self._read(server, records)
                        print(f"   cut {turn + 1}: {tally}; {disk.lost} sectors lost so far", flush=True)
                    expect(disk.flushes > 0, "no flush came to the drive")
                    self._expect_whole_again(server, records)

    @staticmethod
    def _cut_under_stores(server, records, turn, target, disk):
        """A loss of power while records are stored, and the return."""

        def store():
            with server.client() as client:
                for _ in range(3):
                    records.store(client, records.keys[turn::8])

        storing = threading.Thread(target=store)
        storing.start()
        time.sleep(0.3 + 0.4 * turn)
        target.guest.kill()
        disk.cut()
        target.start()
        storing.join()

    def second_server_on_a_namespace_is_refused(self):
        """While the first serves; it goes on, and loses nothing."""
        target = self.place.target()
        tier = self._tier(target.address, DRIVE, target)
        with self._server(tier) as first:
            records = Records(COUNT)
            self._fill(first, records)
            # A host of its own, as a second machine is.
            second = self._server(f"{tier},host={ANOTHER_HOST}")
            try:
                second.launch()
                with contextlib.suppress(Exception):
                    second.process.wait(30)
                if second.process.poll() is None:
                    ports = os.path.join(second.folder, "ports")
                    wait_for("the second's port", lambda: os.path.exists(ports))
                    log = second.logged()
                    expect("nvme-tcp" in log and ("refused" in log or "another" in log), f"it serves: {log}")
                else:
                    expect(second.process.returncode != 0, f"it ended without an error: {second.logged()}")
            finally:
                second.__exit__()
            probed = self._probe(tier)
            expect(probed.returncode != 0, f"what a server has was overwritten: {probed.stdout}")
            self._expect_all(first, records, "beside a second server")

    def connections_that_break_give_no_wrong_value(self):
        """Delays, resets within a PDU, silence, flipped bits and refused connections between server and target."""
        target = self.place.target()
        relay = Relay((target.guest.address, 4420))
        with contextlib.closing(relay), self._server(self._tier(relay.address, DRIVE, target) + ",digests") as server:
            records = Records(COUNT)
            self._fill(server, records)

            def resets():
                for _ in range(5):
                    self._read(server, records, records.keys[::11])
                    relay.reset()

            def late():
                relay.delay = 0.05
                self._read(server, records, records.keys[::61])
                relay.delay = 0

            def silence():
                relay.is_silent = True
                self._read(server, records, records.keys[::301])
                relay.is_silent = False

            def refusal():
                relay.refuses = True
                relay.reset()
                self._read(server, records, records.keys[::301])
                relay.refuses = False

            def flips():
                for at in range(10):
                    relay.flip_after = 30_011 * at
                    self._read(server, records, records.keys[at::29])

            def stores():
                for _ in range(3):
                    with server.client() as client:
                        records.store(client, records.keys[::2])
                    relay.reset()

            for harm in (resets, late, silence, refusal, flips):
                harm()
                self._wait_for_all(server, records, f"all records after {harm.__name__}")
            stores()
            tally = self._read(server, records)
            print(f"   writes that were cut: {tally}", flush=True)
            self._expect_whole_again(server, records)

    FAST = (memory_namespace_is_a_tier, target_that_is_killed_comes_back_with_its_records)


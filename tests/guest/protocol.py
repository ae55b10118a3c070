"""The protocol alone: crates/nvme's host on Linux' target, and Linux' initiator on crates/nvme's controller."""

import contextlib
import time

from filesystem import exercise_file_system
from guest import Failed, Unavailable, expect
from relay import Relay
from roles import BLOCK_BYTES, DRIVE, HOST_NQN, MEMORY, NULL, KernelTarget
from servers import MemoryTarget
from volatile_disk import VolatileDisk

# A name that no target lets connect.
STRANGER = "nqn.2014-08.org.nvmexpress:uuid:7ac3e0f4-0000-4000-8000-0000000000ff"
# As `over_tcp` is called: the names of its hosts end in a0 and a1.
OURS = "nqn.2014-08.org.nvmexpress:uuid:7ac3e0f4-0000-4000-8000-0000000000a0"


class Protocol:
    def __init__(self, place):
        self.place = place

    def linux_serves_our_host(self):
        """Writes, reads, zeroes, errors and a reset on every kind of namespace, with digests and without."""
        target, peer = self.place.target(), self.place.peer
        for address in (target.address, target.address6):
            told = peer.run("discover", address)
            expect(any(f"Nvm {target.nqn} " in line for line in told), f"{address} tells {told}")
        for nsid in (MEMORY, NULL, DRIVE):
            for digests in ((), ("--digests",)):
                lines = peer.run("exercise", target.address, target.nqn, nsid, *digests)
                expect(f"blocks of {BLOCK_BYTES[nsid]}" in lines[0], lines[0])
                expect("ok reset, connect, compare" in lines, f"not all steps were done: {lines}")
        peer.run("exercise", target.address6, target.nqn, MEMORY, "--digests")

    def linux_refuses_our_host(self):
        """A host that is not on the list does not get in; one that is does."""
        target, peer = self.place.target(), self.place.peer
        target.allow([STRANGER])
        try:
            try:
                peer.run("exercise", target.address, target.nqn, MEMORY)
            except Failed as refused:
                expect("connect: invalid host" in str(refused), f"another error: {refused}")
            else:
                expect(False, "a host that is not on the list was let in")
            target.allow([STRANGER, OURS])
            peer.run("exercise", target.address, target.nqn, MEMORY)
        finally:
            target.allow(None)

    def our_host_learns_of_another_size(self):
        """An asynchronous event, after twice the keep-alive time."""
        target = self.place.target()
        size = target.drive_megabytes
        target.drive_megabytes += 16
        grow = lambda: target.resize(target.drive_megabytes << 20)  # noqa: E731
        lines = self.place.peer.run_beside(grow, "resized", target.address, target.nqn, DRIVE)
        changed = f"ok event: {size * 2048} blocks became {target.drive_megabytes * 2048}"
        expect(changed in lines, f"{changed!r} is not in {lines}")

    def our_host_survives_lost_connections(self):
        """The target resets all connections under load, and comes back with the same data."""
        target = self.place.target()

        def withdraw():
            target.withdraw()
            time.sleep(1)
            target.publish()

        for nsid in (MEMORY, DRIVE):
            lines = self.place.peer.run_beside(withdraw, "survives", target.address, target.nqn, nsid)
            expect("ok back: the same data" in lines, f"{lines}")

    def our_host_survives_a_power_loss_of_the_target(self):
        """The target's machine goes and comes back with what its drive has."""
        target = self.place.target()
        lines = self.place.peer.run_beside(target.restart, "survives", target.address, target.nqn, DRIVE)
        expect("ok back: the same data" in lines, f"{lines}")

    def flushed_data_survive_a_power_loss(self):
        """Of a target whose drive has a volatile cache; what was not flushed is lost there."""
        with contextlib.closing(VolatileDisk(self.place.folder(), "volatile", 64)) as disk:
            with KernelTarget(self.place.parts, disk.address, megabytes=64, name="volatile") as target:

                def power_loss():
                    # Elsewhere on the drive, and not flushed.
                    target.guest.run("dd if=/dev/urandom of=/dev/$(drive drive) oflag=direct bs=1M seek=32 count=4")
                    target.guest.kill()
                    disk.cut()
                    target.start()

                lines = self.place.peer.run_beside(power_loss, "survives", target.address, target.nqn, DRIVE)
                expect("ok back: the same data" in lines, f"{lines}")
                expect(disk.flushes > 0, "no flush came to the drive")
                expect(disk.lost > 0, "nothing was lost: the test shows nothing")

    def harm_on_the_way_is_noticed(self):
        """A reset within a PDU, and flipped bits, which digests must find."""
        target = self.place.target()
        with contextlib.closing(Relay((target.guest.address, 4420))) as relay:
            lines = self.place.peer.run_beside(relay.reset, "survives", relay.address, target.nqn, DRIVE)
            expect("ok back: the same data" in lines, f"{lines}")
            # Far behind the first PDUs, which have no digests.
            for bytes_before in (20_001, 1_000_003, 5_000_011, 9_000_007):
                relay.flip_after = bytes_before
                try:
                    self.place.peer.run("exercise", relay.address, target.nqn, DRIVE, "--digests")
                except Failed as error:
                    # Damage is found by its digest, before the data are looked at.
                    bad = [text for text in ("other data", "not zero", "panicked") if text in str(error)]
                    expect(not bad, f"{error}")
                    last = str(error).strip().splitlines()[-1]
                    print(f"   bit flipped after {bytes_before:,} bytes: {last}", flush=True)
                else:
                    expect(False, f"the bit that was flipped after {bytes_before} bytes was not found")

    def our_host_reserves_on_linux(self):
        target = self.place.target()
        if not target.has_reservations:
            raise Unavailable("this kernel's target has no reservations; Linux 6.13 has")
        lines = self.place.peer.run("reserves", target.address, target.nqn, MEMORY)
        expect(any(line.startswith("ok reservation") for line in lines), f"{lines}")

    def linux_uses_our_controller(self):
        """Discovery, Identify, verified load, file system; with digests and without."""
        initiator, peer = self.place.initiator(), self.place.peer
        for block_bytes, digests in ((512, False), (4096, True)):
            with MemoryTarget(peer, initiator.guest.outside, block_bytes) as target:
                expect(target.nqn in initiator.discover(target.to), "discovery does not tell the subsystem")
                initiator.connect(target.to, target.nqn, digests)
                device = initiator.device(target.nqn)
                controller, namespace = initiator.identify(target.nqn, device)
                expect(controller["subnqn"] == target.nqn, f"Identify says {controller['subnqn']}")
                expect(namespace["nsze"] == (64 << 20) // block_bytes, f"{namespace['nsze']} blocks")
                written, read, errors = initiator.verify(device, 8)
                expect(written == read == 8 << 20 and errors == 0, f"{written} written, {read} read, {errors} errors")
                exercise_file_system(initiator, device)
                initiator.disconnect(target.nqn)
        errors = initiator.run("dmesg | grep -E 'I/O (Cmd|error)' || true")
        expect(not errors, f"the initiator saw errors: {errors}")

    def linux_uses_linux(self):
        """The guests against each other: what fails here is not ours."""
        target, initiator = self.place.target(), self.place.initiator()
        to = (target.guest.address, 4420)
        initiator.connect(to, target.nqn, digests=True)
        for nsid in (MEMORY, NULL, DRIVE):
            device = initiator.device(target.nqn, nsid)
            written, read, errors = initiator.verify(device, 4)
            expect(written == read == 4 << 20 and errors == 0, f"{written} written, {read} read, {errors} errors")
        exercise_file_system(initiator, device)
        initiator.disconnect(target.nqn)
        target.allow([HOST_NQN])
        try:
            expect(initiator.may_connect(to, target.nqn, HOST_NQN), "a host on the list is refused")
            expect(not initiator.may_connect(to, target.nqn, STRANGER), "a host that is not on the list was let in")
        finally:
            target.allow(None)

    FAST = (linux_serves_our_host, our_host_survives_lost_connections)

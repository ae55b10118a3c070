"""Linux' initiator on `terrace export`."""

import os
import subprocess
import time

from filesystem import check_files, copy_files, exercise_file_system, make_file_system, unmount_and_check
from guest import Failed, expect, wait_for
from protocol import STRANGER
from roles import HOST_NQN, sparse_file
from servers import Export, require_export

MEGABYTES = 128
# The initiator's keep-alive time; see `KernelInitiator.connect`.
KEEP_ALIVE_SECONDS = 5


class Exports:
    def __init__(self, place):
        self.place = place

    def _export(self, *namespaces, **options):
        require_export(self.place.binary)
        initiator = self.place.initiator()
        return initiator, Export(self.place.binary, initiator.guest.outside, namespaces or [self._file()], **options)

    def _file(self, name="namespace"):
        return sparse_file(self.place.folder(), name, MEGABYTES)

    def linux_uses_the_export(self):
        """Discovery, connections to all that it tells, Identify, verified load, file system; digests on and off."""
        initiator, export = self._export(self._file("one") + ",block=512", self._file("two"))
        with export as target:
            expect(target.nqn in initiator.discover(target.to), "discovery does not tell the subsystem")
            initiator.connect_all(target.to)
            initiator.device(target.nqn)
            initiator.disconnect(target.nqn)
            for nsid, digests in ((1, False), (2, True)):
                initiator.connect(target.to, target.nqn, digests)
                device = initiator.device(target.nqn, nsid)
                controller, namespace = initiator.identify(target.nqn, device)
                expect(controller["subnqn"] == target.nqn, f"Identify says {controller['subnqn']}")
                expect(int(namespace["nguid"], 16) != 0, "a namespace has no identifier")
                written, read, errors = initiator.verify(device, 8)
                expect(written == read == 8 << 20 and errors == 0, f"{written} written, {read} read, {errors} errors")
                exercise_file_system(initiator, device)
                initiator.disconnect(target.nqn)
            expect(initiator.state(target.nqn) == "", "a controller is left")
            target.stop()

    def export_keeps_its_namespaces_identity(self):
        """After a restart a namespace has the same identifier, and the initiator takes it for the same."""
        initiator, export = self._export()
        with export as target:
            initiator.connect(target.to, target.nqn)
            device = initiator.device(target.nqn)
            before = initiator.identify(target.nqn, device)[1]["nguid"]
            make_file_system(initiator, device)
            target.stop()
            target.start()
            wait_for("the initiator's return", lambda: initiator.state(target.nqn) == "live")
            expect(initiator.identify(target.nqn, device)[1]["nguid"] == before, "it has another identifier")
            check_files(initiator)
            unmount_and_check(initiator, device)
            initiator.disconnect(target.nqn)

    def _under_load(self, harm, seconds):
        """A mounted file system with a verified load, while `harm` is done; then all must be right."""
        initiator, export = self._export()
        with export as target:
            initiator.connect(target.to, target.nqn, digests=True)
            device = initiator.device(target.nqn)
            make_file_system(initiator, device)
            load = initiator.fio("/mnt/load", 16, seconds=seconds)
            running = initiator.guest.start(load)
            time.sleep(3)
            harm(initiator, target)
            copy_files(initiator, "after")
            initiator.guest.wait(running, "fio", seconds + 120)
            expect(running.code == 0, f"fio: exit code {running.code}: {running.output[-2000:]}")
            written, read, errors = initiator.fio_result(running.output)
            expect(errors == 0 and written > 0 and read > 0, f"{written} written, {read} verified, {errors} errors")
            for folder in ("files", "after"):
                check_files(initiator, folder)
            unmount_and_check(initiator, device)
            initiator.disconnect(target.nqn)

    def export_killed_under_load_comes_back(self):
        """`kill -9` and a start, three times, while a file system is mounted and written to."""

        def harm(initiator, target):
            for _ in range(3):
                target.kill()
                time.sleep(1)
                target.start()
                wait_for("the initiator's return", lambda: initiator.state(target.nqn) == "live")
                time.sleep(1)

        self._under_load(harm, 15)

    def export_stopped_beyond_the_keep_alive_time_comes_back(self):
        def harm(initiator, target):
            target.pause()
            wait_for("the end of the connection", lambda: initiator.state(target.nqn) == "connecting", 60)
            time.sleep(KEEP_ALIVE_SECONDS)
            target.resume()
            wait_for("the initiator's return", lambda: initiator.state(target.nqn) == "live")

        self._under_load(harm, 30)

    def initiator_whose_clock_jumps_goes_on(self):
        def harm(initiator, target):
            for seconds in (3600, -7200, 86_400):
                initiator.guest.jump(seconds)
                time.sleep(2)
                expect(initiator.state(target.nqn) == "live", f"the connection ended at a jump of {seconds} s")

        self._under_load(harm, 12)

    def shrunk_file_is_an_error_to_linux(self):
        """Where the file no longer is; the rest is served on."""
        file = self._file()
        initiator, export = self._export(file)
        with export as target:
            initiator.connect(target.to, target.nqn)
            device = initiator.device(target.nqn)
            initiator.verify(device, 8)
            os.truncate(file, MEGABYTES // 2 << 20)
            read = f"dd if={device} of=/dev/null bs=1M count=1 iflag=direct"
            code, output = initiator.guest.ran(f"{read} skip={MEGABYTES - 8}")
            # What Linux makes of an unrecovered read error.
            expect(code != 0 and "No data available" in output, f"exit code {code}: {output[-500:]}")
            initiator.run(read)
            expect(initiator.state(target.nqn) == "live", "the connection ended")
            initiator.disconnect(target.nqn)

    def full_disk_is_an_error_to_linux(self):
        """Where the file has lost its room, as on a drive that is thinly provisioned; the rest is served on."""
        folder = self.place.folder()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES + 8}m", "tmpfs", folder], check=True)
        try:
            file = sparse_file(folder, "thin", MEGABYTES)
            initiator, export = self._export(file)
            with export as target:
                initiator.connect(target.to, target.nqn)
                device = initiator.device(target.nqn)
                initiator.verify(device, 8)
                subprocess.run(["fallocate", "--punch-hole", "--offset", "64MiB", "--length", "32MiB", file], check=True)
                subprocess.run(["fallocate", "--length", "32MiB", os.path.join(folder, "another")], check=True)
                write = f"dd if=/dev/zero of={device} bs=1M count=16 seek=64 oflag=direct"
                code, output = initiator.guest.ran(write)
                # What Linux makes of the status "capacity exceeded".
                expect(code != 0 and "No space left" in output, f"exit code {code}: {output[-500:]}")
                initiator.verify(device, 8)
                expect(initiator.state(target.nqn) == "live", "the connection ended")
                initiator.disconnect(target.nqn)
        finally:
            subprocess.run(["umount", folder], check=True)

    def initiator_that_vanishes_leaves_nothing(self):
        """A machine without power: the export's controller goes with the keep-alive time, and another host gets in."""
        initiator, export = self._export()
        with export as target:
            initiator.connect(target.to, target.nqn)
            device = initiator.device(target.nqn)
            make_file_system(initiator, device)
            initiator.guest.kill()
            initiator.guest.boot()
            initiator.run("load nvme-tcp")
            initiator.connect(target.to, target.nqn)
            device = initiator.device(target.nqn)
            initiator.run(f"mount {device} /mnt")
            check_files(initiator)
            copy_files(initiator, "more")
            unmount_and_check(initiator, device)
            initiator.disconnect(target.nqn)

    def only_hosts_on_the_list_get_in(self):
        initiator, export = self._export(hosts=[HOST_NQN])
        with export as target:
            expect(initiator.may_connect(target.to, target.nqn, HOST_NQN), "a host on the list is refused")
            is_stranger_in = initiator.may_connect(target.to, target.nqn, STRANGER)
            expect(not is_stranger_in, "a host that is not on the list was let in")

    def second_host_is_kept_out_by_a_reservation(self):
        """nvme-cli registers and acquires; crates/nvme's host tries the same at the same time."""
        initiator, export = self._export()
        with export as target:
            lines = self.place.peer.run("reserves", f"{target.to[0]}:{target.to[1]}", target.nqn, 1)
            expect(any(line.startswith("ok reservation") for line in lines), f"{lines}")
            initiator.connect(target.to, target.nqn)
            device = initiator.device(target.nqn)
            initiator.run(f"nvme resv-register {device} -n 1 --nrkey=17 --rrega=0")
            initiator.run(f"nvme resv-acquire {device} -n 1 --crkey=17 --rtype=1 --racqa=0")
            told = initiator.run(f"nvme resv-report {device} -n 1 --eds -o json")
            expect('"regctl"' in told, f"resv-report: {told}")
            code, _ = initiator.guest.ran(f"dd if=/dev/zero of={device} bs=4096 count=1 oflag=direct")
            expect(code == 0, "the holder may not write")
            try:
                self.place.peer.run("exercise", f"{target.to[0]}:{target.to[1]}", target.nqn, 1)
            except Failed as refused:
                expect("reservation conflict" in str(refused), f"another error: {refused}")
            else:
                expect(False, "a second host wrote")
            initiator.run(f"nvme resv-release {device} -n 1 --crkey=17 --rtype=1 --rrela=0")
            self.place.peer.run("exercise", f"{target.to[0]}:{target.to[1]}", target.nqn, 1)
            initiator.disconnect(target.nqn)

    FAST = (linux_uses_the_export, export_killed_under_load_comes_back)

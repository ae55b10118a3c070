"""A file system on a namespace, in the initiator."""

from guest import expect

# Files that every guest has, of all sizes up to five megabytes.
FILES = "/tools/lib/libc.so.6 /tools/lib/libcrypto.* /tools/lib/lib[kz]*"


def make_file_system(initiator, device):
    """Makes and mounts it, and copies files into it."""
    initiator.run(f"mkfs.ext4 -q -F {device} && mount {device} /mnt && mkdir /mnt/files", seconds=120)
    copy_files(initiator, "files")


def copy_files(initiator, folder):
    initiator.run(f"mkdir -p /mnt/{folder} && cp {FILES} /mnt/{folder}/ && sync", seconds=180)


def check_files(initiator, folder="files"):
    """Compares them with what they were copied from, read from the namespace."""
    initiator.run("sync; echo 3 >/proc/sys/vm/drop_caches")
    initiator.run(f"for file in {FILES}; do cmp $file /mnt/{folder}/$(basename $file) || exit 1; done", seconds=180)


def unmount_and_check(initiator, device):
    initiator.run("umount /mnt", seconds=120)
    code, told = initiator.guest.ran(f"e2fsck -fn {device}", seconds=180)
    expect(code == 0, f"e2fsck: exit code {code}: {told[-1000:]}")


def exercise_file_system(initiator, device):
    """Makes one, copies files into it, mounts it again, compares, and checks its structure."""
    make_file_system(initiator, device)
    initiator.run(f"umount /mnt && mount {device} /mnt", seconds=120)
    check_files(initiator)
    unmount_and_check(initiator, device)

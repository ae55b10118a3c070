//! Which drive a path lies on.

use rustix::fs::{FileType, major, minor, stat};
use std::fs;
use std::io;
use std::path::Path;

/// The name of the drive, such as `nvme0n1`, that holds a file, a partition or a block device, also where LVM or
/// encryption lies between. `None` if there is no drive (tmpfs, network file systems) or more than one (RAID).
///
/// # Errors
/// The path can't be looked at.
pub fn drive_of(path: &Path) -> io::Result<Option<String>> {
    let stat = stat(path)?;
    let device = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => stat.st_rdev,
        _ => stat.st_dev,
    };
    // File systems without a block device of their own have no such entry.
    Ok(whole_drive(format!("/sys/dev/block/{}:{}", major(device), minor(device)).as_ref()))
}

/// From the entry of a block device in /sys to the name of the drive below it.
fn whole_drive(entry: &Path) -> Option<String> {
    let mut entry = fs::canonicalize(entry).ok()?;
    if entry.join("partition").exists() {
        entry.pop();
    }
    let below = fs::read_dir(entry.join("slaves")).into_iter().flatten();
    match below.collect::<Result<Vec<_>, _>>().ok()?.as_slice() {
        [] => Some(entry.file_name()?.to_str()?.to_owned()),
        [below] => whole_drive(&below.path()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn drive_is_found_below_partitions_and_mappings() {
        let sys = tempfile::tempdir().expect("a directory");
        let at = |path: &str| sys.path().join(path);
        let folder = |path: &str| fs::create_dir_all(at(path)).expect("a folder");
        let below = |device: &str, drive: &str| {
            folder(&format!("{device}/slaves"));
            let name = drive.rsplit('/').next().expect("a name");
            symlink(at(drive), at(&format!("{device}/slaves/{name}"))).expect("a link");
        };
        folder("nvme0n1/nvme0n1p2");
        fs::write(at("nvme0n1/nvme0n1p2/partition"), "2").expect("a file");
        folder("sdb/slaves");
        below("dm-0", "nvme0n1/nvme0n1p2");
        below("dm-1", "dm-0");
        below("md0", "sdb");
        below("md0", "nvme0n1");
        let drive = |entry: &str| whole_drive(&at(entry));
        for (entry, name) in [
            ("nvme0n1", "nvme0n1"),
            ("nvme0n1/nvme0n1p2", "nvme0n1"),
            ("sdb", "sdb"),
            ("dm-1", "nvme0n1"),
        ] {
            assert_eq!(drive(entry).as_deref(), Some(name), "{entry}");
        }
        assert_eq!(drive("md0"), None, "two drives");
        assert_eq!(drive("none"), None);
    }

    #[test]
    fn path_without_a_drive_has_none() {
        assert_eq!(drive_of(Path::new("/proc/self/status")).expect("it is there"), None);
        assert!(drive_of(Path::new("/no such file")).is_err());
    }
}

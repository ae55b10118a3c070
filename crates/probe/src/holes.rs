//! What of a file was never written: the file system answers reads of that without its drive.

use rustix::fs::{SeekFrom, seek};
use std::fs::File;

/// Bytes of the first `bytes` that are holes, or were allocated and not written since. None where the file
/// system does not tell.
pub(crate) fn unwritten(file: &File, bytes: u64) -> u64 {
    let (mut at, mut unwritten) = (0, 0);
    while at < bytes {
        // No data from there on is an error, too; so is a place of which nothing is known.
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(bytes),
            Err(rustix::io::Errno::NXIO) => bytes,
            Err(_) => return 0,
        };
        unwritten += data - at;
        // What has no holes to tell of may answer anything.
        at = seek(file, SeekFrom::Hole(data)).ok().filter(|hole| *hole > data).unwrap_or(bytes);
    }
    unwritten
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use std::os::unix::fs::FileExt;

    const MIB: u64 = 1 << 20;

    #[test]
    fn holes_and_what_was_only_allocated_were_not_written() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * MIB).unwrap();
        assert_eq!(unwritten(&file, 8 * MIB), 8 * MIB);
        fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB).unwrap();
        assert_eq!(unwritten(&file, 8 * MIB), 8 * MIB);
        file.write_all_at(&vec![1; MIB as usize], 2 * MIB).unwrap();
        assert_eq!(unwritten(&file, 8 * MIB), 7 * MIB);
        assert_eq!(unwritten(&file, 3 * MIB), 2 * MIB);
        file.write_all_at(&vec![1; 8 * MIB as usize], 0).unwrap();
        assert_eq!(unwritten(&file, 8 * MIB), 0);
        assert_eq!(unwritten(&File::open("/dev/null").unwrap(), MIB), 0);
    }
}

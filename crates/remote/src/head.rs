//! What lies at the beginning of the drive: superblocks and the log's directories, as this server wrote them.

use crate::error::ConnectError;
use crate::lock::lock;
use std::sync::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// Up to the mark of the owner.
pub(crate) const HEAD_BYTES: usize = 60 << 10;
const BLOCK: usize = 4096;

/// What each block holds, as far as that is known.
#[derive(Default)]
pub(crate) struct Head {
    blocks: Mutex<Vec<Known>>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    /// Hash of what was read or written last; `None` if a part of it was written.
    now: Option<u64>,
    /// Hash of what may have been written instead.
    perhaps: Option<u64>,
}

impl Head {
    /// Takes note of what is there.
    pub(crate) fn set(&self, bytes: &[u8]) {
        let known = |block: &[u8]| Known { now: Some(xxh3_64(block)), perhaps: None };
        *lock(&self.blocks) = bytes.chunks_exact(BLOCK).map(known).collect();
    }

    /// Something is about to be written at `offset`.
    pub(crate) fn begin_write(&self, offset: u64, bytes: &[u8]) {
        self.each(offset, bytes, |known, content| match content {
            Some(content) => known.perhaps = Some(content),
            None => *known = Known::default(),
        });
    }

    /// It was written.
    pub(crate) fn end_write(&self, offset: u64, bytes: &[u8]) {
        self.each(offset, bytes, |known, content| {
            *known = Known { now: content, perhaps: None };
        });
    }

    /// Whether `bytes` are what was written.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), ConnectError> {
        let blocks = lock(&self.blocks);
        let is_known = |(known, block): (&Known, &[u8])| {
            let hash = Some(xxh3_64(block));
            known.now.is_none() || known.now == hash || known.perhaps == hash
        };
        if blocks.iter().zip(bytes.chunks_exact(BLOCK)).all(is_known) {
            return Ok(());
        }
        Err(ConnectError::Changed("its superblock was changed meanwhile, or is older".into()))
    }

    /// Calls `note` for each block that a write touches, with the hash of the content unless only a part is written.
    fn each(&self, offset: u64, bytes: &[u8], note: impl Fn(&mut Known, Option<u64>)) {
        if offset >= HEAD_BYTES as u64 {
            return;
        }
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        for (number, known) in lock(&self.blocks).iter_mut().enumerate() {
            let (first, last) = (number * BLOCK, (number + 1) * BLOCK);
            if first >= start && last <= end {
                note(known, Some(xxh3_64(&bytes[first - start..last - start])));
            } else if first < end && last > start {
                note(known, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_wrote_shows_and_what_may_have_been_written_does_not() {
        let head = Head::default();
        let mut bytes = vec![0; HEAD_BYTES];
        head.set(&bytes);
        assert!(head.check(&bytes).is_ok());
        let new = [7; 2 * BLOCK];
        head.begin_write(BLOCK as u64, &new);
        assert!(head.check(&bytes).is_ok(), "it may not have come");
        bytes[BLOCK..3 * BLOCK].copy_from_slice(&new);
        assert!(head.check(&bytes).is_ok(), "it may have come");
        head.end_write(BLOCK as u64, &new);
        assert!(head.check(&bytes).is_ok());
        bytes[2 * BLOCK] = 0;
        assert!(head.check(&bytes).is_err());
        head.begin_write(2 * BLOCK as u64, &[1; 512]);
        assert!(head.check(&bytes).is_ok(), "what is there is not known");
        bytes[5 * BLOCK] = 1;
        assert!(head.check(&bytes).is_err());
    }
}

//! What the first page of a state says: whose it is, and what a start needs to know before it maps the state.

use crate::platform::mapped::SharedMap;
use crate::state::file::StateFile;
use crate::state::{BOOT_AT, Field, Header, Identity, Layout, MAGIC, PAGE, SET_AT, is_headed};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// The cache that a state file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateOwner {
    /// The set of tiers, see [`crate::set_of`]; of a cache without tiers [`StateOwner::NO_TIERS`].
    pub set: u64,
    /// The generation of the set's roster when the state was last written.
    pub epoch: u64,
}

#[expect(clippy::host_endian_bytes, reason = "the bytes never leave the machine")]
impl StateOwner {
    /// The set of a cache without tiers.
    pub const NO_TIERS: u64 = 1;

    /// Reads it from the first page of a state file; `None` if the file is none.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn of(file: &File) -> io::Result<Option<Self>> {
        let mut page = [0; PAGE];
        match file.read_exact_at(&mut page, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let (words, _) = page.as_chunks::<8>();
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        let epoch = word(Field::Epoch as usize).max(word(Field::EpochBefore as usize));
        Ok((word(0) == MAGIC).then_some(Self { set: word(1 + SET_AT), epoch }))
    }

    /// A first page with it, for tests of programs that look for states.
    pub fn page(self) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        let words = [(0, MAGIC), (1 + SET_AT, self.set), (Field::Epoch as usize, self.epoch)];
        for (at, word) in words {
            page[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        }
        page
    }
}

impl StateFile {
    /// Whether superblocks of tiers may name the state in this file. Without it these tiers would be cold.
    ///
    /// # Errors
    /// The file can't be examined.
    pub fn may_be_needed(&self) -> io::Result<bool> {
        let is_ready =
            |head: SharedMap| head.words()[Field::Ready as usize].load(Ordering::Acquire) == 1;
        Ok(self.head()?.is_some_and(is_ready))
    }

    /// The first page, if there is one.
    fn head(&self) -> io::Result<Option<SharedMap>> {
        if self.bytes()? < PAGE as u64 {
            return Ok(None);
        }
        SharedMap::new(self.fd(), 0..PAGE, self.loss()).map(Some)
    }

    /// The header of the state in this file; `None` if there is none with this identity, the numbers of blocks and areas
    /// aside.
    pub(crate) fn header_of(&self, identity: &Identity) -> io::Result<Option<Header>> {
        let Some(head) = self.head()? else { return Ok(None) };
        let header = Header::of(head.words());
        let layout = Layout { blocks: header.blocks, tiers: header.tiers, ..identity.layout };
        let is_of_it = is_headed(head.words(), &Identity { layout, ..*identity });
        Ok(is_of_it.then_some(header))
    }

    /// The header of the state in this file if it is of this set and boot, whatever its layout.
    pub(crate) fn header_of_set(&self, set: u64, boot: [u64; 2]) -> io::Result<Option<Header>> {
        let Some(head) = self.head()? else { return Ok(None) };
        let words = head.words();
        let is = |at: usize, value: u64| words[1 + at].load(Ordering::Relaxed) == value;
        let is_of_it = words[0].load(Ordering::Acquire) == MAGIC
            && is(SET_AT, set)
            && BOOT_AT.zip(boot).all(|(at, value)| is(at, value));
        Ok(is_of_it.then(|| Header::of(words)))
    }
}

//! Reads the discovery log page, which may change while it is read.

use super::set_up::Step;
use super::slots::Outcome;
use crate::bytes::array;
use crate::command::log::{self, DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryHead, Page, Part};
use crate::command::{Command, Status};

/// Entries of a read; 4096 bytes, which any controller transfers at once.
const ENTRIES_AT_ONCE: u64 = 4;
/// Most entries that are read; a page that has more is cut here.
pub const DISCOVERY_ENTRIES_MAX: u64 = 4096;
/// Times that a page which changes meanwhile is read.
const TRIES_MAX: u32 = 5;

/// Why the page could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// The command failed.
    #[error("get discovery log page: {0}")]
    Status(Status),
    /// The page changed each time while it was read.
    #[error("the discovery log page keeps changing")]
    Unstable,
    /// Data of the wrong length were passed in.
    #[error("get discovery log page: data of the wrong length")]
    Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    /// Entries from this one on.
    Entries(u64),
    /// The head again, to see that nothing changed.
    Check,
    Done,
}

/// Reads the discovery log page over the Admin Queue of a discovery controller that is set up (Base 2.0, 5.16.1.23):
/// the head, the entries, and the head again; from the start if its generation is another then.
#[derive(Debug)]
pub struct Discovery {
    stage: Stage,
    head: DiscoveryHead,
    entries: Vec<DiscoveryEntry>,
    tries: u32,
}

impl Default for Discovery {
    fn default() -> Self {
        let head = DiscoveryHead { generation: 0, entries: 0 };
        Self { stage: Stage::Head, head, entries: Vec::new(), tries: 0 }
    }
}

impl Discovery {
    /// What to do now: submit a command, or nothing more.
    pub fn step(&mut self) -> Step<'_> {
        let part = match self.stage {
            Stage::Head | Stage::Check => (0, DISCOVERY_ENTRY_BYTES as u64),
            Stage::Entries(at) => {
                let count = (self.count() - at).min(ENTRIES_AT_ONCE);
                (at + 1, count * DISCOVERY_ENTRY_BYTES as u64)
            }
            Stage::Done => return Step::Done,
        };
        let (first, bytes) = (part.0, part.1 as u32);
        let offset = first * DISCOVERY_ENTRY_BYTES as u64;
        let command: Command =
            log::get(Page::Discovery, Part { offset, bytes, keeps_event: false });
        Step::Submit { command, data: &[], bytes }
    }

    /// Takes what came of the last command, with its data.
    ///
    /// # Errors
    /// Says why the page cannot be read.
    pub fn completed(&mut self, outcome: &Outcome, data: &[u8]) -> Result<(), DiscoveryError> {
        if outcome.status.is(Status::DISCOVERY_RESTART) {
            return self.restart();
        }
        if !outcome.status.is_success() {
            return Err(DiscoveryError::Status(outcome.status));
        }
        if data.len() < DISCOVERY_ENTRY_BYTES {
            return Err(DiscoveryError::Length);
        }
        let head = DiscoveryHead::read(data);
        match self.stage {
            Stage::Head => {
                self.head = head;
                self.entries.clear();
                self.stage = if head.entries == 0 { Stage::Done } else { Stage::Entries(0) };
            }
            Stage::Entries(at) => {
                let (chunks, _) = data.as_chunks::<DISCOVERY_ENTRY_BYTES>();
                let count = (self.count() - at).min(ENTRIES_AT_ONCE).min(chunks.len() as u64);
                let found = chunks.iter().take(count as usize);
                self.entries
                    .extend(found.filter_map(|chunk| DiscoveryEntry::read(&array(chunk, 0))));
                let next = at + count;
                self.stage = if next < self.count() { Stage::Entries(next) } else { Stage::Check };
            }
            Stage::Check if head.generation == self.head.generation => self.stage = Stage::Done,
            Stage::Check => return self.restart(),
            Stage::Done => {}
        }
        Ok(())
    }

    /// The entries for NVMe/TCP, once [`Self::step`] is [`Step::Done`].
    #[must_use]
    pub fn entries(&self) -> Option<&[DiscoveryEntry]> {
        (self.stage == Stage::Done).then_some(self.entries.as_slice())
    }

    fn count(&self) -> u64 {
        self.head.entries.min(DISCOVERY_ENTRIES_MAX)
    }

    fn restart(&mut self) -> Result<(), DiscoveryError> {
        self.tries += 1;
        self.stage = Stage::Head;
        if self.tries < TRIES_MAX { Ok(()) } else { Err(DiscoveryError::Unstable) }
    }
}

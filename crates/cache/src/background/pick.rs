//! Picks the fresh records of a shard for the next segment: the oldest ones, except those that are not worth a write.
//!
//! An expired record is dropped without being written. Two kinds wait while the other records fill a segment: a record
//! that will have expired when a few more segments are sealed, and one that replaced another in DRAM, which will likely
//! be overwritten again. If there are enough records, those that expire at about the same time are kept together: a
//! segment of expired records only is freed without being read.

use crate::dram::lane::FullBlock;
use crate::dram::resident::{Resident, mark};
use crate::engine::{Engine, chunks};
use crate::platform::quiesce::Guard;
use crate::records::key::Name;
use crate::records::record::Record;
use crate::shard::Shard;
use crate::stats::counters::count;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Records dropped per hold of the shard's lock.
const BATCH: usize = 64;
/// A record that expires within the time of eight seals is not worth a write.
const SEALS_AHEAD: u32 = 8;
/// Records that memory is reserved for at once, at most.
const DUE_RESERVED_MAX: usize = 1 << 14;
/// Classes of expiry: never, and by powers of four seconds from now.
const CLASSES: usize = 17;

/// A record that is only in DRAM.
#[derive(Clone, Copy)]
pub(crate) struct Fresh<'g> {
    pub(super) name: Name,
    pub(super) resident: Resident<'g>,
    pub(super) is_manifest: bool,
    /// Bytes of key and value.
    pub(super) payload_bytes: u32,
    /// Unix seconds; 0 for never.
    pub(super) expires: u32,
}

/// The fresh records of a shard that must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Records that are due.
    Due,
    /// Due records that were admitted; see [`crate::tiers::admission`].
    Admitted,
    /// All records, expired ones too.
    All,
}

/// The inputs of one choice.
pub(crate) struct Pick<'g> {
    pub(super) engine: &'g Engine,
    pub(super) shard: &'g Shard,
    pub(super) guard: Guard<'g>,
    /// Unix seconds.
    pub(super) now: u32,
    /// Unix seconds of the choice before; 0 if there was none.
    pub(super) since: u32,
    pub(super) wanted: Wanted,
}

/// The records to choose from, oldest first.
#[derive(Default)]
struct Choice<'g> {
    /// Records to write.
    due: Vec<Fresh<'g>>,
    /// Their bytes by [`Pick::class`].
    due_bytes: [u64; CLASSES],
    /// Records that are better written later, or never.
    waiting: Vec<Fresh<'g>>,
    expired: Vec<Fresh<'g>>,
}

impl<'g> Pick<'g> {
    /// At least a segment's worth if there is so much, oldest first.
    pub(crate) fn run(&self, blocks: &VecDeque<FullBlock>) -> Vec<Fresh<'g>> {
        let Choice { due, due_bytes, waiting, expired } = self.look(blocks);
        self.drop_expired(&expired);
        let wanted = self.engine.seal_bytes();
        let of_one = self.class_to_write(&due, &due_bytes);
        let (mut picked, mut bytes) = (Vec::with_capacity(due.len()), 0);
        let due = due.into_iter().filter(|fresh| of_one.is_none_or(|one| self.class(fresh) == one));
        for fresh in due {
            if bytes >= wanted {
                break;
            }
            bytes += fresh.resident.bytes.len() as u64;
            picked.push(fresh);
        }
        for fresh in waiting {
            if bytes < wanted {
                bytes += fresh.resident.bytes.len() as u64;
                picked.push(fresh);
            } else if fresh.resident.has(mark::REWRITTEN) {
                // Next time it is written, unless it is overwritten once more.
                fresh.resident.set(mark::CHANGED);
                fresh.resident.header.mark().fetch_and(!mark::REWRITTEN, Ordering::Relaxed);
            }
        }
        picked
    }

    /// Sorts the records of full blocks, which do not change and stay under the guard, until it is certain what is
    /// written.
    fn look(&self, blocks: &VecDeque<FullBlock>) -> Choice<'g> {
        let mut choice = Choice::default();
        let arena = self.engine.shared().arena();
        for resident in
            blocks.iter().flat_map(|block| arena.records(self.guard, block.id, block.fill))
        {
            let Some((record, _)) = Record::decode(resident.bytes) else { continue };
            if resident.has(mark::VOID | mark::SEALED) {
                continue;
            }
            if self.wanted == Wanted::Admitted && !resident.has(mark::ADMITTED) {
                continue;
            }
            let key = self.engine.hasher().key(record.key, record.is_chunk());
            let fresh = Fresh {
                name: self.engine.hasher().name(key.hash()),
                resident,
                is_manifest: record.is_manifest(),
                payload_bytes: record.payload_bytes() as u32,
                expires: record.expires,
            };
            if record.is_expired(self.now) && !self.takes_all() {
                choice.expired.push(fresh);
            } else if !self.takes_all() && self.is_likely_gone_soon(&fresh) {
                choice.waiting.push(fresh);
            } else {
                if choice.due.is_empty() {
                    // Records have about the same length.
                    let alike = self.engine.seal_bytes() as usize / resident.bytes.len().max(1);
                    choice.due.reserve(alike.min(DUE_RESERVED_MAX));
                }
                choice.due_bytes[self.class(&fresh)] += resident.bytes.len() as u64;
                choice.due.push(fresh);
                if self.fills(self.class(&choice.due[0]), &choice.due_bytes) {
                    break;
                }
            }
        }
        choice
    }

    fn takes_all(&self) -> bool {
        self.wanted == Wanted::All
    }

    fn is_likely_gone_soon(&self, fresh: &Fresh<'_>) -> bool {
        let between = self.now.saturating_sub(self.since);
        let soon = self.now.saturating_add(between.saturating_mul(SEALS_AHEAD));
        let expires_soon = self.since != 0 && fresh.expires != 0 && fresh.expires <= soon;
        expires_soon || fresh.resident.has(mark::REWRITTEN)
    }

    /// The class that fills a segment by itself: that of the oldest record, or the largest one.
    fn class_to_write(&self, due: &[Fresh<'_>], due_bytes: &[u64; CLASSES]) -> Option<usize> {
        let of_oldest = due.first().map(|fresh| self.class(fresh));
        let largest = (0..CLASSES).max_by_key(|&class| due_bytes[class]);
        let fills = |class: &usize| self.fills(*class, due_bytes);
        of_oldest.filter(fills).or(largest.filter(fills))
    }

    fn fills(&self, class: usize, due_bytes: &[u64; CLASSES]) -> bool {
        !self.takes_all() && due_bytes[class] >= self.engine.seal_bytes()
    }

    fn class(&self, fresh: &Fresh<'_>) -> usize {
        match fresh.expires {
            0 => 0,
            expires => {
                let left = expires.saturating_sub(self.now).max(1);
                1 + left.ilog2() as usize / 2
            }
        }
    }

    fn drop_expired(&self, expired: &[Fresh<'_>]) {
        let shared = self.engine.shared();
        for batch in expired.chunks(BATCH) {
            shared.make_log_room();
            let mut locked = self.shard.lock(shared, self.guard);
            for Fresh { name, resident, is_manifest, .. } in batch {
                // Overwritten, deleted or flushed meanwhile.
                let Some(at) = locked.table().find_addr(name.pos, resident.addr) else { continue };
                if let (true, Some((record, _))) = (*is_manifest, Record::decode(resident.bytes)) {
                    chunks::discard_chunks_of(self.engine, &record);
                }
                count(shared.counters().expired());
                count(shared.counters().expired_unwritten());
                locked.log_tombstone_of_origin(*name, resident);
                locked.forget(name.pos, resident, at);
            }
        }
    }
}

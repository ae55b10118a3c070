//! The entries of a shard's sealed index, and the tombstones of the records that they name.

use crate::dram::heat::Origin;
use crate::dram::resident::{Resident, mark};
use crate::index::sealed::NoRoom;
use crate::log::TombstoneLog;
use crate::records::key::Name;
use crate::shard::Locked;
use std::sync::atomic::Ordering;

impl Locked<'_> {
    /// Adds the entry (name, segment) to the index, and its record to the live ones of the segment.
    pub(crate) fn link(
        &mut self,
        name: Name,
        number: u16,
        uses: u8,
        bytes: u32,
    ) -> Result<(), NoRoom> {
        self.index().insert(name, number, uses)?;
        if let Some(growing) = &self.state.growing
            && let Err(no_room) = growing.insert(name, number, uses)
        {
            self.index().remove(name, number);
            return Err(no_room);
        }
        self.add_live(number, bytes);
        Ok(())
    }

    /// Counts one more live record in a segment.
    pub(crate) fn add_live(&self, number: u16, bytes: u32) {
        self.shard.segments.add_live(number, bytes);
        let tier = self.shard.segments.slot(number).tier;
        self.shared.counters().tier(tier).add_live(self.shard.at, bytes);
    }

    /// Removes the entry (name, segment) from the index, and its record from the live ones of the segment; `bytes` is
    /// its encoded size if known. Returns whether there was an entry.
    pub(crate) fn unlink(&mut self, name: Name, number: u16, bytes: Option<u32>) -> bool {
        if let Some(growing) = &self.state.growing {
            growing.remove(name, number);
        }
        let removed = self.take_entry(name, number, bytes);
        if !removed {
            self.forget_deferred(name, number);
        }
        removed
    }

    pub(crate) fn take_entry(&mut self, name: Name, number: u16, bytes: Option<u32>) -> bool {
        // Before the entry is removed: a reader that finds neither it nor its successor in the table must look again.
        self.note_move();
        let removed = self.index().remove(name, number);
        if removed {
            let bytes = self.shard.segments.sub_live(number, bytes);
            let tier = self.shard.segments.slot(number).tier;
            self.shared.counters().tier(tier).sub_live(self.shard.at, bytes);
        }
        removed
    }

    /// The segment with the original of the resident record, if no tombstone names that yet.
    pub(crate) fn origin(&self, resident: &Resident<'_>) -> Option<u16> {
        let bits = resident.header.origin().load(Ordering::Relaxed);
        if bits == Origin::NONE {
            return None;
        }
        let origin = Origin::from_bits(bits);
        let sealed = self.shard.segments.sealed(origin.number());
        sealed.is_some_and(|sealed| origin.is_of(sealed)).then(|| origin.number())
    }

    /// Removes the entry of a copy's original, if it is still there: the original is no longer the key's record.
    pub(crate) fn unlink_origin(&mut self, name: Name, hot: &Resident<'_>) {
        if let Some(number) = self.origin(hot).filter(|_| hot.has(mark::HOT)) {
            self.unlink(name, number, Some(hot.bytes.len() as u32));
        }
    }

    /// Appends to the log that the record of a name in a segment is void.
    pub(crate) fn log_tombstone(&self, name: Name, number: u16) {
        self.log_of_copies(number, |log, slot| log.tombstone(slot, name));
    }

    /// Appends to the log that the record in a segment with the bucket and fingerprint of a name is void: it loses its
    /// entry unread.
    pub(crate) fn log_tombstone_by_prefix(&self, name: Name, number: u16) {
        self.log_of_copies(number, |log, slot| log.tombstone_by_prefix(slot, name));
    }

    /// Appends words for a record in a segment, and for its original in one that is being relocated there: before the
    /// commit a restart would bring back the original.
    pub(super) fn log_of_copies(&self, number: u16, say: impl Fn(&TombstoneLog, u32)) {
        let say = |number: u16| {
            let slot = self.shard.segments.slot(number);
            say(&self.shared.logs()[usize::from(slot.tier)], self.shared.slots().index(slot));
        };
        say(number);
        if self.state.arriving.iter().any(|sealed| sealed.number == number) {
            self.state.leaving.iter().for_each(|sealed| say(sealed.number));
        }
    }

    /// As [`Locked::log_tombstone`], for the original of a resident record.
    pub(crate) fn log_tombstone_of_origin(&self, name: Name, resident: &Resident<'_>) {
        if let Some(number) = self.origin(resident) {
            self.log_tombstone(name, number);
        }
    }

    /// Appends a tombstone for a name in all segments of the shard, while these are not recovered.
    pub(crate) fn log_change(&mut self, name: Name) {
        if let Some(recovering) = &mut self.state.recovering
            && recovering.note(name)
        {
            self.shared
                .logs()
                .iter()
                .for_each(|log| log.tombstone_in_shard(self.shard.at as u16, name));
        }
    }

    /// Must be called when a sealed record is about to be found elsewhere only; readers that find it nowhere look
    /// again.
    pub(crate) fn note_move(&self) {
        let moves = &self.shard.moves;
        moves.store(moves.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Removes all entries of a name from the index. If the state is lost while a record of DRAM replaces a sealed one,
    /// its header may no longer show the original.
    #[cold]
    pub(crate) fn forget_sealed(&mut self, name: Name) {
        for sealed in self.candidates(name) {
            self.unlink(name, sealed.number, None);
        }
    }
}

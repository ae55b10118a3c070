//! The entries of a shard's sealed index, and what the log says of the copies that they name.

use crate::dram::heat::Origin;
use crate::dram::resident::{Resident, mark};
use crate::index::sealed::NoRoom;
use crate::log::TombstoneLog;
use crate::records::key::Name;
use crate::shard::Locked;
use std::sync::atomic::Ordering;

impl Locked<'_> {
    /// Adds the entry (name, segment) to the index, and its record to what lives in the segment.
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

    /// One more record lives in a segment.
    pub(crate) fn add_live(&self, number: u16, bytes: u32) {
        self.shard.segments.add_live(number, bytes);
        let tier = self.shard.segments.slot(number).tier;
        self.shared.counters().tier(tier).add_live(self.shard.at, bytes);
    }

    /// Takes the entry (name, segment) out of the index, and the record from what lives in the
    /// segment; `bytes` is its encoded size where known. Says whether there was an entry.
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
        // While the entry is still there: who finds neither it nor what is in the table instead looks again.
        self.note_move();
        let removed = self.index().remove(name, number);
        if removed {
            let bytes = self.shard.segments.sub_live(number, bytes);
            let tier = self.shard.segments.slot(number).tier;
            self.shared.counters().tier(tier).sub_live(self.shard.at, bytes);
        }
        removed
    }

    /// The segment that holds a copy of the resident record which no kill names yet.
    pub(crate) fn origin(&self, resident: &Resident<'_>) -> Option<u16> {
        let bits = resident.header.origin().load(Ordering::Relaxed);
        if bits == Origin::NONE {
            return None;
        }
        let origin = Origin::from_bits(bits);
        let sealed = self.shard.segments.sealed(origin.number());
        sealed.is_some_and(|sealed| origin.is_of(sealed)).then(|| origin.number())
    }

    /// The sealed copy of a hot record is no longer the key's: takes it out of the index, if it is
    /// still there.
    pub(crate) fn unlink_origin(&mut self, name: Name, hot: &Resident<'_>) {
        if let Some(number) = self.origin(hot).filter(|_| hot.has(mark::HOT)) {
            self.unlink(name, number, Some(hot.bytes.len() as u32));
        }
    }

    /// Notes in the log that the copy of a name in a segment is not to come back.
    pub(crate) fn log_tombstone(&self, name: Name, number: u16) {
        self.log_of_copies(number, |log, slot| log.tombstone(slot, name));
    }

    /// Notes in the log that a record which shares bucket and fingerprint with a name loses its entry
    /// unread, and so is not to come back.
    pub(crate) fn log_tombstone_by_prefix(&self, name: Name, number: u16) {
        self.log_of_copies(number, |log, slot| log.tombstone_by_prefix(slot, name));
    }

    /// Says something of the record in a segment, and of the copy that it has in one of those that it
    /// moves away from: before the commit that one is what a restart brings back.
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

    /// As [`Locked::log_tombstone`], of the copy that a resident record was made from.
    pub(crate) fn log_tombstone_of_origin(&self, name: Name, resident: &Resident<'_>) {
        if let Some(number) = self.origin(resident) {
            self.log_tombstone(name, number);
        }
    }

    /// While the shard's segments are not recovered, a change of a name is noted for all of them.
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

    /// A sealed record is about to be found elsewhere only; readers that see it nowhere look again.
    pub(crate) fn note_move(&self) {
        let moves = &self.shard.moves;
        moves.store(moves.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Takes all that the index has for a name out of it. Where the state is lost while a record of DRAM takes the place
    /// of others, its header may not say any more which of them it came from.
    #[cold]
    pub(crate) fn forget_sealed(&mut self, name: Name) {
        for sealed in self.candidates(name) {
            self.unlink(name, sealed.number, None);
        }
    }
}

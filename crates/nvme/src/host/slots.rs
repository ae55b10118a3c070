//! The outstanding commands of a queue, in a slab of the queue's size.

use crate::command::{Command, Completion, Direction, Status};
use crate::pdu::{DataHeader, Fault, ReadyToTransfer};

/// A command of a queue, from its submission until its [`super::Event::Completed`]: a number below
/// [`super::Queue::capacity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub(crate) u16);

impl Tag {
    /// The number, for tables of the caller.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The controller's status; or that of an error that this side found: [`Status::TRANSIENT_TRANSPORT_ERROR`] for
    /// data that do not fit their digest, [`Status::DATA_TRANSFER_ERROR`] for a success without all the data.
    pub status: Status,
    /// What the command returned besides data.
    pub result: u64,
}

/// A range of data that the controller asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) tag: u16,
    /// Next byte to send.
    pub(super) offset: u32,
    /// Bytes to send; more than 0.
    pub(super) left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Its capsule waits for room in the sender.
    Waiting,
    /// Its capsule was handed to the sender.
    Issued,
    /// It is over, but frames that refer to its data are still being sent.
    Held(Completion),
}

#[derive(Debug)]
struct Slot {
    state: State,
    command: Command,
    /// Bytes of data, in either direction.
    bytes: u32,
    in_capsule: bool,
    /// Bytes of C2HData so far. 0 <= received <= bytes
    received: u32,
    /// Whether the last C2HData has come.
    is_last_received: bool,
    /// Whether data did not fit their digest.
    is_damaged: bool,
    /// Bytes that R2T asked for so far. 0 <= requested <= bytes
    requested: u32,
    /// First of the outstanding transfers, in a ring of `r2t_max`.
    transfer_at: u32,
    transfers: u32,
    /// Frames of the command in the sender.
    frames: u32,
}

/// The slab.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Rings of `r2t_max` transfers, one for each slot.
    transfers: Vec<Transfer>,
    r2t_max: u32,
    /// Bits of a command identifier that are the slot; the upper ones count its uses, so that a late completion of an
    /// earlier command does not end a later one.
    slot_bits: u32,
}

impl Slots {
    /// Room for `capacity` commands, 1 to 65535, each with up to `r2t_max` outstanding R2T.
    pub(super) fn new(capacity: u16, r2t_max: u32) -> Self {
        let slot = |_| Slot {
            state: State::Free,
            command: Command::new(0),
            bytes: 0,
            in_capsule: false,
            received: 0,
            is_last_received: false,
            is_damaged: false,
            requested: 0,
            transfer_at: 0,
            transfers: 0,
            frames: 0,
        };
        Self {
            slots: (0..capacity).map(slot).collect(),
            free: (0..capacity).rev().collect(),
            transfers: vec![Transfer::default(); usize::from(capacity) * r2t_max as usize],
            r2t_max,
            slot_bits: u16::BITS - (capacity - 1).leading_zeros(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn outstanding(&self) -> impl Iterator<Item = Tag> {
        let used = |(_, slot): &(usize, &Slot)| slot.state != State::Free;
        self.slots.iter().enumerate().filter(used).map(|(index, _)| Tag(index as u16))
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a slot for `command`, which gets its identifier and data pointer.
    pub(super) fn take(
        &mut self,
        mut command: Command,
        bytes: u32,
        in_capsule: bool,
    ) -> Option<Tag> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[usize::from(index)];
        let uses = u32::from(slot.command.id()) >> self.slot_bits;
        let id = |uses: u32| ((uses << self.slot_bits) as u16) | index;
        // FFFFh names no command in the error log, so no command has it.
        let id = [id(uses + 1), id(uses + 2)].into_iter().find(|&id| id != u16::MAX);
        command.set_id(id.unwrap_or(index));
        command.set_data(bytes, in_capsule);
        slot.state = State::Waiting;
        (slot.command, slot.bytes, slot.in_capsule) = (command, bytes, in_capsule);
        (slot.received, slot.requested, slot.transfers) = (0, 0, 0);
        (slot.is_last_received, slot.is_damaged) = (false, false);
        Some(Tag(index))
    }

    /// The command of a slot whose capsule is handed to the sender now, and the bytes of its data if they go along.
    pub(super) fn issue(&mut self, tag: Tag) -> (&Command, u32) {
        let slot = &mut self.slots[tag.index()];
        slot.state = State::Issued;
        slot.frames += 1;
        (&slot.command, if slot.in_capsule { slot.bytes } else { 0 })
    }

    /// The issued command with this identifier.
    fn find(&self, id: u16) -> Option<Tag> {
        let index = (u32::from(id) & ((1 << self.slot_bits) - 1)) as u16;
        let slot = self.slots.get(usize::from(index))?;
        (slot.state == State::Issued && slot.command.id() == id).then_some(Tag(index))
    }

    /// Takes note of the header of a C2HData.
    pub(super) fn data(&mut self, data: &DataHeader) -> Result<Tag, Fault> {
        let tag = self.find(data.command).ok_or(Fault::field_at(8))?;
        let slot = &mut self.slots[tag.index()];
        if slot.command.direction() != Direction::ToHost || slot.is_last_received {
            return Err(Fault::SEQUENCE);
        }
        if data.offset.checked_add(data.bytes).is_none_or(|end| end > slot.bytes) {
            return Err(Fault::OUT_OF_RANGE);
        }
        if data.offset != slot.received {
            return Err(Fault::SEQUENCE);
        }
        Ok(tag)
    }

    /// Takes note that the data of a C2HData are complete.
    pub(super) fn data_received(&mut self, tag: Tag, bytes: u32, intact: bool, is_last: bool) {
        let slot = &mut self.slots[tag.index()];
        slot.received += bytes;
        slot.is_damaged |= !intact;
        slot.is_last_received |= is_last;
    }

    /// Takes note of an R2T. Returns the command, and whether it had no other outstanding.
    pub(super) fn ready_to_transfer(
        &mut self,
        r2t: &ReadyToTransfer,
    ) -> Result<(Tag, bool), Fault> {
        let tag = self.find(r2t.command).ok_or(Fault::field_at(8))?;
        let slot = &mut self.slots[tag.index()];
        if slot.command.direction() != Direction::ToController || slot.in_capsule {
            return Err(Fault::SEQUENCE);
        }
        if r2t.offset != slot.requested {
            return Err(Fault::SEQUENCE);
        }
        if r2t.offset.checked_add(r2t.bytes).is_none_or(|end| end > slot.bytes) {
            return Err(Fault::OUT_OF_RANGE);
        }
        if slot.transfers == self.r2t_max {
            return Err(Fault::LIMIT);
        }
        let at = (slot.transfer_at + slot.transfers) % self.r2t_max;
        let transfer = Transfer { tag: r2t.tag, offset: r2t.offset, left: r2t.bytes };
        self.transfers[tag.index() * self.r2t_max as usize + at as usize] = transfer;
        slot.requested += r2t.bytes;
        slot.transfers += 1;
        Ok((tag, slot.transfers == 1))
    }

    /// The next H2CData of a command, of at most `bytes_max` bytes: its header, whether it is the last of its R2T, and
    /// whether more follow. `None` if no R2T is outstanding.
    pub(super) fn next_data(
        &mut self,
        tag: Tag,
        bytes_max: u32,
    ) -> Option<(DataHeader, bool, bool)> {
        let slot = &mut self.slots[tag.index()];
        if slot.transfers == 0 || slot.state != State::Issued {
            return None;
        }
        let at = tag.index() * self.r2t_max as usize + slot.transfer_at as usize;
        let transfer = &mut self.transfers[at];
        let bytes = transfer.left.min(bytes_max);
        let data = DataHeader {
            command: slot.command.id(),
            tag: transfer.tag,
            offset: transfer.offset,
            bytes,
        };
        transfer.offset += bytes;
        transfer.left -= bytes;
        let is_last = transfer.left == 0;
        // The controller may send another R2T as soon as it has these data, which may be before the socket reports that
        // they were sent. So the R2T is served now.
        if is_last {
            slot.transfer_at = (slot.transfer_at + 1) % self.r2t_max;
            slot.transfers -= 1;
        }
        slot.frames += 1;
        Some((data, is_last, slot.transfers > 0))
    }

    /// The issued command that `completion` ends, and whether frames of it are in the sender.
    pub(super) fn completed(&mut self, completion: &Completion) -> Option<(Tag, bool)> {
        let tag = self.find(completion.id)?;
        Some((tag, self.slots[tag.index()].frames > 0))
    }

    /// Whether the controller has asked for data that were not handed to the sender.
    pub(super) fn has_transfers(&self, tag: Tag) -> bool {
        self.slots[tag.index()].transfers > 0
    }

    /// The completion that a C2HData with SUCCESS stands for.
    pub(super) fn success(&self, tag: Tag) -> Completion {
        let id = self.slots[tag.index()].command.id();
        Completion { result: 0, queue_head: 0, id, status: Status::SUCCESS }
    }

    /// Keeps the completion until `frames` frames of the command, all that are left, were sent.
    pub(super) fn hold(&mut self, tag: Tag, completion: Completion, frames: u32) {
        let slot = &mut self.slots[tag.index()];
        slot.state = State::Held(completion);
        slot.frames = frames;
    }

    /// A frame of the command was sent. Returns the completion that waited for it.
    pub(super) fn frame_sent(&mut self, tag: Tag) -> Option<Completion> {
        let slot = &mut self.slots[tag.index()];
        slot.frames -= 1;
        match slot.state {
            State::Held(completion) if slot.frames == 0 => Some(completion),
            _ => None,
        }
    }

    /// Frees the slot, and returns how its command ended.
    pub(super) fn finish(&mut self, tag: Tag, completion: &Completion) -> Outcome {
        let slot = &mut self.slots[tag.index()];
        let moved = match slot.command.direction() {
            Direction::ToHost => slot.received,
            Direction::ToController if !slot.in_capsule && slot.transfers == 0 => slot.requested,
            Direction::ToController if !slot.in_capsule => 0,
            _ => slot.bytes,
        };
        let status = match completion.status {
            status if !status.is_success() => status,
            // TCP Transport 1.0, 3.5: a command whose data were damaged fails once it is complete.
            _ if slot.is_damaged => Status::TRANSIENT_TRANSPORT_ERROR,
            _ if moved < slot.bytes => Status::DATA_TRANSFER_ERROR,
            status => status,
        };
        slot.state = State::Free;
        slot.frames = 0;
        self.free.push(tag.0);
        Outcome { status, result: completion.result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_not_used_again_at_once_and_never_ffff() {
        for capacity in [1, 2, 3, 127, 1023, 32_768, 65_535] {
            let mut slots = Slots::new(capacity, 1);
            let mut last = None;
            for _ in 0..300 {
                let tag = slots.take(Command::new(2), 0, false).unwrap();
                slots.issue(tag);
                let id = slots.slots[tag.index()].command.id();
                assert_ne!(id, u16::MAX);
                assert_eq!(slots.find(id), Some(tag));
                assert!(capacity > 32_768 || last != Some(id), "{capacity}: {id:#x}");
                last = Some(id);
                let completion =
                    Completion { result: 0, queue_head: 0, id, status: Status::SUCCESS };
                slots.finish(tag, &completion);
                assert_eq!(slots.find(id), None);
            }
        }
    }
}

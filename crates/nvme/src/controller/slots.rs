//! The commands of a connection that have not been answered.

use crate::command::{Command, Completion, Status};
use crate::pdu::{Body, DataHeader, DataRange, Fault, ReadyToTransfer};

/// A command of a connection, from its arrival until its buffer is free again: a small number, for tables of the
/// caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandTag(pub(crate) u16);

impl CommandTag {
    /// The number.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Where the data of a command are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    /// With the caller.
    Caller,
    /// Here.
    Own(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// It arrived, and is not answered.
    Open,
    /// It is answered, but not all of that was handed to the sender.
    Answered(Completion),
    /// All of its answer was handed to the sender. Its identifier may come again.
    Retired,
}

#[derive(Debug)]
struct Slot {
    state: State,
    command: Command,
    /// Bytes of data, in either direction.
    bytes: u32,
    buffer: Buffer,
    /// Bytes that arrived. 0 <= received <= requested, unless the data come in the capsule
    received: u32,
    /// Start of the oldest range that was asked for and has not arrived whole.
    range_at: u32,
    /// Bytes that R2T asked for. requested <= bytes
    requested: u32,
    /// R2T that were handed to the sender and whose data have not arrived whole.
    outstanding: u32,
    is_damaged: bool,
    /// Bytes of data to the host that were handed to the sender.
    sent: u32,
}

/// How a connection moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfers {
    /// Most outstanding R2T of a command.
    pub(super) r2t_max: u32,
    /// Most bytes of an R2T; a multiple of 4.
    pub(super) r2t_bytes_max: u32,
    /// Most bytes of an H2CData.
    pub(super) h2c_bytes_max: u32,
    /// Most bytes of a C2HData; a multiple of 4.
    pub(super) c2h_bytes_max: u32,
}

/// The slab. A command has a slot from its arrival until its answer is sent.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// One bit for each command identifier in use.
    ids: Box<[u64]>,
    /// Commands that are not retired.
    open: u32,
}

impl Slots {
    pub(super) fn new(capacity: usize) -> Self {
        let ids = vec![0; 1 << 10].into_boxed_slice();
        let mut slots = Self { slots: Vec::new(), free: Vec::new(), ids, open: 0 };
        slots.grow(capacity);
        slots
    }

    /// Makes room for `capacity` commands, at most 65535.
    pub(super) fn grow(&mut self, capacity: usize) {
        let from = self.slots.len();
        let slot = |_| Slot {
            state: State::Free,
            command: Command::new(0),
            bytes: 0,
            buffer: Buffer::Caller,
            received: 0,
            range_at: 0,
            requested: 0,
            outstanding: 0,
            is_damaged: false,
            sent: 0,
        };
        let capacity = capacity.min(usize::from(u16::MAX)).max(from);
        self.slots.extend((from..capacity).map(slot));
        self.free.extend((from as u16..capacity as u16).rev());
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Commands that the host waits for.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// Whether a command with this identifier is not answered.
    pub(super) fn is_used(&self, id: u16) -> bool {
        self.ids[usize::from(id >> 6)] >> (id & 63) & 1 != 0
    }

    fn set_used(&mut self, id: u16, used: bool) {
        let (word, bit) = (&mut self.ids[usize::from(id >> 6)], 1 << (id & 63));
        if used { *word |= bit } else { *word &= !bit }
    }

    /// A slot for a command whose identifier is not used. `None` if there is none.
    pub(super) fn take(&mut self, command: Command) -> Option<CommandTag> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[usize::from(index)];
        (slot.state, slot.command) = (State::Open, command);
        (slot.bytes, slot.buffer) = (0, Buffer::Caller);
        (slot.received, slot.range_at, slot.requested, slot.outstanding) = (0, 0, 0, 0);
        (slot.is_damaged, slot.sent) = (false, 0);
        self.set_used(command.id(), true);
        self.open += 1;
        Some(CommandTag(index))
    }

    /// The command, if it is open.
    pub(super) fn command(&self, tag: CommandTag) -> Option<&Command> {
        let slot = self.slots.get(tag.index())?;
        (slot.state == State::Open).then_some(&slot.command)
    }

    /// Says how many bytes of data the command has, and where they are.
    pub(super) fn set_data(&mut self, tag: CommandTag, bytes: u32, buffer: Buffer) {
        let slot = &mut self.slots[tag.index()];
        (slot.bytes, slot.buffer) = (bytes, buffer);
    }

    pub(super) fn is_callers(&self, tag: CommandTag) -> bool {
        self.slots[tag.index()].buffer == Buffer::Caller
    }

    pub(super) fn own_data(&mut self, tag: CommandTag) -> &mut Vec<u8> {
        let slot = &mut self.slots[tag.index()];
        if slot.buffer == Buffer::Caller {
            slot.buffer = Buffer::Own(Vec::new());
        }
        match &mut slot.buffer {
            Buffer::Own(data) => data,
            Buffer::Caller => unreachable!("it was just replaced"),
        }
    }

    /// Whether no byte was asked for.
    pub(super) fn is_untouched(&self, tag: CommandTag) -> bool {
        let slot = &self.slots[tag.index()];
        slot.requested == 0 && slot.received == 0
    }

    /// The next R2T of a command, and whether another may follow. `None` if all was asked for, or as many are
    /// outstanding as may be.
    pub(super) fn next_r2t(
        &mut self,
        tag: CommandTag,
        limits: &Transfers,
    ) -> Option<(ReadyToTransfer, bool)> {
        let slot = &mut self.slots[tag.index()];
        let bytes = (slot.bytes - slot.requested).min(limits.r2t_bytes_max);
        if slot.state != State::Open || bytes == 0 || slot.outstanding >= limits.r2t_max {
            return None;
        }
        let r2t = ReadyToTransfer {
            command: slot.command.id(),
            tag: tag.0,
            offset: slot.requested,
            bytes,
        };
        slot.requested += bytes;
        slot.outstanding += 1;
        let more = slot.requested < slot.bytes && slot.outstanding < limits.r2t_max;
        Some((r2t, more))
    }

    /// Checks the header of an H2CData (TCP Transport 1.0, 3.3.2.2).
    pub(super) fn data(
        &mut self,
        data: &DataHeader,
        is_last: bool,
        limits: &Transfers,
    ) -> Result<CommandTag, Fault> {
        if data.bytes > limits.h2c_bytes_max {
            return Err(Fault::LIMIT);
        }
        let slot = self.slots.get(usize::from(data.tag));
        let slot = slot.filter(|slot| slot.state == State::Open && slot.outstanding > 0);
        let slot = slot.ok_or(Fault::field_at(10))?;
        if slot.command.id() != data.command {
            return Err(Fault::field_at(8));
        }
        let range_end = slot.requested.min(slot.range_at.saturating_add(limits.r2t_bytes_max));
        let end = data.offset.checked_add(data.bytes).filter(|&end| end <= range_end);
        let end = end.filter(|_| data.offset >= slot.range_at).ok_or(Fault::OUT_OF_RANGE)?;
        if data.offset != slot.received || is_last != (end == range_end) {
            return Err(Fault::SEQUENCE);
        }
        Ok(CommandTag(data.tag))
    }

    /// Takes note that `bytes` of data are complete, the last of an R2T or not. Returns whether all of the command are.
    pub(super) fn data_received(
        &mut self,
        tag: CommandTag,
        bytes: u32,
        intact: bool,
        is_last: bool,
    ) -> bool {
        let slot = &mut self.slots[tag.index()];
        slot.received += bytes;
        slot.is_damaged |= !intact;
        if is_last {
            slot.outstanding -= 1;
            slot.range_at = slot.received;
        }
        slot.received == slot.bytes
    }

    pub(super) fn is_damaged(&self, tag: CommandTag) -> bool {
        self.slots[tag.index()].is_damaged
    }

    /// Answers a command. Returns whether data go to the host first. The identifier and the head of the queue of
    /// `completion` are filled in later.
    pub(super) fn answer(
        &mut self,
        tag: CommandTag,
        status: Status,
        result: u64,
        has_data: bool,
    ) -> bool {
        let slot = &mut self.slots[tag.index()];
        let id = slot.command.id();
        slot.state = State::Answered(Completion { result, queue_head: 0, id, status });
        has_data && slot.bytes > 0 && status.is_success()
    }

    /// The next data to the host: header, data, and whether they are the last.
    pub(super) fn next_data(
        &mut self,
        tag: CommandTag,
        limits: &Transfers,
    ) -> Option<(DataHeader, Body, bool)> {
        let slot = &mut self.slots[tag.index()];
        let State::Answered(completion) = slot.state else { return None };
        let left = slot.bytes - slot.sent;
        let offset = slot.sent;
        let (bytes, body) = match &mut slot.buffer {
            Buffer::Caller => {
                let bytes = left.min(limits.c2h_bytes_max);
                (bytes, Body::Caller(DataRange { command: tag.0, offset, bytes }))
            }
            Buffer::Own(data) => {
                let mut data = std::mem::take(data);
                data.resize(left as usize, 0);
                (left, Body::Owned(data.into_boxed_slice()))
            }
        };
        slot.sent += bytes;
        let data = DataHeader { command: completion.id, tag: 0, offset, bytes };
        Some((data, body, slot.sent == slot.bytes))
    }

    /// The completion of an answered command.
    pub(super) fn completion(&self, tag: CommandTag) -> Option<Completion> {
        match self.slots[tag.index()].state {
            State::Answered(completion) => Some(completion),
            _ => None,
        }
    }

    /// The last of the answer is in the sender. The host may have it, and use the identifier again, before the socket
    /// reports that it was sent.
    pub(super) fn retire(&mut self, tag: CommandTag) {
        let slot = &mut self.slots[tag.index()];
        slot.state = State::Retired;
        let id = slot.command.id();
        self.set_used(id, false);
        self.open -= 1;
    }

    /// The answer was sent. Returns whether the caller has a buffer that is free now.
    pub(super) fn release(&mut self, tag: CommandTag) -> bool {
        let slot = &mut self.slots[tag.index()];
        slot.state = State::Free;
        self.free.push(tag.0);
        slot.buffer == Buffer::Caller && slot.bytes > 0
    }
}

//! Submission and completion queue entries.

use super::{COMMAND_BYTES, COMPLETION_BYTES, Status, admin_opcode, fabrics};
use crate::bytes::{put, u16_at, u32_at, u64_at};

const OPCODE_AT: usize = 0;
const FLAGS_AT: usize = 1;
/// Offset of the command identifier in a command.
pub(crate) const CID_AT: usize = 2;
const NSID_AT: usize = 4;
const SGL_AT: usize = 24;
const SGL_LENGTH_AT: usize = SGL_AT + 8;
const SGL_TYPE_AT: usize = SGL_AT + 15;
const CDW10_AT: usize = 40;

/// PSDT of commands over a fabric: the data pointer is an SGL (3.3.3.1, figure 86).
const PSDT_SGL: u8 = 1 << 6;
/// Data block descriptor, sub type offset: the data are in the capsule (4.1.2, and TCP Transport 1.0, 3.3.2).
const SGL_IN_CAPSULE: u8 = 0x01;
/// Transport data block descriptor, sub type Ah: the data move in PDUs of their own.
const SGL_TRANSPORT: u8 = 0x5a;

/// Which way the data of a command go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It has none.
    None,
    /// From the host to the controller, as of a write.
    ToController,
    /// From the controller to the host, as of a read.
    ToHost,
}

/// How the data of a command move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointer {
    /// They follow the command in its capsule.
    InCapsule {
        /// Offset in the data of the capsule, in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u32,
    },
    /// In H2CData or C2HData.
    Transport {
        /// Length in bytes.
        bytes: u32,
    },
    /// In a way that NVMe/TCP does not know; the type byte of the descriptor.
    Unknown(u8),
}

/// A submission queue entry (3.3.3.1). The queue that submits it fills in the command identifier and the data pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Command([u8; COMMAND_BYTES]);

impl Command {
    /// A command with this opcode, all else 0.
    #[must_use]
    pub fn new(opcode: u8) -> Self {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[OPCODE_AT] = opcode;
        bytes[FLAGS_AT] = PSDT_SGL;
        Self(bytes)
    }

    /// The command as it came over the wire.
    #[must_use]
    pub fn from_bytes(bytes: [u8; COMMAND_BYTES]) -> Self {
        Self(bytes)
    }

    /// The command as it goes over the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; COMMAND_BYTES] {
        &self.0
    }

    /// Opcode.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[OPCODE_AT]
    }

    /// Whether the command is half of a fused operation, which this crate does not support.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        self.0[FLAGS_AT] & 3 != 0
    }

    /// Command identifier: unique among the outstanding commands of a queue.
    #[must_use]
    pub fn id(&self) -> u16 {
        u16_at(&self.0, CID_AT)
    }

    /// Sets the command identifier, as the queue that submits the command does.
    pub fn set_id(&mut self, id: u16) {
        put(&mut self.0, CID_AT, id.to_le_bytes());
    }

    /// Namespace identifier.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        u32_at(&self.0, NSID_AT)
    }

    /// The same command for namespace `nsid`.
    #[must_use]
    pub fn with_nsid(mut self, nsid: u32) -> Self {
        put(&mut self.0, NSID_AT, nsid.to_le_bytes());
        self
    }

    /// Command dword `number`, 10 to 15.
    ///
    /// # Panics
    /// If `number` is another.
    #[must_use]
    pub fn dword(&self, number: usize) -> u32 {
        assert!((10..16).contains(&number), "a command dword");
        u32_at(&self.0, CDW10_AT + (number - 10) * 4)
    }

    /// The same command with command dword `number`, 10 to 15.
    ///
    /// # Panics
    /// If `number` is another.
    #[must_use]
    pub fn with_dword(mut self, number: usize, value: u32) -> Self {
        assert!((10..16).contains(&number), "a command dword");
        put(&mut self.0, CDW10_AT + (number - 10) * 4, value.to_le_bytes());
        self
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(crate) fn set_byte(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    /// Which way its data go: the two lowest bits of the opcode, or of the type of a Fabrics command (figure 87).
    #[must_use]
    pub fn direction(&self) -> Direction {
        let code = match self.opcode() {
            admin_opcode::FABRICS => self.0[fabrics::TYPE_AT],
            opcode => opcode,
        };
        match code & 3 {
            1 => Direction::ToController,
            2 => Direction::ToHost,
            _ => Direction::None,
        }
    }

    /// How its data move.
    #[must_use]
    pub fn data_pointer(&self) -> DataPointer {
        let bytes = u32_at(&self.0, SGL_LENGTH_AT);
        match self.0[SGL_TYPE_AT] {
            SGL_IN_CAPSULE => DataPointer::InCapsule { offset: u64_at(&self.0, SGL_AT), bytes },
            SGL_TRANSPORT => DataPointer::Transport { bytes },
            // A descriptor of no data may be left out.
            0 if bytes == 0 => DataPointer::Transport { bytes },
            kind => DataPointer::Unknown(kind),
        }
    }

    /// Sets the data pointer, as the queue that submits the command does.
    pub fn set_data(&mut self, bytes: u32, in_capsule: bool) {
        put(&mut self.0, SGL_AT, [0; 8]);
        put(&mut self.0, SGL_LENGTH_AT, bytes.to_le_bytes());
        self.0[SGL_TYPE_AT] = if in_capsule { SGL_IN_CAPSULE } else { SGL_TRANSPORT };
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("opcode", &self.opcode())
            .field("id", &self.id())
            .field("nsid", &self.nsid())
            .field("data", &self.data_pointer())
            .field("dwords", &[10, 11, 12, 13, 14, 15].map(|number| self.dword(number)))
            .finish()
    }
}

/// A completion queue entry (3.3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Dwords 0 and 1: what the command returns besides data.
    pub result: u64,
    /// Head of the submission queue.
    pub queue_head: u16,
    /// Identifier of the command.
    pub id: u16,
    /// How it went.
    pub status: Status,
}

impl Completion {
    /// Reads the entry.
    #[must_use]
    pub fn read(bytes: &[u8; COMPLETION_BYTES]) -> Self {
        Self {
            result: u64_at(bytes, 0),
            queue_head: u16_at(bytes, 8),
            id: u16_at(bytes, 12),
            status: Status::from_wire(u16_at(bytes, 14)),
        }
    }

    /// The entry as it goes over the wire. The queue identifier is reserved over fabrics.
    #[must_use]
    pub fn write(&self) -> [u8; COMPLETION_BYTES] {
        let mut bytes = [0; COMPLETION_BYTES];
        put(&mut bytes, 0, self.result.to_le_bytes());
        put(&mut bytes, 8, self.queue_head.to_le_bytes());
        put(&mut bytes, 12, self.id.to_le_bytes());
        put(&mut bytes, 14, self.status.to_wire().to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_is_read_as_written() {
        let status = Status::RESERVATION_CONFLICT.do_not_retry();
        let completion = Completion { result: 0x1_0000_0002, queue_head: 3, id: 4, status };
        assert_eq!(Completion::read(&completion.write()), completion);
    }

    #[test]
    fn data_pointer_is_read_as_written() {
        let mut command = Command::new(1).with_nsid(7).with_dword(12, 5);
        command.set_data(4096, true);
        assert_eq!(command.data_pointer(), DataPointer::InCapsule { offset: 0, bytes: 4096 });
        command.set_data(8192, false);
        assert_eq!(command.data_pointer(), DataPointer::Transport { bytes: 8192 });
        assert_eq!((command.nsid(), command.dword(12), command.dword(13)), (7, 5, 0));
        command.set_byte(SGL_TYPE_AT, 0x40);
        assert_eq!(command.data_pointer(), DataPointer::Unknown(0x40));
    }
}

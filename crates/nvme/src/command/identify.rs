//! Identify (5.17): controllers, namespaces, and lists of them. Every structure has 4096 bytes.

use super::{Command, admin_opcode};
use crate::bytes::{array, put, put_text, text, u16_at, u32_at, u64_at};

/// Bytes of every Identify structure.
pub const BYTES: usize = 4096;
/// Most identifiers in a namespace list.
pub const LIST_ENTRIES: usize = BYTES / 4;

/// What an Identify returns (figure 273).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// A namespace (NVM Command Set 1.0, 4.1.5.1).
    Namespace = 0x00,
    /// The controller.
    Controller = 0x01,
    /// Identifiers of active namespaces above that of the command.
    ActiveNamespaces = 0x02,
    /// Identification descriptors of a namespace.
    Descriptors = 0x03,
}

/// The command for `structure`; `nsid` is 0 for the controller.
#[must_use]
pub fn identify(structure: Structure, nsid: u32) -> Command {
    Command::new(admin_opcode::IDENTIFY).with_nsid(nsid).with_dword(10, structure as u32)
}

/// Type of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// It does not say; so are controllers before version 1.4.
    Unknown = 0,
    /// It has namespaces.
    Io = 1,
    /// It tells where subsystems are.
    Discovery = 2,
    /// It manages a subsystem.
    Administrative = 3,
}

/// Optional commands of a controller (ONCS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalCommands {
    /// Dataset Management.
    pub dataset_management: bool,
    /// Write Zeroes.
    pub write_zeroes: bool,
    /// Reservations.
    pub reservations: bool,
}

/// Identify Controller (5.17.2.1), as far as this crate uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Serial number, at most 20 bytes.
    pub serial: String,
    /// Model, at most 40 bytes.
    pub model: String,
    /// Firmware revision, at most 8 bytes.
    pub firmware: String,
    /// Largest data transfer of a command, as a power of 2 in units of the smallest page (MDTS); 0 for no limit.
    pub transfer_pages_shift: u8,
    /// Identifier of the controller.
    pub controller_id: u16,
    /// Version: major, minor, tertiary.
    pub version: (u16, u8, u8),
    /// Events that it can report (OAES), as in [`super::features::async_event`].
    pub async_events: u32,
    /// What kind it is.
    pub kind: ControllerKind,
    /// Most outstanding Asynchronous Event Requests, at least 1.
    pub async_event_requests_max: u16,
    /// Granularity of the keep-alive timeout in units of 100 milliseconds; 0 if it has no Keep Alive.
    pub keep_alive_100ms: u16,
    /// Most outstanding commands of a queue (MAXCMD).
    pub commands_max: u16,
    /// Highest namespace identifier (NN).
    pub namespaces: u32,
    /// Optional commands.
    pub optional: OptionalCommands,
    /// Whether written data may be lost with power until a Flush (VWC).
    pub volatile_write_cache: bool,
    /// Name of the subsystem.
    pub subsystem_nqn: String,
    /// Most bytes of an I/O command capsule, data included; a multiple of 16 (IOCCSZ).
    pub io_capsule_bytes: u32,
}

impl ControllerInfo {
    /// Largest data transfer in bytes, or `None` for no limit. `page_shift` is [`super::fabrics::Capabilities`]'.
    #[must_use]
    pub fn transfer_bytes_max(&self, page_shift: u8) -> Option<u32> {
        let shift = u32::from(page_shift) + u32::from(self.transfer_pages_shift);
        (self.transfer_pages_shift > 0).then(|| 1u32.checked_shl(shift).unwrap_or(u32::MAX))
    }

    /// Most bytes of data in the capsule of an I/O command.
    #[must_use]
    pub fn in_capsule_bytes_max(&self) -> u32 {
        self.io_capsule_bytes.saturating_sub(64)
    }

    /// Reads the structure.
    #[must_use]
    pub fn read(bytes: &[u8; BYTES]) -> Self {
        let version = u32_at(bytes, 80);
        let optional = u16_at(bytes, 520);
        Self {
            serial: text(&bytes[4..24]),
            model: text(&bytes[24..64]),
            firmware: text(&bytes[64..72]),
            transfer_pages_shift: bytes[77],
            controller_id: u16_at(bytes, 78),
            version: ((version >> 16) as u16, (version >> 8) as u8, version as u8),
            async_events: u32_at(bytes, 92),
            kind: match bytes[111] {
                1 => ControllerKind::Io,
                2 => ControllerKind::Discovery,
                3 => ControllerKind::Administrative,
                _ => ControllerKind::Unknown,
            },
            async_event_requests_max: u16::from(bytes[259]) + 1,
            keep_alive_100ms: u16_at(bytes, 320),
            commands_max: u16_at(bytes, 514),
            namespaces: u32_at(bytes, 516),
            optional: OptionalCommands {
                dataset_management: optional & 1 << 2 != 0,
                write_zeroes: optional & 1 << 3 != 0,
                reservations: optional & 1 << 5 != 0,
            },
            volatile_write_cache: bytes[525] & 1 != 0,
            subsystem_nqn: text(&bytes[768..1024]),
            io_capsule_bytes: u32_at(bytes, 1792).saturating_mul(16),
        }
    }

    /// The structure. What is not in `self` says: 128-bit host identifiers, namespaces shared by several controllers,
    /// Get Log Page with offsets, SGLs as NVMe/TCP has them, no firmware updates, one power state.
    #[must_use]
    pub fn write(&self) -> Box<[u8]> {
        let mut bytes = vec![0; BYTES].into_boxed_slice();
        put_text(&mut bytes[4..24], &self.serial, b' ');
        put_text(&mut bytes[24..64], &self.model, b' ');
        put_text(&mut bytes[64..72], &self.firmware, b' ');
        // CMIC: several ports and controllers.
        bytes[76] = 0b011;
        bytes[77] = self.transfer_pages_shift;
        put(&mut bytes, 78, self.controller_id.to_le_bytes());
        let (major, minor, tertiary) = self.version;
        let version = u32::from(major) << 16 | u32::from(minor) << 8 | u32::from(tertiary);
        put(&mut bytes, 80, version.to_le_bytes());
        put(&mut bytes, 92, self.async_events.to_le_bytes());
        // CTRATT: 128-bit host identifiers.
        bytes[96] = 1;
        bytes[111] = self.kind as u8;
        bytes[259] = self.async_event_requests_max.saturating_sub(1).min(255) as u8;
        // FRMW: one slot, read only.
        bytes[260] = 0b011;
        // LPA: extended data for Get Log Page, and the effects page.
        bytes[261] = if self.kind == ControllerKind::Io { 0b110 } else { 0b100 };
        put(&mut bytes, 266, 343u16.to_le_bytes());
        put(&mut bytes, 268, 353u16.to_le_bytes());
        put(&mut bytes, 320, self.keep_alive_100ms.to_le_bytes());
        bytes[512] = 0x66;
        bytes[513] = 0x44;
        put(&mut bytes, 514, self.commands_max.to_le_bytes());
        put(&mut bytes, 516, self.namespaces.to_le_bytes());
        let optional = self.optional;
        let oncs = u16::from(optional.dataset_management) << 2
            | u16::from(optional.write_zeroes) << 3
            | u16::from(optional.reservations) << 5;
        put(&mut bytes, 520, oncs.to_le_bytes());
        // VWC: present or not, and Flush of all namespaces is not supported.
        bytes[525] = u8::from(self.volatile_write_cache) | 0b100;
        // SGLS: supported without alignment, address as offset, and transport data blocks.
        put(&mut bytes, 536, (1u32 | 1 << 20 | 1 << 21).to_le_bytes());
        put_text(&mut bytes[768..1024 - 1], &self.subsystem_nqn, 0);
        put(&mut bytes, 1792, (self.io_capsule_bytes / 16).to_le_bytes());
        // IORCSZ: a completion and nothing else.
        put(&mut bytes, 1796, 1u32.to_le_bytes());
        // MSDBD: one descriptor a command.
        bytes[1803] = 1;
        bytes
    }
}

/// Identify Namespace (NVM Command Set 1.0, 4.1.5.1), as far as this crate uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Size in blocks (NSZE). 0 for a namespace that does not exist.
    pub blocks: u64,
    /// Logarithm of the bytes of a block to the base 2.
    pub block_shift: u8,
    /// Bytes of metadata with every block; this crate moves none.
    pub metadata_bytes: u16,
    /// Whether several controllers may have it.
    pub is_shared: bool,
    /// Reservation types it supports (RESCAP), as in the structure.
    pub reservation_capabilities: u8,
    /// Whether blocks that were deallocated read as zeros.
    pub deallocated_reads_zero: bool,
    /// Globally unique identifier; all zeros for none.
    pub nguid: [u8; 16],
    /// 64-bit identifier; all zeros for none.
    pub eui64: [u8; 8],
}

impl NamespaceInfo {
    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        1u32.checked_shl(u32::from(self.block_shift)).unwrap_or(0)
    }

    /// Reads the structure.
    #[must_use]
    pub fn read(bytes: &[u8; BYTES]) -> Self {
        let format = 128 + usize::from(bytes[26] & 0xf | bytes[26] >> 1 & 0x30) * 4;
        Self {
            blocks: u64_at(bytes, 0),
            block_shift: bytes[format + 2],
            metadata_bytes: u16_at(bytes, format),
            is_shared: bytes[30] & 1 != 0,
            reservation_capabilities: bytes[31],
            deallocated_reads_zero: bytes[33] & 7 == 1,
            nguid: array(bytes, 104),
            eui64: array(bytes, 120),
        }
    }

    /// The structure: one format, all blocks allocated.
    #[must_use]
    pub fn write(&self) -> Box<[u8]> {
        let mut bytes = vec![0; BYTES].into_boxed_slice();
        for at in [0, 8, 16] {
            put(&mut bytes, at, self.blocks.to_le_bytes());
        }
        bytes[30] = u8::from(self.is_shared);
        bytes[31] = self.reservation_capabilities;
        bytes[33] = u8::from(self.deallocated_reads_zero);
        put(&mut bytes, 104, self.nguid);
        put(&mut bytes, 120, self.eui64);
        put(&mut bytes, 128, self.metadata_bytes.to_le_bytes());
        bytes[130] = self.block_shift;
        bytes
    }
}

/// The identifiers of a namespace list: those before the first 0.
pub fn namespaces(bytes: &[u8; BYTES]) -> impl Iterator<Item = u32> {
    let ids = (0..LIST_ENTRIES).map(|entry| u32_at(bytes, entry * 4));
    ids.take_while(|&id| id != 0)
}

/// A namespace list of at most [`LIST_ENTRIES`] identifiers.
pub fn write_namespaces(ids: impl Iterator<Item = u32>) -> Box<[u8]> {
    let mut bytes = vec![0; BYTES].into_boxed_slice();
    for (entry, id) in ids.take(LIST_ENTRIES).enumerate() {
        put(&mut bytes, entry * 4, id.to_le_bytes());
    }
    bytes
}

/// What identifies a namespace, whatever path leads to it (5.17.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceIds {
    /// 64-bit identifier.
    pub eui64: Option<[u8; 8]>,
    /// Globally unique identifier.
    pub nguid: Option<[u8; 16]>,
    /// Universally unique identifier.
    pub uuid: Option<[u8; 16]>,
}

impl NamespaceIds {
    /// Reads the descriptors; those of other types are passed over.
    #[must_use]
    pub fn read(bytes: &[u8; BYTES]) -> Self {
        let (mut ids, mut at) = (Self::default(), 0);
        while at + 4 <= BYTES && bytes[at] != 0 && bytes[at + 1] != 0 {
            let (kind, length) = (bytes[at], usize::from(bytes[at + 1]));
            let Some(value) = bytes.get(at + 4..at + 4 + length) else { break };
            match (kind, length) {
                (1, 8) => ids.eui64 = Some(array(value, 0)),
                (2, 16) => ids.nguid = Some(array(value, 0)),
                (3, 16) => ids.uuid = Some(array(value, 0)),
                _ => {}
            }
            at += 4 + length;
        }
        ids
    }

    /// The descriptors.
    #[must_use]
    pub fn write(&self) -> Box<[u8]> {
        let mut bytes = vec![0; BYTES].into_boxed_slice();
        let eui64 = self.eui64.as_ref().map(|id| (1, id.as_slice()));
        let nguid = self.nguid.as_ref().map(|id| (2, id.as_slice()));
        let uuid = self.uuid.as_ref().map(|id| (3, id.as_slice()));
        let mut at = 0;
        for (kind, id) in [eui64, nguid, uuid].into_iter().flatten() {
            bytes[at] = kind;
            bytes[at + 1] = id.len() as u8;
            bytes[at + 4..at + 4 + id.len()].copy_from_slice(id);
            at += 4 + id.len();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn structure(bytes: &[u8]) -> &[u8; BYTES] {
        bytes.try_into().expect("4096 bytes")
    }

    #[test]
    fn controller_is_read_as_written() {
        let info = ControllerInfo {
            serial: "0123".into(),
            model: "Terrace".into(),
            firmware: "1.0".into(),
            transfer_pages_shift: 5,
            controller_id: 7,
            version: (1, 4, 0),
            async_events: 1 << 8,
            kind: ControllerKind::Io,
            async_event_requests_max: 4,
            keep_alive_100ms: 10,
            commands_max: 128,
            namespaces: 3,
            optional: OptionalCommands { write_zeroes: true, ..OptionalCommands::default() },
            volatile_write_cache: true,
            subsystem_nqn: "nqn.2014-08.org.nvmexpress:uuid:2".into(),
            io_capsule_bytes: 4160,
        };
        assert_eq!(ControllerInfo::read(structure(&info.write())), info);
        assert_eq!(info.transfer_bytes_max(12), Some(128 << 10));
        assert_eq!(info.in_capsule_bytes_max(), 4096);
    }

    #[test]
    fn transfer_limit_beyond_32_bits_is_the_largest() {
        let mut bytes = [0; BYTES];
        bytes[77] = 255;
        let info = ControllerInfo::read(&bytes);
        assert_eq!(info.transfer_bytes_max(12), Some(u32::MAX));
        bytes[77] = 0;
        assert_eq!(ControllerInfo::read(&bytes).transfer_bytes_max(12), None);
    }

    #[test]
    fn namespace_is_read_as_written() {
        let info = NamespaceInfo {
            blocks: 1 << 30,
            block_shift: 12,
            metadata_bytes: 8,
            is_shared: true,
            reservation_capabilities: 0x7e,
            deallocated_reads_zero: true,
            nguid: [1; 16],
            eui64: [2; 8],
        };
        assert_eq!(NamespaceInfo::read(structure(&info.write())), info);
    }

    #[test]
    fn lists_and_descriptors_are_read_as_written() {
        let list = write_namespaces([3, 9].into_iter());
        assert_eq!(namespaces(structure(&list)).collect::<Vec<_>>(), [3, 9]);
        let all = namespaces(structure(&write_namespaces(1..=5000))).count();
        assert_eq!(all, LIST_ENTRIES);
        let ids = NamespaceIds { nguid: Some([4; 16]), uuid: Some([5; 16]), eui64: None };
        assert_eq!(NamespaceIds::read(structure(&ids.write())), ids);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in prop::collection::vec(any::<u8>(), 64), at in 0usize..4032) {
            let mut whole = [0xff; BYTES];
            whole[at..at + 64].swap_with_slice(&mut bytes);
            let _ = ControllerInfo::read(&whole);
            prop_assert!(NamespaceInfo::read(&whole).block_bytes().is_power_of_two()
                || NamespaceInfo::read(&whole).block_bytes() == 0);
            let _ = NamespaceIds::read(&whole);
            prop_assert!(namespaces(&whole).count() <= LIST_ENTRIES);
        }
    }
}

//! Get Log Page (5.16) and the pages that this crate knows.

use super::{Command, admin_opcode};
use crate::bytes::{put, put_text, text, u16_at, u32_at, u64_at};

/// A log page (5.16.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Error Information.
    Error = 0x01,
    /// SMART / Health Information.
    Health = 0x02,
    /// Firmware Slot Information.
    Firmware = 0x03,
    /// Changed Namespace List.
    ChangedNamespaces = 0x04,
    /// Commands Supported and Effects.
    Effects = 0x05,
    /// Discovery.
    Discovery = 0x70,
    /// Reservation Notification.
    Reservation = 0x80,
}

impl Page {
    /// The page with this identifier.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0x01 => Self::Error,
            0x02 => Self::Health,
            0x03 => Self::Firmware,
            0x04 => Self::ChangedNamespaces,
            0x05 => Self::Effects,
            0x70 => Self::Discovery,
            0x80 => Self::Reservation,
            _ => return None,
        })
    }
}

/// Which part of a page a Get Log Page asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset in bytes; a multiple of 4.
    pub offset: u64,
    /// Length in bytes; a multiple of 4, not 0.
    pub bytes: u32,
    /// Whether the event that announced the page stays, so that the next read of the page clears it.
    pub keeps_event: bool,
}

/// Get Log Page of part of `page`, of the whole controller.
#[must_use]
pub fn get(page: Page, part: Part) -> Command {
    let dwords = (part.bytes / 4).max(1) - 1;
    Command::new(admin_opcode::GET_LOG_PAGE)
        .with_nsid(super::NSID_ALL)
        .with_dword(10, page as u32 | u32::from(part.keeps_event) << 15 | (dwords & 0xffff) << 16)
        .with_dword(11, dwords >> 16)
        .with_dword(12, part.offset as u32)
        .with_dword(13, (part.offset >> 32) as u32)
}

/// Longest part that fits 32 bits.
const BYTES_MAX: u32 = !3;

/// The part that a Get Log Page asks for. A length beyond 32 bits becomes the longest there is.
#[must_use]
pub fn part_of(command: &Command) -> Part {
    let dwords = u64::from(command.dword(10) >> 16 | (command.dword(11) & 0xffff) << 16) + 1;
    Part {
        offset: u64::from(command.dword(12)) | u64::from(command.dword(13)) << 32,
        bytes: u32::try_from(dwords * 4).unwrap_or(BYTES_MAX),
        keeps_event: command.dword(10) & 1 << 15 != 0,
    }
}

/// Bytes of an entry of the Error Information page.
pub const ERROR_ENTRY_BYTES: usize = 64;

/// An entry of the Error Information page (5.16.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// Number of the error; 0 for an entry that is not used.
    pub number: u64,
    /// Queue of the command.
    pub queue_id: u16,
    /// Command.
    pub command_id: u16,
    /// Status of the command.
    pub status: super::Status,
    /// First block.
    pub lba: u64,
    /// Namespace.
    pub nsid: u32,
}

impl ErrorEntry {
    /// The entries that are used.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = Self> {
        let entry = |entry: &[u8]| Self {
            number: u64_at(entry, 0),
            queue_id: u16_at(entry, 8),
            command_id: u16_at(entry, 10),
            status: super::Status::from_wire(u16_at(entry, 12)),
            lba: u64_at(entry, 16),
            nsid: u32_at(entry, 24),
        };
        bytes.chunks_exact(ERROR_ENTRY_BYTES).map(entry).filter(|entry| entry.number != 0)
    }
}

/// Reservation Notification page (5.16.1.24): what happened, and in which namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationNotice {
    /// Counts the notices of this controller; 0 if there is none.
    pub number: u64,
    /// What happened.
    pub kind: ReservationNoticeKind,
    /// How many more wait.
    pub more: u8,
    /// The namespace.
    pub nsid: u32,
}

/// What a [`ReservationNotice`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationNoticeKind {
    /// Nothing.
    None = 0,
    /// This host lost its registration.
    RegistrationPreempted = 1,
    /// The holder gave the reservation back.
    Released = 2,
    /// The reservation was taken from its holder.
    Preempted = 3,
}

/// Bytes of the Reservation Notification page.
pub const RESERVATION_NOTICE_BYTES: usize = 64;

impl ReservationNotice {
    /// Reads the page.
    #[must_use]
    pub fn read(bytes: &[u8; RESERVATION_NOTICE_BYTES]) -> Self {
        Self {
            number: u64_at(bytes, 0),
            kind: match bytes[8] {
                1 => ReservationNoticeKind::RegistrationPreempted,
                2 => ReservationNoticeKind::Released,
                3 => ReservationNoticeKind::Preempted,
                _ => ReservationNoticeKind::None,
            },
            more: bytes[9],
            nsid: u32_at(bytes, 12),
        }
    }

    /// The page.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; RESERVATION_NOTICE_BYTES];
        put(&mut bytes, 0, self.number.to_le_bytes());
        bytes[8] = self.kind as u8;
        bytes[9] = self.more;
        put(&mut bytes, 12, self.nsid.to_le_bytes());
        bytes
    }
}

/// Bytes of the head of the discovery page, and of each of its entries.
pub const DISCOVERY_ENTRY_BYTES: usize = 1024;
const TRSVCID: std::ops::Range<usize> = 32..64;
const SUBNQN: std::ops::Range<usize> = 256..512;
const TRADDR: std::ops::Range<usize> = 512..768;

/// What an entry of the discovery page leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubsystemKind {
    /// Another discovery service.
    Referral = 1,
    /// A subsystem with namespaces.
    Nvm = 2,
    /// This discovery service.
    ThisDiscovery = 3,
}

/// An entry of the discovery page (5.16.1.23, figure 265) for NVMe/TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// What it leads to.
    pub kind: SubsystemKind,
    /// Name of the subsystem.
    pub subsystem_nqn: String,
    /// Address, of IPv6 if it has a colon.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// Number of the port within the subsystem.
    pub port_id: u16,
    /// Whether connections must use TLS 1.3.
    pub tls: bool,
}

impl DiscoveryEntry {
    /// Reads an entry. `None` for one of another transport, of an unknown kind, or whose port is not a number, which
    /// must not be used (TCP Transport 1.0, 3.1).
    #[must_use]
    pub fn read(bytes: &[u8; DISCOVERY_ENTRY_BYTES]) -> Option<Self> {
        let kind = match bytes[2] {
            1 => SubsystemKind::Referral,
            2 => SubsystemKind::Nvm,
            3 => SubsystemKind::ThisDiscovery,
            _ => return None,
        };
        (bytes[0] == TRANSPORT_TCP).then_some(())?;
        Some(Self {
            kind,
            subsystem_nqn: text(&bytes[SUBNQN]),
            address: text(&bytes[TRADDR]),
            port: text(&bytes[TRSVCID]).parse().ok()?,
            port_id: u16_at(bytes, 4),
            tls: bytes[768] != 0,
        })
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes[0] = TRANSPORT_TCP;
        bytes[1] = if self.address.contains(':') { 2 } else { 1 };
        bytes[2] = self.kind as u8;
        // TREQ: a secure channel is required, or nothing is said of one, as Linux does; flow control by the queue's
        // head may be disabled.
        bytes[3] = u8::from(self.tls) | 1 << 2;
        put(bytes, 4, self.port_id.to_le_bytes());
        // CNTLID: dynamic controllers. ASQSZ: the least there may be.
        put(bytes, 6, u16::MAX.to_le_bytes());
        put(bytes, 8, 32u16.to_le_bytes());
        put_text(&mut bytes[TRSVCID], &self.port.to_string(), b' ');
        put_text(&mut bytes[SUBNQN], &self.subsystem_nqn, 0);
        put_text(&mut bytes[TRADDR], &self.address, b' ');
        bytes[768] = if self.tls { 2 } else { 0 };
    }
}

/// Transport type of TCP.
const TRANSPORT_TCP: u8 = 3;

/// The head of the discovery page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryHead {
    /// Changes whenever the page does. A page that was read in parts is whole if it is the same before and after.
    pub generation: u64,
    /// Entries that follow, 1024 bytes each.
    pub entries: u64,
}

impl DiscoveryHead {
    /// Reads the first bytes of the page, 16 at least.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        Self { generation: u64_at(bytes, 0), entries: u64_at(bytes, 8) }
    }
}

/// The discovery page.
#[must_use]
pub fn write_discovery(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let mut bytes = vec![0; DISCOVERY_ENTRY_BYTES * (entries.len() + 1)];
    put(&mut bytes, 0, generation.to_le_bytes());
    put(&mut bytes, 8, (entries.len() as u64).to_le_bytes());
    let places = bytes.chunks_exact_mut(DISCOVERY_ENTRY_BYTES).skip(1);
    entries.iter().zip(places).for_each(|(entry, place)| entry.write(place));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::array;

    #[test]
    fn part_is_read_as_written() {
        for (offset, bytes) in [(0, 4), (1 << 33, 0x0010_0000), (1024, 4096)] {
            let part = Part { offset, bytes, keeps_event: bytes == 4 };
            assert_eq!(part_of(&get(Page::Discovery, part)), part);
        }
        let endless = get(Page::Error, Part { offset: 0, bytes: 4, keeps_event: false });
        let endless = endless.with_dword(10, 0xffff_0001).with_dword(11, 0xffff);
        assert_eq!(part_of(&endless).bytes, BYTES_MAX);
    }

    #[test]
    fn discovery_page_is_read_as_written() {
        let entry = DiscoveryEntry {
            kind: SubsystemKind::Nvm,
            subsystem_nqn: "nqn.2014-08.org.nvmexpress:uuid:3".into(),
            address: "fd00::1".into(),
            port: 4420,
            port_id: 1,
            tls: true,
        };
        let page = write_discovery(9, &[entry.clone(), entry.clone()]);
        assert_eq!(DiscoveryHead::read(&page), DiscoveryHead { generation: 9, entries: 2 });
        assert_eq!(DiscoveryEntry::read(&array(&page, 2048)), Some(entry));
        assert_eq!(page[1024 + 1], 2);
    }

    #[test]
    fn entry_whose_port_is_no_number_is_not_used() {
        let mut bytes = [0; DISCOVERY_ENTRY_BYTES];
        (bytes[0], bytes[2]) = (TRANSPORT_TCP, 2);
        bytes[TRSVCID][..4].copy_from_slice(b"http");
        assert_eq!(DiscoveryEntry::read(&bytes), None);
        bytes[TRSVCID][..4].copy_from_slice(b"4420");
        assert!(DiscoveryEntry::read(&bytes).is_some());
        bytes[0] = 1;
        assert_eq!(DiscoveryEntry::read(&bytes), None);
    }

    #[test]
    fn notice_is_read_as_written() {
        let kind = ReservationNoticeKind::Released;
        let notice = ReservationNotice { number: 3, kind, more: 1, nsid: 2 };
        assert_eq!(ReservationNotice::read(&array(&notice.write(), 0)), notice);
    }

    #[test]
    fn error_entries_that_are_not_used_are_left_out() {
        let mut bytes = [0; 3 * ERROR_ENTRY_BYTES];
        bytes[ERROR_ENTRY_BYTES] = 5;
        assert_eq!(ErrorEntry::read(&bytes).map(|entry| entry.number).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn every_page_has_its_identifier() {
        for id in 0..=u8::MAX {
            assert!(Page::from_id(id).is_none_or(|page| page as u8 == id));
        }
    }
}

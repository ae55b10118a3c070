//! Reservation commands (7.2 to 7.5) and the Reservation Status structure.

use super::{Command, io_opcode};
use crate::bytes::{array, put, u16_at, u32_at, u64_at};

/// Type of a reservation (8.19, figure 451).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservationKind {
    /// The holder writes.
    WriteExclusive = 1,
    /// The holder reads and writes.
    ExclusiveAccess = 2,
    /// Registrants write.
    WriteExclusiveRegistrants = 3,
    /// Registrants read and write.
    ExclusiveAccessRegistrants = 4,
    /// Registrants write, and each of them is a holder.
    WriteExclusiveAll = 5,
    /// Registrants read and write, and each of them is a holder.
    ExclusiveAccessAll = 6,
}

impl ReservationKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == number)
    }

    /// Whether every registrant is a holder.
    #[must_use]
    pub fn is_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Whether registrants that are not holders have the holder's access.
    #[must_use]
    pub fn is_for_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether hosts without access may read.
    #[must_use]
    pub fn lets_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll
        )
    }
}

/// What a Reservation Register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// Register with the new key.
    Register = 0,
    /// Take the registration back.
    Unregister = 1,
    /// Replace the key.
    Replace = 2,
}

/// What a Reservation Acquire does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAction {
    /// Take the reservation, if it is free.
    Acquire = 0,
    /// Take it from its holder, or remove registrants.
    Preempt = 1,
    /// The same, and abort the commands of the hosts that lose their registration.
    PreemptAndAbort = 2,
}

/// What a Reservation Release does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAction {
    /// Give the reservation back.
    Release = 0,
    /// Remove the reservation and all registrations.
    Clear = 1,
}

/// Reservation Register (7.3). Data: [`keys`] of the current and the new key.
#[must_use]
pub fn register(nsid: u32, action: RegisterAction, ignore_current_key: bool) -> Command {
    let dword = action as u32 | u32::from(ignore_current_key) << 3;
    Command::new(io_opcode::RESERVATION_REGISTER).with_nsid(nsid).with_dword(10, dword)
}

/// Reservation Acquire (7.2). Data: [`keys`] of the current key and of the key to preempt.
#[must_use]
pub fn acquire(nsid: u32, action: AcquireAction, kind: ReservationKind) -> Command {
    let dword = action as u32 | (kind as u32) << 8;
    Command::new(io_opcode::RESERVATION_ACQUIRE).with_nsid(nsid).with_dword(10, dword)
}

/// Reservation Release (7.4). Data: the current key, 8 bytes.
#[must_use]
pub fn release(nsid: u32, action: ReleaseAction, kind: ReservationKind) -> Command {
    let dword = action as u32 | (kind as u32) << 8;
    Command::new(io_opcode::RESERVATION_RELEASE).with_nsid(nsid).with_dword(10, dword)
}

/// Reservation Report (7.5) of `bytes` bytes, a multiple of 4, with 128-bit host identifiers.
#[must_use]
pub fn report(nsid: u32, bytes: u32) -> Command {
    let dwords = (bytes / 4).max(1) - 1;
    Command::new(io_opcode::RESERVATION_REPORT)
        .with_nsid(nsid)
        .with_dword(10, dwords)
        .with_dword(11, 1)
}

/// The data of a Register or Acquire: two keys.
#[must_use]
pub fn keys(current: u64, other: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, current.to_le_bytes());
    put(&mut bytes, 8, other.to_le_bytes());
    bytes
}

/// A host that registered a key with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// The controller that the host uses; 0xffff for none at present.
    pub controller_id: u16,
    /// Whether it holds the reservation.
    pub is_holder: bool,
    /// Its key.
    pub key: u64,
    /// Host identifier.
    pub host_id: [u8; 16],
}

/// The Reservation Status structure with 128-bit host identifiers (7.5, figure 405).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Counts changes of registrations.
    pub generation: u32,
    /// Type of the reservation; `None` if there is none.
    pub kind: Option<ReservationKind>,
    /// Registrants; of a structure that was cut those that fit.
    pub registrants: Vec<Registrant>,
}

/// Bytes of the Reservation Status before its registrants.
pub const REPORT_HEAD_BYTES: usize = 64;
/// Bytes of a registrant in a Reservation Status.
pub const REPORT_ENTRY_BYTES: usize = 64;

impl Report {
    /// Reads the structure, of which `bytes` may be a part; `None` if that has not even the head.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let entries = bytes.get(REPORT_HEAD_BYTES..)?.chunks_exact(REPORT_ENTRY_BYTES);
        let registrant = |entry: &[u8]| Registrant {
            controller_id: u16_at(entry, 0),
            is_holder: entry[2] & 1 != 0,
            key: u64_at(entry, 8),
            host_id: array(entry, 16),
        };
        Some(Self {
            generation: u32_at(bytes, 0),
            kind: ReservationKind::from_number(bytes[4]),
            registrants: entries.take(usize::from(u16_at(bytes, 5))).map(registrant).collect(),
        })
    }

    /// The structure; with 64-bit host identifiers where `extended` is false, which has other entries.
    #[must_use]
    pub fn write(&self, extended: bool) -> Vec<u8> {
        let head = if extended { REPORT_HEAD_BYTES } else { 24 };
        let mut bytes = vec![0; head];
        put(&mut bytes, 0, self.generation.to_le_bytes());
        bytes[4] = self.kind.map_or(0, |kind| kind as u8);
        put(&mut bytes, 5, (self.registrants.len() as u16).to_le_bytes());
        for registrant in &self.registrants {
            let mut entry = vec![0; if extended { REPORT_ENTRY_BYTES } else { 24 }];
            put(&mut entry, 0, registrant.controller_id.to_le_bytes());
            entry[2] = u8::from(registrant.is_holder);
            let (key, host) = if extended { (8, 16) } else { (16, 8) };
            put(&mut entry, key, registrant.key.to_le_bytes());
            if extended {
                put(&mut entry, host, registrant.host_id);
            } else {
                put(&mut entry, host, array::<8>(&registrant.host_id, 0));
            }
            bytes.extend(entry);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_read_as_written_even_if_cut() {
        let registrant = |key| Registrant {
            controller_id: 1,
            is_holder: key == 1,
            key,
            host_id: [key as u8; 16],
        };
        let kind = Some(ReservationKind::WriteExclusive);
        let report =
            Report { generation: 7, kind, registrants: vec![registrant(1), registrant(2)] };
        let bytes = report.write(true);
        assert_eq!(Report::read(&bytes), Some(report.clone()));
        let cut = Report::read(&bytes[..150]).unwrap();
        assert_eq!(cut.registrants, report.registrants[..1]);
        assert_eq!(Report::read(&bytes[..63]), None);
        assert_eq!(report.write(false).len(), 24 + 2 * 24);
    }

    #[test]
    fn actions_and_kinds_stand_in_dword_10() {
        let acquire = acquire(1, AcquireAction::PreemptAndAbort, ReservationKind::WriteExclusive);
        assert_eq!(acquire.dword(10), 0x102);
        assert_eq!(register(1, RegisterAction::Replace, true).dword(10), 0xa);
        assert_eq!(report(1, 4096).dword(10), 1023);
    }
}

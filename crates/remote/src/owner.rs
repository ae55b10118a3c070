//! One owner: which server a namespace belongs to.
//!
//! Two things say so. A **reservation** (write exclusive), where the target has them: a controller that lost it can't
//! write any more, whatever is still on its way to it. Each association registers as a host of its own, and takes the
//! reservation from the one before it; so that is the fence. And a **mark** on the namespace, in space that the cache
//! does not use: it says which host has the namespace, and counts its associations. What another server wrote shows in
//! it, and also a namespace that was set back to an earlier state. Without reservations it only tells of another host;
//! it holds none back.

use crate::error::ConnectError;
use crate::lane::{Job, Lane, Limit};
use terrace_nvme::command::Status;
use terrace_nvme::command::reservation::{
    AcquireAction, RegisterAction, Registrant, ReleaseAction, Report, ReservationKind, acquire,
    keys, register, release, report,
};
use terrace_nvme::host::Controller;
use terrace_nvme::pdu::crc32c;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a report: 63 registrants.
const REPORT_BYTES: usize = 4096;
const KIND: ReservationKind = ReservationKind::WriteExclusive;
/// Of a registrant that has no controller at present, or of a target that does not say which.
const NO_CONTROLLER: u16 = 0xffff;
/// Bit of RESCAP for write exclusive reservations.
const HAS_WRITE_EXCLUSIVE: u8 = 1 << 1;

/// Where the mark is: behind the log's directories, in front of the first segment.
pub(crate) const MARK_AT: u64 = 60 << 10;
pub(crate) const MARK_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"TRCOWNER";
const VERSION: u32 = 1;
const NAME_AT: usize = 48;

/// What a server is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// The server on the host with this name.
    pub(crate) fn of(host_nqn: &str) -> Self {
        Self((xxh3_64(host_nqn.as_bytes()) as u32).max(1))
    }

    /// A key for an association.
    pub(crate) fn key(self, random: u32) -> u64 {
        u64::from(self.0) << 32 | u64::from(random)
    }

    fn has(self, key: u64) -> bool {
        (key >> 32) as u32 == self.0
    }
}

/// Whether the target has reservations that a server can be the only writer by.
pub(crate) fn has_reservations(controller: &Controller) -> bool {
    let capabilities =
        controller.namespace.map_or(0, |namespace| namespace.info.reservation_capabilities);
    controller.info.optional.reservations && capabilities & HAS_WRITE_EXCLUSIVE != 0
}

/// Takes the reservation of a namespace.
pub(crate) struct Claim {
    pub(crate) nsid: u32,
    pub(crate) owner: Owner,
    /// Of this association.
    pub(crate) key: u64,
    /// Of the association before it.
    pub(crate) before: Option<u64>,
    /// Whether another host's reservation may be taken.
    pub(crate) may_take: bool,
}

/// Why a reservation was not taken.
pub(crate) enum Refusal {
    /// The registrant has it.
    Held(Registrant),
    /// An association of this server is still there, which may end soon.
    Lingers,
    Failed(ConnectError),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Claim {
    /// Takes it, from the association before it if that has it.
    pub(crate) fn take(&self, lane: &mut Lane, limit: &Limit<'_>) -> Result<(), Refusal> {
        let holder = self.holder(lane, limit)?;
        let taken_from = match holder {
            None => None,
            Some(holder) if holder.key == self.key => return Ok(()),
            Some(holder) if self.may_preempt(&holder) => Some(holder.key),
            Some(holder) if self.owner.has(holder.key) => return Err(Refusal::Lingers),
            Some(holder) => return Err(Refusal::Held(holder)),
        };
        let data = keys(0, self.key);
        let command = register(self.nsid, RegisterAction::Register, true);
        check(lane.run_one(Job::sending(command, &data), limit)?.status, "register")?;
        let (action, data) = match taken_from {
            None => (AcquireAction::Acquire, keys(self.key, 0)),
            Some(key) => (AcquireAction::PreemptAndAbort, keys(self.key, key)),
        };
        let command = acquire(self.nsid, action, KIND);
        let mut status = lane.run_one(Job::sending(command, &data), limit)?.status;
        if status.is(Status::INVALID_FIELD) && taken_from.is_some() {
            let command = acquire(self.nsid, AcquireAction::Preempt, KIND);
            status = lane.run_one(Job::sending(command, &data), limit)?.status;
        }
        check(status, "acquire")?;
        match self.holder(lane, limit)? {
            Some(holder) if holder.key == self.key => Ok(()),
            Some(holder) => Err(Refusal::Held(holder)),
            None => Err(Refusal::Lingers),
        }
    }

    /// Whether this association still has it.
    pub(crate) fn is_held(&self, lane: &mut Lane, limit: &Limit<'_>) -> Result<bool, Refusal> {
        Ok(self.holder(lane, limit)?.is_some_and(|holder| holder.key == self.key))
    }

    /// Gives it back, as far as the target lets it.
    pub(crate) fn give_back(&self, lane: &mut Lane, limit: &Limit<'_>) -> std::io::Result<()> {
        let data = self.key.to_le_bytes();
        let command = release(self.nsid, ReleaseAction::Release, KIND);
        lane.run_one(Job::sending(command, &data), limit)?;
        let data = keys(self.key, 0);
        let command = register(self.nsid, RegisterAction::Unregister, false);
        lane.run_one(Job::sending(command, &data), limit)?;
        Ok(())
    }

    fn may_preempt(&self, holder: &Registrant) -> bool {
        let is_left_behind = self.owner.has(holder.key) && holder.controller_id == NO_CONTROLLER;
        self.may_take || is_left_behind || self.before == Some(holder.key)
    }

    fn holder(&self, lane: &mut Lane, limit: &Limit<'_>) -> Result<Option<Registrant>, Refusal> {
        let mut bytes = [0; REPORT_BYTES];
        let command = report(self.nsid, REPORT_BYTES as u32);
        check(lane.run_one(Job::receiving(command, &mut bytes), limit)?.status, "report")?;
        let registrants = Report::read(&bytes).map(|report| report.registrants);
        Ok(registrants.unwrap_or_default().into_iter().find(|registrant| registrant.is_holder))
    }
}

fn check(status: Status, step: &str) -> Result<(), Refusal> {
    if status.is_success() {
        return Ok(());
    }
    Err(Refusal::Failed(ConnectError::Other(format!("reservation: {step}: {status}"))))
}

/// What a namespace says of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) owner: Owner,
    /// Drawn when the drive was opened.
    pub(crate) instance: u64,
    /// Associations of that instance.
    pub(crate) associations: u64,
    /// Whether the owner has not closed the drive.
    pub(crate) is_open: bool,
    pub(crate) host_nqn: String,
}

impl Mark {
    /// Reads a block; `None` if there is no mark in it.
    pub(crate) fn read(block: &[u8]) -> Option<Self> {
        let (head, rest) = block.split_at_checked(16)?;
        let number = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?))
        };
        let version = u32::from_le_bytes(head[8..12].try_into().ok()?);
        let crc = u32::from_le_bytes(head[12..16].try_into().ok()?);
        if head[..8] != MAGIC || version != VERSION || crc != crc32c(rest) {
            return None;
        }
        let name = block.get(NAME_AT..)?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(Self {
            owner: Owner(number(16)? as u32),
            instance: number(24)?,
            associations: number(32)?,
            is_open: number(40)? != 0,
            host_nqn: String::from_utf8_lossy(name).into_owned(),
        })
    }

    /// Writes it to a block.
    pub(crate) fn write(&self, block: &mut [u8]) {
        block.fill(0);
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let numbers = [self.owner.0.into(), self.instance, self.associations, self.is_open.into()];
        for (place, number) in block[16..NAME_AT].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let name = self.host_nqn.as_bytes();
        block[NAME_AT..][..name.len()].copy_from_slice(name);
        let crc = crc32c(&block[16..]);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_read_as_written_and_damage_shows() {
        let host_nqn = "nqn.2014-08.org.nvmexpress:uuid:1".to_owned();
        let mark = Mark {
            owner: Owner::of(&host_nqn),
            instance: 7,
            associations: 3,
            is_open: true,
            host_nqn,
        };
        let mut block = [0xff; MARK_BYTES];
        mark.write(&mut block);
        assert_eq!(Mark::read(&block), Some(mark));
        block[4095] ^= 1;
        assert_eq!(Mark::read(&block), None);
        assert_eq!(Mark::read(&[0; MARK_BYTES]), None);
    }

    #[test]
    fn keys_of_a_server_are_told_from_those_of_another() {
        let (a, b) = (Owner::of("nqn.a"), Owner::of("nqn.b"));
        assert!(a.has(a.key(7)) && !b.has(a.key(7)));
    }
}

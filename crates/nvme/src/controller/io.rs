//! What I/O commands ask for, checked against their namespace.

use super::reservations::{Access, HostId, Keys};
use super::target::{Association, Subsystem};
use crate::bytes::u64_at;
use crate::command::nvm::{self, Blocks};
use crate::command::reservation::{AcquireAction, RegisterAction, ReleaseAction, ReservationKind};
use crate::command::{Command, Status, io_opcode};

/// An I/O command for the caller to execute. It lies within its namespace and within the limits of the subsystem, and
/// no reservation forbade it when it was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read blocks into the buffer of the command.
    Read {
        /// Namespace.
        nsid: u32,
        /// Blocks.
        blocks: Blocks,
        /// Bytes they have.
        bytes: u32,
    },
    /// Write blocks from the buffer of the command, which is filled.
    Write {
        /// Namespace.
        nsid: u32,
        /// Blocks.
        blocks: Blocks,
        /// Bytes they have.
        bytes: u32,
        /// Whether they must be on the medium at completion.
        force_unit_access: bool,
    },
    /// Bring all completed writes to the medium.
    Flush {
        /// Namespace.
        nsid: u32,
    },
    /// Make blocks read as zeros.
    WriteZeroes {
        /// Namespace.
        nsid: u32,
        /// Blocks.
        blocks: Blocks,
        /// Whether they may be deallocated, if they read as zeros then.
        deallocate: bool,
    },
    /// Deallocate blocks; what they read as is then not defined. The caller may ignore it.
    Deallocate {
        /// Namespace.
        nsid: u32,
        /// Ranges, 1 to 256.
        ranges: Box<[Blocks]>,
    },
}

impl Operation {
    /// Whether it changes data.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Read { .. } | Self::Flush { .. })
    }
}

/// How a command is executed.
#[derive(Debug)]
pub(super) enum Plan {
    /// By the caller. If data go to the controller, once they are in the caller's buffer.
    Caller(Operation),
    /// Here, once its data are here.
    Own,
}

/// Checks a command that has `bytes` bytes of data.
pub(super) fn plan(
    subsystem: &Subsystem,
    host: &HostId,
    command: &Command,
    bytes: u32,
) -> Result<Plan, Status> {
    let nsid = command.nsid();
    let namespace = subsystem.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
    let opcode = command.opcode();
    // More than that is ignored: Linux sends 256 ranges with every Dataset Management, and two keys with a Release.
    let own = |needed: u32| {
        if bytes >= needed { Ok(Plan::Own) } else { Err(Status::DATA_SGL_LENGTH_INVALID) }
    };
    let is_data_command = matches!(
        opcode,
        io_opcode::READ
            | io_opcode::WRITE
            | io_opcode::FLUSH
            | io_opcode::WRITE_ZEROES
            | io_opcode::DATASET_MANAGEMENT
    );
    match opcode {
        io_opcode::RESERVATION_REGISTER | io_opcode::RESERVATION_ACQUIRE => return own(16),
        io_opcode::RESERVATION_RELEASE => return own(8),
        io_opcode::RESERVATION_REPORT => return Ok(Plan::Own),
        _ if !is_data_command => return Err(Status::INVALID_OPCODE),
        _ => {}
    }
    if namespace.read_only && !matches!(opcode, io_opcode::READ | io_opcode::FLUSH) {
        return Err(Status::WRITE_PROTECTED);
    }
    if !subsystem.may(nsid, host, access_of(opcode)) {
        return Err(Status::RESERVATION_CONFLICT);
    }
    match opcode {
        io_opcode::FLUSH => return Ok(Plan::Caller(Operation::Flush { nsid })),
        io_opcode::DATASET_MANAGEMENT => {
            return own((nvm::ranges_of(command) * nvm::RANGE_BYTES) as u32);
        }
        _ => {}
    }
    let blocks = nvm::blocks_of(command);
    if !blocks.fit(namespace.blocks) {
        return Err(Status::LBA_OUT_OF_RANGE);
    }
    let length = u64::from(blocks.count) << namespace.block_shift;
    if opcode == io_opcode::WRITE_ZEROES {
        let deallocate = nvm::is_deallocate(command);
        return Ok(Plan::Caller(Operation::WriteZeroes { nsid, blocks, deallocate }));
    }
    if length > u64::from(subsystem.limits.transfer_bytes_max()) {
        return Err(Status::INVALID_FIELD);
    }
    if length != u64::from(bytes) {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    Ok(Plan::Caller(if opcode == io_opcode::READ {
        Operation::Read { nsid, blocks, bytes }
    } else {
        let force_unit_access = nvm::is_force_unit_access(command);
        Operation::Write { nsid, blocks, bytes, force_unit_access }
    }))
}

/// What an I/O command needs of the reservations of its namespace (8.19, figure 452).
fn access_of(opcode: u8) -> Access {
    if opcode == io_opcode::READ { Access::Read } else { Access::Write }
}

/// What became of a command that is executed here.
#[derive(Debug)]
pub(super) enum Executed {
    /// It succeeded, perhaps with data.
    Done(Option<Vec<u8>>),
    /// It succeeds once these associations have no writes with the caller.
    After(Vec<Association>),
    /// The caller goes on.
    Caller(Operation),
}

/// Executes a reservation command, or reads the ranges of a Dataset Management, whose data are here.
pub(super) fn execute(
    subsystem: &mut Subsystem,
    host: &HostId,
    command: &Command,
    data: &[u8],
) -> Result<Executed, Status> {
    let (nsid, dword) = (command.nsid(), command.dword(10));
    if command.opcode() == io_opcode::DATASET_MANAGEMENT {
        return deallocate(subsystem, host, command, data);
    }
    if command.opcode() == io_opcode::RESERVATION_REPORT {
        return report(subsystem, command);
    }
    let reservations = subsystem.reservations.get_mut(&nsid).ok_or(Status::INVALID_NAMESPACE)?;
    let ignore_current = dword & 1 << 3 != 0;
    let kind = ReservationKind::from_number((dword >> 8) as u8);
    let mut aborts = false;
    let change = match command.opcode() {
        io_opcode::RESERVATION_REGISTER => {
            let action = match dword & 7 {
                0 => RegisterAction::Register,
                1 => RegisterAction::Unregister,
                2 => RegisterAction::Replace,
                _ => return Err(Status::INVALID_FIELD),
            };
            // CPTPL 11b asks that reservations persist through power loss, which they do not here.
            if dword >> 30 == 3 {
                return Err(Status::INVALID_FIELD);
            }
            let keys = Keys { current: u64_at(data, 0), other: u64_at(data, 8) };
            reservations.register(host, action, ignore_current, keys)?
        }
        io_opcode::RESERVATION_ACQUIRE => {
            let action = match dword & 7 {
                0 => AcquireAction::Acquire,
                1 => AcquireAction::Preempt,
                2 => AcquireAction::PreemptAndAbort,
                _ => return Err(Status::INVALID_FIELD),
            };
            aborts = action == AcquireAction::PreemptAndAbort;
            let kind = kind.filter(|_| !ignore_current).ok_or(Status::INVALID_FIELD)?;
            let keys = Keys { current: u64_at(data, 0), other: u64_at(data, 8) };
            reservations.acquire(host, action, kind, keys)?
        }
        _ => {
            let action = match dword & 7 {
                0 => ReleaseAction::Release,
                1 => ReleaseAction::Clear,
                _ => return Err(Status::INVALID_FIELD),
            };
            if ignore_current {
                return Err(Status::INVALID_FIELD);
            }
            reservations.release(host, action, kind, u64_at(data, 0))?
        }
    };
    let preempted = subsystem.reservation_changed(nsid, &change);
    Ok(if aborts { Executed::After(preempted) } else { Executed::Done(None) })
}

fn deallocate(
    subsystem: &Subsystem,
    host: &HostId,
    command: &Command,
    data: &[u8],
) -> Result<Executed, Status> {
    let nsid = command.nsid();
    let namespace = subsystem.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
    if !subsystem.may(nsid, host, access_of(command.opcode())) {
        return Err(Status::RESERVATION_CONFLICT);
    }
    // The other attributes are hints, and change nothing.
    if !nvm::is_deallocate(command) {
        return Ok(Executed::Done(None));
    }
    let ranges: Box<[Blocks]> = nvm::read_ranges(data).take(nvm::ranges_of(command)).collect();
    if ranges.iter().any(|range| !range.fit(namespace.blocks)) {
        return Err(Status::LBA_OUT_OF_RANGE);
    }
    Ok(Executed::Caller(Operation::Deallocate { nsid, ranges }))
}

fn report(subsystem: &mut Subsystem, command: &Command) -> Result<Executed, Status> {
    let extended = command.dword(11) & 1 != 0;
    // Hosts have 128-bit identifiers here, which the other structure cannot hold (7.5).
    if !extended {
        return Err(Status::HOST_ID_INCONSISTENT);
    }
    let ids = subsystem.host_controllers();
    let reservations =
        subsystem.reservations.get(&command.nsid()).ok_or(Status::INVALID_NAMESPACE)?;
    let id_of =
        |host: &HostId| ids.iter().find(|(known, _)| known == host).map_or(u16::MAX, |&(_, id)| id);
    Ok(Executed::Done(Some(reservations.report(id_of).write(true))))
}

//! Executes a Connect (Base 2.0, 6.3).

use super::reservations::HostId;
use super::target::{Association, Target};
use crate::bytes::array;
use crate::command::fabrics::{
    ANY_CONTROLLER, CONNECT_DATA_BYTES, Connect, ConnectData, InvalidParameter,
};
use crate::command::{Command, Status};

/// Least entries that an Admin Queue may have, whatever the limit for I/O queues is.
const ADMIN_ENTRIES: u32 = 32;

/// The queue of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) subsystem: usize,
    pub(super) association: Association,
    pub(super) controller_id: u16,
    pub(super) host_id: HostId,
    pub(super) connect: Connect,
}

impl Opened {
    pub(super) fn is_admin(&self) -> bool {
        self.connect.queue_id == 0
    }
}

/// Executes `command` with its `data`.
///
/// # Errors
/// With status and result of the completion.
pub(super) fn connect(
    target: &mut Target,
    command: &Command,
    data: &[u8],
) -> Result<Opened, (Status, u64)> {
    let invalid = |parameter: InvalidParameter| {
        (Status::CONNECT_INVALID_PARAMETERS.do_not_retry(), parameter.result())
    };
    let refused = |status: Status| (status.do_not_retry(), 0);
    let connect = Connect::read(command).ok_or(refused(Status::CONNECT_INCOMPATIBLE_FORMAT))?;
    if data.len() != CONNECT_DATA_BYTES {
        return Err(refused(Status::DATA_SGL_LENGTH_INVALID));
    }
    let data = ConnectData::read(&array(data, 0));
    let data = data.map_err(|offset| invalid(InvalidParameter { offset, in_data: true }))?;
    let found = target.find(&data.subsystem_nqn);
    let index = found.ok_or(invalid(InvalidParameter::SUBSYSTEM_NQN))?;
    let subsystem = target.subsystem(index);
    if !subsystem.allows(&data.host_nqn) {
        return Err(refused(Status::CONNECT_INVALID_HOST));
    }
    if data.host_id == [0; 16] {
        return Err(invalid(InvalidParameter::HOST_ID));
    }
    let limit = subsystem.limits.queue_entries_max;
    let is_admin = connect.queue_id == 0;
    let entries_max = if is_admin { limit.max(ADMIN_ENTRIES) } else { limit };
    if connect.entries < 2 || connect.entries > entries_max {
        return Err(invalid(InvalidParameter::QUEUE_SIZE));
    }
    let controller = if is_admin {
        if data.controller_id != ANY_CONTROLLER {
            return Err(invalid(InvalidParameter::CONTROLLER_ID));
        }
        let added = subsystem.add_controller(data.host_id, connect.keep_alive_ms);
        added.ok_or((Status::CONNECT_CONTROLLER_BUSY, 0))?
    } else {
        let controller = subsystem.controller_with(data.controller_id);
        let own = controller.filter(|one| one.host_id == data.host_id && one.serves());
        let controller = own.ok_or(invalid(InvalidParameter::CONTROLLER_ID))?;
        if !controller.take_queue(connect.queue_id) {
            return Err(invalid(InvalidParameter::QUEUE_ID));
        }
        controller
    };
    let (association, controller_id) = (controller.association, controller.id);
    Ok(Opened { subsystem: index, association, controller_id, host_id: data.host_id, connect })
}

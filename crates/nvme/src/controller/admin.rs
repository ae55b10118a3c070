//! Executes Admin and Fabrics commands from the description of the target; nothing here reaches the caller.

use super::target::{Association, CHANGED_MAX, Controller, Service, Subsystem, VERSION};
use crate::command::fabrics::{self, Property};
use crate::command::features::{self, AsyncEvent, Feature, async_event};
use crate::command::identify::{
    self, ControllerInfo, ControllerKind, NamespaceIds, NamespaceInfo, OptionalCommands, Structure,
};
use crate::command::log::{self, DiscoveryEntry, Page, ReservationNotice, ReservationNoticeKind};
use crate::command::{Command, NSID_ALL, Status, admin_opcode, io_opcode};

/// Most outstanding Asynchronous Event Requests.
pub(super) const ASYNC_EVENT_REQUESTS_MAX: u16 = 4;
/// Granularity of the keep-alive timeout, in units of 100 ms.
const KEEP_ALIVE_100MS: u16 = 1;

/// What a command returns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) result: u64,
    /// Data to the host; as many as the command asked for are sent, with zeros behind them.
    pub(super) data: Option<Vec<u8>>,
}

/// What an Admin command makes the connection do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Send this.
    Answer(Answer),
    /// Send this, and restart the keep-alive timer.
    KeepAlive(Answer),
    /// Send this; the controller was reset or shut down.
    Stopped(Answer),
    /// Keep the request until there is an event.
    AsyncEventRequest,
}

impl Answer {
    pub(super) fn status(status: Status) -> Self {
        Self { status, result: 0, data: None }
    }

    fn result(result: u64) -> Self {
        Self { status: Status::SUCCESS, result, data: None }
    }

    fn data(data: impl Into<Vec<u8>>) -> Self {
        Self { status: Status::SUCCESS, result: 0, data: Some(data.into()) }
    }

    fn refused(status: Status) -> Self {
        Self::status(status.do_not_retry())
    }
}

/// Executes an Admin command of the controller of `association`, whose host has reached it at `address`.
pub(super) fn execute(
    subsystem: &mut Subsystem,
    association: Association,
    command: &Command,
    address: &str,
) -> Done {
    if command.opcode() == admin_opcode::FABRICS {
        return properties(subsystem, association, command);
    }
    let discovery = subsystem.is_discovery();
    let Some(controller) = subsystem.controller(association) else {
        return Done::Answer(Answer::status(Status::INTERNAL_ERROR));
    };
    if !controller.is_enabled() {
        return Done::Answer(Answer::refused(Status::COMMAND_SEQUENCE_ERROR));
    }
    match command.opcode() {
        admin_opcode::IDENTIFY => Done::Answer(identify(subsystem, association, command)),
        admin_opcode::GET_LOG_PAGE => {
            Done::Answer(log_page(subsystem, association, command, address))
        }
        admin_opcode::SET_FEATURES => set_features(subsystem, association, command),
        admin_opcode::GET_FEATURES => Done::Answer(get_features(subsystem, association, command)),
        admin_opcode::KEEP_ALIVE => Done::KeepAlive(Answer::result(0)),
        admin_opcode::ASYNC_EVENT_REQUEST => Done::AsyncEventRequest,
        // Bit 0 of the result: the command was not aborted. It completes on its own.
        admin_opcode::ABORT if !discovery => Done::Answer(Answer::result(1)),
        _ => Done::Answer(Answer::refused(Status::INVALID_OPCODE)),
    }
}

fn properties(subsystem: &mut Subsystem, association: Association, command: &Command) -> Done {
    let kind = command.as_bytes()[fabrics::TYPE_AT];
    let property = fabrics::property_of(command);
    let capabilities = subsystem.capabilities();
    let status = subsystem.status(association);
    let Some(controller) = subsystem.controller(association) else {
        return Done::Answer(Answer::status(Status::INTERNAL_ERROR));
    };
    let (major, minor, tertiary) = VERSION;
    let version = u64::from(major) << 16 | u64::from(minor) << 8 | u64::from(tertiary);
    match (kind, property) {
        (fabrics::PROPERTY_GET, Some((property, _))) => {
            Done::Answer(Answer::result(match property {
                Property::Capabilities => capabilities.write(),
                Property::Version => version,
                Property::Configuration => controller.configuration().into(),
                Property::Status => status.into(),
                Property::SubsystemReset => 0,
            }))
        }
        (fabrics::PROPERTY_SET, Some((Property::Configuration, value))) => {
            if controller.configure(value as u32) {
                Done::Stopped(Answer::result(0))
            } else {
                Done::Answer(Answer::result(0))
            }
        }
        (fabrics::PROPERTY_GET | fabrics::PROPERTY_SET, _) => {
            Done::Answer(Answer::refused(Status::INVALID_FIELD))
        }
        (fabrics::CONNECT, _) => Done::Answer(Answer::refused(Status::COMMAND_SEQUENCE_ERROR)),
        _ => Done::Answer(Answer::refused(Status::INVALID_OPCODE)),
    }
}

fn identify(subsystem: &mut Subsystem, association: Association, command: &Command) -> Answer {
    let structure = (command.dword(10) & 0xff) as u8;
    let nsid = command.nsid();
    if structure == Structure::Controller as u8 {
        let id = subsystem.controller(association).map_or(0, |controller| controller.id);
        return Answer::data(controller_info(subsystem, id).write());
    }
    if subsystem.is_discovery() {
        return Answer::refused(Status::INVALID_FIELD);
    }
    let missing = Answer::refused(Status::INVALID_NAMESPACE);
    match structure {
        0x00 if nsid == NSID_ALL => missing,
        // An identifier that no namespace has returns zeros (5.17.2.2).
        0x00 => Answer::data(subsystem.namespace(nsid).map_or(
            vec![0; identify::BYTES].into_boxed_slice(),
            |namespace| {
                NamespaceInfo {
                    blocks: namespace.blocks,
                    block_shift: namespace.block_shift,
                    metadata_bytes: 0,
                    is_shared: true,
                    // All kinds, and Ignore Existing Key as of 1.3; nothing persists through power loss.
                    reservation_capabilities: 0xfe,
                    deallocated_reads_zero: false,
                    nguid: namespace.nguid,
                    eui64: [0; 8],
                }
                .write()
            },
        )),
        0x02 if nsid >= NSID_ALL - 1 => missing,
        0x02 => {
            let mut ids: Vec<u32> = subsystem.namespaces().iter().map(|one| one.nsid).collect();
            ids.sort_unstable();
            Answer::data(identify::write_namespaces(ids.into_iter().filter(|&id| id > nsid)))
        }
        0x03 => match subsystem.namespace(nsid) {
            None => missing,
            Some(namespace) => {
                let ids = NamespaceIds { nguid: Some(namespace.nguid), ..NamespaceIds::default() };
                Answer::data(ids.write())
            }
        },
        _ => Answer::refused(Status::INVALID_FIELD),
    }
}

fn controller_info(subsystem: &Subsystem, controller_id: u16) -> ControllerInfo {
    let limits = subsystem.limits;
    let mut info = ControllerInfo {
        serial: "discovery".into(),
        model: "Terrace".into(),
        firmware: "1".into(),
        transfer_pages_shift: limits.transfer_pages_shift,
        controller_id,
        version: VERSION,
        async_events: async_event::DISCOVERY,
        kind: ControllerKind::Discovery,
        async_event_requests_max: ASYNC_EVENT_REQUESTS_MAX,
        keep_alive_100ms: KEEP_ALIVE_100MS,
        commands_max: limits.queue_entries_max.min(u32::from(u16::MAX)) as u16,
        namespaces: 0,
        optional: OptionalCommands::default(),
        volatile_write_cache: false,
        subsystem_nqn: subsystem.nqn().to_owned(),
        io_capsule_bytes: 64 + limits.in_capsule_bytes_max,
    };
    if let Service::Nvm(export) = &subsystem.service {
        info.serial.clone_from(&export.serial);
        info.model.clone_from(&export.model);
        info.firmware.clone_from(&export.firmware);
        info.async_events = async_event::NAMESPACES;
        info.kind = ControllerKind::Io;
        info.namespaces = export.namespaces.iter().map(|one| one.nsid).max().unwrap_or(0).max(1);
        info.optional =
            OptionalCommands { dataset_management: true, write_zeroes: true, reservations: true };
        info.volatile_write_cache = export.volatile_write_cache;
    }
    info
}

fn log_page(
    subsystem: &mut Subsystem,
    association: Association,
    command: &Command,
    address: &str,
) -> Answer {
    let part = log::part_of(command);
    let discovery = subsystem.is_discovery();
    let page = Page::from_id(command.dword(10) as u8);
    let data = match page {
        Some(Page::Discovery) if discovery => discovery_page(subsystem, address),
        None | Some(Page::Discovery) => return Answer::refused(Status::INVALID_LOG_PAGE),
        Some(Page::Error) => vec![0; log::ERROR_ENTRY_BYTES],
        Some(_) if discovery => return Answer::refused(Status::INVALID_LOG_PAGE),
        Some(Page::Health) => health_page(),
        Some(Page::Firmware) => firmware_page(subsystem),
        Some(Page::Effects) => effects_page(),
        Some(Page::ChangedNamespaces) => {
            changed_namespaces(subsystem, association, part.keeps_event)
        }
        Some(Page::Reservation) => reservation_notice(subsystem, association),
    };
    if page == Some(Page::Discovery)
        && !part.keeps_event
        && let Some(controller) = subsystem.controller(association)
    {
        controller.changes.discovery_event = false;
    }
    match usize::try_from(part.offset).ok().and_then(|offset| data.get(offset..)) {
        _ if !part.offset.is_multiple_of(4) => Answer::refused(Status::INVALID_FIELD),
        Some(rest) => Answer::data(&rest[..rest.len().min(part.bytes as usize)]),
        None => Answer::refused(Status::INVALID_FIELD),
    }
}

fn discovery_page(subsystem: &Subsystem, address: &str) -> Vec<u8> {
    let Service::Discovery { entries, generation } = &subsystem.service else { return Vec::new() };
    let mut entries = entries.clone();
    if !address.is_empty() {
        let is_any = |entry: &&mut DiscoveryEntry| matches!(&*entry.address, "0.0.0.0" | "::");
        let any = entries.iter_mut().filter(is_any);
        any.for_each(|entry| address.clone_into(&mut entry.address));
    }
    log::write_discovery(*generation, &entries)
}

/// Nothing is worn, and the temperature is 27 degrees Celsius.
fn health_page() -> Vec<u8> {
    let mut page = vec![0; 512];
    page[1..3].copy_from_slice(&300u16.to_le_bytes());
    (page[3], page[4]) = (100, 10);
    page
}

fn firmware_page(subsystem: &Subsystem) -> Vec<u8> {
    let mut page = vec![0; 512];
    page[0] = 1;
    if let Service::Nvm(export) = &subsystem.service {
        crate::bytes::put_text(&mut page[8..16], &export.firmware, b' ');
    }
    page
}

/// Supported commands; the second bit marks those that change data.
fn effects_page() -> Vec<u8> {
    const ADMIN: [u8; 7] = [
        admin_opcode::GET_LOG_PAGE,
        admin_opcode::IDENTIFY,
        admin_opcode::ABORT,
        admin_opcode::SET_FEATURES,
        admin_opcode::GET_FEATURES,
        admin_opcode::ASYNC_EVENT_REQUEST,
        admin_opcode::KEEP_ALIVE,
    ];
    const IO: [(u8, u8); 9] = [
        (io_opcode::FLUSH, 1),
        (io_opcode::WRITE, 3),
        (io_opcode::READ, 1),
        (io_opcode::WRITE_ZEROES, 3),
        (io_opcode::DATASET_MANAGEMENT, 3),
        (io_opcode::RESERVATION_REGISTER, 1),
        (io_opcode::RESERVATION_REPORT, 1),
        (io_opcode::RESERVATION_ACQUIRE, 1),
        (io_opcode::RESERVATION_RELEASE, 1),
    ];
    let mut page = vec![0; 4096];
    ADMIN.into_iter().for_each(|opcode| page[usize::from(opcode) * 4] = 1);
    IO.into_iter().for_each(|(opcode, effects)| page[1024 + usize::from(opcode) * 4] = effects);
    page
}

fn changed_namespaces(subsystem: &mut Subsystem, association: Association, keeps: bool) -> Vec<u8> {
    let Some(controller) = subsystem.controller(association) else { return vec![0; 4096] };
    let changes = &mut controller.changes;
    let too_many = changes.namespaces.len() > CHANGED_MAX;
    let ids = if too_many { vec![NSID_ALL] } else { changes.namespaces.clone() };
    if !keeps {
        changes.namespaces.clear();
        changes.namespaces_event = false;
    }
    identify::write_namespaces(ids.into_iter()).into()
}

fn reservation_notice(subsystem: &mut Subsystem, association: Association) -> Vec<u8> {
    let notices =
        subsystem.controller(association).map(|controller| &mut controller.changes.notices);
    let none = ReservationNotice { number: 0, kind: ReservationNoticeKind::None, more: 0, nsid: 0 };
    let notice = notices.and_then(|notices| {
        let notice = notices.pop_front()?;
        Some(ReservationNotice { more: notices.len() as u8, ..notice })
    });
    notice.unwrap_or(none).write()
}

fn set_features(subsystem: &mut Subsystem, association: Association, command: &Command) -> Done {
    let value = command.dword(11);
    let queues_max = subsystem.limits.io_queues_max;
    let discovery = subsystem.is_discovery();
    let Some(controller) = subsystem.controller(association) else {
        return Done::Answer(Answer::status(Status::INTERNAL_ERROR));
    };
    if command.dword(10) >> 31 != 0 {
        return Done::Answer(Answer::refused(Status::FEATURE_NOT_SAVEABLE));
    }
    let feature = Feature::from_id(command.dword(10) as u8);
    Done::Answer(match feature {
        Some(Feature::AsyncEvents) => {
            controller.async_events = value;
            Answer::result(0)
        }
        Some(Feature::KeepAlive) => {
            controller.keep_alive_ms = value;
            return Done::KeepAlive(Answer::result(0));
        }
        Some(Feature::NumberOfQueues) if !discovery => {
            // FFFFh is not allowed in either half (5.27.1.5).
            if value & 0xffff == 0xffff || value >> 16 == 0xffff {
                return Done::Answer(Answer::refused(Status::INVALID_FIELD));
            }
            let wanted = features::queues_granted(value.into());
            Answer::result(features::queues_result(wanted.min(queues_max)))
        }
        Some(Feature::ReservationMask) if !discovery => {
            controller.reservation_mask = value;
            Answer::result(0)
        }
        Some(Feature::ReservationPersistence) if !discovery && value == 0 => Answer::result(0),
        Some(Feature::VolatileWriteCache | Feature::HostId | Feature::ReservationPersistence) => {
            Answer::refused(Status::FEATURE_NOT_CHANGEABLE)
        }
        _ => Answer::refused(Status::INVALID_FIELD),
    })
}

fn get_features(subsystem: &mut Subsystem, association: Association, command: &Command) -> Answer {
    let cache = match &subsystem.service {
        Service::Nvm(export) => export.volatile_write_cache,
        Service::Discovery { .. } => false,
    };
    let queues = features::queues_result(subsystem.limits.io_queues_max);
    let Some(controller) = subsystem.controller(association) else {
        return Answer::status(Status::INTERNAL_ERROR);
    };
    // Current values only; defaults, saved values and capabilities are not supported.
    if command.dword(10) >> 8 & 7 != 0 {
        return Answer::refused(Status::INVALID_FIELD);
    }
    match Feature::from_id(command.dword(10) as u8) {
        Some(Feature::AsyncEvents) => Answer::result(controller.async_events.into()),
        Some(Feature::KeepAlive) => Answer::result(controller.keep_alive_ms.into()),
        Some(Feature::NumberOfQueues) => Answer::result(queues),
        Some(Feature::VolatileWriteCache) => Answer::result(cache.into()),
        Some(Feature::ReservationMask) => Answer::result(controller.reservation_mask.into()),
        Some(Feature::ReservationPersistence) => Answer::result(0),
        Some(Feature::HostId) => Answer::data(controller.host_id),
        None => Answer::refused(Status::INVALID_FIELD),
    }
}

/// The next event that the host wants and has not been told.
pub(super) fn next_event(controller: &mut Controller) -> Option<AsyncEvent> {
    let wanted = controller.async_events;
    let changes = &mut controller.changes;
    if wanted & async_event::NAMESPACES != 0 && std::mem::take(&mut changes.namespaces_event) {
        return Some(AsyncEvent::Namespaces);
    }
    if wanted & async_event::DISCOVERY != 0 && std::mem::take(&mut changes.discovery_event) {
        return Some(AsyncEvent::Discovery);
    }
    std::mem::take(&mut changes.reservation_event).then_some(AsyncEvent::Reservation)
}

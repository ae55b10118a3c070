//! What is exported, and the state that the connections of a target share.

use super::reservations::{Access, Change, HostId, Reservations};
use crate::command::fabrics::{
    ANY_CONTROLLER, Capabilities, DISCOVERY_NQN, configuration, controller_status,
};
use crate::command::log::{DiscoveryEntry, ReservationNotice, ReservationNoticeKind};
use std::collections::{BTreeMap, VecDeque};

/// Version that controllers report, 1.4: what this crate has, and what hosts ask no newer structures of.
pub(super) const VERSION: (u16, u8, u8) = (1, 4, 0);
/// Most notices of reservations that wait for a host; older ones are dropped, and counted.
const NOTICES_MAX: usize = 16;
/// Most namespaces of a Changed Namespace List; a longer one says FFFFFFFFh (Base 2.0, 5.16.1.5).
pub(super) const CHANGED_MAX: usize = 1024;

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Identifier, 1 to FFFFFFFEh.
    pub nsid: u32,
    /// Size in blocks.
    pub blocks: u64,
    /// Logarithm of the bytes of a block to the base 2: 9 to 16.
    pub block_shift: u8,
    /// Globally unique identifier. The same namespace must have the same one for ever.
    pub nguid: [u8; 16],
    /// Whether writes are refused.
    pub read_only: bool,
}

impl Namespace {
    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }
}

/// Limits that a subsystem sets its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most entries of an I/O queue, 2 to 65536 (CAP.MQES).
    pub queue_entries_max: u32,
    /// Most bytes of data in an I/O command capsule; a multiple of 16 (IOCCSZ).
    pub in_capsule_bytes_max: u32,
    /// Largest transfer as a power of 2 in units of 4 KiB (MDTS); 0 for no limit.
    pub transfer_pages_shift: u8,
    /// Most I/O queues of a controller.
    pub io_queues_max: u16,
    /// Most controllers at a time.
    pub controllers_max: u16,
}

impl Limits {
    /// Largest transfer in bytes.
    pub(super) fn transfer_bytes_max(&self) -> u32 {
        match self.transfer_pages_shift {
            0 => u32::MAX,
            shift => 1u32.checked_shl(12 + u32::from(shift)).unwrap_or(u32::MAX),
        }
    }
}

impl Default for Limits {
    /// 128 entries, 8 KiB in a capsule, transfers of 1 MiB, 64 queues, 64 controllers.
    fn default() -> Self {
        Self {
            queue_entries_max: 128,
            in_capsule_bytes_max: 8192,
            transfer_pages_shift: 8,
            io_queues_max: 64,
            controllers_max: 64,
        }
    }
}

/// A subsystem to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name, at most 223 bytes.
    pub nqn: String,
    /// Serial number, at most 20 bytes.
    pub serial: String,
    /// Model, at most 40 bytes.
    pub model: String,
    /// Firmware revision, at most 8 bytes.
    pub firmware: String,
    /// Namespaces, each with an identifier of its own.
    pub namespaces: Vec<Namespace>,
    /// Names of the hosts that may connect; `None` for all.
    pub allowed_hosts: Option<Vec<String>>,
    /// Whether completed writes may be lost with power until a Flush.
    pub volatile_write_cache: bool,
    /// Limits.
    pub limits: Limits,
}

/// An association: a controller of a host, from the Connect of its Admin Queue on. No two have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Association(u64);

/// Writes that must be over before a Preempt and Abort may complete: those of the hosts that were preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    subsystem: usize,
    associations: Vec<Association>,
}

/// The state of a controller.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) association: Association,
    pub(super) host_id: HostId,
    pub(super) keep_alive_ms: u32,
    /// Controller Configuration.
    configuration: u32,
    /// Asynchronous Event Configuration.
    pub(super) async_events: u32,
    /// Reservation notices that are masked, as bits 1 to 3.
    pub(super) reservation_mask: u32,
    /// I/O queues in use, by identifier less 1.
    queues: Vec<bool>,
    pub(super) changes: Changes,
}

/// What a host has not been told, or has not read, yet.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Namespaces that changed since the log page was read.
    pub(super) namespaces: Vec<u32>,
    /// Whether an event about namespaces may be sent.
    pub(super) namespaces_event: bool,
    /// Whether an event about the discovery page may be sent.
    pub(super) discovery_event: bool,
    /// Whether an event about a reservation may be sent.
    pub(super) reservation_event: bool,
    /// Notices that were not read.
    pub(super) notices: VecDeque<ReservationNotice>,
    /// Number of the last notice.
    notice: u64,
}

impl Controller {
    pub(super) fn is_enabled(&self) -> bool {
        self.configuration & configuration::ENABLE != 0
    }

    pub(super) fn configuration(&self) -> u32 {
        self.configuration
    }

    /// Changes the configuration. Returns whether that was a reset or a shutdown, which ends all I/O queues.
    pub(super) fn configure(&mut self, value: u32) -> bool {
        let stops = |value: u32| {
            value & configuration::ENABLE == 0 || value >> configuration::SHUTDOWN_SHIFT & 3 != 0
        };
        let stopped = stops(value) && !stops(self.configuration);
        self.configuration = value;
        if stopped {
            self.queues.fill(false);
        }
        stopped
    }

    /// Whether it executes I/O commands.
    pub(super) fn serves(&self) -> bool {
        self.is_enabled() && self.configuration >> configuration::SHUTDOWN_SHIFT & 3 == 0
    }

    /// Takes an I/O queue; false if it is in use or beyond the limit.
    pub(super) fn take_queue(&mut self, id: u16) -> bool {
        let queue = usize::from(id).checked_sub(1).and_then(|index| self.queues.get_mut(index));
        queue.is_some_and(|used| !std::mem::replace(used, true))
    }

    fn notice(&mut self, kind: ReservationNoticeKind, nsid: u32) {
        if self.reservation_mask >> kind as u32 & 1 != 0 {
            return;
        }
        let changes = &mut self.changes;
        changes.notice = changes.notice.checked_add(1).unwrap_or(1);
        changes.notices.push_back(ReservationNotice {
            number: changes.notice,
            kind,
            more: 0,
            nsid,
        });
        if changes.notices.len() > NOTICES_MAX {
            changes.notices.pop_front();
        }
        changes.reservation_event = true;
    }
}

/// What a subsystem is.
#[derive(Debug)]
pub(super) enum Service {
    /// It has namespaces.
    Nvm(Export),
    /// It tells of subsystems.
    Discovery {
        entries: Vec<DiscoveryEntry>,
        /// Changes whenever `entries` do.
        generation: u64,
    },
}

/// A subsystem, with its controllers and reservations.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) service: Service,
    pub(super) limits: Limits,
    controllers: Vec<Controller>,
    /// Of each namespace, by its identifier.
    pub(super) reservations: BTreeMap<u32, Reservations>,
    /// Hosts with writes that the caller executes, and their number, by association; an association outlives its
    /// controller here.
    writes: BTreeMap<Association, (HostId, u32)>,
    next_association: u64,
    /// Counts what hosts want to be told.
    changes: u64,
}

/// All that a target exports, and the controllers that hosts have. A plain value: the caller puts it behind a lock, and
/// shows it to the connections.
#[derive(Debug)]
pub struct Target {
    /// The discovery subsystem is the first.
    subsystems: Vec<Subsystem>,
}

impl Subsystem {
    fn new(service: Service, limits: Limits) -> Self {
        let nsids: Vec<u32> = match &service {
            Service::Nvm(export) => {
                export.namespaces.iter().map(|namespace| namespace.nsid).collect()
            }
            Service::Discovery { .. } => Vec::new(),
        };
        Self {
            service,
            limits,
            controllers: Vec::new(),
            reservations: nsids.into_iter().map(|nsid| (nsid, Reservations::default())).collect(),
            writes: BTreeMap::new(),
            next_association: 0,
            changes: 0,
        }
    }

    pub(super) fn nqn(&self) -> &str {
        match &self.service {
            Service::Nvm(export) => &export.nqn,
            Service::Discovery { .. } => DISCOVERY_NQN,
        }
    }

    pub(super) fn is_discovery(&self) -> bool {
        matches!(self.service, Service::Discovery { .. })
    }

    pub(super) fn namespaces(&self) -> &[Namespace] {
        match &self.service {
            Service::Nvm(export) => &export.namespaces,
            Service::Discovery { .. } => &[],
        }
    }

    pub(super) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces().iter().find(|namespace| namespace.nsid == nsid)
    }

    pub(super) fn allows(&self, host_nqn: &str) -> bool {
        match &self.service {
            Service::Nvm(Export { allowed_hosts: Some(hosts), .. }) => {
                hosts.iter().any(|host| host == host_nqn)
            }
            _ => true,
        }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let queue_entries_max = self.limits.queue_entries_max;
        Capabilities { queue_entries_max, timeout_500ms: 30, page_shift_min: 12 }
    }

    /// The controller of an association, if that still exists.
    pub(super) fn controller(&mut self, association: Association) -> Option<&mut Controller> {
        self.controllers.iter_mut().find(|controller| controller.association == association)
    }

    /// The controller with this identifier.
    pub(super) fn controller_with(&mut self, id: u16) -> Option<&mut Controller> {
        self.controllers.iter_mut().find(|controller| controller.id == id)
    }

    /// A controller for the Admin Queue of a host; `None` if there are too many.
    pub(super) fn add_controller(
        &mut self,
        host_id: HostId,
        keep_alive_ms: u32,
    ) -> Option<&mut Controller> {
        if self.controllers.len() >= usize::from(self.limits.controllers_max) {
            return None;
        }
        let used = |id: u16| self.controllers.iter().any(|controller| controller.id == id);
        let id = (1..ANY_CONTROLLER - 15).find(|&id| !used(id))?;
        self.next_association += 1;
        self.controllers.push(Controller {
            id,
            association: Association(self.next_association),
            host_id,
            keep_alive_ms,
            configuration: 0,
            async_events: 0,
            reservation_mask: 0,
            queues: vec![false; usize::from(self.limits.io_queues_max)],
            changes: Changes::default(),
        });
        self.controllers.last_mut()
    }

    pub(super) fn remove_controller(&mut self, association: Association) {
        self.controllers.retain(|controller| controller.association != association);
    }

    /// Gives an I/O queue back.
    pub(super) fn free_queue(&mut self, association: Association, id: u16) {
        if let Some(controller) = self.controller(association)
            && let Some(used) = controller.queues.get_mut(usize::from(id).wrapping_sub(1))
        {
            *used = false;
        }
    }

    /// Whether the reservations of a namespace let a host do this.
    pub(super) fn may(&self, nsid: u32, host: &HostId, access: Access) -> bool {
        self.reservations.get(&nsid).is_none_or(|reservations| reservations.allow(host, access))
    }

    /// Hosts and a controller of each.
    pub(super) fn host_controllers(&self) -> Vec<(HostId, u16)> {
        self.controllers.iter().map(|controller| (controller.host_id, controller.id)).collect()
    }

    pub(super) fn write_begins(&mut self, association: Association, host: HostId) {
        self.writes.entry(association).or_insert((host, 0)).1 += 1;
    }

    pub(super) fn write_ends(&mut self, association: Association) {
        if let Some((_, writes)) = self.writes.get_mut(&association) {
            *writes -= 1;
            if *writes == 0 {
                self.writes.remove(&association);
            }
        }
    }

    /// The Controller Status of an association. A controller that was disabled stays ready, and one that shuts down has
    /// not done so, until the caller has executed all writes that it was given: a host that sees the reset knows that
    /// nothing of it is written any more.
    pub(super) fn status(&mut self, association: Association) -> u32 {
        let writes = self.writes.contains_key(&association);
        let Some(controller) = self.controller(association) else {
            return controller_status::FATAL;
        };
        let shuts_down = controller.configuration >> configuration::SHUTDOWN_SHIFT & 3 != 0;
        let mut status = 0;
        if controller.is_enabled() || writes {
            status |= controller_status::READY;
        }
        if shuts_down {
            status |= if writes { 1 << 2 } else { controller_status::SHUTDOWN_COMPLETE };
        }
        status
    }

    /// Passes a change of reservations on to the hosts it concerns. Returns the writes of hosts that were preempted.
    pub(super) fn reservation_changed(&mut self, nsid: u32, change: &Change) -> Vec<Association> {
        self.changes += u64::from(!change.notices.is_empty());
        for (host, kind) in &change.notices {
            let controllers =
                self.controllers.iter_mut().filter(|controller| controller.host_id == *host);
            controllers.for_each(|controller| controller.notice(*kind, nsid));
        }
        let hit = |(_, (host, _)): &(&Association, &(HostId, u32))| change.preempted.contains(host);
        self.writes.iter().filter(hit).map(|(association, _)| *association).collect()
    }
}

impl Target {
    /// A target that exports `exports`, each under another name, and a discovery service that tells `entries`.
    #[must_use]
    pub fn new(exports: Vec<Export>, entries: Vec<DiscoveryEntry>) -> Self {
        let discovery = Service::Discovery { entries, generation: 1 };
        let limits = Limits { io_queues_max: 0, ..Limits::default() };
        let mut subsystems = vec![Subsystem::new(discovery, limits)];
        for export in exports {
            let limits = export.limits;
            subsystems.push(Subsystem::new(Service::Nvm(export), limits));
        }
        Self { subsystems }
    }

    /// Replaces what the discovery service tells. Its hosts get an event if they want it.
    pub fn set_discovery(&mut self, new: Vec<DiscoveryEntry>) {
        let discovery = &mut self.subsystems[0];
        if let Service::Discovery { entries, generation } = &mut discovery.service {
            *entries = new;
            *generation = generation.wrapping_add(1);
        }
        discovery.changes += 1;
        discovery.controllers.iter_mut().for_each(|one| one.changes.discovery_event = true);
    }

    /// Replaces the namespaces of the subsystem `nqn`. Its hosts get an event if they want it. Reservations of
    /// namespaces that stay are kept. Returns whether there is such a subsystem.
    pub fn set_namespaces(&mut self, nqn: &str, new: Vec<Namespace>) -> bool {
        let found = self.subsystems.iter_mut().find(|subsystem| subsystem.nqn() == nqn);
        let Some(subsystem) = found.filter(|subsystem| !subsystem.is_discovery()) else {
            return false;
        };
        let before = subsystem.namespaces().to_vec();
        let gone = before.iter().filter(|old| !new.iter().any(|one| one.nsid == old.nsid));
        let changed = new.iter().filter(|one| !before.contains(one));
        let changed: Vec<u32> = gone.chain(changed).map(|namespace| namespace.nsid).collect();
        subsystem.reservations.retain(|nsid, _| new.iter().any(|one| one.nsid == *nsid));
        for namespace in &new {
            subsystem.reservations.entry(namespace.nsid).or_default();
        }
        if let Service::Nvm(export) = &mut subsystem.service {
            export.namespaces = new;
        }
        subsystem.changes += 1;
        for controller in &mut subsystem.controllers {
            for nsid in &changed {
                if !controller.changes.namespaces.contains(nsid) {
                    controller.changes.namespaces.push(*nsid);
                }
            }
            controller.changes.namespaces.truncate(CHANGED_MAX + 1);
            controller.changes.namespaces_event |= !changed.is_empty();
        }
        true
    }

    /// Whether the writes behind `fence` are over.
    #[must_use]
    pub fn is_over(&self, fence: &Fence) -> bool {
        let writes = &self.subsystems[fence.subsystem].writes;
        fence.associations.iter().all(|association| !writes.contains_key(association))
    }

    /// Grows when there is something that hosts want to be told: the caller then has each connection
    /// [`notify`](super::Connection::notify) its host.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.subsystems.iter().map(|subsystem| subsystem.changes).sum()
    }

    /// How many controllers hosts have, those of the discovery service included.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.subsystems.iter().map(|subsystem| subsystem.controllers.len()).sum()
    }

    pub(super) fn find(&self, nqn: &str) -> Option<usize> {
        self.subsystems.iter().position(|subsystem| subsystem.nqn() == nqn)
    }

    pub(super) fn subsystem(&mut self, index: usize) -> &mut Subsystem {
        &mut self.subsystems[index]
    }
}

impl Fence {
    pub(super) fn new(subsystem: usize, associations: Vec<Association>) -> Self {
        Self { subsystem, associations }
    }
}

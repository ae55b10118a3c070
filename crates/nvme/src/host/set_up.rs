//! The steps from a connection to a controller whose namespace can be used.

use super::queue::QueueConfig;
use super::slots::Outcome;
use crate::bytes::array;
use crate::command::fabrics::{
    self, ANY_CONTROLLER, Capabilities, Connect, ConnectData, InvalidParameter, Property,
    configuration, controller_status,
};
use crate::command::features::{self, Feature, async_event};
use crate::command::identify::{
    self, ControllerInfo, ControllerKind, NamespaceIds, NamespaceInfo, Structure, identify,
};
use crate::command::nvm::BLOCKS_MAX;
use crate::command::{Command, NSID_ALL, Status};
use crate::pdu::{ADMIN_CAPSULE_DATA_BYTES, Digests};

/// Most bytes of a transfer for a controller that states no limit.
const UNSTATED_TRANSFER_BYTES_MAX: u32 = 4 << 20;

/// The host that connects, and the subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Name of the host.
    pub host_nqn: String,
    /// Identifier of the host; not all zeros. Reservations belong to it.
    pub host_id: [u8; 16],
    /// Name of the subsystem.
    pub subsystem_nqn: String,
}

impl Login {
    /// Connect of an Admin Queue of `entries` entries, with a keep-alive timeout in milliseconds.
    #[must_use]
    pub fn admin(&self, entries: u32, keep_alive_ms: u32) -> (Command, Box<[u8]>) {
        let connect = Connect { queue_id: 0, entries, no_flow_control: false, keep_alive_ms };
        (connect.command(), self.data(ANY_CONTROLLER))
    }

    /// Connect of I/O queue `queue_id`, 1 or more, of `entries` entries, to the controller that the Admin Queue has.
    /// Without flow control the controller may leave out responses to reads.
    #[must_use]
    pub fn io(&self, controller_id: u16, queue_id: u16, entries: u32) -> (Command, Box<[u8]>) {
        let connect = Connect { queue_id, entries, no_flow_control: true, keep_alive_ms: 0 };
        (connect.command(), self.data(controller_id))
    }

    fn data(&self, controller_id: u16) -> Box<[u8]> {
        ConnectData {
            host_id: self.host_id,
            controller_id,
            subsystem_nqn: self.subsystem_nqn.clone(),
            host_nqn: self.host_nqn.clone(),
        }
        .write()
    }
}

/// What to set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUpConfig {
    /// Host and subsystem.
    pub login: Login,
    /// Entries of the Admin Queue, as its [`QueueConfig`] has them.
    pub entries: u32,
    /// Keep-alive timeout in milliseconds; 0 for none.
    pub keep_alive_ms: u32,
    /// I/O queues to ask for, at least 1.
    pub io_queues: u16,
    /// Namespace; `None` for the only one of the subsystem.
    pub nsid: Option<u32>,
}

/// A controller that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// What it says of itself.
    pub info: ControllerInfo,
    /// I/O queues that it has for this host.
    pub io_queues: u16,
    /// The namespace; `None` on a discovery controller.
    pub namespace: Option<Namespace>,
}

/// A namespace that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Identifier.
    pub nsid: u32,
    /// Size and format.
    pub info: NamespaceInfo,
    /// What identifies it on any path.
    pub ids: NamespaceIds,
}

impl Controller {
    /// Largest transfer of a command, in bytes: a multiple of 4096, and at most [`BLOCKS_MAX`] blocks of the namespace.
    /// It is at most 4 MiB where the controller states no limit: Linux' target (6.1) states none, and refuses more.
    #[must_use]
    pub fn transfer_bytes_max(&self) -> u32 {
        let limit = self.info.transfer_bytes_max(self.capabilities.page_shift_min);
        let block_bytes = self.namespace.map_or(512, |namespace| namespace.info.block_bytes());
        let limit = limit.unwrap_or(UNSTATED_TRANSFER_BYTES_MAX);
        limit.min(BLOCKS_MAX.saturating_mul(block_bytes)) & !4095
    }

    /// An I/O queue of `entries` entries, or as many as the controller has.
    #[must_use]
    pub fn io_queue(&self, entries: u32, r2t_max: u32, digests: Digests) -> QueueConfig {
        QueueConfig {
            entries: entries.clamp(2, self.capabilities.queue_entries_max.max(2)),
            align: 4,
            digests,
            r2t_max,
            in_capsule_bytes_max: self.info.in_capsule_bytes_max() & !3,
        }
    }
}

/// Why a controller cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetUpError {
    /// A command failed.
    #[error("{step}: {status}")]
    Status {
        /// What was tried.
        step: &'static str,
        /// The controller's answer.
        status: Status,
    },
    /// Connect was refused for one of its parameters.
    #[error("connect: the controller refuses the parameter at {0}")]
    Parameter(InvalidParameter),
    /// The controller reports a fatal status.
    #[error("the controller reports a fatal error")]
    Fatal,
    /// The subsystem does not have the namespace.
    #[error("the subsystem has no namespace {0}")]
    NoNamespace(u32),
    /// No namespace was named, and the subsystem does not have exactly one.
    #[error("the subsystem has {0} namespaces: name one")]
    NamespaceNotNamed(usize),
    /// Blocks of the namespace are not of 512 bytes to 64 KiB, or have metadata.
    #[error("blocks of {bytes} bytes with {metadata} bytes of metadata are not supported")]
    Format {
        /// Bytes of a block; 0 if they do not fit 32 bits.
        bytes: u32,
        /// Bytes of metadata.
        metadata: u16,
    },
    /// Data of the wrong length were passed in.
    #[error("{0}: data of the wrong length")]
    Length(&'static str),
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Submit the command on the Admin Queue. Its data are `data`, or `bytes` bytes from the controller; with what
    /// comes of it call [`SetUp::completed`].
    Submit {
        /// The command.
        command: Command,
        /// Data to the controller.
        data: &'a [u8],
        /// Bytes of data, in either direction.
        bytes: u32,
    },
    /// The controller is not ready: call [`SetUp::step`] again a little later, at most
    /// [`Capabilities::timeout_500ms`] after the first time.
    Wait,
    /// The controller is ready.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connect,
    Capabilities,
    Enable,
    Ready,
    NotReady,
    Controller,
    Queues,
    AsyncEvents,
    Namespaces,
    Namespace,
    Descriptors,
    Done,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Capabilities => "get capabilities",
            Self::Enable => "enable",
            Self::Ready | Self::NotReady => "get status",
            Self::Controller => "identify controller",
            Self::Queues => "set number of queues",
            Self::AsyncEvents => "set asynchronous events",
            Self::Namespaces => "list namespaces",
            Self::Namespace | Self::Descriptors | Self::Done => "identify namespace",
        }
    }

    /// Bytes of data from the controller.
    fn bytes(self) -> usize {
        match self {
            Self::Controller | Self::Namespaces | Self::Namespace | Self::Descriptors => {
                identify::BYTES
            }
            _ => 0,
        }
    }
}

/// Sets a controller up over its Admin Queue, whose connection is initialized:
///
/// 1. Connect;
/// 2. get the capabilities, enable the controller, and wait until it is ready (Base 2.0, 3.5.1);
/// 3. identify it;
/// 4. ask for I/O queues and for events, unless it is a discovery controller;
/// 5. identify the namespace.
///
/// One command is outstanding at a time. Afterwards each I/O queue has a connection of its own, whose first command is
/// [`Login::io`].
#[derive(Debug)]
pub struct SetUp {
    config: SetUpConfig,
    stage: Stage,
    /// Command and data of a Connect.
    connect: (Command, Box<[u8]>),
    capabilities: Capabilities,
    controller: Option<Controller>,
    nsid: u32,
}

impl SetUp {
    /// Begins.
    #[must_use]
    pub fn new(config: SetUpConfig) -> Self {
        let connect = config.login.admin(config.entries, config.keep_alive_ms);
        let nsid = config.nsid.unwrap_or(0);
        let capabilities = Capabilities::read(0);
        Self { config, stage: Stage::Connect, connect, capabilities, controller: None, nsid }
    }

    /// What to do now. After [`Step::Submit`] it is [`Self::completed`]'s turn.
    pub fn step(&mut self) -> Step<'_> {
        let command = match self.stage {
            Stage::Connect => self.connect.0,
            Stage::Capabilities => fabrics::property_get(Property::Capabilities),
            Stage::Enable => {
                let value = configuration::NVM | configuration::ENABLE;
                fabrics::property_set(Property::Configuration, value)
            }
            Stage::Ready => fabrics::property_get(Property::Status),
            Stage::NotReady => {
                self.stage = Stage::Ready;
                return Step::Wait;
            }
            Stage::Controller => identify(Structure::Controller, 0),
            Stage::Queues => features::set_queues(self.config.io_queues),
            Stage::AsyncEvents => features::set(Feature::AsyncEvents, self.events()),
            Stage::Namespaces => identify(Structure::ActiveNamespaces, 0),
            Stage::Namespace => identify(Structure::Namespace, self.nsid),
            Stage::Descriptors => identify(Structure::Descriptors, self.nsid),
            Stage::Done => return Step::Done,
        };
        let data: &[u8] = if self.stage == Stage::Connect { &self.connect.1 } else { &[] };
        let bytes = data.len().max(self.stage.bytes()) as u32;
        debug_assert!(bytes <= ADMIN_CAPSULE_DATA_BYTES);
        Step::Submit { command, data, bytes }
    }

    /// Takes what came of the last command, with its data from the controller, if it had any.
    ///
    /// # Errors
    /// Says why the controller cannot be used. The connection should be closed then.
    pub fn completed(&mut self, outcome: &Outcome, data: &[u8]) -> Result<(), SetUpError> {
        let step = self.stage.name();
        let status = outcome.status;
        if status.is(Status::CONNECT_INVALID_PARAMETERS) && self.stage == Stage::Connect {
            return Err(SetUpError::Parameter(InvalidParameter::read(outcome.result)));
        }
        // Descriptors are optional before version 1.3, and what a namespace is is known by then.
        if !status.is_success() && self.stage != Stage::Descriptors {
            return Err(SetUpError::Status { step, status });
        }
        if status.is_success() && data.len() < self.stage.bytes() {
            return Err(SetUpError::Length(step));
        }
        self.stage = match self.stage {
            Stage::Connect => Stage::Capabilities,
            Stage::Capabilities => {
                self.capabilities = Capabilities::read(outcome.result);
                Stage::Enable
            }
            Stage::Enable => Stage::Ready,
            Stage::Ready | Stage::NotReady => {
                if outcome.result as u32 & controller_status::FATAL != 0 {
                    return Err(SetUpError::Fatal);
                }
                let ready = outcome.result as u32 & controller_status::READY != 0;
                if ready { Stage::Controller } else { Stage::NotReady }
            }
            Stage::Controller => self.identified(&array(data, 0)),
            Stage::Queues => {
                if let Some(controller) = &mut self.controller {
                    let granted = features::queues_granted(outcome.result);
                    controller.io_queues = granted.min(self.config.io_queues);
                }
                Stage::AsyncEvents
            }
            Stage::AsyncEvents if self.is_discovery() => Stage::Done,
            Stage::AsyncEvents if self.config.nsid.is_some() => Stage::Namespace,
            Stage::AsyncEvents => Stage::Namespaces,
            Stage::Namespaces => self.listed(&array(data, 0))?,
            Stage::Namespace => self.described(&array(data, 0))?,
            Stage::Descriptors => {
                let namespace = self.controller.as_mut().and_then(|one| one.namespace.as_mut());
                if let (true, Some(namespace)) = (status.is_success(), namespace) {
                    namespace.ids = NamespaceIds::read(&array(data, 0));
                }
                Stage::Done
            }
            Stage::Done => Stage::Done,
        };
        Ok(())
    }

    /// The controller, once [`Self::step`] is [`Step::Done`].
    #[must_use]
    pub fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref().filter(|_| self.stage == Stage::Done)
    }

    fn is_discovery(&self) -> bool {
        let kind = self.controller.as_ref().map(|controller| controller.info.kind);
        kind == Some(ControllerKind::Discovery)
            || self.config.login.subsystem_nqn == fabrics::DISCOVERY_NQN
    }

    /// The events to ask for: those of the controller that this crate knows.
    fn events(&self) -> u32 {
        let offered = self.controller.as_ref().map_or(0, |controller| controller.info.async_events);
        offered & (async_event::NAMESPACES | async_event::DISCOVERY)
    }

    fn identified(&mut self, data: &[u8; identify::BYTES]) -> Stage {
        self.controller = Some(Controller {
            capabilities: self.capabilities,
            info: ControllerInfo::read(data),
            io_queues: 0,
            namespace: None,
        });
        match self.is_discovery() {
            true if self.events() == 0 => Stage::Done,
            true => Stage::AsyncEvents,
            false => Stage::Queues,
        }
    }

    fn listed(&mut self, data: &[u8; identify::BYTES]) -> Result<Stage, SetUpError> {
        let mut ids = identify::namespaces(data);
        match (ids.next(), ids.next()) {
            (Some(nsid), None) => self.nsid = nsid,
            (first, second) => {
                let count = first.iter().chain(&second).count() + ids.count();
                return Err(SetUpError::NamespaceNotNamed(count));
            }
        }
        Ok(Stage::Namespace)
    }

    fn described(&mut self, data: &[u8; identify::BYTES]) -> Result<Stage, SetUpError> {
        let info = NamespaceInfo::read(data);
        let nsid = self.nsid;
        if info.blocks == 0 || nsid == 0 || nsid == NSID_ALL {
            return Err(SetUpError::NoNamespace(nsid));
        }
        let (bytes, metadata) = (info.block_bytes(), info.metadata_bytes);
        if !(512..=65_536).contains(&bytes) || metadata != 0 {
            return Err(SetUpError::Format { bytes, metadata });
        }
        // What the structure itself says, if there are no descriptors.
        let nguid = Some(info.nguid).filter(|id| *id != [0; 16]);
        let eui64 = Some(info.eui64).filter(|id| *id != [0; 8]);
        if let Some(controller) = &mut self.controller {
            let ids = NamespaceIds { nguid, eui64, uuid: None };
            controller.namespace = Some(Namespace { nsid, info, ids });
        }
        Ok(Stage::Descriptors)
    }
}

//! A host with an association: the Admin Queue and one I/O queue.

use crate::Outcome;
use crate::link::Link;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use terrace_nvme::command::fabrics::{
    DISCOVERY_NQN, Property, configuration, controller_status, property_get, property_set,
};
use terrace_nvme::command::log::DiscoveryEntry;
use terrace_nvme::host::{Controller, Discovery, Login, QueueConfig, SetUp, SetUpConfig, Step};
use terrace_nvme::pdu::Digests;

/// Short, so that a step that waits shows whether Keep Alive keeps the controller.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(3);
const IO_ENTRIES: u32 = 64;
const POLL: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(15);

/// An association with a controller that is ready.
pub(crate) struct Host {
    pub(crate) admin: Link,
    pub(crate) io: Link,
    pub(crate) controller: Controller,
}

/// The host with this number, and the subsystem that it connects to.
fn login(host: u8, nqn: &str) -> Login {
    Login {
        host_nqn: format!(
            "nqn.2014-08.org.nvmexpress:uuid:7ac3e0f4-0000-4000-8000-0000000000{host:02x}"
        ),
        host_id: [host; 16],
        subsystem_nqn: nqn.into(),
    }
}

fn set_up(admin: &mut Link, config: SetUpConfig) -> Outcome<Controller> {
    let mut set_up = SetUp::new(config);
    let end = Instant::now() + PATIENCE;
    loop {
        let (command, mut data, bytes) = match set_up.step() {
            Step::Submit { command, data, bytes } => (command, data.to_vec(), bytes as usize),
            Step::Wait if Instant::now() > end => return Err("the controller never ready".into()),
            Step::Wait => {
                std::thread::sleep(POLL);
                continue;
            }
            Step::Done => break,
        };
        data.resize(bytes, 0);
        let (outcome, data) = admin.run(command, data)?;
        set_up.completed(&outcome, &data)?;
    }
    Ok(set_up.controller().ok_or("no controller")?.clone())
}

impl Host {
    pub(crate) fn connect(
        address: SocketAddr,
        host: u8,
        nqn: &str,
        nsid: u32,
        digests: Digests,
    ) -> Outcome<Self> {
        let login = login(host, nqn);
        let config = QueueConfig { digests, ..QueueConfig::default() };
        let mut admin = Link::open(address, config)?;
        let set_up_config = SetUpConfig {
            login: login.clone(),
            entries: config.entries,
            keep_alive_ms: KEEP_ALIVE.as_millis() as u32,
            io_queues: 1,
            nsid: Some(nsid),
        };
        let controller = set_up(&mut admin, set_up_config)?;
        let config = controller.io_queue(IO_ENTRIES, 1, digests);
        let mut io = Link::open(address, config)?;
        if io.response.map(|response| response.digests) != Some(digests) {
            return Err("the target has other digests than asked for".into());
        }
        let (connect, data) = login.io(controller.info.controller_id, 1, config.entries);
        io.succeed("connect of the I/O queue", connect, data.into())?;
        Ok(Self { admin, io, controller })
    }

    /// Resets the controller, and waits until it has stopped.
    pub(crate) fn reset(&mut self) -> Outcome {
        let disable = property_set(Property::Configuration, configuration::NVM);
        self.admin.succeed("reset", disable, Vec::new())?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let get = property_get(Property::Status);
            let (outcome, _) = self.admin.run(get, Vec::new())?;
            if outcome.result as u32 & controller_status::READY == 0 {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err("the controller does not stop".into())
    }
}

/// The entries of the discovery page at `address`.
pub(crate) fn discover(address: SocketAddr) -> Outcome<Vec<DiscoveryEntry>> {
    let config = QueueConfig::default();
    let mut admin = Link::open(address, config)?;
    let login = login(0xa0, DISCOVERY_NQN);
    let entries = config.entries;
    let nothing = SetUpConfig { login, entries, keep_alive_ms: 0, io_queues: 1, nsid: None };
    set_up(&mut admin, nothing)?;
    let mut discovery = Discovery::default();
    while let Step::Submit { command, bytes, .. } = discovery.step() {
        let (outcome, data) = admin.run(command, vec![0; bytes as usize])?;
        discovery.completed(&outcome, &data)?;
    }
    Ok(discovery.entries().unwrap_or_default().to_vec())
}

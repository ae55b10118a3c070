//! Which subsystems a target has.

use crate::address::{Address, PORT};
use crate::admin::{self, Admin};
use crate::error::ConnectError;
use crate::host::{host_nqn, random};
use std::time::Duration;
use terrace_nvme::command::fabrics::DISCOVERY_NQN;
use terrace_nvme::command::log::SubsystemKind;
use terrace_nvme::host::Login;

const PATIENCE: Duration = Duration::from_secs(5);

/// A subsystem, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Its name.
    pub nqn: String,
    /// Its address, as the target gives it.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Asks the discovery service of `host` for its subsystems.
///
/// # Errors
/// It does not answer, or refuses.
pub fn discover(host: &str, port: Option<u16>) -> Result<Vec<Subsystem>, ConnectError> {
    let limit = admin::within(PATIENCE);
    let address = Address {
        host: host.to_owned(),
        port: port.unwrap_or(PORT),
        nqn: DISCOVERY_NQN.to_owned(),
        nsid: None,
    };
    let login =
        Login { host_nqn: host_nqn(), host_id: random()?, subsystem_nqn: DISCOVERY_NQN.to_owned() };
    let (mut admin, _) = Admin::open(&address, &login, Duration::ZERO, None, &limit)?;
    let entries = admin.discover(&limit)?;
    let nvm = entries.into_iter().filter(|entry| entry.kind == SubsystemKind::Nvm);
    let subsystem = |entry: terrace_nvme::command::log::DiscoveryEntry| Subsystem {
        nqn: entry.subsystem_nqn,
        host: entry.address,
        port: entry.port,
    };
    Ok(nvm.map(subsystem).collect())
}

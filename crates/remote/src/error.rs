//! Why a remote drive can't be used, each with what to do about it.

use crate::address::Address;
use crate::host::host_nqn;
use std::io;
use terrace_nvme::command::Status;
use terrace_nvme::host::{DiscoveryError, SetUpError};

/// Why a controller could not be connected to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Its host does not answer, or the connection broke.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// The controller refused.
    #[error("{}", refusal(.0))]
    SetUp(#[from] SetUpError),
    /// What it serves could not be read.
    #[error("{0}")]
    Discovery(#[from] DiscoveryError),
    /// Another host has the namespace.
    #[error(
        "{holder} has it: stop the Terrace there; or, once that surely runs no more, \
         write ,takeover behind the address for one start"
    )]
    Held {
        /// The other host, as far as it is known.
        holder: String,
    },
    /// Another Terrace on this machine has the namespace.
    #[error("another Terrace on this machine has it: stop that one, or name another namespace")]
    HeldHere,
    /// The target has other subsystems than the one that was named.
    #[error("the target has no subsystem of this name; {has}")]
    NoSubsystem {
        /// What it has, in a sentence.
        has: String,
    },
    /// It holds what the caller would not have overwritten.
    #[error("holds data that Terrace did not write; wipe it first, or name another namespace")]
    Foreign,
    /// The namespace is not what it was.
    #[error("{0}")]
    Changed(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl ConnectError {
    /// Whether the drive is lost for this server: another connection is no better.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::HeldHere | Self::Foreign | Self::Changed(_))
    }
}

/// Why a remote drive can't be opened. The message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It can't be connected to.
    #[error("{address}: {source}")]
    Connect {
        /// What was asked for.
        address: Address,
        /// Why.
        source: ConnectError,
    },
    /// It is smaller than was asked for.
    #[error(
        "{address} has {has} bytes, {asked} were asked for: ask for at most {has}, or leave the size out"
    )]
    Smaller {
        /// What was asked for.
        address: Address,
        /// Bytes asked for.
        asked: u64,
        /// Bytes it has.
        has: u64,
    },
    /// Its blocks are larger than pages.
    #[error("{address} has blocks of {bytes} bytes; at most 4096 are supported: format it so")]
    Blocks {
        /// What was asked for.
        address: Address,
        /// Bytes of a block.
        bytes: u32,
    },
    /// The system lacks something for it.
    #[error("{address}: {source}")]
    System {
        /// What was asked for.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether the drive may be missing for a while.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Connect { source: ConnectError::Connection(_), .. })
    }
}

/// The refusal of a controller in words that say what to do.
fn refusal(error: &SetUpError) -> String {
    match error {
        SetUpError::Status { status, .. } if status.is(Status::CONNECT_INVALID_HOST) => {
            format!(
                "the target does not allow this host: allow {} there, or write ,host=NQN",
                host_nqn()
            )
        }
        other => other.to_string(),
    }
}

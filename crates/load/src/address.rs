//! Where a server is.

use crate::LoadError;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// A TCP address or the path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(SocketAddr),
    /// The socket's path.
    Unix(PathBuf),
}

impl Address {
    /// From `HOST:PORT`, or the path of a Unix socket, which holds a slash.
    ///
    /// # Errors
    /// The host can't be resolved.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let not_found = |error| LoadError::Connect { address: text.to_string(), error };
        let mut addresses = text.to_socket_addrs().map_err(not_found)?;
        let first = addresses.next().map(Self::Tcp);
        first.ok_or_else(|| LoadError::Plan(format!("{text} has no address")))
    }

    /// Whether the server certainly runs on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

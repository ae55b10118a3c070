//! Sockets that clients come in by.

use super::left_behind;
use crate::settings::{Endpoint, ListenTls, Protocol, Settings};
use rustix::net::SocketFlags;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One socket to listen on. It has its address from the start; [`Listener::listen_all`] lets clients in.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    entry: Arc<Entry>,
}

/// What the connections of one listener have in common.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) tls: ListenTls,
    pub(crate) protocol: Option<Protocol>,
    /// As `stats conns` shows it: `tcp:127.0.0.1:11211` or `unix:/path`.
    pub(crate) name: String,
}

/// What a listener takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
    Unix,
}

/// A client and a socket to talk with it.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) socket: OwnedFd,
    pub(crate) entry: Arc<Entry>,
}

/// Why nothing could be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address or path.
    pub address: String,
    /// What the system said.
    pub source: io::Error,
}

impl Listener {
    /// Sockets at all addresses that `settings` ask for; or, where a service manager has opened sockets for
    /// this process (`LISTEN_FDS`), those. Where no address was asked for, or a name that has others
    /// too, a machine without IPv6 gets IPv4 alone.
    pub fn bind_all(settings: &Settings) -> Result<Vec<Self>, ListenError> {
        let given = Self::from_manager(settings).map_err(error("the given sockets".into()))?;
        if !given.is_empty() {
            return Ok(given);
        }
        if let Some(path) = &settings.unix_socket {
            let listener = Self::unix(path, settings.unix_mask);
            return Ok(vec![listener.map_err(error(path.display().to_string()))?]);
        }
        let endpoints = settings.endpoints().map_err(|no| error(no.host)(no.source))?;
        Self::network_all(&endpoints)
    }

    /// Lets clients come, `backlog` of them unanswered at most, where a service manager does not yet.
    pub fn listen_all(listeners: &[Self], backlog: u32) -> Result<(), ListenError> {
        let tell = |listener: &Self| error(listener.entry.name.clone());
        listeners.iter().try_for_each(|one| one.listen(backlog).map_err(tell(one)))
    }

    fn listen(&self, backlog: u32) -> io::Result<()> {
        if self.entry.kind == Kind::Udp || self.socket.is_listener()? {
            return Ok(());
        }
        self.socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))
    }

    fn network_all(endpoints: &[Endpoint]) -> Result<Vec<Self>, ListenError> {
        let (mut listeners, mut lacking) = (Vec::new(), None);
        for &endpoint in endpoints {
            match Self::network(endpoint) {
                Ok(listener) => listeners.push(listener),
                Err(e) if !endpoint.is_literal && lacks_ipv6(endpoint.address, &e) => {
                    lacking = Some(error(endpoint.address.to_string())(e));
                }
                Err(e) => return Err(error(endpoint.address.to_string())(e)),
            }
        }
        match lacking.filter(|_| listeners.is_empty()) {
            Some(error) => Err(error),
            None => Ok(listeners),
        }
    }

    /// Sockets that the service manager opened: TCP, UDP or Unix, as it was told.
    fn from_manager(settings: &Settings) -> io::Result<Vec<Self>> {
        let mut given = listenfd::ListenFd::from_env();
        let mut listeners = Vec::new();
        for index in 0..given.len() {
            if let Ok(Some(socket)) = given.take_tcp_listener(index) {
                listeners.push(Self::given(socket.into(), Kind::Tcp, settings)?);
            } else if let Ok(Some(socket)) = given.take_unix_listener(index) {
                listeners.push(Self::given(socket.into(), Kind::Unix, settings)?);
            } else if let Some(socket) = given.take_udp_socket(index)? {
                listeners.push(Self::given(socket.into(), Kind::Udp, settings)?);
            }
        }
        Ok(listeners)
    }

    fn given(socket: Socket, kind: Kind, settings: &Settings) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let tls = if kind == Kind::Udp { ListenTls::Off } else { settings.listen_tls() };
        let address = socket.local_addr()?;
        let path = || address.as_pathname().map(|path| path.display().to_string());
        let name = match address.as_socket() {
            Some(address) => address.to_string(),
            None => path().unwrap_or_else(|| "unnamed".into()),
        };
        Ok(Self::new(socket, (kind, tls, None), name))
    }

    fn network(endpoint: Endpoint) -> io::Result<Self> {
        let Endpoint { address, is_udp, tls, protocol, .. } = endpoint;
        let kind = if is_udp { Kind::Udp } else { Kind::Tcp };
        let socket_type = if is_udp { Type::DGRAM } else { Type::STREAM };
        let socket = Socket::new(Domain::for_address(address), socket_type, None)?;
        if !is_udp {
            socket.set_reuse_address(true)?;
        }
        if address.is_ipv6() {
            // IPv4 has a listener of its own.
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.set_nonblocking(true)?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self::new(socket, (kind, tls, protocol), bound.to_string()))
    }

    /// Listens on a TCP address, without TLS.
    pub fn tcp(address: SocketAddr, backlog: u32) -> io::Result<Self> {
        let (tls, protocol) = (ListenTls::Off, None);
        let endpoint = Endpoint { address, is_literal: true, is_udp: false, tls, protocol };
        let listener = Self::network(endpoint)?;
        listener.listen(backlog)?;
        Ok(listener)
    }

    /// A Unix socket with the permission bits `mask`. One that an earlier server left behind is replaced;
    /// one at which a server answers is not, nor is any other file.
    fn unix(path: &Path, mask: u32) -> io::Result<Self> {
        left_behind::remove(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mask))?;
        let name = path.display().to_string();
        Ok(Self::new(socket, (Kind::Unix, ListenTls::Off, None), name))
    }

    fn new(
        socket: Socket,
        (kind, tls, protocol): (Kind, ListenTls, Option<Protocol>),
        at: String,
    ) -> Self {
        let name = format!("{}:{at}", kind.name());
        Self { socket, entry: Arc::new(Entry { kind, tls, protocol, name }) }
    }

    /// Where it listens, as `tcp:ADDRESS:PORT`, `udp:ADDRESS:PORT` or `unix:PATH`.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The TCP address that it got; `None` for other sockets.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.network_address().filter(|_| self.entry.kind == Kind::Tcp)
    }

    /// The UDP address that it got; `None` for other sockets.
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.network_address().filter(|_| self.entry.kind == Kind::Udp)
    }

    fn network_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Whether what it takes in is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.entry.tls != ListenTls::Off
    }

    /// Its descriptor and its name.
    pub(crate) fn number_and_name(&self) -> (i32, String) {
        (self.socket.as_raw_fd(), self.entry.name.clone())
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The next connection, ready to be used without blocking.
    pub(crate) fn accept(&self) -> io::Result<Arrival> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::accept_with(&self.socket, flags)?;
        if self.entry.kind == Kind::Tcp {
            // A connection that breaks right away shows when it is read.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
            let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
        }
        Ok(Arrival { socket, entry: Arc::clone(&self.entry) })
    }
}

impl Kind {
    /// What names of listeners and of clients begin with.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Unix => "unix",
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn error(address: String) -> impl FnOnce(io::Error) -> ListenError {
    move |source| ListenError { address, source }
}

fn lacks_ipv6(address: SocketAddr, error: &io::Error) -> bool {
    let missing = [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::ADDRNOTAVAIL];
    address.is_ipv6() && missing.iter().any(|m| error.raw_os_error() == Some(m.raw_os_error()))
}

/// How long the acceptor leaves connections in the backlog when no descriptor is left.
pub(crate) const OUT_OF_DESCRIPTORS_NAP: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_an_address_that_the_machine_lacks() {
        let endpoint = |address: &str, is_literal| Endpoint {
            address: address.parse().unwrap(),
            is_literal,
            is_udp: false,
            tls: ListenTls::Off,
            protocol: None,
        };
        let bound = |endpoints: &[Endpoint]| {
            Listener::network_all(endpoints).map(|all| all.len()).map_err(|no| no.address)
        };
        // From the addresses that documents are written with: no machine has it.
        let (nobodys, here) = ("[2001:db8::1]:0", "127.0.0.1:0");
        assert_eq!(bound(&[endpoint(nobodys, false), endpoint(here, false)]), Ok(1));
        assert_eq!(bound(&[endpoint(here, true), endpoint(nobodys, true)]), Err(nobodys.into()));
        assert_eq!(bound(&[endpoint(nobodys, false)]), Err(nobodys.into()));
    }
}

//! Sockets that connections come in by.

use crate::settings::Settings;
use rustix::net::SocketFlags;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// One listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    kind: Kind,
    /// As `stats conns` shows it: `tcp:127.0.0.1:11211` or `unix:/path`.
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Unix,
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
    /// All listeners that `settings` ask for. Where no address was asked for, a machine without
    /// IPv6 gets IPv4 alone.
    pub fn bind_all(settings: &Settings) -> Result<Vec<Self>, ListenError> {
        let error = |address: String| move |source| ListenError { address, source };
        if let Some(path) = &settings.unix_socket {
            let listener = Self::unix(path, settings.unix_mask, settings.listen_backlog);
            return Ok(vec![listener.map_err(error(path.display().to_string()))?]);
        }
        let addresses = settings.tcp_addresses().map_err(error("the given address".into()))?;
        let mut listeners = Vec::new();
        for address in addresses {
            match Self::tcp(address, settings.listen_backlog) {
                Ok(listener) => listeners.push(listener),
                Err(e) if settings.listen.is_empty() && lacks_ipv6(address, &e) => {}
                Err(e) => return Err(error(address.to_string())(e)),
            }
        }
        Ok(listeners)
    }

    /// Listens on a TCP address.
    pub fn tcp(address: SocketAddr, backlog: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            // IPv4 has a listener of its own.
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        Self::listen(socket, backlog, Kind::Tcp, format!("tcp:{bound}"))
    }

    /// Listens on a Unix socket with the permission bits `mask`; a socket that an earlier server
    /// left behind is replaced, any other file is not.
    pub fn unix(path: &Path, mask: u32, backlog: u32) -> io::Result<Self> {
        use std::os::unix::fs::FileTypeExt;
        if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
            std::fs::remove_file(path)?;
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mask))?;
        Self::listen(socket, backlog, Kind::Unix, format!("unix:{}", path.display()))
    }

    fn listen(socket: Socket, backlog: u32, kind: Kind, name: String) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(Self { socket, kind, name })
    }

    /// Where it listens, as `tcp:ADDRESS:PORT` or `unix:PATH`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The TCP address that it got; `None` for a Unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// The next connection, ready to be used without blocking.
    pub(crate) fn accept(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::accept_with(&self.socket, flags)?;
        if self.kind == Kind::Tcp {
            // A connection that breaks right away shows when it is read.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
            let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
        }
        Ok(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn lacks_ipv6(address: SocketAddr, error: &io::Error) -> bool {
    let missing = [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::ADDRNOTAVAIL];
    address.is_ipv6() && missing.iter().any(|m| error.raw_os_error() == Some(m.raw_os_error()))
}

/// How long the acceptor leaves connections in the backlog when no descriptor is left.
pub(crate) const OUT_OF_DESCRIPTORS_NAP: Duration = Duration::from_millis(10);

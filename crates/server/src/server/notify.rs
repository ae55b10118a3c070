//! What a service manager is told (`Type=notify` of systemd): sd_notify(3) in a few lines.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Clients are being answered.
pub(crate) fn ready() {
    send("READY=1\n");
}

/// The server is on its way down.
pub(crate) fn stopping() {
    send("STOPPING=1\n");
}

/// Says it to whoever started the server and asked for it. A manager that does not listen misses
/// the message; nothing else depends on it.
fn send(message: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(std::ffi::OsString::from_vec(name.as_bytes().into())),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(message.as_bytes(), &address);
    }
}

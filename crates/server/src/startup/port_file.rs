//! The file that tells scripts which ports were taken (`MEMCACHED_PORT_FILENAME`).

use super::Failure;
use std::net::SocketAddr;
use std::path::Path;
use terrace::server::Listener;

/// Writes the ports if the environment asks for it: a line for each, those for TCP first, wholly or not
/// at all.
pub(crate) fn write(listeners: &[Listener]) -> Result<(), Failure> {
    let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME") else { return Ok(()) };
    let mut draft = path.clone();
    draft.push(".lck");
    std::fs::write(&draft, lines(listeners)).and_then(|()| std::fs::rename(&draft, &path)).map_err(
        |error| {
            let path = Path::new(&path).display();
            Failure::system(format!("MEMCACHED_PORT_FILENAME {path}: {error}"))
        },
    )
}

fn lines(listeners: &[Listener]) -> String {
    let line = |transport: &str, address: SocketAddr| {
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        format!("{transport} {family}: {}\n", address.port())
    };
    let tcp = listeners.iter().filter_map(Listener::tcp_address);
    let udp = listeners.iter().filter_map(Listener::udp_address);
    tcp.map(|address| line("TCP", address)).chain(udp.map(|address| line("UDP", address))).collect()
}

//! What the server says of itself when it starts.

use std::net::SocketAddr;
use terrace::settings::{Settings, display_bytes};

/// Name and version.
pub(crate) fn version() -> String {
    format!("terrace {}", env!("CARGO_PKG_VERSION"))
}

/// Limits of clients and threads.
pub(crate) fn limits(settings: &Settings) -> String {
    let when_full = if settings.evict { "evicts when full" } else { "refuses when full" };
    format!(
        "{} threads, {} connections, values of up to {}, {when_full}",
        settings.threads,
        settings.connections_max,
        display_bytes(settings.item_bytes_max),
    )
}

/// Where clients can connect, and what follows from it.
pub(crate) fn listening<'l>(
    names: impl Iterator<Item = &'l str>,
    addresses: &[SocketAddr],
) -> Vec<String> {
    let mut lines: Vec<_> = names.map(|name| format!("listening on {name}")).collect();
    if addresses.iter().any(|address| address.ip().is_unspecified()) {
        lines.push(
            "warning: listening on all addresses without authentication: whoever reaches this \
             machine can read and change the cache; write -l 127.0.0.1 to keep it local"
                .to_string(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_when_everybody_can_connect() {
        let warns = |address: &str| {
            let lines = listening(["tcp"].into_iter(), &[address.parse().unwrap()]);
            lines.iter().any(|line| line.starts_with("warning"))
        };
        assert!(warns("0.0.0.0:11211"));
        assert!(warns("[::]:11211"));
        assert!(!warns("127.0.0.1:11211"));
    }
}

//! What the server says of itself when it starts.

use std::net::SocketAddr;
use terrace::settings::{Settings, display_bytes};

/// The lines before anything is opened.
pub(crate) fn version() -> String {
    format!("terrace {}", env!("CARGO_PKG_VERSION"))
}

/// Where clients can connect.
pub(crate) fn listening(settings: &Settings, addresses: &[SocketAddr]) -> Vec<String> {
    let mut lines = Vec::new();
    match &settings.unix_socket {
        Some(path) => {
            lines.push(format!("listening on {} (mode {:o})", path.display(), settings.unix_mask));
        }
        None => {
            let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            lines.push(format!("listening on {}", all.join(", ")));
        }
    }
    if addresses.iter().any(|address| address.ip().is_unspecified()) {
        lines.push(
            "warning: listening on all addresses without authentication: whoever reaches this \
             machine can read and change the cache; write -l 127.0.0.1 to keep it local"
                .to_string(),
        );
    }
    lines
}

/// Limits of clients and threads.
pub(crate) fn limits(settings: &Settings) -> String {
    let when_full = if settings.evict { "evicts when full" } else { "refuses when full" };
    format!(
        "{} threads, {} connections, items of up to {}, {when_full}",
        settings.threads,
        settings.connections_max,
        display_bytes(settings.item_bytes_max),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_when_everybody_can_connect() {
        let warns = |address: &str| {
            let lines = listening(&Settings::default(), &[address.parse().unwrap()]);
            lines.iter().any(|line| line.starts_with("warning"))
        };
        assert!(warns("0.0.0.0:11211"));
        assert!(warns("[::]:11211"));
        assert!(!warns("127.0.0.1:11211"));
    }
}

//! What the server says of itself when it starts.

use terrace::server::Listener;
use terrace::settings::{BESIDES_BYTES_MAX, Settings, display_bytes, display_count};
use terrace_cache::{Cache, Note};

/// Name and version.
pub(crate) fn version() -> String {
    format!("terrace {}", env!("CARGO_PKG_VERSION"))
}

/// Tells that a start is cold since its tiers are new. One that recovers nothing for another reason says so itself.
pub(crate) fn new_tiers(settings: &Settings, cache: &Cache) -> Option<Note> {
    let is_new = !settings.tiers.is_empty() && cache.recovering() == 0 && cache.notes().is_empty();
    is_new.then(|| Note::Info("cold: the tiers are new".into()))
}

/// Limits of clients and threads.
pub(crate) fn limits(settings: &Settings, cache: &Cache) -> Note {
    let (item_bytes_max, background) = (cache.item_bytes_max(), cache.background_threads());
    let when_full = if settings.evict { "evicts when full" } else { "refuses when full" };
    Note::Info(format!(
        "limits: {} threads and {background} in the background, {} connections, values of up to {}, {when_full}",
        settings.threads,
        display_count(settings.connections_max.into()),
        display_bytes(item_bytes_max),
    ))
}

/// What the process may have resident.
pub(crate) fn memory(settings: &Settings) -> Note {
    let shares = settings.memory_shares();
    let given = match settings.connection_buffer_bytes_max {
        _ if shares != settings.memory_asked() => "what the memory cgroup leaves",
        0 => "a quarter of that, 64 MiB at least",
        _ => "-o read_buf_mem_limit",
    };
    Note::Info(format!(
        "memory: at most {}: {} for the cache (-m), {} for connections ({given}), {} besides",
        display_bytes(shares.total()),
        display_bytes(shares.cache),
        display_bytes(shares.connections),
        display_bytes(BESIDES_BYTES_MAX),
    ))
}

/// Tells that values can't be as long as `-I` asks for.
pub(crate) fn shorter_values(settings: &Settings, item_bytes_max: u64) -> Option<Note> {
    let wanted = settings.item_bytes_max;
    (item_bytes_max < wanted).then(|| {
        let of = if settings.tiers.is_empty() { "-m" } else { "what the tiers hold" };
        Note::Warning(format!(
            "-I: values of up to {} instead of {}: the longest may be an eighth of {of}",
            display_bytes(item_bytes_max),
            display_bytes(wanted),
        ))
    })
}

/// Where clients can connect, and what follows from it.
pub(crate) fn listening(listeners: &[Listener], asks_for_passwords: bool) -> Vec<Note> {
    let line = |listener: &Listener| Note::Info(format!("listening on {}", listener.name()));
    let mut lines: Vec<_> = listeners.iter().map(line).collect();
    if !asks_for_passwords && listeners.iter().any(is_open_to_all) {
        lines.push(Note::Warning(
            "listening on all addresses without authentication: any client that reaches this machine \
             can read and change the cache; write -l 127.0.0.1 to keep it local"
                .to_string(),
        ));
    }
    lines
}

fn is_open_to_all(listener: &Listener) -> bool {
    let address = listener.tcp_address().or(listener.udp_address());
    !listener.is_encrypted() && address.is_some_and(|address| address.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn tells_why_values_are_shorter() {
        let settings = Settings { item_bytes_max: 1 << 30, ..Settings::default() };
        assert_eq!(shorter_values(&settings, 1 << 30), None);
        let line = shorter_values(&settings, 512 << 20).unwrap();
        let text = line.text();
        assert!(text.contains("512 MiB instead of 1 GiB") && text.contains("of -m"), "{text}");
    }

    #[test]
    fn memory_is_the_sum_of_its_parts() {
        let line = |given| {
            memory(&Settings { connection_buffer_bytes_max: given, ..Settings::default() })
                .to_string()
        };
        assert_eq!(
            line(0),
            "memory: at most 160 MiB: 64 MiB for the cache (-m), 64 MiB for connections (a quarter of \
             that, 64 MiB at least), 32 MiB besides"
        );
        assert!(line(8 << 20).contains("at most 104 MiB") && line(8 << 20).contains("8 MiB for"));
    }

    #[test]
    fn warns_when_everybody_can_connect() {
        let warns = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            let listener = Listener::tcp((ip, 0).into(), 1).unwrap();
            listening(&[listener], false).iter().any(|line| matches!(line, Note::Warning(_)))
        };
        assert!(warns("0.0.0.0"));
        assert!(!warns("127.0.0.1"));
    }
}

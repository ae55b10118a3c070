//! TLS: certificates that can be exchanged while the server runs, and connections that speak it.

mod ciphers;
mod config;
mod files;
mod no_authority;
mod pinned;
mod refused;
mod stream;

pub use config::{Configs, TlsError};
pub(crate) use stream::{Decrypted, TlsStream};

use crate::settings::{ListenTls, TlsSettings};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// Certificates that are turned away within this time after a line are counted in the next one.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Reads the certificates, and the key; `None` if nothing is to be encrypted.
pub fn load(settings: &TlsSettings) -> Result<Option<Configs>, TlsError> {
    settings.enabled.then(|| Configs::load(settings)).transpose()
}

/// What all encrypted connections of a server share.
pub(crate) struct Tls {
    settings: TlsSettings,
    current: Mutex<Arc<Configs>>,
    /// Unix time at which the certificates were read.
    refreshed: AtomicU32,
    pub(crate) counters: Arc<Counters>,
}

/// What happened on encrypted connections.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Handshakes that came to an end.
    pub(crate) sessions: AtomicU64,
    /// Handshakes that failed.
    pub(crate) handshake_errors: AtomicU64,
    /// Errors after the handshake.
    pub(crate) protocol_errors: AtomicU64,
    /// What the log was told of certificates that were turned away.
    refused: Mutex<Refused>,
}

/// Client certificates that were turned away.
#[derive(Debug, Default)]
struct Refused {
    logged: Option<Instant>,
    /// Since then.
    unlogged: u64,
}

impl Counters {
    /// Logs why a client's certificate was turned away, once a second at most.
    fn refuse(&self, client: impl FnOnce() -> String, why: &rustls::Error) {
        let Some(reason) = refused::reason(why) else { return };
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.logged.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            refused.unlogged += 1;
            return;
        }
        refused.logged = Some(Instant::now());
        let more = match std::mem::take(&mut refused.unlogged) {
            0 => String::new(),
            more => format!(" ({more} more since the last line)"),
        };
        warn!("client {}: TLS certificate refused: {reason}{more}", client());
    }
}

impl Tls {
    /// Begins with what was read just `now`.
    pub(crate) fn new(settings: &TlsSettings, configs: Configs, now: u32) -> Self {
        Self {
            current: Mutex::new(Arc::new(configs)),
            settings: settings.clone(),
            refreshed: AtomicU32::new(now),
            counters: Arc::default(),
        }
    }

    /// Reads the certificates again, for connections from now on. If that fails everything stays
    /// as it is.
    pub(crate) fn refresh(&self, now: u32) -> Result<(), TlsError> {
        let configs = Arc::new(Configs::load(&self.settings)?);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = configs;
        self.refreshed.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// New sessions, as memcached counts them: none where they are not kept for clients to resume.
    pub(crate) fn sessions_kept(&self) -> u64 {
        if self.settings.session_cache { self.counters.sessions.load(Ordering::Relaxed) } else { 0 }
    }

    /// Unix time at which the certificates were read.
    pub(crate) fn refreshed(&self) -> u32 {
        self.refreshed.load(Ordering::Relaxed)
    }

    /// Begins to speak TLS on a new connection.
    pub(crate) fn accept(&self, socket: OwnedFd, tls: ListenTls) -> io::Result<TlsStream> {
        let configs = Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner));
        let config = configs.of(tls).ok_or(io::ErrorKind::Unsupported)?;
        TlsStream::new(socket, config, Arc::clone(&self.counters))
    }
}

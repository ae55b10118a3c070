//! TLS: certificates that can be exchanged while the server runs, and connections that speak it.

mod ciphers;
mod config;
mod stream;

pub use config::{Configs, TlsError};
pub(crate) use stream::{Decrypted, TlsStream};

use crate::settings::{ListenTls, TlsSettings};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

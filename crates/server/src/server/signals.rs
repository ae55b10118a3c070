//! The signals that end a server, or have it read files again.

use super::joining;
use super::shared::Shared;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{self, Handle};
use signal_hook::low_level;
use std::io;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// What comes so soon after the first signal to stop is the same one: a terminal or `timeout` sends it to all of a
/// process group, and a wrapper in it passes on what it got.
const SAME_WITHIN: Duration = Duration::from_secs(1);
/// Beyond this a shell sees which signal ended a process.
const EXIT_BY_SIGNAL: i32 = 128;

/// Signals on their way to the server. From the moment that it takes them on none is lost: one that comes before
/// [`Signals::obey`] acts there.
pub struct Signals(iterator::Signals);

impl Signals {
    /// Has this process handle them. Whoever hears that a server runs may send one: they are taken on
    /// before anybody is told.
    pub fn take_on() -> io::Result<Self> {
        iterator::Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGHUP]).map(Self)
    }

    /// To end [`Signals::obey`] with.
    pub(super) fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Does what they ask for. A stop waits for drives; a second signal does not wait for the stop.
    pub(super) fn obey(mut self, shared: &Shared) {
        let mut stopping_since: Option<Instant> = None;
        for signal in self.0.forever() {
            match stopping_since {
                _ if signal == SIGHUP => reload(shared),
                Some(since) if since.elapsed() >= SAME_WITHIN => {
                    low_level::exit(EXIT_BY_SIGNAL + signal)
                }
                Some(_) => {}
                None => {
                    stopping_since = Some(Instant::now());
                    shared.stop();
                    tell_of_the_second(shared);
                }
            }
        }
    }
}

/// Where there are drives to wait for.
fn tell_of_the_second(shared: &Shared) {
    if !shared.settings.tiers.is_empty() {
        info!("stopping; a second signal ends it at once, and the next start is as after a crash");
    }
}

/// Reads again what a running server can take over.
fn reload(shared: &Shared) {
    let has_settings = joining::join_new(shared);
    if let Some(passwords) = &shared.passwords {
        match passwords.reload() {
            Ok(text) => info!("SIGHUP: {text}"),
            Err(text) => warn!("SIGHUP: {text}"),
        }
    }
    match shared.tls.as_ref().map(|tls| tls.refresh(shared.clock.now())) {
        Some(Ok(())) => info!("SIGHUP: certificates are reloaded"),
        Some(Err(error)) => warn!("SIGHUP: the old certificates stay: {error}"),
        None if shared.passwords.is_some() || has_settings => {}
        None => info!("SIGHUP: there is nothing to reload"),
    }
}

//! Starts the real `terrace` binary and talks to it over its sockets.
//!
//! `TERRACE_E2E_SERVER=/usr/bin/memcached` runs the tests against another server: those that ask
//! for what only Terrace has print that they are skipped. `TERRACE_E2E_BINARY` names a Terrace that
//! is built or installed already.

use std::time::{Duration, Instant};

mod client;
mod container;
mod flash;
mod loop_device;
mod mounts;
mod nvme;
mod server;
mod skip;

pub use client::{Client, CutOff};
pub use container::{Container, Limits, NAMELESS_USER, open_dir};
pub use flash::{
    TIER_BYTES, assert_on_flash, count_right, fill, flash_server, push_to_flash, tier_stat,
};
pub use loop_device::LoopDevice;
pub use mounts::{Mount, state_dir};
pub use nvme::{NvmeHost, NvmeQueue};
pub use server::{Failed, Server, free_port, is_terrace, program, spawn, spawn_with};
pub use skip::{run_as_root, skip};

/// No test waits longer for anything that is to come. Only a test that fails takes so long, so it can
/// be as much as the slowest machine under the greatest load needs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks for something until it is there; panics, with its name, if it never is.
#[track_caller]
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A value that says which key and which version of it it belongs to, `bytes` long: a foreign, old
/// or torn value is recognised by its content.
pub fn value_of(key: &str, version: u64, bytes: usize) -> Vec<u8> {
    let stamp = format!("{key}#{version};");
    stamp.bytes().cycle().take(bytes).collect()
}

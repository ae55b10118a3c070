//! Exports over files in temporary folders, and hosts for them.
#![allow(dead_code)]

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_device::Drive;
use terrace_e2e::NvmeHost;
use terrace_export::{Config, Log, NamespaceConfig, Note, Server, Storage};
use terrace_nvme::host::Login;
use terrace_nvme::pdu::Digests;

pub(crate) const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6d6f7265-0000-4000-8000-000000000001";
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const BLOCK: usize = 4096;
pub(crate) const BOTH: Digests = Digests { header: true, data: true };
pub(crate) const NONE: Digests = Digests { header: false, data: false };

/// Notes that an export has logged.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    pub(crate) fn log(&self) -> Log {
        let notes = Arc::clone(&self.0);
        Log::new(move |note| notes.lock().expect("no panic").push(note))
    }

    /// How many warnings have all of `words` in them.
    pub(crate) fn warnings(&self, words: &[&str]) -> usize {
        let notes = self.0.lock().expect("no panic");
        let fits = |note: &&Note| match note {
            Note::Warning(text) => words.iter().all(|word| text.contains(word)),
            Note::Info(_) => false,
        };
        notes.iter().filter(fits).count()
    }
}

pub(crate) fn file(path: &Path, bytes: u64) -> NamespaceConfig {
    of(Storage::Path { path: path.to_owned(), bytes: Some(bytes) })
}

pub(crate) fn drive(drive: Arc<dyn Drive>) -> NamespaceConfig {
    of(Storage::Drive(drive))
}

fn of(storage: Storage) -> NamespaceConfig {
    NamespaceConfig { nsid: 1, storage, block_bytes: 4096, nguid: [1; 16], read_only: false }
}

pub(crate) fn config(namespaces: Vec<NamespaceConfig>) -> Config {
    Config { namespaces, ..Config::new(NQN) }
}

pub(crate) fn start(config: &Config) -> (Server, SocketAddr) {
    let server = Server::start(config).expect("it starts");
    let address = server.addresses()[0];
    (server, address)
}

pub(crate) fn login(number: u8) -> Login {
    NvmeHost::login(number, NQN)
}

/// Host `number`, with I/O queues of 32 entries.
pub(crate) fn connect(
    address: SocketAddr,
    number: u8,
    queues: u16,
    digests: Digests,
) -> io::Result<NvmeHost> {
    NvmeHost::connect(address, login(number), (queues, 32), digests, None)
}

/// Data that only this block, in this version, has.
pub(crate) fn block_of(lba: u64, version: u64) -> Vec<u8> {
    let mut state = (lba << 32 ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(BLOCK);
    while data.len() < BLOCK {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data
}

/// Waits until `is_so`.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

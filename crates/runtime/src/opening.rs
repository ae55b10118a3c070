//! Opening drives and cache.

use crate::created::Created;
use crate::error::OpenError;
use crate::options::Options;
use crate::place::open_drive;
use crate::roster::RosterFile;
use crate::state::{self, Chosen, Wanted};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_cache::{Cache, Config, Durability, Tier, Witness};
use terrace_device::{DEADLINE, DeadlineDrive, Drive, Engine};

/// What a store is made of.
pub(crate) struct Opened {
    pub(crate) cache: Arc<Cache>,
    /// In the order of the options, for reads by requests.
    pub(crate) drives: Vec<Arc<dyn Drive>>,
}

pub(crate) fn open(options: &Options) -> Result<Opened, OpenError> {
    let mut created = Created::default();
    let mut config = Config::new(options.memory_bytes);
    config.item_bytes_max = options.value_bytes_max;
    config.sessions_max = options.lanes_max;
    config.background_threads = options.background_threads;
    if options.is_durable {
        config.durability = Durability::Power;
    }
    let mut drives: Vec<Arc<dyn Drive>> = Vec::new();
    for drive in &options.drives {
        let device = open_drive(&drive.path.as_path().into(), drive.bytes, &mut created)?.drive;
        let threads = options.background_threads;
        let timed = in_background(&device, config.durability, threads, Engine::Auto);
        let system = |source| OpenError::System { what: "a thread for the drive", source };
        let make = if drive.is_below { Tier::below } else { Tier::new };
        config.tiers.push(make(timed.map_err(system)?));
        drives.push(device);
    }
    let witness = options.roster.as_deref().map(|file| Arc::new(RosterFile::new(file)) as _);
    config.witness = witness;
    let state = open_state(options, &drives, config.witness.as_deref(), &mut created)?;
    if let Some(state) = &state {
        (config.state, config.boot) = (state.file.clone(), state.boot);
    }
    let opened = Cache::open(config);
    if state.is_some_and(|state| state.may_be_needed()) {
        created.keep_with_older(options.drives.iter().map(|drive| drive.path.as_path()));
    }
    let cache = opened?;
    created.keep();
    cache.note_time(now().max(cache.clock_floor()));
    recover(&cache);
    Ok(Opened { cache, drives })
}

fn open_state(
    options: &Options,
    drives: &[Arc<dyn Drive>],
    witness: Option<&dyn Witness>,
    created: &mut Created,
) -> Result<Option<Chosen>, OpenError> {
    let Some(folder) = options.state_dir.as_deref() else { return Ok(None) };
    let memory_bytes = options.memory_bytes;
    let wanted = Wanted { folder: Some(folder), memory_bytes, drives, witness };
    let chosen = state::open(&wanted, created)?;
    match chosen.reason_against {
        Some(why) => Err(OpenError::NoState { why }),
        None => Ok(Some(chosen)),
    }
}

/// Brings the index of what the drives hold back, on as many threads as there are cores.
fn recover(cache: &Cache) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores.min(cache.recovering()) {
            scope.spawn(|| while cache.recover() {});
        }
    });
}

/// A drive for the cache's own work, by `threads` threads. Where changes are to outlive a power loss, it waits for the
/// drive, however long that takes; else the drive has [`DEADLINE`] for each transfer.
///
/// # Errors
/// The system has no thread for it.
pub fn in_background(
    drive: &Arc<dyn Drive>,
    durability: Durability,
    threads: usize,
    engine: Engine,
) -> io::Result<Arc<dyn Drive>> {
    match durability {
        Durability::Power => Ok(Arc::clone(drive)),
        Durability::Process => {
            Ok(Arc::new(DeadlineDrive::new(Arc::clone(drive), DEADLINE, threads, engine)?))
        }
    }
}

/// Unix seconds.
pub(crate) fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

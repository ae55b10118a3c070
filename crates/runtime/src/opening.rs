//! Opening drives and cache.

use crate::error::OpenError;
use crate::options::Options;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_cache::{Cache, Config, Durability, Tier};
use terrace_device::{DEADLINE, Drive, Engine, FileDevice, TimedDevice};

/// What a store is made of.
pub(crate) struct Opened {
    pub(crate) cache: Arc<Cache>,
    /// In the order of the options, for reads by requests.
    pub(crate) drives: Vec<Arc<dyn Drive>>,
}

pub(crate) fn open(options: &Options) -> Result<Opened, OpenError> {
    let mut drives: Vec<Arc<dyn Drive>> = Vec::new();
    let mut tiers = Vec::new();
    for drive in &options.drives {
        let is_foreign = &terrace_cache::is_foreign;
        let device = FileDevice::open_unless(&drive.path, drive.bytes, is_foreign)?;
        let device: Arc<dyn Drive> = Arc::new(device);
        let in_background = in_background(options, &device)?;
        let make = if drive.is_below { Tier::below } else { Tier::new };
        tiers.push(make(in_background));
        drives.push(device);
    }
    let mut config = Config::new(options.memory_bytes);
    config.tiers = tiers;
    config.item_bytes_max = options.value_bytes_max;
    config.sessions_max = options.lanes_max;
    config.background_threads = options.background_threads;
    if options.is_durable {
        config.durability = Durability::Power;
    }
    let cache = Cache::open(config)?;
    cache.note_time(now().max(cache.clock_floor()));
    recover(&cache);
    Ok(Opened { cache, drives })
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

/// A drive that is written durably is waited for, however long that takes.
fn in_background(options: &Options, device: &Arc<dyn Drive>) -> Result<Arc<dyn Drive>, OpenError> {
    if options.is_durable {
        return Ok(Arc::clone(device));
    }
    let threads = options.background_threads;
    let timed = TimedDevice::new(Arc::clone(device), DEADLINE, threads, Engine::Auto);
    let system = |source| OpenError::System { what: "a thread for the drive", source };
    Ok(Arc::new(timed.map_err(system)?))
}

/// Unix seconds.
pub(crate) fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

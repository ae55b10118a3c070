//! Several drives and a cache on them, which ends in one way or another and starts again with some of them.

use super::machine::{config, key, value};
use super::{Client, RamDevice};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_cache::{Config, DrainMode, StateFile, TierState, TierStats, Witness};
use terrace_device::Drive;

pub(crate) const DRIVE: usize = 4 << 20;
/// Fill a fourth of each of three drives.
pub(crate) const RECORDS: u64 = 12_000;

/// A witness in memory that may refuse writes.
#[derive(Default)]
pub(crate) struct InMemory {
    bytes: Mutex<Option<Vec<u8>>>,
    pub(crate) refuses: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics under it")
}

impl Witness for InMemory {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(lock(&self.bytes).clone())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected"));
        }
        *lock(&self.bytes) = Some(bytes.to_vec());
        Ok(())
    }
}

/// Drives and a cache on them that has `RECORDS` records of version 1.
pub(crate) struct Fleet {
    pub(crate) drives: Vec<Arc<RamDevice>>,
    pub(crate) state: Arc<StateFile>,
    pub(crate) witness: Option<Arc<InMemory>>,
    pub(crate) boot: u8,
    pub(crate) config: Config,
    pub(crate) client: Client,
}

impl Fleet {
    pub(crate) fn with(drives: &[usize], records: u64, change: impl Fn(&mut Config)) -> Self {
        let drives: Vec<_> = drives.iter().map(|&bytes| RamDevice::new(bytes)).collect();
        let mut config = config();
        change(&mut config);
        Self::start(drives, state(), None, 1, config).fill(records)
    }

    pub(crate) fn filled() -> Self {
        Self::with(&[DRIVE; 3], RECORDS, |_| ())
    }

    /// As [`Fleet::filled`], with a witness.
    pub(crate) fn filled_with(witness: Option<Arc<InMemory>>) -> Self {
        let drives = (0..3).map(|_| RamDevice::new(DRIVE)).collect();
        Self::start(drives, state(), witness, 1, config()).fill(RECORDS)
    }

    fn fill(mut self, records: u64) -> Self {
        for n in 0..records {
            assert!(self.client.set(&key(n), &value(n, 1)));
        }
        self.client.settle();
        self
    }

    pub(crate) fn start(
        drives: Vec<Arc<RamDevice>>,
        state: Arc<StateFile>,
        witness: Option<Arc<InMemory>>,
        boot: u8,
        config: Config,
    ) -> Self {
        let with_state = Config {
            state: Some(Arc::clone(&state)),
            witness: witness.clone().map(|witness| witness as Arc<dyn Witness>),
            boot: [boot; 16],
            ..config.clone()
        };
        let tiers = drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect();
        let client = Client::open(with_state, tiers);
        while client.cache.recover() {}
        Self { drives, state, witness, boot, config, client }
    }

    /// The next start, with these drives, after a clean stop and a reboot, a kill, or a loss of power.
    pub(crate) fn again(&self, end: End, drives: &[usize]) -> Self {
        if end == End::Stop {
            assert!(self.client.cache.close(self.client.now, &|| true));
        }
        let (state, boot) = match end {
            End::Kill => (Arc::new(self.state.snapshot().expect("memory")), self.boot),
            End::Stop | End::Power => (state(), self.boot + 1),
        };
        let drives = drives.iter().map(|&drive| self.drives[drive].copy()).collect();
        Self::start(drives, state, self.witness.clone(), boot, self.config.clone())
    }

    pub(crate) fn tiers(&self) -> Vec<TierStats> {
        self.client.cache.stats().tiers
    }

    pub(crate) fn drain(&self, tier: usize) {
        self.client.cache.drain(tier, DrainMode::KeepAll, self.client.now).expect("it begins");
    }

    /// Drains a tier to the end.
    pub(crate) fn drained(mut self, tier: usize) -> Self {
        assert!(self.tiers()[tier].records > RECORDS / 8);
        self.drain(tier);
        self.client.settle();
        let stats = &self.tiers()[tier];
        assert_eq!((stats.state, stats.records), (TierState::Drained, 0), "{stats:#?}");
        self
    }

    /// Records that are there. Those below `changed` must be of version 2, the rest of version 1.
    pub(crate) fn found(&self, changed: u64) -> u64 {
        let is_there = |n: &u64| {
            let found = self.client.get(&key(*n)).map(|found| found.value);
            let expected = value(*n, if *n < changed { 2 } else { 1 });
            assert!(found.is_none() || found == Some(expected), "{n}: {found:?}");
            found.is_some()
        };
        (0..RECORDS).filter(is_there).count() as u64
    }
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stop,
    Kill,
    Power,
}

pub(crate) fn state() -> Arc<StateFile> {
    Arc::new(StateFile::volatile().expect("memory"))
}

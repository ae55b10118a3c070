//! A cache with a drive and a state, which can die and come back.

use super::{Client, RamDevice};
use std::sync::Arc;
use terrace_cache::{Config, StateFile, Tuning};
use terrace_device::Drive;

/// A cache, its drive and its state, which can die and come back.
pub(crate) struct Machine {
    pub(crate) device: Arc<RamDevice>,
    pub(crate) below: Option<Arc<RamDevice>>,
    pub(crate) state: Arc<StateFile>,
    boot: [u8; 16],
    /// Of the next start.
    pub(crate) config: Config,
    pub(crate) client: Client,
}

/// What is left of a machine when its process is gone.
pub(crate) struct Remains {
    pub(crate) device: Arc<RamDevice>,
    /// A drive on a lower rung, if there is one.
    pub(crate) below: Option<Arc<RamDevice>>,
    pub(crate) state: Arc<StateFile>,
}

impl Remains {
    /// As it is at this moment.
    pub(crate) fn copy(&self) -> Self {
        Self {
            device: self.device.copy(),
            below: self.below.as_ref().map(|below| below.copy()),
            state: Arc::new(self.state.snapshot().expect("memory")),
        }
    }
}

pub(crate) fn config() -> Config {
    let mut config = Config::new(2 << 20);
    config.tuning = Tuning {
        seed: Some(1),
        shards: Some(2),
        segment_bytes: Some(64 << 10),
        log_ring_pages: 16,
        ..Tuning::default()
    };
    config
}

impl Machine {
    pub(crate) fn new(config: Config) -> Self {
        Self::with(config, 8 << 20, None)
    }

    /// One with a drive of so many bytes, and perhaps one on a lower rung.
    pub(crate) fn with(config: Config, bytes: usize, below: Option<usize>) -> Self {
        let (device, below) = (RamDevice::new(bytes), below.map(RamDevice::new));
        let state = Arc::new(StateFile::volatile().expect("memory"));
        Self::start(config, Remains { device, below, state }, [1; 16])
    }

    pub(crate) fn start(config: Config, remains: Remains, boot: [u8; 16]) -> Self {
        let Remains { device, below, state } = remains;
        let with_state = Config { state: Some(Arc::clone(&state)), boot, ..config.clone() };
        let mut devices = vec![Arc::clone(&device) as Arc<dyn Drive>];
        devices.extend(below.clone().map(|below| below as Arc<dyn Drive>));
        let client = Client::open_ladder(with_state, devices);
        Self { device, below, state, boot, config, client }
    }

    pub(crate) fn recover(&self) {
        while self.client.cache.recover() {}
        assert_eq!(self.client.cache.recovering(), 0);
    }

    /// The drives and the state that it runs on.
    pub(crate) fn hardware(&self) -> Remains {
        let (device, below) = (Arc::clone(&self.device), self.below.clone());
        Remains { device, below, state: Arc::clone(&self.state) }
    }

    pub(crate) fn remains(&self) -> Remains {
        self.hardware().copy()
    }

    /// Starts again with what is left, on the same boot of the machine.
    pub(crate) fn again(self, remains: Remains) -> Self {
        let (config, boot, now) = (self.config.clone(), self.boot, self.client.now);
        drop(self);
        let mut next = Self::start(config, remains, boot);
        next.client.now = now;
        next
    }

    /// The process is killed between two requests, and starts again.
    pub(crate) fn crash(self) -> Self {
        let remains = self.remains();
        self.again(remains)
    }

    pub(crate) fn stop_cleanly(&self) {
        assert!(self.client.cache.close(self.client.now, &|| true), "comes to the end");
    }
}

pub(crate) fn key(n: u64) -> Vec<u8> {
    format!("key-{n:06}").into_bytes()
}

/// Values tell their key and version.
pub(crate) fn value(n: u64, version: u64) -> Vec<u8> {
    let mut value = format!("{n}:{version}:").into_bytes();
    value.resize(40 + (n * 37 + version * 11) as usize % 400, b'x');
    value
}

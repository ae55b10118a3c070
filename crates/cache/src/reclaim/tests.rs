//! What others find while a segment is taken back.

use super::*;
use crate::config::{Config, Tier};
use crate::{Cache, Change, NewRecord, NewValue};
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock, Weak};
use terrace_device::sim::SimDevice;
use terrace_device::{Device, Geometry};

const NOW: u32 = 1_000_000;

/// While it is read others find twice whether the cache is full.
struct Slow {
    drive: SimDevice,
    cache: OnceLock<Weak<Cache>>,
}

impl Device for Slow {
    fn label(&self) -> &str {
        self.drive.label()
    }
    fn geometry(&self) -> Geometry {
        self.drive.geometry()
    }
    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        if let Some(cache) = self.cache.get().and_then(Weak::upgrade) {
            (0..2).for_each(|_| cache.engine.judge_fullness());
        }
        self.drive.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.drive.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        self.drive.flush()
    }
    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

#[test]
fn whether_records_may_go_is_decided_once_for_a_segment() {
    let drive = SimDevice::new(8 << 20, 1);
    let drive = Arc::new(Slow { drive, cache: OnceLock::new() });
    let mut config = Config::new(2 << 20);
    (config.tuning.shards, config.tuning.segment_bytes) = (Some(1), Some(64 << 10));
    config.tiers = vec![Tier::new(Arc::clone(&drive) as Arc<dyn Device>)];
    let cache = Cache::open(config).expect("opens");
    let mut session = cache.session();
    for n in 0..1000u32 {
        let new = NewRecord {
            value: NewValue::Inline(&[7; 300], &[]),
            client_flags: 0,
            expires: 0,
            cas: None,
            stale: false,
            win_sent: false,
        };
        let key = n.to_le_bytes();
        session.update(session.key(&key), NOW, None, true, |_| Change::Store(new));
    }
    session.park();
    while cache.maintain(NOW) {}
    let engine = &cache.engine;
    let victim = choose(engine, 0..1, 0, true).expect("some were sealed");
    let live = engine.shards[0].segments.usage(victim.sealed.number).live_records;
    drive.cache.set(Arc::downgrade(&cache)).expect("once");
    session.quiesce();
    engine.note_full();
    let mut buffer = AlignedBuf::zeroed(64 << 10);
    let done = reclaim(engine, Guard::new(), victim, &mut buffer, NOW);
    assert_eq!(done, Ok(()));
    assert!(!engine.pool.counters.is_full(), "any more");
    // None was used.
    assert_eq!(engine.pool.counters.evictions.load(Ordering::Relaxed), u64::from(live));
}

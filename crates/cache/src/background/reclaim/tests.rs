//! Other threads at work while a segment is reclaimed.

use super::*;
use crate::background::merge;
use crate::background::relocate::Space;
use crate::config::{Config, Tier};
use crate::engine::fullness;
use crate::facade::cache::Cache;
use crate::records::record::{NewRecord, NewValue};
use crate::request::update::{Change, Update};
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use terrace_device::sim::SimDevice;
use terrace_device::{Drive, Geometry};

const NOW: u32 = 1_000_000;

/// The work of other threads while the drive reads or writes.
type Meanwhile = Box<dyn Fn(&Cache) + Send + Sync>;

struct Slow {
    drive: SimDevice,
    others: OnceLock<(Weak<Cache>, Meanwhile)>,
}

impl Slow {
    fn take_time(&self) {
        let Some((cache, meanwhile)) = self.others.get() else { return };
        let _ = cache.upgrade().map(|cache| meanwhile(&cache));
    }
}

impl Drive for Slow {
    fn label(&self) -> &str {
        self.drive.label()
    }
    fn geometry(&self) -> Geometry {
        self.drive.geometry()
    }
    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.take_time();
        self.drive.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.take_time();
        self.drive.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        self.drive.flush()
    }
}

fn open() -> (Arc<Cache>, Arc<Slow>) {
    let drive = SimDevice::new(8 << 20, 1);
    let drive = Arc::new(Slow { drive, others: OnceLock::new() });
    let mut config = Config::new(2 << 20);
    (config.tuning.shards, config.tuning.segment_bytes) = (Some(1), Some(64 << 10));
    config.tiers = vec![Tier::new(Arc::clone(&drive) as Arc<dyn Drive>)];
    (Cache::open(config).expect("opens"), drive)
}

impl Slow {
    fn begin(&self, cache: &Arc<Cache>, meanwhile: impl Fn(&Cache) + Send + Sync + 'static) {
        assert!(self.others.set((Arc::downgrade(cache), Box::new(meanwhile))).is_ok(), "once");
    }
}

fn store(cache: &Arc<Cache>, numbers: impl Iterator<Item = u32>) {
    let mut session = cache.session();
    for n in numbers {
        let key = n.to_le_bytes();
        let new = || NewRecord {
            value: NewValue::Inline(&[7; 300], &[]),
            client_flags: 0,
            expires: 0,
            cas: None,
            stale: false,
            win_sent: false,
        };
        loop {
            let (key, store) = (session.key(&key), |_: Option<_>| Change::Store(new()));
            if let Update::Done { .. } = session.update(key, NOW, None, true, store) {
                break;
            }
            session.park();
            cache.maintain(NOW);
        }
    }
    drop(session);
    while cache.maintain(NOW) {}
}

#[test]
fn reclaim_decides_once_whether_records_may_be_dropped() {
    let (cache, drive) = open();
    store(&cache, 0..1000);
    let engine = &cache.engine();
    let victim = choose(engine, 0..1, &Sources::on(engine, 0), true).expect("some were sealed");
    // All are their key's only record. Some may be deferred under another key's name with the same bucket and
    // fingerprint, and do not count as live until that is reconciled.
    let records = engine.shards()[0].segments().usage(victim.sealed.number).records();
    // Other threads judge twice whether the cache is full.
    drive.begin(&cache, |cache| (0..2).for_each(|_| fullness::judge_fullness(cache.engine())));
    fullness::note_full(engine);
    let mut buffer = AlignedBuf::zeroed(64 << 10);
    let reader = engine.shared().quiesce().join().expect("a place");
    let guard = engine.shared().quiesce().guard(&reader);
    let done = reclaim(engine, guard, victim, &mut buffer, NOW);
    assert_eq!(done, Ok(()));
    assert!(!engine.shared().counters().is_full(), "any more");
    // No record was used.
    assert_eq!(engine.shared().counters().evictions().load(Ordering::Relaxed), u64::from(records));
}

#[test]
fn relocation_that_waits_for_a_drive_holds_no_memory_back() {
    let (cache, drive) = open();
    store(&cache, 0..4000);
    store(&cache, (0..4000).filter(|n| n % 4 > 0));
    let engine = &cache.engine();
    let victim = choose(engine, 0..1, &Sources::on(engine, 0), false).expect("some were sealed");
    let waits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&waits);
    drive.begin(&cache, move |cache| {
        let quiesce = &cache.engine().shared().quiesce();
        let retired = quiesce.retire();
        assert!(quiesce.reached() >= retired);
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let reader = engine.shared().quiesce().join().expect("a place");
    let (mut space, mut output) = (Space::new(64 << 10), AlignedBuf::zeroed(64 << 10));
    let space = (&mut space, 8, &reader);
    assert!(merge::merge(
        space,
        engine,
        engine.shared().quiesce().guard(&reader),
        victim,
        &mut output,
        NOW
    ));
    assert!(waits.load(Ordering::Relaxed) > 2, "some segments are read, and one is written");
}

#[test]
fn reservation_without_slots_for_all_takes_none() {
    let (cache, _) = open();
    store(&cache, 0..1000);
    let slots = &cache.engine().shared().slots();
    let free = slots.free_on(0);
    assert!(slots.reserve((0..=free).map(|_| 0)).is_none());
    assert_eq!(slots.free_on(0), free, "they are back");
    let mut places = slots.reserve((0..free).map(|_| 0)).expect("as many as there are");
    assert!(places.take(0).is_some() && slots.free_on(0) == 0);
    drop(places);
    assert_eq!(slots.free_on(0), free - 1);
}

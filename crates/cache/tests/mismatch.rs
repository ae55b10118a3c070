//! Tiers that do not fit what they hold: what starts cold, and what is refused.

mod common;

use common::machine::{Machine, config, key, value};
use std::sync::Arc;
use terrace_cache::{Cache, Config, Durability, OnMismatch, OpenError, Tier};
use terrace_device::Device;

#[test]
fn what_does_not_fit_starts_cold_or_not_at_all() {
    let mut machine = Machine::new(config());
    for n in 0..3000 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.client.settle();
    machine.stop_cleanly();
    let remains = machine.remains();
    remains.device.tamper(|bytes| bytes[100] ^= 1);
    let mut refusing = config();
    refusing.on_mismatch = OnMismatch::Refuse;
    let device = Arc::clone(&remains.device) as Arc<dyn Device>;
    refusing.tiers = vec![Tier::new(device)];
    assert!(matches!(Cache::open(refusing), Err(OpenError::Mismatch(_))));
    let machine = machine.again(remains);
    machine.recover();
    assert_eq!(machine.client.cache.notes().len(), 1);
    assert!((0..3000).all(|n| machine.client.get(&key(n)).is_none()));
}

#[test]
fn what_no_start_could_bring_back_is_not_refused() {
    let mut machine = Machine::new(config());
    assert!((0..3000).all(|n| machine.client.set(&key(n), &value(n, 1))));
    let remains = machine.remains();
    let open = |boot: [u8; 16]| {
        Cache::open(Config {
            on_mismatch: OnMismatch::Refuse,
            tiers: vec![Tier::new(Arc::clone(&remains.device) as Arc<dyn Device>)],
            boot,
            ..config()
        })
    };
    assert!(matches!(open([1; 16]).map(|_| ()), Err(OpenError::Mismatch(_))), "its state is away");
    let cache = open([2; 16]).expect("the power was lost");
    assert!(
        cache.notes()[0].text().contains("restarted without a clean stop"),
        "{:?}",
        cache.notes()
    );
    drop(cache);
    assert!(matches!(open([2; 16]).map(|_| ()), Err(OpenError::Mismatch(_))), "of this boot again");
}

/// Who starts with another `-m` by mistake, and has that refused, finds everything with the right one; in strict
/// mode, too, where that would do but for a page that is damaged.
#[test]
fn a_start_that_is_refused_leaves_the_state_as_it_was() {
    for durability in [Durability::Process, Durability::Power] {
        refused_and_started(durability);
    }
}

fn refused_and_started(durability: Durability) {
    let config = || Config { durability, ..config() };
    let mut machine = Machine::new(config());
    for n in 0..3000 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
        if n % 100 == 0 {
            machine.client.session.make_durable().expect("the drive works");
        }
    }
    let remains = machine.remains();
    let mut damaged = None;
    remains.device.tamper(|bytes| {
        let is_log = |page: &&mut [u8]| &page[4..8] == b"KLOG";
        let (at, page) = bytes
            .chunks_exact_mut(4096)
            .enumerate()
            .filter(|(_, page)| is_log(page))
            .nth(3)
            .unzip();
        page.into_iter().for_each(|page: &mut [u8]| page[100] ^= 1);
        damaged = at;
    });
    let refusing = Config {
        memory_bytes: config().memory_bytes / 4,
        on_mismatch: OnMismatch::Refuse,
        tiers: vec![Tier::new(Arc::clone(&remains.device) as Arc<dyn Device>)],
        state: Some(Arc::clone(&remains.state)),
        boot: [1; 16],
        ..config()
    };
    let refused = Cache::open(refusing).map(|_| ());
    assert!(matches!(refused, Err(OpenError::Mismatch(_))), "{refused:?}");
    assert_eq!(damaged.is_some(), durability == Durability::Power);
    remains
        .device
        .tamper(|bytes| damaged.into_iter().for_each(|at: usize| bytes[at * 4096 + 100] ^= 1));
    let machine = machine.again(remains);
    machine.recover();
    for n in 0..3000 {
        assert_eq!(machine.client.get(&key(n)).map(|found| found.value), Some(value(n, 1)), "{n}");
    }
}

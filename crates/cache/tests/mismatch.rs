//! Tiers that do not fit what they hold: what starts cold, and what is refused.

mod common;

use common::machine::{Machine, Remains, config, key, value};
use std::sync::Arc;
use terrace_cache::{Cache, Config, Durability, OnMismatch, OpenError, Tier};
use terrace_device::Drive;

#[test]
fn what_does_not_fit_starts_cold_or_not_at_all() {
    let mut machine = Machine::new(config());
    for n in 0..3000 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.client.settle();
    machine.stop_cleanly();
    let remains = machine.remains();
    // One whole superblock is enough.
    remains.device.tamper(|bytes| bytes[100] ^= 1);
    let half = machine.again(remains.copy());
    half.recover();
    assert!((0..3000).all(|n| half.client.get(&key(n)).is_some()));
    let machine = half;
    remains.device.tamper(|bytes| bytes[4196] ^= 1);
    let mut refusing = config();
    refusing.on_mismatch = OnMismatch::Refuse;
    let device = Arc::clone(&remains.device) as Arc<dyn Drive>;
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
            tiers: vec![Tier::new(Arc::clone(&remains.device) as Arc<dyn Drive>)],
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
        tiers: vec![Tier::new(Arc::clone(&remains.device) as Arc<dyn Drive>)],
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

/// A machine that was stopped cleanly twice, and what the first stop and the second one left.
fn stopped_twice() -> (Machine, [Remains; 2]) {
    let stop = |machine: Machine, version: u64| {
        let mut machine = machine;
        machine.recover();
        assert!((0..2000).all(|n| machine.client.set(&key(n), &value(n, version))));
        machine.client.settle();
        machine.stop_cleanly();
        let state = Arc::new(machine.state.retired().expect("memory"));
        let remains = Remains { state, ..machine.remains() };
        (machine, remains)
    };
    let (machine, first) = stop(Machine::new(config()), 1);
    let (machine, second) = (machine.again(first.copy()), first);
    let (machine, third) = stop(machine, 2);
    (machine, [second, third])
}

fn assert_holds(machine: &Machine, version: Option<u64>) {
    machine.recover();
    for n in 0..2000 {
        let expected = version.map(|version| value(n, version));
        assert_eq!(machine.client.get(&key(n)).map(|found| found.value), expected, "{n}");
    }
    assert_eq!(machine.client.cache.notes().is_empty(), version.is_some());
}

/// What a clean stop leaves of the state is enough to know an older copy of the tier, whatever `-m` is by then.
#[test]
fn an_older_copy_of_a_tier_is_cold_after_a_clean_stop() {
    let (machine, [first, second]) = stopped_twice();
    let machine = machine.again(second.copy());
    assert_holds(&machine, Some(2));
    let older = || Remains { device: first.device.copy(), ..second.copy() };
    let machine = machine.again(older());
    assert_holds(&machine, None);
    let memory_bytes = 2 * config().memory_bytes;
    let machine = Machine::start(Config { memory_bytes, ..config() }, older(), [1; 16]);
    assert_holds(&machine, None);
}

/// The page of an older stop, and the state of a crash before, say nothing against a tier that is newer.
#[test]
fn an_older_state_is_not_believed() {
    let (machine, [first, second]) = stopped_twice();
    let newer = Remains { device: second.device.copy(), ..first.copy() };
    let machine = machine.again(newer);
    assert_holds(&machine, Some(2));
    let crashed = machine.remains();
    let machine = machine.again(Remains { device: second.device.copy(), ..crashed.copy() });
    assert_holds(&machine, None);
    // The state of a crash, beside the tier as the stop after left it.
    let machine = machine.again(crashed.copy());
    machine.recover();
    machine.stop_cleanly();
    let stopped = machine.remains();
    let machine = machine.again(Remains { state: crashed.state, ..stopped });
    assert_holds(&machine, Some(2));
}

//! Restarts: what comes back after a clean stop, after the process died at any moment, and after the
//! machine did; and what must not.

mod common;

use common::machine::{Machine, Remains, config, key, value};
use common::{Client, RamDevice, Random};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use terrace_cache::{Durability, StateFile, set_crash_hook};

/// What a key may be, as far as it was acknowledged.
type Oracle = HashMap<u64, Option<Vec<u8>>>;

/// Compares everything; says how many of the acknowledged records are there, and how many there were.
fn compare(
    machine: &Machine,
    oracle: &Oracle,
    in_doubt: Option<(u64, Option<Vec<u8>>)>,
    at: (u64, u64),
) -> (u64, u64) {
    let (mut back, mut all) = (0, 0);
    for (&n, expected) in oracle {
        let found = machine.client.get(&key(n)).map(|found| found.value);
        let also = in_doubt.as_ref().filter(|doubt| doubt.0 == n).map(|doubt| &doubt.1);
        let is_right = found.is_none() || found == *expected || also == Some(&found);
        assert!(
            is_right,
            "seed and round {at:?}, key {n}: found {:?}, expected {:?} or {:?}",
            found.map(|v| String::from_utf8_lossy(&v[..16]).into_owned()),
            expected.as_ref().map(|v| String::from_utf8_lossy(&v[..16]).into_owned()),
            also.map(|v| v.as_ref().map(|v| String::from_utf8_lossy(&v[..16]).into_owned())),
        );
        if expected.is_some() && also.is_none() {
            all += 1;
            back += u64::from(found.is_some());
        }
    }
    (back, all)
}

/// One random request; what it makes of the key.
fn request(
    client: &mut Client,
    random: &mut Random,
    keys: u64,
    version: u64,
) -> (u64, Option<Vec<u8>>) {
    let n = random.below(keys);
    match random.below(10) {
        0 | 1 => {
            client.delete(&key(n));
            (n, None)
        }
        _ => {
            let value = value(n, version);
            assert!(client.set(&key(n), &value));
            (n, Some(value))
        }
    }
}

#[test]
fn everything_is_back_after_kill_and_after_a_clean_stop() {
    for clean in [false, true] {
        let mut machine = Machine::new(config());
        let mut random = Random(5);
        let mut oracle = Oracle::new();
        for version in 0..30_000 {
            let (n, value) = request(&mut machine.client, &mut random, 4000, version);
            oracle.insert(n, value);
            if version % 20 == 0 {
                machine.client.session.quiesce();
                machine.client.cache.maintain(machine.client.now);
            }
        }
        if clean {
            machine.stop_cleanly();
        }
        let machine = machine.crash();
        machine.recover();
        let (back, all) = compare(&machine, &oracle, None, (0, 0));
        assert_eq!(back, all, "of all records (clean: {clean})");
        assert!(machine.client.cache.notes().is_empty(), "{:?}", machine.client.cache.notes());
    }
}

#[test]
fn crashes_at_any_moment_bring_nothing_old_back() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut machine = Machine::new(config());
        let mut oracle = Oracle::new();
        let keys = 200 << random.below(5);
        let mut version = 0;
        for round in 0..6 {
            let remains: Rc<RefCell<Option<Remains>>> = Rc::default();
            let moment = random.below(60_000);
            let mut seen = 0;
            let (device, state) = (Arc::clone(&machine.device), Arc::clone(&machine.state));
            let left = Rc::clone(&remains);
            set_crash_hook(Some(Box::new(move |_| {
                seen += 1;
                if seen == moment {
                    let state = Arc::new(state.snapshot().unwrap());
                    *left.borrow_mut() =
                        Some(Remains { device: device.copy(), below: None, state });
                }
            })));
            let mut in_doubt = None;
            let mut recovered_at = random.below(2000);
            for _ in 0..20_000 {
                version += 1;
                let (n, value) = request(&mut machine.client, &mut random, keys, version);
                if remains.borrow().is_some() {
                    in_doubt = Some((n, value));
                    break;
                }
                oracle.insert(n, value);
                if random.below(20) == 0 {
                    machine.client.session.quiesce();
                    machine.client.cache.maintain(machine.client.now);
                }
                recovered_at = recovered_at.saturating_sub(1);
                if recovered_at == 0 {
                    machine.client.cache.recover();
                }
                if remains.borrow().is_some() {
                    break;
                }
            }
            set_crash_hook(None);
            let left = remains.borrow_mut().take();
            // As one does who had too little memory, or too much.
            machine.config.memory_bytes = [2, 2, 3, 6][random.below(4) as usize] << 20;
            machine = match left {
                Some(left) => machine.again(left),
                None => machine.crash(),
            };
            assert!(machine.client.cache.notes().is_empty(), "{:?}", machine.client.cache.notes());
            let early = random.below(3) == 0;
            if early {
                compare(&machine, &oracle, in_doubt.clone(), (seed, round));
            } else {
                machine.recover();
                let (back, all) = compare(&machine, &oracle, in_doubt.clone(), (seed, round));
                // What was changed before its shard was recovered may be lost, and with it a few that
                // share a name.
                assert!(back * 1000 >= all * 999, "seed {seed} round {round}: {back} of {all}");
            }
            if let Some((n, _)) = in_doubt {
                // From here on it is what it was found to be, if it is not just still to come.
                let found = machine.client.get(&key(n)).map(|found| found.value);
                if early && found.is_none() {
                    oracle.remove(&n);
                } else {
                    oracle.insert(n, found);
                }
            }
        }
    }
}

#[test]
fn another_boot_is_warm_after_a_clean_stop_only() {
    for clean in [false, true] {
        let mut machine = Machine::new(config());
        for n in 0..5000 {
            assert!(machine.client.set(&key(n), &value(n, 1)));
        }
        machine.client.settle();
        if clean {
            machine.stop_cleanly();
        }
        let state = Arc::new(StateFile::volatile().unwrap());
        let remains = Remains { device: machine.device.copy(), below: None, state };
        let machine = Machine::start(config(), remains, [2; 16]);
        machine.recover();
        let found = (0..5000).filter(|&n| {
            let found = machine.client.get(&key(n));
            assert!(found.as_ref().is_none_or(|found| found.value == value(n, 1)));
            found.is_some()
        });
        let found = found.count();
        assert_eq!(found, if clean { 5000 } else { 0 });
        assert_eq!(machine.client.cache.notes().is_empty(), clean);
    }
}

/// Who starts with one state, then with another, and then with the first one again, finds what the tiers hold if
/// that is all there is, and never what the first state knew.
#[test]
fn a_state_older_than_the_tiers_is_as_good_as_none() {
    for clean in [false, true] {
        let mut machine = Machine::new(config());
        for n in 0..3000 {
            assert!(machine.client.set(&key(n), &value(n, 1)));
        }
        machine.stop_cleanly();
        let (first, device) = (machine.remains().state, Arc::clone(&machine.device));
        drop(machine);
        let state = Arc::new(StateFile::volatile().unwrap());
        let remains = Remains { device, below: None, state };
        let mut machine = Machine::start(config(), remains, [1; 16]);
        machine.recover();
        for n in 0..1000 {
            assert!(machine.client.set(&key(n), &value(n, 2)));
            machine.client.delete(&key(1000 + n));
        }
        machine.client.settle();
        if clean {
            machine.stop_cleanly();
        }
        let remains = Remains { state: first, ..machine.remains() };
        let machine = machine.again(remains);
        machine.recover();
        assert_eq!(machine.client.cache.notes().is_empty(), clean);
        for n in 0..3000 {
            let newest = [Some(value(n, 2)), None, Some(value(n, 1))][n as usize / 1000].clone();
            let found = machine.client.get(&key(n)).map(|found| found.value);
            assert_eq!(found, newest.filter(|_| clean), "key {n} (clean: {clean})");
        }
    }
}

#[test]
fn strict_mode_survives_the_loss_of_the_machine() {
    let mut config = config();
    config.durability = Durability::Power;
    let mut machine = Machine::new(config.clone());
    let mut random = Random(9);
    let mut oracle = Oracle::new();
    for version in 0..20_000 {
        let (n, value) = request(&mut machine.client, &mut random, 3000, version);
        machine.client.session.make_durable().unwrap();
        oracle.insert(n, value);
        if version % 20 == 0 {
            machine.client.session.quiesce();
            machine.client.cache.maintain(machine.client.now);
        }
    }
    let state = Arc::new(StateFile::volatile().unwrap());
    let remains = Remains { device: machine.device.copy(), below: None, state };
    let machine = Machine::start(config, remains, [2; 16]);
    machine.recover();
    let (back, all) = compare(&machine, &oracle, None, (0, 0));
    assert!(back * 2 > all, "{back} of {all} are back, the unsealed ones are lost");
}

/// Reclaim copies a record into DRAM and then takes the original's entry out. A crash in between leaves
/// both; when the copy is deleted later, the original must not be found.
#[test]
fn a_record_caught_between_segment_and_memory_is_there_once() {
    for moment in [1, 5, 9] {
        let remains = Remains {
            device: RamDevice::new(3 << 20),
            below: None,
            state: Arc::new(StateFile::volatile().unwrap()),
        };
        let mut machine = Machine::start(config(), remains, [1; 16]);
        let caught: Rc<RefCell<Option<Remains>>> = Rc::default();
        let mut random = Random(moment);
        let mut version = 0;
        while caught.borrow().is_none() {
            version += 1;
            assert!(version < 100_000, "reclaim has nothing to keep");
            let n = random.below(4000);
            assert!(machine.client.set(&key(n), &value(n, version)));
            machine.client.session.quiesce();
            let (device, state) = (Arc::clone(&machine.device), Arc::clone(&machine.state));
            let (left, mut seen) = (Rc::clone(&caught), 0);
            set_crash_hook(Some(Box::new(move |name| {
                seen += u64::from(name == "a record: after its commit");
                if seen == moment && left.borrow().is_none() {
                    let state = Arc::new(state.snapshot().unwrap());
                    *left.borrow_mut() =
                        Some(Remains { device: device.copy(), below: None, state });
                }
            })));
            machine.client.cache.maintain(machine.client.now);
            set_crash_hook(None);
        }
        let left = caught.borrow_mut().take().unwrap();
        let mut machine = machine.again(left);
        machine.recover();
        for n in 0..4000 {
            machine.client.delete(&key(n));
        }
        for n in 0..4000 {
            assert!(machine.client.get(&key(n)).is_none(), "{n} is back from the dead");
        }
    }
}

/// What is deleted before its shard is back is gone for good, however many starts later that is, and when
/// the log has been cleaned since.
#[test]
fn what_was_deleted_during_a_recovery_stays_away() {
    let mut machine = Machine::new(config());
    for n in 0..2000 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.client.settle();
    let mut machine = machine.crash();
    for n in 0..500 {
        machine.client.delete(&key(n));
    }
    let mut machine = machine.crash();
    machine.recover();
    let mut random = Random(3);
    for version in 2..100_000 {
        let n = 1000 + random.below(3000);
        assert!(machine.client.set(&key(n), &value(n, version)));
        if version % 20 == 0 {
            machine.client.session.quiesce();
            machine.client.cache.maintain(machine.client.now);
        }
    }
    let machine = machine.crash();
    machine.recover();
    for n in 0..500 {
        assert!(machine.client.get(&key(n)).is_none(), "{n} is back from the dead");
    }
    let found = (500..1000).filter(|&n| machine.client.get(&key(n)).is_some());
    assert_eq!(found.count(), 500);
}

/// What is recovered has an index of its size, and much may be stored before the next stop.
#[test]
fn a_clean_stop_makes_room_in_the_index() {
    let mut machine = Machine::new(config()).crash();
    machine.recover();
    for n in 0..500 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.stop_cleanly();
    let machine = machine.crash();
    machine.recover();
    assert!((0..500).all(|n| machine.client.get(&key(n)).is_some()));
}

/// Every loss of power leads to numbers that were never given out.
#[test]
fn cas_numbers_do_not_repeat_after_one_loss_of_power_upon_the_other() {
    let mut config = config();
    config.durability = Durability::Power;
    let mut machine = Machine::new(config.clone());
    let mut seen = std::collections::HashSet::new();
    for boot in 2..6 {
        for n in 0..10 {
            assert!(machine.client.set(&key(n), &value(n, 1)));
            let found = machine.client.get(&key(n)).expect("just stored");
            assert!(seen.insert(found.cas), "{} was given out before", found.cas);
        }
        machine.client.session.make_durable().unwrap();
        let state = Arc::new(StateFile::volatile().unwrap());
        let remains = Remains { device: machine.device.copy(), below: None, state };
        machine = Machine::start(config.clone(), remains, [boot; 16]);
    }
}

/// A log that can't be read means a cold start, of a cache that works.
#[test]
fn a_damaged_log_is_no_log() {
    let mut machine = Machine::new(config());
    for version in 0..8 {
        for n in 0..4000 {
            assert!(machine.client.set(&key(n), &value(n, version)));
        }
        machine.client.settle();
    }
    let remains = machine.remains();
    let mut pages = 0;
    remains.device.tamper(|bytes| {
        for page in bytes.chunks_exact_mut(4096).filter(|page| &page[4..8] == b"KLOG") {
            page[100] ^= 1;
            pages += 1;
        }
    });
    assert!(pages > 10, "{pages} pages of the log on the tier");
    let mut machine = machine.again(remains);
    machine.recover();
    assert_eq!(machine.client.cache.notes().len(), 1);
    for n in 0..4000 {
        assert!(machine.client.get(&key(n)).is_none());
        assert!(machine.client.set(&key(n), &value(n, 9)));
    }
    machine.client.settle();
    assert!((0..4000).all(|n| machine.client.get(&key(n)).is_some()));
}

/// After a flush there is nothing to recover, and what was set and sealed since must not go with it.
#[test]
fn what_is_set_after_a_flush_during_a_recovery_stays() {
    let mut machine = Machine::new(config());
    for n in 0..4000 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.client.settle();
    let mut machine = machine.crash();
    assert!(machine.client.cache.recovering() > 0);
    machine.client.cache.flush_all().expect("flushes");
    for n in 0..1500 {
        assert!(machine.client.set(&key(n), &value(n, 2)));
        // So that no request has to wait: that would go on with the recovery.
        if n % 20 == 0 {
            machine.client.session.quiesce();
            machine.client.cache.maintain(machine.client.now);
        }
    }
    machine.client.settle();
    assert!(machine.client.cache.stats().tiers[0].records > 0, "some are sealed");
    assert!(machine.client.cache.recovering() > 0);
    machine.recover();
    for n in 0..1500 {
        let found = machine.client.get(&key(n)).map(|found| found.value);
        assert_eq!(found, Some(value(n, 2)), "key {n}");
    }
}

/// Of a tier without a free place nobody knows what can be gained there, as long as its shards are not back: it is
/// not full for that.
#[test]
fn nothing_is_let_go_because_shards_are_not_back() {
    const KEYS: u64 = 18_000;
    let slices = |machine: &mut Machine, count: u64| {
        for _ in 0..count {
            machine.client.session.park();
            machine.client.cache.maintain(machine.client.now);
        }
    };
    let mut machine = Machine::new(config());
    let mut random = Random(17);
    let mut oracle = Oracle::new();
    for round in 0..16 {
        let changes = if round == 0 { KEYS } else { KEYS / 2 + random.below(1000) };
        for version in 0..changes {
            let n = if round == 0 { version } else { random.below(KEYS) };
            let new = value(n, version);
            assert!(machine.client.set(&key(n), &new));
            oracle.insert(n, Some(new));
            if version % 20 == 0 {
                machine.client.session.quiesce();
                machine.client.cache.maintain(machine.client.now);
            }
        }
        machine = machine.crash();
        // One shard comes back, and then the other.
        loop {
            slices(&mut machine, random.below(5));
            if !machine.client.cache.recover() {
                break;
            }
        }
        slices(&mut machine, 20);
        assert_eq!(machine.client.cache.stats().evictions, 0, "round {round}");
        let (back, all) = compare(&machine, &oracle, None, (0, round));
        assert_eq!(back, all, "round {round}");
    }
}

/// Every shard has something to seal, and there are fewer free places than shards: what is taken back for it has to be
/// sealed, too.
#[test]
fn a_clean_stop_of_a_well_filled_tier_comes_to_its_end() {
    const KEYS: u64 = 9000;
    for background_threads in [1, 2] {
        let mut config = config();
        config.tuning.shards = Some(8);
        config.tuning.segment_bytes = Some(16 << 10);
        config.background_threads = background_threads;
        let mut machine = Machine::with(config, 4 << 20, None);
        assert_eq!(machine.client.cache.background_threads(), background_threads);
        let mut random = Random(23);
        let mut oracle = Oracle::new();
        for round in 0..10 {
            for version in 0..KEYS {
                let n = if round == 0 { version } else { random.below(KEYS) };
                let new = value(n, version);
                assert!(machine.client.set(&key(n), &new));
                oracle.insert(n, Some(new));
            }
            machine.client.session.park();
            machine.stop_cleanly();
            let state = Arc::new(StateFile::volatile().unwrap());
            let remains = Remains { state, ..machine.remains() };
            machine = machine.again(remains);
            machine.recover();
            let (back, all) = compare(&machine, &oracle, None, (0, round));
            assert_eq!(back, all, "round {round}");
        }
        assert_eq!(machine.client.cache.stats().evictions, 0);
    }
}

/// The chunks of items that are gone have no owner: after the stop nobody would know of them.
#[test]
fn a_clean_stop_removes_what_large_items_leave_behind() {
    const CHUNKS: u32 = 12;
    let mut machine = Machine::new(config());
    for n in 0..40 {
        assert!(machine.client.set_large(&key(n), CHUNKS, 7000));
    }
    machine.client.settle();
    for n in 1..40 {
        assert!(machine.client.delete(&key(n)));
    }
    machine.client.session.park();
    machine.stop_cleanly();
    let mut machine = machine.crash();
    machine.recover();
    machine.client.settle();
    // One item is left, and its manifest.
    assert_eq!(machine.client.cache.stats().records, u64::from(CHUNKS) + 1);
}

//! The ways in which a cache with a drive brings old data back, one by one.

mod common;

use common::machine::{Machine, Remains, config, key, value};
use common::{Client, Found, RamDevice, record};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use terrace_cache::{
    Access, Change, Config, Durability, Evidence, Lookup, StateFile, Tuning, set_crash_hook,
};

const K: u64 = 1_000_000;

/// Stores other records until what was stored before lies in a segment.
fn push_out(machine: &mut Machine, from: u64) {
    for n in from..from + 1500 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.client.settle();
}

fn get(machine: &Machine) -> Option<Vec<u8>> {
    machine.client.get(&key(K)).map(|found| found.value)
}

fn is_on_flash(machine: &Machine) -> bool {
    machine.client.get_as(&key(K), Access::Peek).is_some_and(|found| !found.from_dram)
}

/// A machine whose record K has the value of version 1, in a segment.
fn with_sealed_record(config: Config) -> Machine {
    let mut machine = Machine::new(config);
    assert!(machine.client.set(&key(K), &value(K, 1)));
    // Where many share a name it may have to wait for the next segment.
    for from in [0, 30_000, 40_000] {
        push_out(&mut machine, from);
        if is_on_flash(&machine) {
            return machine;
        }
    }
    panic!("the record is {:?}", get(&machine));
}

/// What starts with a drive alone, on a later boot of the machine.
fn without_state(config: Config, device: Arc<RamDevice>, boot: u8) -> Machine {
    let state = Arc::new(StateFile::volatile().expect("memory"));
    Machine::start(config, Remains { device, below: None, state }, [boot; 16])
}

fn crash(machine: Machine) -> Machine {
    let machine = machine.crash();
    machine.recover();
    machine
}

#[test]
fn an_overwrite_that_is_lost_does_not_expose_its_predecessor() {
    // The new record survives the process.
    let mut machine = with_sealed_record(config());
    assert!(machine.client.set(&key(K), &value(K, 2)));
    let machine = crash(machine);
    assert_eq!(get(&machine), Some(value(K, 2)));

    // And does not survive the machine; then there is none.
    let strict = Config { durability: Durability::Power, ..config() };
    let mut machine = with_sealed_record(strict.clone());
    assert!(machine.client.set(&key(K), &value(K, 2)));
    machine.client.session.make_durable().unwrap();
    let machine = without_state(strict, machine.device.copy(), 2);
    machine.recover();
    assert_eq!(get(&machine), None);
    assert!(machine.client.get(&key(5)).is_some(), "it is warm otherwise");
}

/// The first strict start after a run that was not: until the log is durable the tiers have an older one.
#[test]
fn a_power_loss_while_strict_mode_begins_brings_nothing_old_back() {
    let machine = with_sealed_record(config());
    machine.stop_cleanly();
    let mut machine = crash(machine);
    assert!(machine.client.delete(&key(K)));
    let remains = machine.remains();
    drop(machine);
    let copies = Rc::new(RefCell::new(Vec::new()));
    let (device, moments) = (Arc::clone(&remains.device), Rc::clone(&copies));
    set_crash_hook(Some(Box::new(move |_| moments.borrow_mut().push(device.copy()))));
    let strict = Config { durability: Durability::Power, ..config() };
    let machine = Machine::start(strict.clone(), remains, [1; 16]);
    set_crash_hook(None);
    let last = machine.device.copy();
    let mut is_warm = false;
    for device in copies.take().into_iter().chain([last]) {
        let machine = without_state(strict.clone(), device, 2);
        machine.recover();
        assert_eq!(get(&machine), None);
        is_warm = machine.client.get(&key(5)).is_some();
    }
    assert!(is_warm, "after the last moment");
}

#[test]
fn a_deleted_record_stays_deleted() {
    let mut machine = with_sealed_record(config());
    assert!(machine.client.delete(&key(K)));
    let machine = crash(crash(machine));
    assert_eq!(get(&machine), None);
}

#[test]
fn a_deletion_before_recovery_is_done_holds() {
    let machine = with_sealed_record(config());
    let mut machine = machine.crash();
    assert_eq!(get(&machine), None, "not there yet");
    machine.client.delete(&key(K));
    machine.recover();
    assert_eq!(get(&machine), None);
    let machine = crash(machine);
    assert_eq!(get(&machine), None);

    // A crash before the shard is back must not lose the deletion either.
    let mut machine = with_sealed_record(config()).crash();
    machine.client.delete(&key(K));
    let machine = crash(machine);
    assert_eq!(get(&machine), None);
}

#[test]
fn a_rejected_upsert_keeps_what_is_there() {
    let mut machine = with_sealed_record(config());
    let too_long = vec![b'x'; machine.client.cache.inline_bytes_max() + 1000];
    let refused = !machine.client.update(&key(K), true, |_| Change::Store(record(&too_long)));
    assert!(refused);
    assert_eq!(get(&machine), Some(value(K, 1)));
    let machine = crash(machine);
    assert_eq!(get(&machine), Some(value(K, 1)));
}

#[test]
fn a_value_read_before_a_change_is_not_promoted_after_it() {
    for deletes in [false, true] {
        let machine = with_sealed_record(config());
        let key = key(K);
        let session_key = machine.client.session.key(&key);
        let now = machine.client.now;
        let looked_up = machine.client.session.get(session_key, now, Access::Use, None);
        let Lookup::Read(search) = looked_up else { panic!("it is on flash") };
        let seen = machine.client.read(&key, search);
        let mut other = machine.client.sibling();
        match deletes {
            true => assert!(other.delete(&key)),
            false => assert!(other.set(&key, &value(K, 2))),
        }
        for _ in 0..3 {
            let evidence = seen.evidence().expect("it was read");
            let session_key = machine.client.session.key(&key);
            match machine.client.session.get(session_key, now, Access::Use, Some(evidence)) {
                Lookup::Hit(hit) => {
                    assert!(!deletes && hit.from_dram, "the old value is not used");
                }
                Lookup::Miss => assert!(deletes),
                Lookup::Read(_) => {}
            }
        }
        assert_eq!(get(&machine), (!deletes).then(|| value(K, 2)));
        drop(other);
        let machine = crash(machine);
        assert_eq!(get(&machine), (!deletes).then(|| value(K, 2)));
    }
}

#[test]
fn segments_freed_out_of_order_uncover_nothing() {
    let mut machine = with_sealed_record(config());
    // A second version in a later segment, of which then everything is deleted.
    assert!(machine.client.set(&key(K), &value(K, 2)));
    push_out(&mut machine, 2000);
    assert!(is_on_flash(&machine));
    assert!(machine.client.delete(&key(K)));
    for n in 2000..3500 {
        machine.client.delete(&key(n));
    }
    // The emptied segments are reused, the one of the first version is not.
    for round in 0..30 {
        for n in 4000..6000 {
            assert!(machine.client.set(&key(n), &value(n, round)));
        }
        machine.client.settle();
    }
    assert!(machine.client.get(&key(5)).is_some(), "the first segments are still there");
    assert_eq!(get(&machine), None);
    let machine = crash(machine);
    assert_eq!(get(&machine), None);
    assert!(machine.client.get(&key(5)).is_some());
}

/// A record was evicted with its segment, and its place is not written anew yet. Nobody knows that it is there when
/// the key is stored again and deleted.
#[test]
fn a_freed_segment_with_a_valid_footer_is_not_accepted() {
    let mut machine = with_sealed_record(config());
    let is_there = |machine: &Machine| machine.client.get_as(&key(K), Access::Peek).is_some();
    let mut n = 50_000;
    while is_there(&machine) {
        for _ in 0..20 {
            assert!(machine.client.set(&key(n), &value(n, 1)));
            n += 1;
        }
        machine.client.settle();
    }
    assert!(machine.client.cache.stats().evictions > 0);
    assert!(machine.client.set(&key(K), &value(K, 2)));
    assert!(machine.client.delete(&key(K)));
    let machine = crash(machine);
    assert_eq!(get(&machine), None);
}

#[test]
fn what_was_flushed_stays_away() {
    let machine = with_sealed_record(config());
    machine.client.cache.flush_all().expect("flushes");
    let machine = crash(machine);
    assert_eq!(get(&machine), None);
    assert_eq!(machine.client.cache.stats().records, 0);
}

/// Above *full*, with two bits of fingerprint: nearly every new record takes another's entry.
fn with_sealed_record_when_full() -> Machine {
    let mut config = config();
    config.tuning.fingerprint_bits = 2;
    let mut machine = with_sealed_record(config);
    machine.config.full_percent = 1;
    crash(machine)
}

#[test]
fn an_entry_lost_to_a_collision_does_not_come_back() {
    let mut machine = with_sealed_record_when_full();
    assert!(machine.client.set(&key(K), &value(K, 2)));
    push_out(&mut machine, 10_000);
    push_out(&mut machine, 20_000);
    let before = get(&machine);
    assert_ne!(before, Some(value(K, 1)));
    machine.client.delete(&key(K));
    let machine = crash(machine);
    assert_eq!(get(&machine), None);

    // The SET that took its entry did not know its key: what became of that later says nothing of the copy.
    let mut machine = with_sealed_record_when_full();
    let mut others = 10_000..20_000;
    // No copy is made of what is but looked at.
    while is_on_flash(&machine) {
        let other = others.next().expect("one is like it");
        assert!(machine.client.set(&key(other), &value(other, 1)));
    }
    assert_eq!(machine.client.cache.stats().evictions, 0);
    assert!(machine.client.set(&key(K), &value(K, 2)));
    assert!(machine.client.delete(&key(K)));
    let machine = crash(machine);
    assert_eq!(get(&machine), None);
}

#[test]
fn a_deleted_unsealed_record_does_not_uncover_a_sealed_one() {
    let mut machine = with_sealed_record(config());
    assert!(machine.client.set(&key(K), &value(K, 2)));
    assert!(machine.client.delete(&key(K)));
    let machine = crash(machine);
    assert_eq!(get(&machine), None);

    // The same after a crash in between, where the unsealed record was put back.
    let mut machine = with_sealed_record(config());
    assert!(machine.client.set(&key(K), &value(K, 2)));
    let mut machine = crash(machine);
    assert!(machine.client.delete(&key(K)));
    let machine = crash(machine);
    assert_eq!(get(&machine), None);
}

/// Whatever memory it returns to: the state, which knows better, may be of another size then.
#[test]
fn a_drive_that_returns_with_old_content_is_not_believed() {
    for memory_bytes in [2 << 20, 1 << 20, 64 << 20] {
        let machine = with_sealed_record(config());
        machine.stop_cleanly();
        let old = machine.device.copy();
        let mut machine = crash(machine);
        assert!(machine.client.set(&key(K), &value(K, 2)));
        machine.stop_cleanly();
        // The state knows of the second start, the drive does not.
        let state = machine.remains().state;
        machine.config.memory_bytes = memory_bytes;
        let machine = machine.again(Remains { device: old, below: None, state });
        machine.recover();
        assert_eq!(get(&machine), None, "with {memory_bytes} bytes of DRAM");
        assert_eq!(machine.client.cache.notes().len(), 1, "{:?}", machine.client.cache.notes());
    }
}

/// As the drive was at the start before, of which the state knows that it told all drives.
#[test]
fn a_drive_that_is_one_start_behind_is_not_believed() {
    for (below, is_below) in [(None, false), (Some(8 << 20), false), (Some(8 << 20), true)] {
        let mut machine = Machine::with(config(), 8 << 20, below);
        assert!(machine.client.set(&key(K), &value(K, 1)));
        push_out(&mut machine, 1000);
        let old = machine.remains();
        let mut machine = machine.crash();
        machine.recover();
        assert!(machine.client.set(&key(K), &value(K, 2)));
        push_out(&mut machine, 2000);
        let new = machine.remains();
        let mixed = match is_below {
            true => Remains { below: old.below, ..new },
            false => Remains { device: old.device, ..new },
        };
        let machine = machine.again(mixed);
        machine.recover();
        assert_eq!(get(&machine), None);
        assert_eq!(machine.client.cache.notes().len(), 1, "{:?}", machine.client.cache.notes());
    }
}

/// A crash upon the other, before a start has come so far as to change anything.
#[test]
fn starts_that_die_before_they_have_told_all_drives_lose_nothing() {
    let mut machine = Machine::with(config(), 8 << 20, Some(8 << 20));
    for n in 0..3000 {
        assert!(machine.client.set(&key(n), &value(n, 1)));
    }
    machine.client.settle();
    let mut remains = machine.remains();
    for tiers_told in [1, 1, 2, 3, 1, 5, 6, 1] {
        let left: Rc<RefCell<Option<Remains>>> = Rc::default();
        let (copy, mut told) = (Rc::clone(&left), 0);
        let Remains { device, below, state } = remains;
        let hardware =
            Remains { device: device.clone(), below: below.clone(), state: state.clone() };
        set_crash_hook(Some(Box::new(move |moment| {
            told += u32::from(
                ["roster: proposed to one member", "roster: one member has it"].contains(&moment),
            );
            if told == tiers_told && copy.borrow().is_none() {
                let hardware =
                    Remains { device: device.clone(), below: below.clone(), state: state.clone() };
                *copy.borrow_mut() = Some(hardware.copy());
            }
        })));
        machine = machine.again(hardware);
        set_crash_hook(None);
        remains = left.take().expect("it came so far");
    }
    let machine = machine.again(remains);
    machine.recover();
    assert!(machine.client.cache.notes().is_empty(), "{:?}", machine.client.cache.notes());
    for n in 0..3000 {
        assert_eq!(machine.client.get(&key(n)).map(|found| found.value), Some(value(n, 1)), "{n}");
    }
}

/// A read takes so long that the segment's number stands for another one by then, with a newer record of the key.
#[test]
fn a_place_reused_between_probe_and_completion_is_noticed() {
    fn lookup<'c>(client: &'c Client, evidence: Option<Evidence<'c>>) -> Lookup<'c> {
        client.session.get(client.session.key(&key(K)), client.now, Access::Peek, evidence)
    }
    let mut client = with_sealed_record(config()).client;
    let key_k = key(K);
    let Lookup::Read(search) = lookup(&client, None) else { panic!("it is on flash") };
    let seen = client.read(&key_k, search);
    let evidence = || seen.evidence();
    assert!(matches!(lookup(&client, evidence()), Lookup::Hit(hit) if !hit.from_dram));
    let mut other = client.sibling();
    // The record has been in a segment of every number in the end.
    for version in 2..300 {
        client.session.park();
        assert!(other.set(&key_k, &value(K, version)));
        for n in 0..1500 {
            assert!(other.set(&key((version * 1500 + n) % 20_000), &value(n, version)));
        }
        other.settle();
        if let Lookup::Hit(hit) = lookup(&client, evidence()) {
            assert_eq!(Found::from(hit).value, value(K, version));
        }
    }
}

#[test]
fn what_expired_stays_so_when_the_clock_is_set_back() {
    let mut machine = with_sealed_record(config());
    let until = machine.client.now + 10;
    let expiring = value(K, 3);
    assert!(machine.client.update(&key(K), false, |_| {
        let mut new = record(&expiring);
        new.expires = until;
        Change::Store(new)
    }));
    machine.client.now = until + 5;
    machine.client.settle();
    assert_eq!(get(&machine), None);
    let mut machine = crash(machine);
    // The server goes by the later of its clock and this.
    machine.client.now = (until - 100).max(machine.client.cache.clock_floor());
    assert_eq!(get(&machine), None);
}

#[test]
fn a_planned_flush_survives() {
    let machine = with_sealed_record(config());
    machine.client.cache.plan_flush(1_000_500).expect("remembers");
    let machine = crash(machine);
    assert_eq!(machine.client.cache.flush_due(), 1_000_500);
    machine.stop_cleanly();
    let machine = without_state(config(), machine.device.copy(), 2);
    assert_eq!(machine.client.cache.flush_due(), 1_000_500);
}

#[test]
fn cas_numbers_do_not_repeat() {
    let mut machine = with_sealed_record(config());
    let mut seen = std::collections::HashSet::new();
    for restart in 0..4 {
        for n in 0..200 {
            assert!(machine.client.set(&key(n), &value(n, restart)));
            assert!(seen.insert(machine.client.get(&key(n)).expect("just stored").cas));
        }
        machine = match restart {
            0 => crash(machine),
            1 => {
                machine.stop_cleanly();
                crash(machine)
            }
            _ => {
                machine.stop_cleanly();
                let machine = without_state(config(), machine.device.copy(), restart as u8);
                machine.recover();
                machine
            }
        };
    }
}

#[test]
fn a_cache_without_tiers_is_warm_if_it_has_a_state() {
    let mut config = Config::new(2 << 20);
    config.tuning = Tuning { seed: Some(3), ..Tuning::default() };
    config.state = Some(Arc::new(StateFile::volatile().unwrap()));
    let mut client = Client::open(config.clone(), Vec::new());
    for n in 0..3000 {
        assert!(client.set(&key(n), &value(n, 1)));
    }
    client.delete(&key(7));
    let state = config.state.take().expect("given").snapshot().unwrap();
    drop(client);
    config.state = Some(Arc::new(state));
    let client = Client::open(config, Vec::new());
    let found = (0..3000).filter(|&n| {
        let found = client.get(&key(n)).map(|found| found.value);
        assert!(found.is_none() || found == Some(value(n, 1)));
        found.is_some()
    });
    assert_eq!(found.count(), 2999);
}

/// Records that were protected are used ones after a start, and counted as any.
#[test]
fn a_cache_without_tiers_protects_after_a_start_what_it_protected_before() {
    let mut config = Config::new(2 << 20);
    config.tuning = Tuning { seed: Some(3), ..Tuning::default() };
    let used = 0..200;
    let fill = |client: &mut Client, keys: std::ops::Range<u64>| {
        for n in keys {
            assert!(client.set(&key(n), &[7; 400]));
            client.cache.maintain(client.now);
        }
    };
    let state = Arc::new(StateFile::volatile().unwrap());
    config.state = Some(Arc::clone(&state));
    let mut client = Client::open(config.clone(), Vec::new());
    fill(&mut client, used.clone());
    used.clone().for_each(|n| assert!(client.get(&key(n)).is_some()));
    fill(&mut client, 1000..20_000);
    let state = state.snapshot().unwrap();
    drop(client);

    config.state = Some(Arc::new(state));
    let mut client = Client::open(config, Vec::new());
    while client.cache.recover() {}
    fill(&mut client, 20_000..40_000);
    used.clone().for_each(|n| assert!(client.get_as(&key(n), Access::Peek).is_some(), "{n}"));
    used.for_each(|n| assert!(client.delete(&key(n))));
    let left = (1000..40_000).filter(|&n| client.delete(&key(n))).count();
    assert!(left > 1000, "{left}");
    assert_eq!(client.cache.stats().records, 0);
    assert_eq!(client.cache.stats().bytes, 0);
}

#[test]
fn a_damaged_kill_log_stops_nobody_and_is_not_believed() {
    let mut machine = Machine::new(config());
    let mut damaged = 0;
    for version in 0..40 {
        for n in 0..2500 {
            assert!(machine.client.set(&key(n), &value(n, version)));
        }
        machine.client.settle();
        // Every page of the log that is on the drive.
        machine.device.tamper(|bytes| {
            for page in bytes.chunks_exact_mut(4096).filter(|page| &page[4..8] == b"KLOG") {
                page[9] ^= 1;
                damaged += 1;
            }
        });
    }
    assert!(damaged > 10, "{damaged} pages were there");
    assert!((0..2500).all(|n| machine.client.get(&key(n)).is_some()));
    let machine = crash(machine);
    assert_eq!(machine.client.cache.notes().len(), 1);
    assert!((0..2500).all(|n| machine.client.get(&key(n)).is_none()));
}

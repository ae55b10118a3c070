//! A write budget holds over restarts of any kind.

mod common;

use common::machine::{Machine, Remains, config, key};
use std::sync::Arc;
use terrace_cache::{Config, StateFile, TierStats, WriteRate};

const SEGMENT: u64 = 64 << 10;
/// A segment a second.
const RATE: u64 = SEGMENT;
const DAY: u32 = 86_400;

fn thrifty() -> Config {
    let mut config = config();
    config.write_rates = vec![WriteRate::BytesPerSecond(RATE as f64)];
    config.tuning.budgets_by_given_time = true;
    config
}

/// Bytes that the tier was written since the start of the process.
fn written(machine: &Machine) -> u64 {
    let tier = machine.client.cache.stats().tiers.remove(0);
    tier.written_bytes + tier.tombstone_log_written_bytes
}

fn balance(machine: &Machine) -> i64 {
    machine.client.cache.stats().tiers[0].budget_balance_bytes
}

/// Stores ten times what the budget allows for so many seconds.
fn overload(machine: &mut Machine, seconds: u32) {
    for _ in 0..seconds {
        machine.client.now += 1;
        for n in 0..10 * RATE / 400 {
            assert!(machine.client.set(&key(n), &[7; 400]));
            if n.is_multiple_of(64) {
                machine.client.session.quiesce();
                machine.client.cache.maintain(machine.client.now);
            }
        }
        machine.client.settle();
    }
}

/// Dies every few seconds, and comes back as `restart` says. How much was written in how many seconds.
fn die_again_and_again(restart: impl Fn(Machine) -> Machine) -> (u64, u64) {
    const ROUNDS: u64 = 20;
    const SECONDS: u32 = 4;
    let mut machine = Machine::new(thrifty());
    let mut sum = 0;
    for _ in 0..ROUNDS {
        machine.recover();
        overload(&mut machine, SECONDS);
        sum += written(&machine);
        machine = restart(machine);
    }
    (sum, ROUNDS * u64::from(SECONDS))
}

#[test]
fn a_process_that_is_killed_again_and_again_stays_inside_its_budget() {
    let (written, seconds) = die_again_and_again(Machine::crash);
    assert!(written <= seconds * RATE + 2 * SEGMENT, "{written} bytes in {seconds} s");
    assert!(written >= seconds * RATE * 3 / 4, "{written} bytes in {seconds} s");
}

#[test]
fn a_machine_that_loses_power_again_and_again_stays_inside_its_budget() {
    let (written, seconds) = die_again_and_again(|machine| {
        let (now, device) = (machine.client.now, machine.device.copy());
        drop(machine);
        let state = Arc::new(StateFile::volatile().expect("memory"));
        let mut next = Machine::start(thrifty(), Remains { device, below: None, state }, [2; 16]);
        next.client.now = now;
        next
    });
    // A superblock each time, and nothing saved up.
    assert!(written <= seconds * RATE + 2 * SEGMENT, "{written} bytes in {seconds} s");
    assert!(written > 0);
}

#[test]
fn what_was_saved_up_is_there_after_a_stop_and_what_was_overdrawn_too() {
    for reboots in [false, true] {
        let mut machine = Machine::new(thrifty());
        machine.client.settle();
        machine.client.now += 100;
        machine.client.settle();
        assert_eq!(balance(&machine), 100 * RATE as i64);
        overload(&mut machine, 1);
        machine.stop_cleanly();
        let left = 101 * RATE as i64 - written(&machine) as i64;
        assert!((0..100 * RATE as i64).contains(&left), "{left}");
        let boot = if reboots { [2; 16] } else { [1; 16] };
        let mut remains = machine.remains();
        if reboots {
            remains.state = Arc::new(StateFile::volatile().expect("memory"));
        }
        let now = machine.client.now + 50;
        drop(machine);
        let mut machine = Machine::start(thrifty(), remains, boot);
        machine.client.now = now;
        machine.recover();
        machine.client.settle();
        let after = left + 50 * RATE as i64 - written(&machine) as i64;
        assert_eq!(balance(&machine), after, "reboots: {reboots}");
        // A stop writes what there is, whatever the budget says.
        let mut machine = Machine::new(thrifty());
        machine.client.settle();
        overload(&mut machine, 1);
        machine.stop_cleanly();
        let left = RATE as i64 - written(&machine) as i64;
        assert!(left < 0, "{left}");
        let machine = machine.crash();
        assert_eq!(balance(&machine), left, "before any time has passed");
    }
}

#[test]
fn what_a_drive_writes_besides_counts() {
    let run = |amplification: f64| {
        let mut machine = Machine::new(thrifty());
        machine.client.cache.set_amplification(0, amplification);
        machine.client.settle();
        overload(&mut machine, 40);
        let at_once = written(&machine);
        let life = |machine: &Machine| machine.client.cache.stats().tiers[0].life_years;
        assert_eq!(life(&machine), None, "of 40 seconds");
        machine.client.now += DAY - 41;
        machine.client.settle();
        assert_eq!(life(&machine), None, "of a second less than a day");
        machine.client.now += 1;
        machine.client.settle();
        (at_once, machine.client.cache.stats().tiers.remove(0))
    };
    let ((plain, before), (twice, after)) = (run(1.0), run(2.0));
    assert!(twice * 2 <= 42 * RATE && twice * 2 > 30 * RATE, "{twice} bytes");
    assert!(plain > twice * 3 / 2, "{plain} and {twice} bytes");
    assert_eq!(after.amplification, Some(2.0));
    let years = |tier: &TierStats| tier.life_years.expect("a day has been seen");
    assert!(years(&before) < years(&after) * 1.3, "{before:#?} {after:#?}");
    // What was written in a day, its size 1,826 times.
    let a_day = (before.written_bytes + before.tombstone_log_written_bytes) as f64;
    let by_hand = before.capacity_bytes as f64 * 1826.25 / (a_day * 365.25);
    assert!((years(&before) / by_hand - 1.0).abs() < 1e-3, "{} years, {by_hand}", years(&before));
}

#[test]
fn life_of_a_drive_that_is_not_written_is_unknown() {
    let mut machine = Machine::new(thrifty());
    machine.client.settle();
    machine.client.now += 10 * DAY;
    machine.client.settle();
    let tier = machine.client.cache.stats().tiers.remove(0);
    assert_eq!((tier.written_bytes + tier.tombstone_log_written_bytes, tier.life_years), (0, None));
}

#[test]
fn where_nothing_may_be_evicted_an_overdrawn_budget_refuses_new_keys_and_loses_none() {
    let mut machine = Machine::new(Config { evict: false, ..thrifty() });
    let stored: Vec<u64> = (0..4000)
        .filter(|&n| {
            machine.client.cache.maintain(machine.client.now);
            machine.client.set(&key(n), &[9; 400])
        })
        .collect();
    assert!(stored.len() < 3000, "{} of 4000 stored within a second", stored.len());
    assert!(stored.iter().all(|&n| machine.client.get(&key(n)).is_some()));
    assert_eq!(machine.client.cache.stats().evictions, 0);
    // What is there may be overwritten.
    for n in stored {
        machine.client.settle();
        assert!(machine.client.set(&key(n), &[8; 400]), "{n}");
    }
}

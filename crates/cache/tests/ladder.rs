//! Two tiers, one below the other.

mod common;

use common::machine::{Machine, Remains, config, key, value};
use common::{Random, used};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cache::{Config, Durability, StateFile, TierStats, WriteRate, set_crash_hook};

/// Bytes of the tier above and of the one below.
const ABOVE: usize = 3 << 20;
const BELOW: usize = 12 << 20;
/// Some four times what the tier above holds, and half of what both do.
const KEYS: u64 = 25_000;

fn ladder(config: Config) -> Machine {
    Machine::with(config, ABOVE, Some(BELOW))
}

/// Stores keys, with background work between, and calls `between` after each.
fn fill(machine: &mut Machine, keys: std::ops::Range<u64>, between: impl Fn(&Machine, u64)) {
    for n in keys {
        assert!(machine.client.set(&key(n), &value(n, 1)), "{n} is refused");
        between(machine, n);
        if n % 64 == 0 {
            machine.client.settle();
        }
    }
    machine.client.settle();
}

fn tiers(machine: &Machine) -> Vec<TierStats> {
    machine.client.cache.stats().tiers
}

fn count_right(machine: &Machine, keys: impl Iterator<Item = u64>) -> usize {
    let right = |n: &u64| match machine.client.get(&key(*n)) {
        Some(found) => {
            assert_eq!(found.value, value(*n, 1), "{n}");
            true
        }
        None => false,
    };
    keys.filter(right).count()
}

fn reads_below(machine: &Machine) -> u64 {
    machine.below.as_ref().map_or(0, |below| below.reads.load(Ordering::Relaxed))
}

#[test]
fn what_the_upper_tier_has_no_room_for_goes_down_and_nothing_is_lost() {
    let mut machine = ladder(config());
    fill(&mut machine, 0..KEYS, |_, _| {});
    let [above, below] = &tiers(&machine)[..] else { panic!("two tiers") };
    assert_eq!((above.level, below.level), (0, 1));
    assert!(above.records > 0 && below.demoted_records > KEYS / 2, "{above:?} {below:?}");
    assert_eq!((above.dropped_records, below.dropped_records), (0, 0));
    let before = reads_below(&machine);
    assert_eq!(count_right(&machine, KEYS - 2000..KEYS), 2000);
    assert_eq!(reads_below(&machine), before, "what is new is above");
    assert_eq!(count_right(&machine, 0..KEYS), KEYS as usize);
    assert_eq!(machine.client.cache.stats().evictions, 0);
    let machine = machine.crash();
    machine.recover();
    assert_eq!(count_right(&machine, 0..KEYS), KEYS as usize, "after a crash");
}

#[test]
fn what_is_used_stays_above() {
    const HOT: u64 = 500;
    let mut machine = ladder(config());
    fill(&mut machine, 0..KEYS, |machine, n| {
        assert!(n < HOT || machine.client.get(&key(n * 7 % HOT)).is_some());
    });
    let before = reads_below(&machine);
    assert_eq!(count_right(&machine, 0..HOT), HOT as usize);
    let read = reads_below(&machine) - before;
    assert!(read < HOT / 10, "{read} of {HOT} hot records had to be read below");
    let before = reads_below(&machine);
    assert_eq!(count_right(&machine, HOT..2 * HOT), HOT as usize);
    let read = reads_below(&machine) - before;
    assert!(read > HOT / 2, "the same number of others: {read}");
}

#[test]
fn when_all_is_full_the_lower_tier_lets_the_oldest_go() {
    let mut machine = ladder(config());
    fill(&mut machine, 0..3 * KEYS, |_, _| {});
    assert!(machine.client.cache.stats().evictions > 0);
    assert_eq!(count_right(&machine, 3 * KEYS - 10_000..3 * KEYS), 10_000, "the newest");
    let oldest = count_right(&machine, 0..KEYS / 2);
    assert!(oldest < 100, "{oldest} of the oldest");
}

/// Where memory is too little for more entries, those of a segment make room for what is still in DRAM.
#[test]
fn a_clean_stop_lets_entries_go_where_the_index_can_not_grow() {
    let mut machine = ladder(Config { memory_bytes: 1100 << 10, ..config() });
    let mut stored = 0;
    while stored < KEYS && machine.client.set(&key(stored), &value(stored, 1)) {
        stored += 1;
        if stored % 64 == 0 {
            machine.client.settle();
        }
    }
    let memory = machine.client.cache.stats().memory;
    assert!(
        memory.write_buffer_records > 0 && used(&memory) > memory.limit - (64 << 10),
        "{memory:?}"
    );
    let before = tiers(&machine).iter().map(|tier| tier.segment_writes).sum::<u64>();
    machine.stop_cleanly();
    let written = tiers(&machine).iter().map(|tier| tier.segment_writes).sum::<u64>() - before;
    assert!(written <= 40, "{written} segments for {} records", memory.write_buffer_records);
    let machine = machine.crash();
    machine.recover();
    assert_eq!(count_right(&machine, stored - 20..stored), 20, "the newest");
}

#[test]
fn when_the_lower_tier_fails_the_upper_one_is_the_last() {
    let mut machine = ladder(config());
    fill(&mut machine, 0..KEYS, |_, _| {});
    let below = machine.below.clone().expect("a lower tier");
    below.fail_writes.store(true, Ordering::Relaxed);
    fill(&mut machine, KEYS..3 * KEYS, |_, _| {});
    assert!(tiers(&machine)[1].failed);
    // What is below can still be read.
    assert_eq!(count_right(&machine, 3 * KEYS - 2000..3 * KEYS), 2000);
    assert!(count_right(&machine, 0..1000) > 900);
}

#[test]
fn what_the_write_budget_below_does_not_hold_is_let_go() {
    let mut config = config();
    config.tuning.budgets_by_given_time = true;
    config.write_rates = vec![WriteRate::Unlimited, WriteRate::BytesPerSecond(1.0)];
    let mut machine = ladder(config);
    fill(&mut machine, 0..KEYS, |_, _| {});
    let [above, below] = &tiers(&machine)[..] else { panic!("two tiers") };
    assert!(below.written_bytes <= 2 * below.segment_bytes, "{below:?}");
    assert!(below.dropped_records > KEYS / 2 && above.dropped_records == 0, "{below:?}");
    assert_eq!(count_right(&machine, KEYS - 2000..KEYS), 2000, "the newest are above");
}

/// Read-only, so that nothing comes up by being stored.
#[test]
fn what_is_read_often_below_comes_up() {
    const HOT: u64 = 5000;
    let mut machine = ladder(config());
    fill(&mut machine, 0..KEYS, |_, _| {});
    let before = reads_below(&machine);
    assert_eq!(count_right(&machine, 0..HOT), HOT as usize);
    let cold = reads_below(&machine) - before;
    assert!(cold > HOT / 10 * 9, "the oldest are below: {cold}");
    for _ in 0..40 {
        assert_eq!(count_right(&machine, 0..HOT), HOT as usize);
        machine.client.settle();
    }
    // Without the copies in DRAM.
    let machine = machine.crash();
    machine.recover();
    let before = reads_below(&machine);
    assert_eq!(count_right(&machine, 0..HOT), HOT as usize);
    let warm = reads_below(&machine) - before;
    assert!(warm < HOT / 2, "{warm} of {HOT} are still below");
    assert_eq!(count_right(&machine, 0..KEYS), KEYS as usize, "nothing is lost");
}

#[test]
fn a_damaged_segment_above_is_in_the_way_of_no_other() {
    let mut machine = ladder(config());
    fill(&mut machine, 0..KEYS / 2, |_, _| {});
    let before = tiers(&machine)[1].demoted_records;
    assert!(before > 0, "the tier above is full");
    let mut random = Random(11);
    machine.device.tamper(|bytes| {
        for _ in 0..60 {
            // In the pages of segments, most often; some hit a footer.
            let at = (1 << 20) + random.below(bytes.len() as u64 - (1 << 20)) as usize;
            bytes[at] ^= 1;
        }
    });
    fill(&mut machine, KEYS / 2..KEYS, |_, _| {});
    let [above, below] = &tiers(&machine)[..] else { panic!("two tiers") };
    assert!(above.corrupt_pages > 0, "{above:?}");
    let descended = below.demoted_records - before;
    assert!(descended > KEYS / 4, "{descended} more went down");
    let reads = reads_below(&machine);
    assert_eq!(count_right(&machine, KEYS - 2000..KEYS), 2000);
    assert_eq!(reads_below(&machine), reads, "what is new is above");
}

/// A move that came to nothing must leave no word behind that a later one gives a meaning to.
#[test]
fn moves_that_crashes_cut_short_lose_nothing() {
    for moment in ["merge: before the commit", "demotion: committed at the upper level"] {
        let mut machine = ladder(config());
        let mut n = 0;
        let mut crashes = 0;
        while n < KEYS {
            let left: Rc<RefCell<Option<Remains>>> = Rc::default();
            let (copy, hardware) = (Rc::clone(&left), machine.hardware());
            // Not at the first one: what was cut short before is to be followed by others.
            let mut until = 1 + crashes % 4;
            set_crash_hook(Some(Box::new(move |name| {
                until -= i32::from(name == moment && until > 0);
                if until == 0 && copy.borrow().is_none() {
                    *copy.borrow_mut() = Some(hardware.copy());
                }
            })));
            while n < KEYS && left.borrow().is_none() {
                assert!(machine.client.set(&key(n), &value(n, 1)), "{n} is refused");
                if n % 16 == 0 && left.borrow().is_none() {
                    machine.client.session.park();
                    machine.client.cache.maintain(machine.client.now);
                }
                n += 1;
            }
            set_crash_hook(None);
            // What was not stored yet when the copy was taken is stored again.
            n = n.saturating_sub(1);
            let Some(remains) = left.take() else { break };
            crashes += 1;
            machine = machine.again(remains);
            machine.recover();
            assert!(machine.client.cache.notes().is_empty());
        }
        assert_eq!(count_right(&machine, 0..n), n as usize, "after {crashes} crashes: {moment}");
        assert!(crashes > 10, "{crashes}: {moment}");
    }
}

/// What has ended in the log of the tier above must have begun in that of the tier below by then.
#[test]
fn a_power_loss_within_a_demotion_loses_nothing_that_was_sealed() {
    const MOMENT: &str = "demotion: committed at the upper level";
    // More than stays in DRAM.
    const NEWEST: u64 = 8000;
    let strict = Config { durability: Durability::Power, ..config() };
    let mut machine = ladder(strict.clone());
    let (stored, losses) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let (hardware, at, copies) = (machine.hardware(), Rc::clone(&stored), Rc::clone(&losses));
    set_crash_hook(Some(Box::new(move |name| {
        let copies = &mut *copies.borrow_mut();
        if name == MOMENT && at.get() > NEWEST && copies.len() < 8 {
            // The state is what a power loss takes.
            let state = Arc::new(StateFile::volatile().expect("memory"));
            copies.push((at.get(), Remains { state, ..hardware.copy() }));
        }
    })));
    fill(&mut machine, 0..KEYS, |machine, n| {
        stored.set(n);
        machine.client.session.make_durable().expect("the drives work");
    });
    set_crash_hook(None);
    assert_eq!(losses.borrow().len(), 8, "times that it came by");
    for (stored, remains) in losses.take() {
        let machine = Machine::start(strict.clone(), remains, [2; 16]);
        machine.recover();
        let sealed = stored - NEWEST;
        assert_eq!(count_right(&machine, 0..sealed), sealed as usize, "after {stored}");
    }
}

//! Drives that come and go between starts: in any order, under any path, missing, replaced, added, grown, returned.

mod common;

use common::machine::{config, key, value};
use common::{Client, RamDevice};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use terrace_cache::{
    Cache, Config, Durability, OnMismatch, OpenError, StateFile, Tier, Tuning, Witness,
    set_crash_hook,
};
use terrace_device::Drive;

const DRIVE: usize = 4 << 20;
const RECORDS: u64 = 5000;

/// A witness in memory.
#[derive(Default)]
struct InMemory(Mutex<Option<Vec<u8>>>);

impl InMemory {
    fn copy(&self) -> Arc<Self> {
        Arc::new(Self(Mutex::new(self.0.lock().expect("no panic").clone())))
    }
}

impl Witness for InMemory {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().expect("no panic").clone())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        *self.0.lock().expect("no panic") = Some(bytes.to_vec());
        Ok(())
    }
}

/// What a machine is made of, and how the cache on it is opened.
struct Hardware {
    drives: Vec<Arc<RamDevice>>,
    state: Arc<StateFile>,
    witness: Option<Arc<InMemory>>,
    boot: u8,
    seed: u64,
    durability: Durability,
}

impl Hardware {
    fn new(drives: usize, has_witness: bool) -> Self {
        Self {
            drives: (0..drives).map(|_| RamDevice::new(DRIVE)).collect(),
            state: volatile(),
            witness: has_witness.then(Arc::default),
            boot: 1,
            seed: 1,
            durability: Durability::Process,
        }
    }

    fn copy(&self) -> Self {
        Self {
            drives: self.drives.iter().map(|drive| drive.copy()).collect(),
            state: Arc::new(self.state.snapshot().expect("memory")),
            witness: self.witness.as_ref().map(|witness| witness.copy()),
            ..*self
        }
    }

    /// The same drives, state and witness.
    fn shared(&self) -> Self {
        Self {
            drives: self.drives.clone(),
            state: Arc::clone(&self.state),
            witness: self.witness.clone(),
            ..*self
        }
    }

    /// These of its drives, in this order.
    fn with(&self, drives: &[usize]) -> Self {
        let copy = self.copy();
        let drives = drives.iter().map(|&drive| Arc::clone(&copy.drives[drive])).collect();
        Self { drives, ..copy }
    }

    fn config(&self) -> Config {
        Config {
            state: Some(Arc::clone(&self.state)),
            witness: self.witness.clone().map(|witness| witness as Arc<dyn Witness>),
            boot: [self.boot; 16],
            durability: self.durability,
            tuning: Tuning { seed: Some(self.seed), ..config().tuning },
            ..config()
        }
    }

    fn tiers(&self) -> Vec<Arc<dyn Drive>> {
        self.drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn Drive>).collect()
    }

    fn start(&self) -> Client {
        Client::open(self.config(), self.tiers())
    }

    /// Starts and recovers.
    fn recovered(&self) -> Client {
        let client = self.start();
        while client.cache.recover() {}
        client
    }

    fn open(&self, on_mismatch: OnMismatch) -> Result<Arc<Cache>, OpenError> {
        let tiers = self.tiers().into_iter().map(Tier::new).collect();
        Cache::open(Config { on_mismatch, tiers, ..self.config() })
    }

    /// A cache that was filled and stopped cleanly or killed.
    fn filled(drives: usize, has_witness: bool, is_stopped: bool) -> Self {
        Self::new(drives, has_witness).fill(is_stopped)
    }

    fn fill(self, is_stopped: bool) -> Self {
        let hardware = self;
        let mut client = hardware.start();
        for n in 0..RECORDS {
            assert!(client.set(&key(n), &value(n, 1)));
        }
        client.settle();
        if is_stopped {
            assert!(client.cache.close(client.now, &|| true));
        }
        let mut left = hardware.copy();
        if is_stopped {
            (left.state, left.boot) = (volatile(), 2);
        }
        left
    }
}

fn volatile() -> Arc<StateFile> {
    Arc::new(StateFile::volatile().expect("memory"))
}

/// Records that are there; all must be of version 1.
fn found(client: &Client) -> u64 {
    let is_there = |n: &u64| {
        let found = client.get(&key(*n)).map(|found| found.value);
        assert!(found.is_none() || found == Some(value(*n, 1)), "{n}: {found:?}");
        found.is_some()
    };
    (0..RECORDS).filter(is_there).count() as u64
}

fn records_on(hardware: &Hardware) -> Vec<u64> {
    let client = hardware.recovered();
    client.cache.stats().tiers.iter().map(|tier| tier.records).collect()
}

#[test]
fn order_and_path_of_tiers_say_nothing() {
    for is_stopped in [true, false] {
        let hardware = Hardware::filled(3, false, is_stopped);
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let client = hardware.with(&order).recovered();
            assert_eq!(found(&client), RECORDS, "{order:?}, stopped: {is_stopped}");
            assert_eq!(client.cache.notes(), &[]);
        }
    }
}

#[test]
fn missing_tier_costs_its_own_records_only() {
    for is_stopped in [true, false] {
        for (drives, has_witness) in [(2, true), (4, false)] {
            let hardware = Hardware::filled(drives, has_witness, is_stopped);
            let on_each = records_on(&hardware.copy());
            for (missing, &lost) in on_each.iter().enumerate() {
                let left: Vec<_> = (0..drives).filter(|&drive| drive != missing).collect();
                let client = hardware.with(&left).recovered();
                let there = found(&client);
                assert!(lost > 100 && there >= RECORDS - lost, "{there}, without {lost}");
                assert!(there <= RECORDS - lost / 2, "{there}, without {lost}");
                assert!(!client.cache.is_cold());
            }
        }
    }
}

#[test]
fn half_of_a_set_without_witness_is_not_believed() {
    for is_stopped in [true, false] {
        let hardware = Hardware::filled(2, false, is_stopped);
        let half = hardware.with(&[1]);
        let refused = half.copy().open(OnMismatch::Refuse).map(|_| ());
        assert!(matches!(refused, Err(OpenError::Mismatch(_))), "{refused:?}");
        let client = half.recovered();
        assert_eq!(found(&client), 0);
        let notes = client.cache.notes();
        assert!(
            notes[0].text().contains("is one of 2 tiers of a set, of which 1 are here"),
            "{notes:?}"
        );
        // It may have run, and the other one does not know.
        let whole = Hardware {
            drives: vec![Arc::clone(&hardware.drives[0]), half.drives[0].copy()],
            ..half
        };
        assert_eq!(found(&whole.recovered()), 0);
    }
}

#[test]
fn replaced_and_added_tiers_are_empty_and_cost_nothing_else() {
    for is_stopped in [true, false] {
        let hardware = Hardware::filled(3, false, is_stopped);
        let on_each = records_on(&hardware.copy());
        for (at, &lost) in on_each.iter().enumerate() {
            let mut replaced = hardware.copy();
            replaced.drives[at] = RamDevice::new(DRIVE);
            let mut client = replaced.recovered();
            let there = found(&client);
            assert!(there >= RECORDS - lost, "{there} without {lost}");
            // The new one is used, and comes back as a member.
            for n in 0..RECORDS {
                assert!(client.set(&key(n), &value(n, 1)));
            }
            client.settle();
            assert!(client.cache.stats().tiers[at].records > 100);
            let again = replaced.copy().recovered();
            assert_eq!((found(&again), again.cache.notes()), (RECORDS, &[][..]));
        }
        for at in 0..=3 {
            let mut added = hardware.copy();
            added.drives.insert(at, RamDevice::new(DRIVE));
            let client = added.recovered();
            assert_eq!((found(&client), client.cache.notes()), (RECORDS, &[][..]), "{at}");
            let again = added.copy().recovered();
            assert_eq!(found(&again), RECORDS, "{at}");
        }
    }
}

#[test]
fn grown_tier_keeps_its_records_and_shrunk_one_loses_what_lay_beyond() {
    for is_stopped in [true, false] {
        let hardware = Hardware::filled(2, true, is_stopped);
        let on_each = records_on(&hardware.copy());
        let mut grown = hardware.copy();
        grown.drives[0] = grown.drives[0].grown(DRIVE + (3 << 20));
        let client = grown.recovered();
        assert_eq!(found(&client), RECORDS);
        assert!(
            client.cache.stats().tiers[0].capacity_bytes
                > client.cache.stats().tiers[1].capacity_bytes
        );
        let mut shrunk = hardware.copy();
        shrunk.drives[0] = shrunk.drives[0].grown(DRIVE - (1 << 20));
        let there = found(&shrunk.recovered());
        assert!(there >= RECORDS - on_each[0], "{there}");
    }
}

#[test]
fn returned_tier_is_empty_and_never_stale() {
    for is_stopped in [true, false] {
        let hardware = Hardware::filled(2, true, is_stopped);
        let without = hardware.with(&[0]);
        let mut client = without.recovered();
        for n in 0..RECORDS {
            match n % 2 {
                0 => assert!(client.set(&key(n), &value(n, 2))),
                _ => _ = client.delete(&key(n)),
            }
        }
        client.settle();
        if is_stopped {
            assert!(client.cache.close(client.now, &|| true));
        }
        for order in [[0, 1], [1, 0]] {
            let mut both = without.copy();
            both.drives.push(hardware.drives[1].copy());
            let both = both.with(&order);
            let client = both.recovered();
            let mut there = 0;
            for n in 0..RECORDS {
                let found = client.get(&key(n)).map(|found| found.value);
                assert!(
                    found.is_none() || (n % 2 == 0 && found == Some(value(n, 2))),
                    "{n}: {found:?}"
                );
                there += u64::from(found.is_some());
            }
            assert!(there > RECORDS / 4, "{there}");
        }
    }
}

#[test]
fn copy_of_a_tier_and_a_tier_of_another_set_are_not_believed() {
    let hardware = Hardware::filled(2, true, true);
    let mut copied = hardware.copy();
    copied.drives[1] = copied.drives[0].copy();
    assert!(matches!(copied.open(OnMismatch::Refuse).map(|_| ()), Err(OpenError::Mismatch(_))));
    assert_eq!(found(&copied.recovered()), 0);
    let other = Hardware { seed: 2, ..Hardware::new(1, true) }.fill(true);
    let mut mixed = hardware.copy();
    mixed.drives.insert(0, other.drives[0].copy());
    let refused = mixed.copy().open(OnMismatch::Refuse).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("belongs to another set"), "{refused}");
    let cost = Cache::inspect(&Config {
        tiers: mixed.tiers().into_iter().map(Tier::new).collect(),
        ..mixed.config()
    });
    let cost = cost.unwrap().unwrap();
    assert!(cost.text().contains("erases what 1 tier holds, up to 4 MiB"), "{cost}");
    assert_eq!(found(&mixed.recovered()), RECORDS);
}

/// A drive that takes no more writes, mended while the cache is stopped.
#[test]
fn tier_that_failed_costs_its_own_records_at_the_next_start() {
    for is_stopped in [true, false] {
        let hardware = Hardware::new(2, true);
        let mut client = hardware.start();
        for n in 0..RECORDS {
            assert!(client.set(&key(n), &value(n, 1)));
        }
        client.settle();
        hardware.drives[1].fail_writes.store(true, Ordering::Relaxed);
        // Each change of a record on it is one that its log does not take.
        for n in (0..RECORDS).step_by(2) {
            assert!(client.set(&key(n), &value(n, 2)));
        }
        client.settle();
        assert_eq!(client.cache.failures().count(), 1, "it was given up");
        let on_healthy = client.cache.stats().tiers[0].records;
        if is_stopped {
            assert!(client.cache.close(client.now, &|| true), "the other one is complete");
        }
        let mut left = hardware.copy();
        if is_stopped {
            (left.state, left.boot) = (volatile(), 2);
        }
        let client = left.recovered();
        let mut there = 0;
        for n in 0..RECORDS {
            let found = client.get(&key(n)).map(|found| found.value);
            let newest = value(n, if n % 2 == 0 { 2 } else { 1 });
            assert!(found.is_none() || found == Some(newest), "{n}: {found:?}");
            there += u64::from(found.is_some());
        }
        // The state has the end of its log, which the drive did not take.
        let (is_all, notes) = (there == RECORDS, client.cache.notes());
        assert!(there >= on_healthy && is_all != is_stopped, "{there} of {on_healthy}");
        assert_eq!(notes.is_empty(), is_all, "{notes:?}");
    }
}

/// One whose first pages can't be read is left out, and comes back empty.
#[test]
fn tier_that_can_not_be_read_at_a_start_costs_its_own_records() {
    let hardware = Hardware::filled(2, true, false);
    let on_each = records_on(&hardware.copy());
    hardware.drives[1].fail_reads.store(true, Ordering::Relaxed);
    let client = hardware.recovered();
    let there = found(&client);
    assert!(there >= RECORDS - on_each[1] && there < RECORDS, "{there}");
    assert_eq!(client.cache.failures().count(), 1);
    drop(client);
    let later = hardware.copy();
    let client = later.recovered();
    assert!(found(&client) <= there + 1, "it is empty");
    assert_eq!(client.cache.failures().count(), 0);
}

/// A start that one drive does not take goes on without it.
#[test]
fn tier_that_does_not_take_the_roster_is_left_out() {
    for is_stopped in [true, false] {
        let hardware = Hardware::filled(2, true, is_stopped);
        let on_each = records_on(&hardware.copy());
        hardware.drives[0].fail_writes.store(true, Ordering::Relaxed);
        let client = hardware.recovered();
        let there = found(&client);
        assert!(there >= RECORDS - on_each[0] && there < RECORDS, "{there}");
        drop(client);
        // Mended, it is not believed.
        let client = hardware.copy().recovered();
        assert!(found(&client) <= there);
    }
}

/// Most drives do not take the roster of a start, which goes on without them, and run without the rest later: neither
/// part knows of the other, and nothing says which of them is right.
#[test]
fn parts_that_ran_apart_are_not_believed_together() {
    for starts in 1..4 {
        let hardware = Hardware::filled(3, false, true);
        let refuse = |is_refusing: bool| {
            let most = hardware.drives[1..].iter();
            most.for_each(|drive| drive.fail_writes.store(is_refusing, Ordering::Relaxed));
        };
        refuse(true);
        let mut client = hardware.start();
        assert!(client.set(&key(0), &value(0, 2)));
        client.settle();
        assert!(client.cache.close(client.now, &|| true));
        drop(client);
        refuse(false);
        // The state was that of the other part, and each start has a roster of its own.
        let most = Hardware { state: volatile(), ..hardware.with(&[1, 2]) };
        for _ in 0..starts {
            let client = most.recovered();
            assert!(found(&client) > RECORDS / 2, "two of three are believed");
            assert!(client.cache.close(client.now, &|| true));
        }
        let drives = hardware.drives[..1].iter().chain(&most.drives).cloned().collect();
        let whole = Hardware { drives, state: volatile(), boot: 3, ..hardware.shared() };
        let client = whole.recovered();
        assert_eq!(found(&client), 0, "after {starts} starts of the other part");
        let notes: Vec<_> = client.cache.notes().iter().map(|note| note.text()).collect();
        assert!(notes.iter().all(|note| note.contains("ran apart")), "{notes:?}");
    }
}

#[test]
fn strict_mode_is_warm_tier_by_tier() {
    let mut hardware = Hardware::new(3, true);
    hardware.durability = Durability::Power;
    let mut client = hardware.start();
    for n in 0..RECORDS {
        assert!(client.set(&key(n), &value(n, 1)));
    }
    client.settle();
    client.session.make_durable().unwrap();
    let on_each: Vec<_> = client.cache.stats().tiers.iter().map(|tier| tier.records).collect();
    let mut left = hardware.with(&[2, 0]);
    (left.state, left.boot) = (volatile(), 2);
    let client = left.recovered();
    let there = found(&client);
    assert!(there >= on_each[0] + on_each[2], "{there} of {on_each:?}");
}

/// Only the state knows that all logs failed, and a start that finds that erases it. If that one dies, the next must not
/// believe the tiers either.
#[test]
fn start_that_dies_over_failed_logs_leaves_no_tier_to_be_believed() {
    for has_witness in [false, true] {
        let mut hardware = Hardware::new(2, has_witness);
        hardware.durability = Durability::Power;
        let mut client = hardware.start();
        (0..RECORDS).for_each(|n| assert!(client.set(&key(n), &value(n, 1))));
        client.settle();
        client.session.make_durable().unwrap();
        hardware.drives.iter().for_each(|drive| drive.fail_writes.store(true, Ordering::Relaxed));
        // Neither is one acknowledged, nor may an older one come back that was seen to be replaced.
        (0..RECORDS).for_each(|n| assert!(client.set(&key(n), &value(n, 2))));
        client.session.make_durable().unwrap_err();
        client.settle();
        let left = hardware.copy();
        drop(client);
        let crashes = Arc::new(Mutex::new(Vec::new()));
        let (copies, of) = (Arc::clone(&crashes), left.shared());
        set_crash_hook(Some(Box::new(move |moment| {
            copies.lock().expect("no panic").push((moment, of.copy()));
        })));
        drop(left.start());
        set_crash_hook(None);
        let crashes = std::mem::take(&mut *crashes.lock().expect("no panic"));
        let moments = crashes.iter().map(|(moment, _)| *moment).collect::<Vec<_>>();
        assert!(moments.contains(&"state: it is erased"), "{moments:?}");
        for (moment, crashed) in crashes {
            let client = crashed.recovered();
            for n in 0..RECORDS {
                let found = client.get(&key(n)).map(|found| found.value);
                assert!(found != Some(value(n, 1)), "{n} after a crash at {moment}");
            }
        }
    }
}

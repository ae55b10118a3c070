//! Requests that come while segments are merged, and crashes there.

mod common;

use common::machine::{Machine, Remains, key, value};
use common::{Client, Random, record};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use terrace_cache::{Change, Config, Tuning, Update, set_crash_hook};
use terrace_runtime::flash_lookup::FlashLookup;

const KEYS: u64 = 15_000;
/// Where a merge holds no lock, so that requests can come.
const PAUSES: [&str; 3] = ["merge: written", "merge: begun", "merge: some handed over"];
/// Requests at each of these.
const REQUESTS: usize = 6;
/// What is passed for every record, or for some.
const OFTEN: [&str; 2] = ["merge: some handed over", "merge: a record handed over"];
/// One passage of these in so many is followed by a crash.
const CRASH_EVERY: u64 = 37;

/// What every key should hold: its version, or nothing.
type Model = BTreeMap<u64, u64>;

/// What a crash would have left, and what should be in it.
struct Crash {
    moment: &'static str,
    remains: Remains,
    model: Model,
}

struct World {
    random: Random,
    next_version: u64,
    model: Model,
    other: Client,
    passed: BTreeMap<&'static str, u64>,
    crashes: Vec<Crash>,
}

fn config() -> Config {
    let mut config = Config::new(8 << 20);
    config.tuning = Tuning {
        seed: Some(1),
        shards: Some(2),
        segment_bytes: Some(64 << 10),
        log_ring_pages: 64,
        ..Tuning::default()
    };
    config
}

/// One change that must not wait, since background work waits for it; says whether it was made.
fn try_change(client: &Client, n: u64, version: Option<u64>) -> bool {
    let (key, bytes) = (key(n), version.map(|version| value(n, version)));
    let mut lookup = FlashLookup::default();
    loop {
        let evidence = lookup.evidence();
        let decide = |_: Option<_>| match &bytes {
            Some(bytes) => Change::Store(record(bytes)),
            None => Change::Remove,
        };
        let name = client.session.key(&key);
        match client.session.update(name, client.now, evidence, bytes.is_some(), decide) {
            Update::Done { .. } => return true,
            Update::Read(search) => lookup = client.read(&key, search),
            Update::Wait | Update::Recovering | Update::Full => return false,
        }
    }
}

impl World {
    fn change(&mut self) {
        let n = self.random.below(KEYS);
        let version = (self.random.below(4) > 0).then_some(self.next_version);
        self.next_version += 1;
        if try_change(&self.other, n, version) {
            match version {
                Some(version) => self.model.insert(n, version),
                None => self.model.remove(&n),
            };
        }
    }

    fn check(&mut self) {
        let n = self.random.below(KEYS);
        let found = self.other.get(&key(n)).map(|found| found.value);
        let expected = self.model.get(&n).map(|version| value(n, *version));
        assert!(found == expected, "{n} should have version {:?}", self.model.get(&n));
    }

    fn pass(&mut self, moment: &'static str, remains: impl FnOnce() -> Remains) {
        let passed = self.passed.entry(moment).or_default();
        *passed += 1;
        // The rare ones every time.
        let is_crash = passed.is_multiple_of(CRASH_EVERY) || !OFTEN.contains(&moment);
        let wanted = is_crash && self.crashes.iter().filter(|c| c.moment == moment).count() < 12;
        if PAUSES.contains(&moment) {
            for _ in 0..REQUESTS {
                self.change();
                self.check();
            }
        }
        if wanted {
            let model = self.model.clone();
            self.crashes.push(Crash { moment, remains: remains(), model });
        }
    }
}

fn verify(client: &Client, model: &Model, when: &str) {
    for n in 0..KEYS {
        let found = client.get(&key(n)).map(|found| found.value);
        let expected = model.get(&n).map(|version| value(n, *version));
        let version = model.get(&n);
        assert!(found.is_some() || expected.is_none(), "{when}: {n}, version {version:?}, is lost");
        assert!(found == expected, "{when}: {n} is not of version {version:?}");
    }
}

#[test]
fn requests_and_crashes_within_a_merge_change_nothing_else() {
    let passed = requests_and_crashes(Machine::new(config()));
    assert!(passed["merge: committed"] > 20, "{passed:?}");
}

#[test]
fn requests_and_crashes_within_a_demotion_change_nothing_else() {
    // Seal sequences begin somewhere else with each seed: the log of one tier has room for a part of those of
    // another only.
    for seed in 1..3 {
        let mut config = config();
        config.tuning.seed = Some(seed);
        let passed = requests_and_crashes(Machine::with(config, 3 << 20, Some(8 << 20)));
        assert!(passed["demotion: committed at the upper level"] > 20, "{passed:?}");
    }
}

/// Overwrites, deletes and reads while segments are moved, crashes at every moment of it, and checks what is
/// there then. Answers how often each moment was passed.
fn requests_and_crashes(mut machine: Machine) -> BTreeMap<&'static str, u64> {
    let world = World {
        random: Random(1),
        next_version: 1,
        model: Model::new(),
        other: machine.client.sibling(),
        passed: BTreeMap::new(),
        crashes: Vec::new(),
    };
    let world = Arc::new(Mutex::new(world));
    let hardware = machine.hardware();
    let during = Arc::clone(&world);
    let failure = Rc::new(RefCell::new(None));
    let noted = Rc::clone(&failure);
    let mut records = 0;
    set_crash_hook(Some(Box::new(move |moment| {
        records += u32::from(moment == "merge: a record handed over");
        let is_one_of_many = moment == "merge: a record handed over" && records % 64 != 0;
        let is_move = moment.starts_with("merge") || moment.starts_with("demotion");
        if !is_move || is_one_of_many {
            return;
        }
        // In a thread of its own: this one is within the cache.
        let passed = std::thread::scope(|scope| {
            let pass = || {
                during.lock().expect("nobody panics before").pass(moment, || hardware.copy());
            };
            scope.spawn(pass).join()
        });
        if let (Err(panic), true) = (passed, noted.borrow().is_none()) {
            *noted.borrow_mut() = Some(panic);
        }
    })));
    for round in 0..60_000 {
        let (n, version) = {
            let mut world = world.lock().expect("nobody panicked");
            let n = if round < KEYS { round } else { world.random.below(KEYS) };
            world.next_version += 1;
            (n, world.next_version)
        };
        assert!(machine.client.set(&key(n), &value(n, version)));
        world.lock().expect("nobody panicked").model.insert(n, version);
        if round % 16 == 0 {
            machine.client.session.quiesce();
            world.lock().expect("nobody panicked").other.session.park();
            machine.client.cache.maintain(machine.client.now);
        }
        if let Some(panic) = failure.borrow_mut().take() {
            std::panic::resume_unwind(panic);
        }
    }
    set_crash_hook(None);
    let mut world = world.lock().expect("nobody panicked");
    world.other.session.park();
    verify(&machine.client, &world.model, "at the end");
    for Crash { moment, remains, mut model } in world.crashes.drain(..) {
        let mut machine = Machine::start(config(), remains, [1; 16]);
        machine.recover();
        verify(&machine.client, &model, moment);
        // A record that had come back twice would come to light.
        for n in (0..KEYS).step_by(3) {
            machine.client.delete(&key(n));
            model.remove(&n);
        }
        verify(&machine.client, &model, moment);
    }
    std::mem::take(&mut world.passed)
}

use super::*;
use crate::opening::in_background;
use std::sync::{Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};
use terrace_cache::{Cache, Config, Durability, Tier};
use terrace_device::sim::{Operation, SimDevice};
use terrace_device::{Drive, Engine, ErrorClass};

/// Reads of a drive wait while this is shut.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let shut = self.is_shut.lock().unwrap();
        drop(self.opened.wait_while(shut, |is_shut| *is_shut).unwrap());
    }

    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }
}

/// A store on simulated drives.
fn store_on(drives: &[Arc<dyn Drive>]) -> Store {
    let options = Options::new().memory(16 << 20);
    let mut config = Config::new(16 << 20);
    for drive in drives {
        let timed = in_background(drive, Durability::Process, 2, Engine::Pool).unwrap();
        config.tiers.push(Tier::new(timed));
    }
    let cache = Cache::open(config).unwrap();
    let background = Background::start(&cache).unwrap();
    Store { inner: Arc::new(Inner::new(&options, cache, drives.to_vec(), background)) }
}

#[test]
fn drive_that_answers_nothing_costs_the_deadline_and_is_then_a_miss() {
    let (sim, gate) = (Arc::new(SimDevice::new(256 << 20, 7)), Arc::new(Gate::default()));
    let drive: Arc<dyn Drive> = Arc::clone(&sim) as Arc<dyn Drive>;
    let store = store_on(&[drive]);
    let value = [7; 3_000];
    // Twice as much as DRAM holds: the first are on the drive alone.
    for n in 0..10_000_u32 {
        assert!(store.set(&n.to_le_bytes(), &value, Set::default()).unwrap());
    }
    let key = 0_u32.to_le_bytes();
    assert_eq!(store.get(&key).unwrap().as_deref(), Some(&value[..]));
    assert!(sim.counts().reads > 0, "it was in DRAM");
    let passed = Arc::clone(&gate);
    sim.before_each(move |transfer| {
        if transfer.operation == Operation::Read {
            passed.pass();
        }
    });
    gate.set(true);
    let (sender, answers) = mpsc::channel();
    let asking = store.clone();
    let thread = thread::spawn(move || {
        // The second finds out at once what the first has waited for.
        for n in 1..3_u32 {
            sender.send(asking.get(&n.to_le_bytes()).unwrap()).unwrap();
        }
    });
    for _ in 0..2 {
        let answer = answers.recv_timeout(Duration::from_secs(60));
        assert_eq!(answer, Ok(None), "it does not wait for ever");
    }
    thread.join().unwrap();
    assert!(sim.errors().of(ErrorClass::Unresponsive) > 0);
    gate.set(false);
    let end = Instant::now() + Duration::from_secs(60);
    while store.get(&key).unwrap().is_none() && Instant::now() < end {
        thread::sleep(PAUSE);
    }
    assert_eq!(store.get(&key).unwrap().as_deref(), Some(&value[..]));
}

//! Which records eviction takes: those stored first, of the whole cache, and none that are in use.

mod common;

use common::{Client, Found, RamDevice, record};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_cache::{Access, Change, Chunks, Config};
use terrace_device::Drive;

const MIB: u64 = 1 << 20;

/// A cache that is filled with unique keys.
#[derive(Clone)]
struct Fill {
    memory: u64,
    tiers: &'static [u64],
    is_ladder: bool,
    threads: usize,
    /// Bytes of a value.
    value: usize,
    /// Times the capacity that is stored.
    turns: u64,
}

/// What is there after a fill, as shares.
struct Left {
    /// Of as many of the newest as take half of the capacity, and a quarter.
    newest_half: f64,
    newest_quarter: f64,
    /// How much later a lost record was stored than the oldest that is there, as a share of the records that are there.
    /// Some are left out: a SET of a new key may cost a bystander its place once in a thousand times.
    spread: f64,
}

/// How a record is used.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Read,
    Replace,
}

/// Ends the background threads, also when a store panics.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Background threads of one fill that wait for processors behind those of another take segments back late.
fn alone() -> MutexGuard<'static, ()> {
    static FILLS: Mutex<()> = Mutex::new(());
    FILLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:016}").into_bytes()
}

impl Fill {
    fn open(&self) -> Client {
        let mut config = Config::new(self.memory);
        config.background_threads = self.threads;
        config.sessions_max = 16;
        let device = |&bytes: &u64| RamDevice::new(bytes as usize) as Arc<dyn Drive>;
        let devices: Vec<_> = self.tiers.iter().map(device).collect();
        match self.is_ladder {
            true => Client::open_ladder(config, devices),
            false => Client::open(config, devices),
        }
    }

    fn capacity(&self) -> u64 {
        self.tiers.iter().sum::<u64>().max(self.memory)
    }

    fn is_large(&self, client: &Client) -> bool {
        self.value > client.cache.inline_bytes_max()
    }

    fn store(&self, client: &mut Client, n: u64) {
        if self.is_large(client) {
            let chunks = self.value.div_ceil(client.cache.inline_bytes_max()) as u32;
            assert!(client.set_large(&key(n), chunks, (self.value as u32).div_ceil(chunks)));
        } else {
            assert!(client.set(&key(n), &vec![n as u8; self.value]));
        }
        client.session.quiesce();
    }

    /// Stores `records` unique keys, with `each` before each of them, beside background threads where there are tiers.
    fn store_all(&self, client: &mut Client, records: u64, mut each: impl FnMut(&mut Client, u64)) {
        let stop = AtomicBool::new(false);
        let cache = Arc::clone(&client.cache);
        let threads = if self.tiers.is_empty() { 0 } else { self.threads };
        std::thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            for _ in 0..threads {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        if !cache.maintain(1_000_000) {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                });
            }
            for n in 0..records {
                each(client, n);
                self.store(client, n);
                if threads == 0 && n.is_multiple_of(4) {
                    client.cache.maintain(client.now);
                }
            }
        });
        client.settle();
    }

    fn is_there(&self, client: &Client, n: u64) -> bool {
        match self.is_large(client) {
            true => client.chunks_of(&key(n)) == Some(Chunks::There),
            false => client.get_as(&key(n), Access::Peek).is_some(),
        }
    }

    fn run(&self) -> Left {
        let _alone = alone();
        let mut client = self.open();
        let worth = self.capacity() / self.value as u64;
        let records = worth * self.turns;
        self.store_all(&mut client, records, |_, _| ());
        let there: Vec<bool> =
            (records - worth..records).map(|n| self.is_there(&client, n)).collect();
        let alive = there.iter().filter(|&&there| there).count();
        let share = |part: usize| {
            let newest = &there[there.len() - there.len() / part..];
            newest.iter().filter(|&&there| there).count() as f64 / newest.len() as f64
        };
        let oldest = there.iter().position(|&there| there).expect("something is there");
        let mut lost = (0..there.len()).rev().filter(|&at| !there[at]);
        let newest_lost = lost.nth(alive / 1000).unwrap_or(0);
        let spread = newest_lost.saturating_sub(oldest) as f64 / alive as f64;
        let left = Left { newest_half: share(2), newest_quarter: share(4), spread };
        println!(
            "{} MiB, tiers of {:?} MiB, {} threads, values of {}: newest half {:.4}, quarter {:.4}, spread {spread:.4}, {alive} of {worth}",
            self.memory / MIB,
            self.tiers.iter().map(|bytes| bytes / MIB).collect::<Vec<_>>(),
            self.threads,
            self.value,
            left.newest_half,
            left.newest_quarter,
        );
        left
    }

    fn check(&self) {
        let left = self.run();
        assert!(left.newest_half >= 0.98, "of the newest half {:.4}", left.newest_half);
        assert!(left.newest_quarter >= 0.995, "of the newest quarter {:.4}", left.newest_quarter);
        assert!(left.spread <= 0.05, "lost {:.4} too early", left.spread);
    }

    /// Uses `keys` keys, which take `part` of `capacity` bytes, each four times while as much is stored as that, and
    /// counts how often one is lost.
    fn lost_in_use(&self, used: Use, keys: u64, (part, capacity): (f64, u64)) -> u64 {
        let _alone = alone();
        let mut client = self.open();
        let mean = (capacity as f64 * part / keys as f64) as u64 - 150;
        // From 50 bytes on.
        let longest = (mean * 2 - 100).min(client.cache.inline_bytes_max() as u64 - 50);
        let bytes = |n: u64| (50 + longest * (n % 7) / 7) as usize;
        let name = |n: u64| format!("used:{n}").into_bytes();
        for n in 0..keys {
            assert!(client.set(&name(n), &vec![n as u8; bytes(n)]));
        }
        let uses_per_store = 4.0 * keys as f64 * self.value as f64 / capacity as f64;
        let (mut next, mut due, mut lost) = (0, 0.0, 0);
        let records = self.capacity() / self.value as u64 * self.turns;
        self.store_all(&mut client, records, |client, _| {
            due += uses_per_store;
            while due >= 1.0 {
                due -= 1.0;
                let n = next % keys;
                next += 1;
                let value = vec![n as u8; bytes(n)];
                let mut is_there = false;
                if used == Use::Read {
                    is_there = client.get(&name(n)).is_some();
                } else {
                    client.update(&name(n), false, |found: Option<Found>| {
                        is_there = found.is_some();
                        Change::Store(record(&value))
                    });
                }
                if !is_there {
                    lost += 1;
                    assert!(client.set(&name(n), &value));
                }
            }
        });
        println!(
            "{} MiB, tiers of {:?} MiB, {} threads, {keys} keys: {lost} lost of {next} uses",
            self.memory / MIB,
            self.tiers.iter().map(|bytes| bytes / MIB).collect::<Vec<_>>(),
            self.threads
        );
        lost
    }
}

const DRAM: Fill =
    Fill { memory: 16 * MIB, tiers: &[], is_ladder: false, threads: 1, value: 0, turns: 10 };
const TIER: Fill = Fill { memory: 24 * MIB, tiers: &[144 * MIB], turns: 4, ..DRAM };
const LADDER: Fill = Fill { tiers: &[48 * MIB, 144 * MIB], is_ladder: true, ..TIER };

#[test]
fn dram_evicts_oldest() {
    let sizes = [(16, 1000), (16, 10_000), (16, 100_000), (64, 1000), (64, 10_000)];
    for (mebibytes, value) in sizes {
        Fill { memory: mebibytes * MIB, value, ..DRAM }.check();
    }
}

#[test]
fn tiers_evict_oldest() {
    for (threads, value) in [(1, 1000), (2, 1000), (2, 20_000), (4, 10_000), (2, 100_000)] {
        Fill { threads, value, ..TIER }.check();
    }
}

#[test]
fn tier_levels_evict_oldest() {
    for (threads, value) in [(2, 10_000), (4, 20_000), (2, 100_000), (4, 100_000)] {
        Fill { threads, value, ..LADDER }.check();
    }
}

/// Used once, a record outlives all that are never used, and goes all the same in the end.
#[test]
fn dram_keeps_longer_what_was_used_once() {
    const OLD: u64 = 200;
    let fill = Fill { value: 10_000, ..DRAM };
    let (mut client, worth) = (fill.open(), fill.memory / fill.value as u64);
    let old = |n: u64| format!("old:{n}").into_bytes();
    for n in 0..OLD {
        assert!(client.set(&old(n), &vec![n as u8; fill.value]));
    }
    for n in (0..OLD).step_by(2) {
        match n % 4 {
            0 => assert!(client.get(&old(n)).is_some()),
            // Rewritten.
            _ => assert!(client.set(&old(n), &vec![1; fill.value])),
        }
    }
    let there = |client: &mut Client, first: u64| {
        (first..OLD).step_by(2).filter(|&n| client.get_as(&old(n), Access::Peek).is_some()).count()
    };
    // Turns of what is evicted: a few records less than the memory's worth.
    fill.store_all(&mut client, worth * 2, |_, _| ());
    assert_eq!((there(&mut client, 0), there(&mut client, 1)), (OLD as usize / 2, 0));
    fill.store_all(&mut client, worth * 20, |_, _| ());
    assert_eq!(there(&mut client, 0), OLD as usize / 2);
    fill.store_all(&mut client, worth * 300, |_, _| ());
    assert_eq!(there(&mut client, 0), 0);
}

/// What is evicted and stored again soon after that is kept as if it had been used.
#[test]
fn dram_keeps_longer_what_was_stored_again() {
    const AGAIN: u64 = 100;
    for value in [1000, 100_000] {
        let fill = Fill { value, ..DRAM };
        let (mut client, worth) = (fill.open(), fill.memory / fill.value as u64);
        let few = AGAIN.min(worth / 10);
        let there = |client: &Client| (0..few).filter(|&n| fill.is_there(client, n)).count() as u64;
        let store = |client: &mut Client, keys: Range<u64>| {
            for n in keys {
                fill.store(client, n);
                client.cache.maintain(client.now);
            }
        };
        store(&mut client, 0..worth * 11 / 10);
        assert_eq!(there(&client), 0, "values of {value} were never used");
        store(&mut client, 0..few);
        store(&mut client, worth * 2..worth * 6);
        // Some names make room for others.
        let kept = there(&client);
        assert!(kept * 10 >= few * 9, "{kept} of {few} values of {value} that were stored again");
    }
}

#[test]
fn dram_keeps_what_is_used() {
    for used in [Use::Read, Use::Replace] {
        for keys in [64, 320] {
            let fill = Fill { value: 10_000, ..DRAM };
            assert_eq!(fill.lost_in_use(used, keys, (0.24, fill.memory)), 0);
        }
    }
}

#[test]
fn tiers_keep_what_is_used() {
    for used in [Use::Read, Use::Replace] {
        for fill in [TIER, LADDER] {
            let fill = Fill { threads: 2, value: 10_000, ..fill };
            assert_eq!(fill.lost_in_use(used, 320, (0.24, fill.memory)), 0);
        }
    }
}

/// They were stored one behind the other, so that whole segments are in use.
#[test]
fn tiers_keep_a_quarter_that_is_used() {
    for used in [Use::Read, Use::Replace] {
        let fill = Fill { threads: 2, value: 10_000, turns: 6, ..TIER };
        assert_eq!(fill.lost_in_use(used, 3000, (0.24, fill.capacity())), 0);
    }
}

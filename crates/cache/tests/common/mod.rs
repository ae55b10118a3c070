//! A client of the cache that does the reads itself, and a drive in memory.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod fleet;
pub(crate) mod machine;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_cache::{
    Access, Body, Cache, Change, Chunks, Config, Hit, JoinError, Lookup, Manifest, MemoryStats,
    NewRecord, NewTier, NewValue, ReadPlan, Run, Search, Session, Tier, Update, WriteRate,
};
use terrace_device::{AlignedBuf, Drive, Geometry};
use terrace_runtime::flash_lookup::FlashLookup;

/// Nobody has to wait longer for room.
const PATIENCE: Duration = Duration::from_secs(60);

/// A drive in memory that counts.
pub(crate) struct RamDevice {
    bytes: Mutex<Vec<u8>>,
    pub(crate) reads: AtomicU64,
    pub(crate) fail_reads: AtomicBool,
    pub(crate) fail_writes: AtomicBool,
    pub(crate) fail_flushes: AtomicBool,
}

impl RamDevice {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; bytes]),
            reads: AtomicU64::new(0),
            fail_reads: AtomicBool::new(false),
            fail_writes: AtomicBool::new(false),
            fail_flushes: AtomicBool::new(false),
        })
    }

    /// Another drive with the same content.
    pub(crate) fn copy(&self) -> Arc<Self> {
        let copy = Self::new(0);
        *copy.bytes.lock().expect("new") =
            self.bytes.lock().expect("no test panics under it").clone();
        copy
    }

    /// Another drive with the same content and more room.
    pub(crate) fn grown(&self, bytes: usize) -> Arc<Self> {
        let copy = self.copy();
        copy.bytes.lock().expect("new").resize(bytes, 0);
        copy
    }

    /// Changes stored bytes behind the cache's back.
    pub(crate) fn tamper(&self, change: impl FnOnce(&mut [u8])) {
        change(&mut self.bytes.lock().expect("no test panics under it"));
    }
}

impl Drive for RamDevice {
    fn label(&self) -> &str {
        "ram"
    }
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes.lock().expect("no test panics under it").len() as u64,
            block_bytes: 4096,
        }
    }
    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.fail_reads.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected read error"));
        }
        let bytes = self.bytes.lock().expect("no test panics under it");
        let end = offset as usize + buf.len();
        buf.copy_from_slice(bytes.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        if self.fail_writes.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected write error"));
        }
        let mut bytes = self.bytes.lock().expect("no test panics under it");
        let end = offset as usize + buf.len();
        bytes.get_mut(offset as usize..end).ok_or(io::ErrorKind::WriteZero)?.copy_from_slice(buf);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        match self.fail_flushes.load(Ordering::Relaxed) {
            true => Err(io::Error::other("injected flush error")),
            false => Ok(()),
        }
    }
}

/// A cache with a session, driven from one thread.
pub(crate) struct Client {
    pub(crate) cache: Arc<Cache>,
    pub(crate) session: Session,
    devices: Vec<Arc<dyn Drive>>,
    pub(crate) now: u32,
}

/// A value found; that of a large item is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) value: Vec<u8>,
    pub(crate) client_flags: u32,
    pub(crate) expires: u32,
    pub(crate) cas: u64,
    pub(crate) fetched: bool,
    pub(crate) from_dram: bool,
}

impl From<Hit<'_>> for Found {
    fn from(hit: Hit<'_>) -> Self {
        let value = match hit.record.body() {
            Body::Inline(value) => value.to_vec(),
            Body::Chunked(_) => Vec::new(),
        };
        Self {
            value,
            client_flags: hit.record.client_flags,
            expires: hit.record.expires,
            cas: hit.record.cas,
            fetched: hit.fetched,
            from_dram: hit.from_dram,
        }
    }
}

pub(crate) fn record(value: &[u8]) -> NewRecord<'_> {
    NewRecord {
        value: NewValue::Inline(value, &[]),
        client_flags: 0,
        expires: 0,
        cas: None,
        stale: false,
        win_sent: false,
    }
}

impl Client {
    pub(crate) fn open(mut config: Config, devices: Vec<Arc<dyn Drive>>) -> Self {
        config.tiers = devices.iter().map(|d| Tier::new(Arc::clone(d))).collect();
        Self::open_with(config, devices)
    }

    /// Each device is on a rung of its own.
    pub(crate) fn open_ladder(mut config: Config, devices: Vec<Arc<dyn Drive>>) -> Self {
        config.tiers = devices.iter().map(|d| Tier::below(Arc::clone(d))).collect();
        Self::open_with(config, devices)
    }

    /// Adds a tier, as the tests of joins have it: a drive that may have been one before is refused.
    pub(crate) fn join(
        &mut self,
        device: Arc<dyn Drive>,
        may_overwrite: bool,
    ) -> Result<usize, JoinError> {
        let new = NewTier {
            device: Arc::clone(&device),
            write_rate: WriteRate::Unlimited,
            may_overwrite,
        };
        let number = self.cache.join(&new, |_| ());
        // Its number counts also where it did not come into the roster.
        self.devices.resize(self.cache.stats().tiers.len(), device);
        number
    }

    fn open_with(config: Config, devices: Vec<Arc<dyn Drive>>) -> Self {
        let cache = Cache::open(config).expect("opens");
        let session = cache.session();
        Self { cache, session, devices, now: 1_000_000 }
    }

    /// Another session on the same cache.
    pub(crate) fn sibling(&self) -> Self {
        let (cache, session) = (Arc::clone(&self.cache), self.cache.session());
        Self { cache, session, devices: self.devices.clone(), now: self.now }
    }

    /// All background work that there is.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            self.session.park();
            if !self.cache.maintain(self.now) {
                return;
            }
        }
        panic!("background work does not end");
    }

    /// Reads what a search asks for, until the cache is to be called again.
    pub(crate) fn read(&self, key: &[u8], search: Box<Search>) -> FlashLookup {
        let mut lookup = FlashLookup::default();
        let read = |plan: ReadPlan, buffer: &mut AlignedBuf| {
            self.devices[plan.tier].read_at(plan.offset, buffer)
        };
        lookup.read_with(&self.session, self.session.key(key), search, read);
        lookup
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Found> {
        self.get_as(key, Access::Use)
    }

    pub(crate) fn get_as(&self, key: &[u8], access: Access) -> Option<Found> {
        self.look(key, access, |hit| hit.into())
    }

    /// What is there of the chunks of a large item; `None` if the item itself is not.
    pub(crate) fn chunks_of(&self, key: &[u8]) -> Option<Chunks> {
        self.look(key, Access::Peek, |hit| match hit.record.body() {
            Body::Inline(_) => panic!("a small record"),
            Body::Chunked(manifest) => {
                self.session.look_for_chunks(&manifest, &self.session.pin(&manifest))
            }
        })
    }

    /// The manifest of a large item.
    pub(crate) fn manifest_of(&self, key: &[u8]) -> Option<Manifest> {
        self.look(key, Access::Peek, |hit| match hit.record.body() {
            Body::Inline(_) => panic!("a small record"),
            Body::Chunked(manifest) => manifest,
        })
    }

    fn look<T>(&self, key: &[u8], access: Access, see: impl Fn(Hit<'_>) -> T) -> Option<T> {
        let mut lookup = FlashLookup::default();
        loop {
            let evidence = lookup.evidence();
            match self.session.get(self.session.key(key), self.now, access, evidence) {
                Lookup::Hit(hit) => return Some(see(hit)),
                Lookup::Miss => return None,
                Lookup::Read(search) => lookup = self.read(key, search),
            }
        }
    }

    /// One read-modify-write; `false` if it was refused.
    pub(crate) fn update<'v>(
        &mut self,
        key: &[u8],
        blind: bool,
        mut decide: impl FnMut(Option<Found>) -> Change<'v>,
    ) -> bool {
        let mut lookup = FlashLookup::default();
        // By the clock: other threads may have to get a turn first.
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let evidence = lookup.evidence();
            let decide = |hit: Option<Hit<'_>>| decide(hit.map(Found::from));
            let key_ = self.session.key(key);
            match self.session.update(key_, self.now, evidence, blind, decide) {
                Update::Done { .. } => return true,
                Update::Full => return false,
                Update::Read(search) => lookup = self.read(key, search),
                Update::Wait | Update::Recovering => {
                    self.session.park();
                    if !self.cache.recover() && !self.cache.maintain(self.now) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        }
        panic!("waits for ever: {:#?}", self.cache.stats());
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.update(key, true, |_| Change::Store(record(value)))
    }

    /// Stores a large item. Background work has its turn only where it has to be waited for.
    pub(crate) fn set_large(&mut self, key: &[u8], chunks: u32, chunk_bytes: u32) -> bool {
        self.set_large_until(key, chunks, chunk_bytes, 0)
    }

    pub(crate) fn set_large_until(
        &mut self,
        key: &[u8],
        chunks: u32,
        chunk_bytes: u32,
        expires: u32,
    ) -> bool {
        let (item, chunk) = (self.session.begin_item(), vec![7; chunk_bytes as usize]);
        let mut index = 0;
        let end = Instant::now() + PATIENCE;
        while index < chunks {
            assert!(Instant::now() < end, "waits for ever: {:#?}", self.cache.stats());
            match self.session.store_chunk(item, index, &chunk, self.now) {
                Update::Done { .. } => index += 1,
                Update::Full => return false,
                Update::Read(_) | Update::Wait | Update::Recovering => {
                    self.session.park();
                    self.cache.maintain(self.now);
                }
            }
        }
        let run = Run { item, chunks, chunk_bytes, last_bytes: chunk_bytes };
        let manifest = Manifest { runs: vec![run] };
        self.set_manifest(key, &manifest, expires)
    }

    /// Stores the record of a large item whose chunks are there.
    pub(crate) fn set_manifest(&mut self, key: &[u8], manifest: &Manifest, expires: u32) -> bool {
        let value = || NewValue::Chunked(manifest);
        let new = || NewRecord { value: value(), expires, ..record(b"") };
        self.update(key, true, |_| Change::Store(new()))
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let mut was_there = false;
        self.update(key, false, |found| {
            was_there = found.is_some();
            Change::Remove
        });
        was_there
    }
}

/// A small deterministic random number generator (SplitMix64, Steele et al. 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Everything that is resident but what lies in a state.
pub(crate) fn used(memory: &MemoryStats) -> u64 {
    let indexes = memory.tier_index + memory.page_tables + memory.segment_table;
    indexes
        + memory.dram_index
        + memory.write_buffer
        + memory.read_cache
        + memory.free
        + memory.staging
}

//! The settings that a cache is opened with.

pub(crate) mod error;
pub(crate) mod note;
pub(crate) mod witness;

use crate::config::witness::Witness;
use crate::state::StateFile;
use std::sync::Arc;
use terrace_device::Drive;
use terrace_policy::WritePolicy;

/// One medium below DRAM.
#[derive(Clone)]
pub struct Tier {
    /// The opened device; the cache uses all of it.
    pub device: Arc<dyn Drive>,
    /// It stands below the tiers before it on the ladder: what those have no place for any more goes down to
    /// it. Tiers that do not are alike, and share what is written.
    pub is_below: bool,
}

impl Tier {
    /// A tier beside those before it.
    pub fn new(device: Arc<dyn Drive>) -> Self {
        Self { device, is_below: false }
    }

    /// A tier below those before it.
    pub fn below(device: Arc<dyn Drive>) -> Self {
        Self { device, is_below: true }
    }
}

/// The kind of crash after which the cache comes back warm. It never comes back stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After any end of the process; the kernel must have kept running.
    #[default]
    Process,
    /// After a power loss too: tombstones are on the drive before a change is acknowledged (see
    /// [`crate::Session::make_durable`]). Records that were not sealed yet are lost.
    Power,
}

/// What to do at a start that erases what another start might bring back: tiers of another version or set, too few of a
/// set, or a state that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMismatch {
    /// Start empty and report why, see [`crate::Cache::notes`].
    #[default]
    Cold,
    /// Do not start, and leave them as they are.
    Refuse,
}

/// Average bytes that may be written to a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WriteRate {
    /// No limit.
    #[default]
    Unlimited,
    /// Bytes per second.
    BytesPerSecond(f64),
    /// Multiples of the tier's size per day.
    DrivesPerDay(f64),
}

impl WriteRate {
    /// Bytes per second for a tier of `capacity_bytes` bytes; `None` if there is no limit.
    pub(crate) fn bytes_per_second(self, capacity_bytes: f64) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::BytesPerSecond(bytes) => Some(bytes),
            Self::DrivesPerDay(drives) => Some(drives * capacity_bytes / 86_400.0),
        }
    }
}

/// The operator's settings.
#[derive(Clone)]
pub struct Config {
    /// DRAM for everything that grows with data, in bytes (`-m`).
    pub memory_bytes: u64,
    /// The most that [`crate::Cache::set_memory_limit`] can raise it to while the cache is open: address space is
    /// reserved for it, but no memory. Ignored without tiers where `state` is given, since all blocks lie in the state
    /// then.
    pub memory_bytes_max: u64,
    /// Asks for huge pages for records outside of the state (`-L`).
    pub huge_pages: bool,
    /// Tiers in order, fastest first; empty for a plain DRAM cache.
    pub tiers: Vec<Tier>,
    /// One per tier; missing ones are unlimited.
    pub write_rates: Vec<WriteRate>,
    /// A tier is full when live records and their share of pages and footers take more than this percentage of it.
    /// Below that, reclaim relocates all live records; the higher the percentage, the more.
    pub full_percent: u32,
    /// The write policy of a full tier; a write budget may ask for a stricter one.
    pub full_write_policy: WritePolicy,
    /// The state, which outlives the process. Without one only a clean stop comes back warm, and a cache without tiers
    /// never does.
    pub state: Option<Arc<StateFile>>,
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// See [`Witness`]; `None` for none.
    pub witness: Option<Arc<dyn Witness>>,
    /// See [`Durability`].
    pub durability: Durability,
    /// See [`OnMismatch`].
    pub on_mismatch: OnMismatch,
    /// `false` refuses new records when full instead of evicting old ones (`-M`).
    pub evict: bool,
    /// `false` saves the 8 bytes of CAS per record (`-C`).
    pub cas: bool,
    /// The longest value that is accepted, in bytes (`-I`).
    pub item_bytes_max: u64,
    /// Sessions (workers) that can exist at once.
    pub sessions_max: usize,
    /// Threads that share the background work of tiers, at most; see [`crate::Cache::background_threads`]. Each has
    /// buffers of its own.
    pub background_threads: usize,
    /// Sizes that tests reduce so that rare events become common.
    pub tuning: Tuning,
}

impl Config {
    /// memcached's defaults with `memory_bytes` of DRAM and no tier.
    pub fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            memory_bytes_max: memory_bytes,
            huge_pages: false,
            tiers: Vec::new(),
            write_rates: Vec::new(),
            full_percent: FULL_PERCENT,
            full_write_policy: WritePolicy::default(),
            state: None,
            boot: [0; 16],
            witness: None,
            durability: Durability::default(),
            on_mismatch: OnMismatch::default(),
            evict: true,
            cas: true,
            item_bytes_max: 1 << 20,
            sessions_max: 72,
            background_threads: 1,
            tuning: Tuning::default(),
        }
    }
}

/// The default of [`Config::full_percent`].
pub const FULL_PERCENT: u32 = 80;

/// Sizes that follow from the capacity unless a test sets them.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Seed of the key hash; `None` takes one from the system.
    pub seed: Option<u64>,
    /// Number of shards, a power of two up to 256.
    pub shards: Option<u32>,
    /// Segment size in bytes, a multiple of 4096.
    pub segment_bytes: Option<u32>,
    /// Fingerprint bits in the sealed index, 1 to 15.
    pub fingerprint_bits: u32,
    /// The share of `memory_bytes` that the sealed index may take, in percent.
    pub index_percent: u32,
    /// Pages (4 KiB) of each tier's tombstone log that are kept in the state, at least 16.
    pub log_ring_pages: usize,
    /// Segment slots that each tier's tombstone log may take at a time; `None`: as many as its directory can list.
    pub log_slots: Option<u32>,
    /// Write budgets use the seconds passed to [`crate::Cache::maintain`] instead of the machine's clock, so that a run
    /// can be repeated.
    pub budgets_by_given_time: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            seed: None,
            shards: None,
            segment_bytes: None,
            fingerprint_bits: 15,
            index_percent: 75,
            log_ring_pages: 64,
            log_slots: None,
            budgets_by_given_time: false,
        }
    }
}

//! What a seed decides before a run begins.

use crate::random::Random;
use std::time::Duration;
use terrace_cache::{Config, Durability, FULL_PERCENT, Tuning, WritePolicy, WriteRate};

/// Kinds of trouble that a run meets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// Reads and writes that fail, fail in part, or find no space.
    pub(crate) errors: bool,
    /// Drives that say yes and do something else: bits flipped, writes lost, torn or misdirected.
    pub(crate) lies: bool,
    /// Reads that take very long.
    pub(crate) hangs: bool,
    /// Drives answer nothing for a while.
    pub(crate) silence: bool,
    /// Drives are remote: what they have acknowledged is durable, and their targets lose the power now and then.
    pub(crate) reboots: bool,
    /// Crashes and stops, so many at most.
    pub(crate) crashes: u64,
    /// Some of the crashes take the power away.
    pub(crate) power: bool,
    /// The file that outlives the process is lost in some crashes.
    pub(crate) state_loss: bool,
    /// Drives come back with what they held at an earlier start.
    pub(crate) old_drives: bool,
    /// Drives are added, replaced, left out and put back between runs, in any order.
    pub(crate) moves: bool,
    /// The roster of the drives is kept outside of them, too.
    pub(crate) has_witness: bool,
}

/// Everything about a run but the order of events.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) shards: u32,
    pub(crate) segment_bytes: u32,
    /// Segments on each tier.
    pub(crate) tiers: Vec<u32>,
    /// Each stands below the one before.
    pub(crate) is_ladder: bool,
    pub(crate) memory_bytes: u64,
    pub(crate) fingerprint_bits: u32,
    pub(crate) evict: bool,
    pub(crate) cas: bool,
    pub(crate) durability: Durability,
    pub(crate) hash_seed: u64,
    pub(crate) keys: u32,
    /// Lengths of values in bytes; one is picked, and what is stored is up to that long.
    pub(crate) lengths: Vec<usize>,
    /// Everything that is stored fits, with much room to spare: nothing may be lost.
    pub(crate) ample: bool,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    pub(crate) steps: u64,
    /// Percent of steps that are background work.
    pub(crate) maintain_percent: u64,
    /// One in so many steps is a second later than the one before.
    pub(crate) tick: u64,
    /// One in so many operations is a `flush_all`.
    pub(crate) flush: u64,
    /// Percent of operations that read.
    pub(crate) read_percent: u64,
    /// Bytes that a drive holds back from power losses, at most.
    pub(crate) drive_cache_bytes: usize,
    /// Blocks of this size never tear.
    pub(crate) block_bytes: u32,
    /// Every record expires after so many seconds or little more; 0 for some of them, in their own time.
    pub(crate) lives: u32,
    /// What full tiers write and keep.
    pub(crate) write_policy: WritePolicy,
    /// Bytes per second that each tier may be written; `None` without a limit. What a budget does not
    /// allow is let go, whether there is room or not.
    pub(crate) budgets: Vec<Option<f64>>,
    pub(crate) trouble: Trouble,
    /// Parts that the background work is shared out to.
    pub(crate) background_threads: usize,
    /// Slots of a tier that its log may lie in, where that is to be few.
    pub(crate) log_slots: Option<u32>,
    /// How much of the tiers records may take.
    pub(crate) full_percent: u32,
}

/// Where segments begin on a tier.
pub(crate) const SEGMENTS_AT: u64 = 64 << 10;
/// A record's header, and what it needs in DRAM besides.
const OVERHEAD: u64 = 48;

impl Scenario {
    pub(crate) fn draw(random: &mut Random, is_ladder: bool, moves: bool) -> Self {
        let shards = random.pick(&[1u32, 1, 2, 2, 4]);
        let segment_bytes = random.pick(&[16u32 << 10, 32 << 10, 32 << 10, 64 << 10]);
        let tiers = random.pick(&[0, 1, 1, 1, 1, 1, 1, 1, 2]);
        let tiers = if is_ladder { random.pick(&[2, 2, 3]) } else { tiers };
        let mut tiers: Vec<u32> =
            (0..tiers).map(|_| shards * random.within(12, 40) as u32 + 12).collect();
        if is_ladder {
            // Full soon, so that much goes down.
            tiers[0] = shards + random.within(15, 25) as u32;
        }
        let least = u64::from(shards * segment_bytes) * 4;
        // Each further tier has a log of its own.
        let logs = tiers.len().saturating_sub(2) as u64 * (256 << 10);
        let memory_bytes = (least * 2).max(1 << 20) + random.below(1 << 20) + logs;
        let capacity = match tiers.iter().sum::<u32>() {
            // Blocks are few and large, and large items leave holes.
            0 => memory_bytes / 2,
            segments => u64::from(segments) * u64::from(segment_bytes),
        };
        let lengths = lengths(random, segment_bytes, !tiers.is_empty());
        // What is left of large items that are gone takes room for longer than is counted here.
        let inline_bytes_max = if tiers.is_empty() { 16 << 10 } else { segment_bytes as usize / 8 };
        let has_chunks = lengths.iter().any(|&length| length + 300 > inline_bytes_max);
        let ample = !has_chunks && random.percent(75);
        let mean = lengths.iter().map(|&length| length as u64 / 2 + OVERHEAD).sum::<u64>()
            / lengths.len() as u64;
        let keys_max = match ample {
            true => capacity * 3 / 10 / mean,
            false => capacity * random.within(12, 30) / 10 / mean,
        };
        let keys = match ample {
            true => keys_max.min(random.pick(&[20, 100, 400, 1000, 3000])),
            false => keys_max.min(20_000),
        };
        let strict = !tiers.is_empty() && random.percent(20);
        let mut scenario = Self {
            shards,
            segment_bytes,
            memory_bytes,
            // With one bit all records of a bucket have the same name, of which a segment takes one.
            fingerprint_bits: if random.percent(50) { 15 } else { random.within(2, 15) as u32 },
            evict: ample || random.percent(80),
            cas: random.percent(80),
            durability: if strict { Durability::Power } else { Durability::Process },
            hash_seed: random.next(),
            keys: keys.max(8) as u32,
            lengths,
            ample,
            connections: random.within(1, 4) as usize,
            depth: random.pick(&[1, 2, 4, 8]),
            steps: random.within(500, 2500),
            maintain_percent: random.pick(&[5, 20, 35, 50]),
            tick: random.pick(&[10, 40, 200]),
            flush: random.pick(&[400, 3000, 100_000]),
            read_percent: random.pick(&[10, 40, 70]),
            drive_cache_bytes: random.pick(&[64 << 10, 512 << 10, 64 << 20]),
            block_bytes: random.pick(&[512, 4096]),
            lives: 0,
            write_policy: WritePolicy::AllOnce,
            is_ladder,
            budgets: vec![None; tiers.len()],
            trouble: Trouble::default(),
            background_threads: 1,
            log_slots: None,
            full_percent: FULL_PERCENT,
            tiers,
        };
        scenario.trouble = scenario.trouble(random, strict);
        // Numbers of their own, so that whatever else a seed decides stays as it is without them.
        scenario.draw_policy(&mut Random::new(scenario.hash_seed));
        scenario.draw_moves(&mut Random::new(scenario.hash_seed.rotate_left(17)), moves);
        scenario
    }

    /// Whether drives come and go; then there may be several, and each has room for everything where that is promised.
    fn draw_moves(&mut self, own: &mut Random, always: bool) {
        if self.tiers.is_empty() || self.has_budget() || !(always || own.one_in(6)) {
            return;
        }
        self.trouble.moves = true;
        self.trouble.has_witness = own.percent(50);
        // Which of several old ones is there is not told apart.
        self.trouble.old_drives = false;
        self.trouble.crashes = self.trouble.crashes.max(own.within(2, 8));
        let drives = own.within(2, 4) as usize;
        // Two more may be added while the cache runs.
        let logs = (drives + 2).saturating_sub(self.tiers.len()) as u64 * (256 << 10);
        self.memory_bytes += logs;
        let before: u64 = self.tiers.iter().copied().map(u64::from).sum();
        self.tiers = (0..drives).map(|at| self.tiers[at % self.tiers.len()]).collect();
        self.budgets = vec![None; drives];
        let least = self.tiers.iter().copied().min().unwrap_or(0);
        if self.ample {
            // What the smallest drive has room for.
            self.keys = (u64::from(self.keys) * u64::from(least) / before.max(1)).max(8) as u32;
        }
    }

    /// WritePolicies, lives, background threads, the log's slots, how full tiers may be, and budgets for some of them: from a
    /// segment in a minute to two in a second.
    fn draw_policy(&mut self, random: &mut Random) {
        self.write_policy = random.pick(&[
            WritePolicy::AllOnce,
            WritePolicy::AllOnce,
            WritePolicy::AllTwice,
            WritePolicy::ReusedOnce,
            WritePolicy::ReusedOnce,
            WritePolicy::ReusedNone,
        ]);
        self.lives = random.pick(&[0, 0, 0, 3, 20]);
        let mut own = Random::new(!self.hash_seed);
        self.background_threads = own.pick(&[1, 1, 2, 4]);
        self.log_slots = own.pick(&[None, None, Some(10), Some(12)]);
        if !self.ample && !self.is_ladder {
            self.full_percent = own.pick(&[1, 1, 10, FULL_PERCENT]);
        }
        if self.tiers.is_empty() || !random.percent(30) {
            return;
        }
        for budget in &mut self.budgets {
            let segments = random.pick(&[0.015, 0.1, 0.1, 0.5, 2.0]);
            let is_limited = !random.one_in(4);
            *budget = is_limited.then_some(segments * f64::from(self.segment_bytes));
        }
        self.ample &= !self.has_budget();
    }

    pub(crate) fn has_budget(&self) -> bool {
        self.budgets.iter().any(Option::is_some)
    }

    /// Whether names are so few that a clean stop may find no place for all records: a segment takes one of each name, so
    /// that segments with hardly any record use up the places.
    pub(crate) fn has_few_names(&self) -> bool {
        self.fingerprint_bits < 4
    }

    fn trouble(&self, random: &mut Random, strict: bool) -> Trouble {
        let has_tiers = !self.tiers.is_empty();
        let power = random.percent(35);
        let mut trouble = Trouble {
            errors: has_tiers && random.percent(25),
            // Nobody can tell that the end of a log was never written by a drive that says it was.
            lies: has_tiers && random.percent(25) && !(strict && (power || self.is_ladder)),
            hangs: has_tiers && random.percent(25),
            silence: false,
            reboots: false,
            crashes: if random.percent(60) { random.within(1, 5) } else { 0 },
            power,
            state_loss: random.percent(15),
            // Nor can anybody tell that all that is left is what there was some time ago.
            moves: false,
            has_witness: false,
            old_drives: has_tiers
                && !power
                && (!strict || self.tiers.len() > 1)
                && random.percent(30),
        };
        // What the state says would tell an old drive in most cases.
        trouble.state_loss |= trouble.old_drives && strict;
        // That end is in the state, too, as long as there is one.
        trouble.lies &= !(strict && trouble.state_loss);
        trouble
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(self.memory_bytes);
        config.evict = self.evict;
        config.cas = self.cas;
        config.durability = self.durability;
        config.sessions_max = self.connections + 2;
        config.full_write_policy = self.write_policy;
        config.full_percent = self.full_percent;
        config.background_threads = self.background_threads;
        let rate = |budget: &Option<f64>| match *budget {
            Some(bytes) => WriteRate::BytesPerSecond(bytes),
            None => WriteRate::Unlimited,
        };
        config.write_rates = self.budgets.iter().map(rate).collect();
        config.tuning = Tuning {
            seed: Some(self.hash_seed),
            shards: Some(self.shards),
            segment_bytes: (!self.tiers.is_empty()).then_some(self.segment_bytes),
            fingerprint_bits: self.fingerprint_bits,
            log_ring_pages: 16,
            log_slots: self.log_slots,
            budgets_by_given_time: true,
            ..Tuning::default()
        };
        config
    }

    /// The memory of the run that starts at `step`: with tiers it may be another one each time, but never too little.
    pub(crate) fn memory_bytes_at(&self, step: u64) -> u64 {
        let changes =
            !self.tiers.is_empty() && Random::new(self.hash_seed.rotate_left(1)).one_in(4);
        match step > 0 && changes {
            true => self.memory_bytes * Random::new(self.hash_seed ^ step).pick(&[2, 3, 4, 8]) / 2,
            false => self.memory_bytes,
        }
    }

    /// The time that a drive says it takes to write a MiB, in the run that starts at `step`; zero where it says nothing.
    pub(crate) fn pace_at(&self, step: u64, drive: usize) -> Duration {
        if !Random::new(self.hash_seed.rotate_left(29)).one_in(3) {
            return Duration::ZERO;
        }
        let mut random = Random::new(self.hash_seed ^ step.rotate_left(32) ^ drive as u64);
        Duration::from_millis(random.pick(&[0, 1, 1, 10, 100, 1000]))
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.durability == Durability::Power
    }
}

/// Small values only, values about as long as a page, and values that take several pages or chunks.
fn lengths(random: &mut Random, segment_bytes: u32, has_tiers: bool) -> Vec<usize> {
    let eighth = segment_bytes as usize / 8;
    match random.below(4) {
        0 => vec![0, 8, 60, 100, 200],
        1 => vec![10, 100, 300, 1000, 1500],
        2 => vec![20, 100, 1000, 4200, eighth - 300, eighth],
        _ if has_tiers => vec![60, 200, 3000, eighth, eighth * 2, eighth * 5],
        _ => vec![100, 2000, 6000, 40_000],
    }
}

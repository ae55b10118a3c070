//! The model: from data, load and nodes to how many nodes there must be and what they do.

use crate::latency::{of_drive, of_processor};
use crate::layout::{INDEX_SHARE_MAX, PAGE};
use crate::{Data, Drive, Latency, Layout, LeastMemory, PlanError, network, slice};

/// Live bytes a tier is planned for unless told otherwise; above this share the server counts it as full.
pub const TIER_FULL: f64 = 0.8;
/// Of what a drive, a network or a processor can do, what is planned for.
pub(crate) const LOAD_MAX: f64 = 0.7;
/// Drive reads per hit on flash, and per miss.
const READS_PER_HIT: f64 = 1.01;
const READS_PER_MISS: f64 = 0.002;
/// Processor time per request in seconds at one request in flight per connection, from DRAM and
/// from flash; pipelines and multigets need less.
pub(crate) const CPU_DRAM: f64 = 10e-6;
const CPU_FLASH: f64 = 19e-6;
/// A search beyond so many nodes has no sensible answer.
const NODES_MAX: u32 = 100_000;
/// Limits that are looked for by their names.
const DRIVE_WRITES: &str = "drive writes";
const DRIVE_ENDURANCE: &str = "drive endurance";
const DAY: f64 = 86_400.0;
const MIB: f64 = (1 << 20) as f64;

/// Requests of all clients together.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests per second.
    pub per_second: f64,
    /// Share of them that read, 0 to 1; the others store.
    pub get_share: f64,
    /// Whether usual days are like that: it was said, or is the mean of a day at least. Else nobody knows how long a
    /// drive lasts.
    pub is_usual: bool,
}

/// How much of each drive becomes a tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TierSize {
    /// As much as the records need, and more where the drive would wear out else: less needs less DRAM.
    Needed,
    /// All of it, or as much as a server with the node's DRAM takes.
    Whole,
    /// So many bytes.
    Bytes(f64),
}

/// One machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// DRAM for the cache (`-m`), in bytes.
    pub memory_bytes: f64,
    /// Its drives, all alike.
    pub drive: Drive,
    /// How many of them.
    pub drives: f64,
    /// What of each is a tier.
    pub tier: TierSize,
    /// Network, in bits per second and direction.
    pub network_bits: f64,
    /// Cores for the server.
    pub cores: f64,
    /// Share of a tier that records may take before it counts as full (`--tier-full`), up to 1.
    pub tier_full: f64,
}

/// What the user pays, in any currency.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// A GiB of DRAM.
    pub dram_gib: f64,
    /// One drive.
    pub drive: f64,
    /// A node without DRAM for the cache and without drives.
    pub node: f64,
}

/// How much of a resource is used, of what is planned for; above 1 it doesn't suffice.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The resource.
    pub name: &'static str,
    /// Share used.
    pub used: f64,
}

/// What comes out, for all nodes together where not said otherwise.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes that suffice, or as many as were asked for.
    pub nodes: f64,
    /// Records that are live at the same time.
    pub live_items: f64,
    /// Records that the nodes can hold.
    pub capacity_items: f64,
    /// How records lie on the tier of a node.
    pub layout: Layout,
    /// Index, page tables and segment rows, in bytes of DRAM.
    pub index_bytes: f64,
    /// Write buffers, in bytes of DRAM.
    pub buffer_bytes: f64,
    /// The least `-m` of a node that holds its share of the records, with no room for hot ones: index
    /// and buffers, which are smaller with less memory.
    pub least_memory_bytes: f64,
    /// Bytes of DRAM that remain for hot records.
    pub hot_bytes: f64,
    /// Bytes of flash in use, of all there is.
    pub flash_used_bytes: f64,
    /// All flash that is a tier.
    pub flash_bytes: f64,
    /// Bytes of each drive that are a tier.
    pub tier_bytes: f64,
    /// What a server with such tiers asks for.
    pub asked: LeastMemory,
    /// The least `-m` with which tiers can be all of a node's drives, where there is too little DRAM for more.
    pub whole_memory_bytes: Option<f64>,
    /// Share of reads answered from DRAM (with ideal knowledge, or the trace's recency).
    pub dram_hits: f64,
    /// Share of reads answered from flash.
    pub flash_hits: f64,
    /// Times of GETs that DRAM answers, network aside; none where requests only queue.
    pub dram_latency: Option<Latency>,
    /// Times of those that flash answers; none as well where the drive's are not known.
    pub flash_latency: Option<Latency>,
    /// Processor time per request in microseconds.
    pub cpu_us: f64,
    /// Reads per second of each drive.
    pub drive_reads: f64,
    /// Bytes per second written to each drive.
    pub drive_write_bytes: f64,
    /// Bytes per second on the network, headers included: into each node and out of it. At most these.
    pub network_bytes: (f64, f64),
    /// Bytes written per byte of key and value stored: at most this.
    pub write_amplification: f64,
    /// Whole drives written per day.
    pub drive_writes_per_day: f64,
    /// Bytes that a drive may be written in all, as its maker allows; none if unknown.
    pub endurance_bytes: Option<f64>,
    /// Years until it was; none if that or the usual load is unknown, or nothing is written.
    pub life_years: Option<f64>,
    /// Each resource of a node, the scarcest first.
    pub limits: Vec<Limit>,
    /// Nodes that memcached needs to hold the same in DRAM, and their bytes.
    pub memcached: (f64, f64),
    /// The same with extstore on the same nodes; DRAM without any values.
    pub extstore: (f64, f64),
    /// What memcached is for the same money.
    pub same_money: Option<SameMoney>,
    /// Cost of the three: Terrace, memcached, extstore.
    pub costs: Option<[f64; 3]>,
    /// Bytes of `-m` with the share of reads that DRAM answers then, the least first.
    pub by_memory: Vec<(f64, f64)>,
    /// Why DRAM alone would serve better; empty if it would not.
    pub stay_in_dram: Vec<String>,
    /// What was asked for.
    pub load: Load,
    /// What each node is.
    pub node: Node,
}

/// Nodes with memcached, their drives left out, for what Terrace costs.
#[derive(Clone, Copy, Debug)]
pub struct SameMoney {
    /// How many there are.
    pub nodes: f64,
    /// Records for which they have room.
    pub capacity_items: f64,
    /// Their hit ratio.
    pub hits: f64,
}

impl Plan {
    /// Plans for `nodes` nodes, or as few as suffice. `hits` tells the hit ratio of a cache that
    /// holds a share (0 to 1) of the data.
    ///
    /// # Errors
    /// Numbers that are no amounts, items too long for a node, or a load that no number of nodes
    /// bears.
    pub fn new(
        data: &Data,
        load: Load,
        node: &Node,
        prices: Option<Prices>,
        nodes: Option<u32>,
        hits: &dyn Fn(f64) -> f64,
    ) -> Result<Self, PlanError> {
        check(data, load, node, prices)?;
        slice::check(node)?;
        let largest = slice::largest(node);
        let model = Model { data, load, node, largest, hits };
        let mut plan = match nodes {
            Some(nodes) => model.with(f64::from(nodes.max(1)))?,
            None => model.enough()?,
        };
        let asked = |tier_bytes| LeastMemory::of(tier_bytes, node);
        plan.asked = asked(plan.tier_bytes)?;
        let flash = plan.tier_bytes * node.drives;
        let least = model.least_memory(flash, plan.live_items / plan.nodes)?;
        plan.least_memory_bytes = least.max(plan.asked.starts as f64 * MIB);
        if plan.tier_bytes >= largest && largest < node.drive.capacity_bytes {
            let whole = asked(node.drive.capacity_bytes)?;
            plan.whole_memory_bytes = Some(whole.starts as f64 * MIB);
        }
        plan.by_memory = model.by_memory(&plan)?;
        model.compare(&mut plan, prices);
        Ok(plan)
    }

    /// The scarcest resource.
    pub fn binding(&self) -> Limit {
        self.limits[0]
    }

    /// Whether drives are written more than they are planned for.
    fn wears(&self) -> bool {
        let writes = |limit: &&Limit| [DRIVE_WRITES, DRIVE_ENDURANCE].contains(&limit.name);
        self.limits.iter().filter(writes).any(|limit| limit.used > 1.0)
    }
}

fn check(data: &Data, load: Load, node: &Node, prices: Option<Prices>) -> Result<(), PlanError> {
    let positive = [
        ("items", data.items),
        ("bytes per key", data.key_bytes),
        ("DRAM", node.memory_bytes),
        ("drives", node.drives),
        ("a drive's capacity", node.drive.capacity_bytes),
        ("a drive's reads per second", node.drive.read_iops),
        ("a drive's write rate", node.drive.write_bytes_per_second),
        ("network", node.network_bits),
        ("cores", node.cores),
        ("how full a tier may be", node.tier_full),
        ("time to live", data.ttl_seconds.unwrap_or(1.0)),
        ("drive writes per day", node.drive.drive_writes_per_day.unwrap_or(1.0)),
        ("years of warranty", node.drive.warranty_years),
    ];
    for (name, amount) in positive {
        if !(amount.is_finite() && amount > 0.0) {
            return Err(PlanError::Input(format!("{name}: {amount} is not an amount above 0")));
        }
    }
    let sane = |x: f64| x.is_finite() && x >= 0.0;
    if !sane(data.value_bytes) || !sane(load.per_second) || !(0.0..=1.0).contains(&load.get_share) {
        return Err(PlanError::Input("value bytes, rate or share of reads is no amount".into()));
    }
    if let TierSize::Bytes(bytes) = node.tier
        && !(bytes.is_finite() && bytes > 0.0 && bytes <= node.drive.capacity_bytes)
    {
        let text =
            "a tier is larger than its drive; say less of it, or name a larger class (--drive)";
        return Err(PlanError::Input(text.into()));
    }
    if node.tier_full > 1.0 {
        return Err(PlanError::Input("a tier can't be more than full".into()));
    }
    if prices.is_some_and(|p| ![p.dram_gib, p.drive, p.node].into_iter().all(sane)) {
        return Err(PlanError::Input("a price is no amount".into()));
    }
    Ok(())
}

pub(crate) struct Model<'a> {
    pub(crate) data: &'a Data,
    pub(crate) load: Load,
    pub(crate) node: &'a Node,
    /// Bytes of a drive that can be a tier.
    pub(crate) largest: f64,
    pub(crate) hits: &'a dyn Fn(f64) -> f64,
}

impl Model<'_> {
    /// As few nodes as suffice: every limit falls with their number.
    fn enough(&self) -> Result<Plan, PlanError> {
        let mut most = 1;
        while self.with(f64::from(most))?.limits[0].used > 1.0 {
            most *= 2;
            if most > NODES_MAX {
                let limit = self.with(f64::from(NODES_MAX))?.limits[0].name;
                let text =
                    format!("{NODES_MAX} nodes don't suffice: {limit}; take nodes with more");
                return Err(PlanError::Input(text));
            }
        }
        let mut least = most / 2;
        while most - least > 1 {
            let middle = u32::midpoint(least, most);
            if self.with(f64::from(middle))?.limits[0].used > 1.0 {
                least = middle;
            } else {
                most = middle;
            }
        }
        self.with(f64::from(most))
    }

    fn with(&self, nodes: f64) -> Result<Plan, PlanError> {
        let node = self.node;
        match node.tier {
            TierSize::Whole => return self.with_tiers(nodes, self.largest),
            TierSize::Bytes(bytes) => return self.with_tiers(nodes, bytes),
            TierSize::Needed => {}
        }
        let mut bytes = slice::needed(self.data, node, self.live() / nodes, self.largest)?;
        loop {
            let plan = self.with_tiers(nodes, bytes)?;
            if bytes >= self.largest || !plan.wears() {
                return Ok(plan);
            }
            bytes = slice::next(bytes, self.largest);
        }
    }

    /// Records that live at the same time: no more than were stored within a time to live.
    fn live(&self) -> f64 {
        let sets = self.load.per_second * (1.0 - self.load.get_share);
        let alive = self.data.ttl_seconds.filter(|_| sets > 0.0).map(|ttl| sets * ttl);
        alive.map_or(self.data.items, |alive| self.data.items.min(alive))
    }

    /// With so many bytes of each drive.
    pub(crate) fn with_tiers(&self, nodes: f64, tier_bytes: f64) -> Result<Plan, PlanError> {
        let Self { data, load, node, .. } = *self;
        let flash = tier_bytes * node.drives;
        let layout = Layout::new(data, flash, node.memory_bytes)?;
        let sets = load.per_second * (1.0 - load.get_share);
        let gets = load.per_second * load.get_share;
        let live = self.live();
        let room = layout.capacity(flash) * node.tier_full;
        let most = match node.tier {
            TierSize::Bytes(_) => room,
            TierSize::Needed | TierSize::Whole => {
                let flash = self.largest * node.drives;
                Layout::new(data, flash, node.memory_bytes)?.capacity(flash) * node.tier_full
            }
        };
        let by_index = node.memory_bytes * INDEX_SHARE_MAX / layout.index_bytes_per_record;
        let held = (live / nodes).min(room).min(by_index);
        let index = held * layout.index_bytes_per_record;
        let hot = (node.memory_bytes - index - layout.buffer_bytes).max(0.0);

        let held_share = held * nodes / data.items;
        let hot_share = (hot / data.dram_bytes() * nodes / data.items).min(held_share);
        let all_hits = (self.hits)(held_share);
        let dram_hits = (self.hits)(hot_share).min(all_hits);
        let flash_hits = all_hits - dram_hits;

        let fill = held / layout.capacity(flash);
        let amplification = layout.overwrite_amplification(fill);
        let drives = nodes * node.drives;
        let reads = flash_hits * READS_PER_HIT + (1.0 - all_hits) * READS_PER_MISS;
        let drive_reads = gets * reads / drives;
        let written = sets * data.payload_bytes() * amplification / drives;
        let per_day = written * DAY / node.drive.capacity_bytes;
        let cpu = gets * flash_hits * CPU_FLASH + (gets * (1.0 - flash_hits) + sets) * CPU_DRAM;
        let requests = [gets * all_hits, gets * (1.0 - all_hits), sets].map(|rate| rate / nodes);
        let network = network::bytes(data, requests);

        let busy = cpu / nodes / node.cores;
        // Longer reads are as many pages of a drive's.
        let pages = (layout.read_bytes / PAGE).max(1.0);
        let page_reads = drive_reads * pages;
        let rated = node.drive.drive_writes_per_day;
        let mut limits = vec![
            Limit {
                name: "DRAM (index and buffers)",
                used: layout.memory_needed(live / nodes) / node.memory_bytes,
            },
            Limit { name: "flash capacity", used: live / nodes / most },
            Limit { name: "drive reads", used: page_reads / node.drive.read_iops / LOAD_MAX },
            Limit {
                name: DRIVE_WRITES,
                used: written / node.drive.write_bytes_per_second / LOAD_MAX,
            },
            Limit {
                name: "network",
                // The direction that carries more.
                used: network.0.max(network.1) * 8.0 / node.network_bits / LOAD_MAX,
            },
            Limit { name: "processor", used: busy / LOAD_MAX },
        ];
        if let Some(rated) = rated {
            limits.push(Limit { name: DRIVE_ENDURANCE, used: per_day / rated });
        }
        limits.sort_by(|a, b| b.used.total_cmp(&a.used));
        Ok(Plan {
            nodes,
            live_items: live,
            capacity_items: room.min(by_index) * nodes,
            layout,
            index_bytes: index * nodes,
            buffer_bytes: layout.buffer_bytes * nodes,
            least_memory_bytes: 0.0,
            asked: LeastMemory { starts: 0, fills: 0 },
            whole_memory_bytes: None,
            hot_bytes: hot * nodes,
            flash_used_bytes: layout.flash_for(held, 1.0) * nodes,
            flash_bytes: flash * nodes,
            tier_bytes,
            dram_hits,
            flash_hits,
            dram_latency: of_processor(CPU_DRAM, busy),
            flash_latency: of_drive(&node.drive, page_reads, pages, of_processor(CPU_FLASH, busy)),
            cpu_us: cpu / load.per_second.max(f64::MIN_POSITIVE) * 1e6,
            drive_reads,
            drive_write_bytes: written,
            network_bytes: network,
            write_amplification: amplification,
            drive_writes_per_day: per_day,
            endurance_bytes: node.drive.endurance_bytes(),
            life_years: rated
                .filter(|_| per_day > 0.0 && load.is_usual)
                .map(|rated| rated * node.drive.warranty_years / per_day),
            limits,
            memcached: (0.0, 0.0),
            extstore: (0.0, 0.0),
            same_money: None,
            costs: None,
            by_memory: Vec::new(),
            stay_in_dram: Vec::new(),
            load,
            node: node.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = (1_u64 << 30) as f64;

    fn data(items: f64) -> Data {
        let (key_bytes, value_bytes) = (20.0, 80.0);
        Data { items, key_bytes, value_bytes, ttl_seconds: None, client_flags: false }
    }

    fn node() -> Node {
        let drive = Drive::class("nvme-read-3.84t").unwrap();
        let memory_bytes = 64.0 * GIB;
        let (network_bits, cores, tier_full) = (25e9, 16.0, TIER_FULL);
        let tier = TierSize::Needed;
        Node { memory_bytes, drive, drives: 2.0, tier, network_bits, cores, tier_full }
    }

    fn reasons(data: &Data, load: Load, prices: Option<Prices>) -> Vec<String> {
        Plan::new(data, load, &node(), prices, None, &|share| share).unwrap().stay_in_dram
    }

    fn says(reasons: &[String], part: &str) -> bool {
        reasons.iter().any(|reason| reason.contains(part))
    }

    const READS: Load = Load { per_second: 100_000.0, get_share: 0.99, is_usual: true };

    #[test]
    fn much_data_and_few_writes_want_flash() {
        let prices = Prices { dram_gib: 5.0, drive: 500.0, node: 3000.0 };
        assert_eq!(reasons(&data(5e9), READS, Some(prices)), Vec::<String>::new());
    }

    #[test]
    fn little_data_stays_in_dram() {
        assert!(says(&reasons(&data(1e8), READS, None), "DRAM of one node"));
    }

    #[test]
    fn what_costs_no_more_in_dram_stays_there() {
        let dear_drives = Prices { dram_gib: 0.1, drive: 1e6, node: 100.0 };
        assert!(says(&reasons(&data(5e9), READS, Some(dear_drives)), "DRAM alone costs"));
    }

    #[test]
    fn drives_that_would_wear_out_are_told() {
        let writes = Load { per_second: 5e6, get_share: 0.0, is_usual: true };
        let plan = Plan::new(&data(5e9), writes, &node(), None, Some(1), &|share| share).unwrap();
        assert!(plan.life_years.unwrap() < 5.0);
        assert!(says(&plan.stay_in_dram, "worn out"));
        assert!(plan.binding().used > 1.0, "one node can't do that: {:?}", plan.binding());
    }

    #[test]
    fn less_of_a_tier_holds_fewer_records_and_wears_it_less() {
        let writes = Load { per_second: 1e5, get_share: 0.5, is_usual: true };
        let [most, less] = [0.8, 0.6].map(|tier_full| {
            // Enough for the index of all that the drives hold.
            let tier = TierSize::Whole;
            let node = Node { tier_full, tier, memory_bytes: 512.0 * GIB, ..node() };
            Plan::new(&data(1e11), writes, &node, None, Some(1), &|share| share).unwrap()
        });
        assert!((less.capacity_items / most.capacity_items - 0.75).abs() < 1e-9);
        assert!(less.write_amplification < most.write_amplification / 1.5);
        assert!(less.life_years.unwrap() > most.life_years.unwrap() * 1.5);
        let node = Node { tier_full: 1.01, ..node() };
        assert!(Plan::new(&data(1e9), writes, &node, None, None, &|share| share).is_err());
    }

    #[test]
    fn drives_too_large_for_the_memory_are_used_in_part() {
        let small = Node { memory_bytes: 4.0 * GIB, tier: TierSize::Whole, ..node() };
        let plan =
            |items, node| Plan::new(&data(items), READS, node, None, None, &|share| share).unwrap();
        let few = plan(1e6, &small);
        assert_eq!(few.nodes, 1.0);
        assert!(says(&few.stay_in_dram, "DRAM of one node"));
        assert!(few.flash_bytes < 1900.0 * GIB && few.least_memory_bytes <= 4.0 * GIB);
        let whole = few.whole_memory_bytes.unwrap();
        let told = few.to_string();
        assert!(told.contains("of each drive") && told.contains("all of it takes -m"), "{told}");
        // What a part can't hold takes more nodes.
        assert!(plan(2e10, &small).nodes > 3.0);
        let enough = Node { memory_bytes: whole, ..small.clone() };
        let all = plan(1e6, &enough);
        assert_eq!(all.flash_bytes, 2.0 * 3.84e12);
        assert!(all.whole_memory_bytes.is_none() && !all.to_string().contains("all of it takes"));
        let little = Node { memory_bytes: whole * 0.98, ..small.clone() };
        assert!(plan(1e6, &little).flash_bytes < all.flash_bytes);
    }

    #[test]
    fn no_more_of_drives_is_a_tier_than_the_records_need() {
        let plan = |load, node: &Node| {
            Plan::new(&data(5e9), load, node, None, Some(1), &|share| share).unwrap()
        };
        let slice = plan(READS, &node());
        assert!(slice.capacity_items >= 5e9 * 1.03, "{}", slice.capacity_items);
        assert!(slice.flash_bytes < 2.0 * 3.84e12 / 8.0, "{}", slice.flash_bytes);
        let all = plan(READS, &Node { tier: TierSize::Whole, ..node() });
        assert!(slice.least_memory_bytes < all.least_memory_bytes);
        assert!(slice.hot_bytes >= all.hot_bytes);
        // A tier that is hardly full is written less.
        let writes = Load { per_second: 1.5e6, get_share: 0.5, is_usual: true };
        let larger = plan(writes, &node());
        assert!(larger.flash_bytes > slice.flash_bytes * 1.2, "{}", larger.flash_bytes);
        assert!(larger.flash_bytes >= all.flash_bytes || !larger.wears());
        // More of it is answered by more DRAM, from the least on to twice the node's.
        let (memory, hits): (Vec<_>, Vec<_>) = slice.by_memory.iter().copied().unzip();
        assert!(memory.is_sorted() && hits.is_sorted() && hits[0] < hits[memory.len() - 1]);
        assert!(memory[0] >= slice.least_memory_bytes && memory.contains(&node().memory_bytes));
        let planned = slice.by_memory.iter().find(|(memory, _)| *memory == node().memory_bytes);
        assert_eq!(planned.map(|(_, hits)| *hits), Some(slice.dram_hits));
        let named = plan(READS, &Node { tier: TierSize::Bytes(1000.0 * GIB), ..node() });
        assert_eq!(named.flash_bytes, 2000.0 * GIB);
        let too_large = Node { tier: TierSize::Bytes(4e12), ..node() };
        let error = Plan::new(&data(1.0), READS, &too_large, None, None, &|share| share);
        assert!(error.unwrap_err().to_string().contains("larger than its drive"));
    }

    #[test]
    fn what_expires_soon_stays_in_dram() {
        // No more are alive than were stored within a time to live.
        let load = Load { per_second: 1e6, get_share: 0.5, is_usual: true };
        let short = Data { ttl_seconds: Some(60.0), ..data(5e9) };
        let plan = Plan::new(&short, load, &node(), None, Some(1), &|share| share).unwrap();
        assert_eq!(plan.live_items, 500_000.0 * 60.0);
        assert!(says(&plan.stay_in_dram, "nothing needs to leave DRAM"));
        let long = Data { ttl_seconds: Some(86_400.0), ..data(5e9) };
        let plan = Plan::new(&long, load, &node(), None, Some(1), &|share| share).unwrap();
        assert!(!says(&plan.stay_in_dram, "nothing needs to leave DRAM"));
    }
}

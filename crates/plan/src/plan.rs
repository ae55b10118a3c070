//! The model: from data, load and nodes to how many nodes there must be and what they do.

use crate::layout::INDEX_SHARE_MAX;
use crate::peers::{extstore_dram_bytes, memcached_item_bytes};
use crate::{Data, Drive, Layout, PlanError, network};

/// Live bytes a tier is planned for unless told otherwise; above this share the server counts it as full.
pub const TIER_FULL: f64 = 0.8;
/// Of what a drive, a network or a processor can do, what is planned for.
const LOAD_MAX: f64 = 0.7;
/// Drive reads per hit on flash, and per miss.
const READS_PER_HIT: f64 = 1.01;
const READS_PER_MISS: f64 = 0.002;
/// Processor time per request in seconds at one request in flight per connection, from DRAM and
/// from flash; pipelines and multigets need less.
const CPU_DRAM: f64 = 10e-6;
const CPU_FLASH: f64 = 19e-6;
/// Where the search for the least memory begins, and its steps at most.
const MEMORY_LEAST: f64 = (1 << 20) as f64;
const MEMORY_STEP: f64 = 1.01;
/// A search beyond so many nodes has no sensible answer.
const NODES_MAX: u32 = 100_000;
const DAY: f64 = 86_400.0;

/// Requests of all clients together.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests per second.
    pub per_second: f64,
    /// Share of them that read, 0 to 1; the others store.
    pub get_share: f64,
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
    /// The least `-m` with which a tier can be all of a node's drives, where it is but a part of them.
    pub whole_memory_bytes: Option<f64>,
    /// Share of reads answered from DRAM (with ideal knowledge, or the trace's recency).
    pub dram_hits: f64,
    /// Share of reads answered from flash.
    pub flash_hits: f64,
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
    /// Years until it was; none if that is unknown, or nothing is written.
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
        let all = node.drives * node.drive.capacity_bytes;
        let flash = Layout::usable(data, all, node.memory_bytes);
        let model = Model { data, load, node, flash, hits };
        let mut plan = match nodes {
            Some(nodes) => model.with(f64::from(nodes.max(1)))?,
            None => model.enough()?,
        };
        plan.least_memory_bytes = model.least_memory(flash, plan.live_items / plan.nodes)?;
        if flash < all {
            plan.whole_memory_bytes = Some(model.least_memory(all, 0.0)?);
        }
        model.compare(&mut plan, prices);
        Ok(plan)
    }

    /// The scarcest resource.
    pub fn binding(&self) -> Limit {
        self.limits[0]
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
    if node.tier_full > 1.0 {
        return Err(PlanError::Input("a tier can't be more than full".into()));
    }
    if prices.is_some_and(|p| ![p.dram_gib, p.drive, p.node].into_iter().all(sane)) {
        return Err(PlanError::Input("a price is no amount".into()));
    }
    Ok(())
}

struct Model<'a> {
    data: &'a Data,
    load: Load,
    node: &'a Node,
    /// Bytes of a node's drives that are its tier.
    flash: f64,
    hits: &'a dyn Fn(f64) -> f64,
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
        let Self { data, load, node, flash, .. } = *self;
        let layout = Layout::new(data, flash, node.memory_bytes)?;
        let sets = load.per_second * (1.0 - load.get_share);
        let gets = load.per_second * load.get_share;
        // No more can be alive than was stored within a time to live.
        let alive = data.ttl_seconds.filter(|_| sets > 0.0).map(|ttl| sets * ttl);
        let live = alive.map_or(data.items, |alive| data.items.min(alive));
        let room = layout.capacity(flash) * self.node.tier_full;
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

        let rated = node.drive.drive_writes_per_day;
        let mut limits = vec![
            Limit {
                name: "DRAM (index and buffers)",
                used: layout.memory_needed(live / nodes) / node.memory_bytes,
            },
            Limit { name: "flash capacity", used: live / nodes / room },
            Limit { name: "drive reads", used: drive_reads / node.drive.read_iops / LOAD_MAX },
            Limit {
                name: "drive writes",
                used: written / node.drive.write_bytes_per_second / LOAD_MAX,
            },
            Limit {
                name: "network",
                // The direction that carries more.
                used: network.0.max(network.1) * 8.0 / node.network_bits / LOAD_MAX,
            },
            Limit { name: "processor", used: cpu / nodes / node.cores / LOAD_MAX },
        ];
        if let Some(rated) = rated {
            limits.push(Limit { name: "drive endurance", used: per_day / rated });
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
            whole_memory_bytes: None,
            hot_bytes: hot * nodes,
            flash_used_bytes: layout.flash_for(held, 1.0) * nodes,
            flash_bytes: flash * nodes,
            dram_hits,
            flash_hits,
            cpu_us: cpu / load.per_second.max(f64::MIN_POSITIVE) * 1e6,
            drive_reads,
            drive_write_bytes: written,
            network_bytes: network,
            write_amplification: amplification,
            drive_writes_per_day: per_day,
            endurance_bytes: node.drive.endurance_bytes(),
            life_years: rated
                .filter(|_| per_day > 0.0)
                .map(|rated| rated * node.drive.warranty_years / per_day),
            limits,
            memcached: (0.0, 0.0),
            extstore: (0.0, 0.0),
            same_money: None,
            costs: None,
            stay_in_dram: Vec::new(),
            load,
            node: node.clone(),
        })
    }

    /// The least `-m` with which a node holds `records`, as many of them as so much flash can. Segments,
    /// shards and buffers follow from memory in steps, so that it is looked for from below.
    fn least_memory(&self, flash: f64, records: f64) -> Result<f64, PlanError> {
        let mut memory = MEMORY_LEAST;
        loop {
            let layout = Layout::new(self.data, flash, memory)?;
            let held = records.min(layout.capacity(flash) * self.node.tier_full);
            let needed = layout.memory_needed(held);
            if needed <= memory {
                return Ok(memory);
            }
            memory = needed.ceil().min(memory * MEMORY_STEP);
        }
    }

    /// Fills in the peers and the verdict.
    fn compare(&self, plan: &mut Plan, prices: Option<Prices>) {
        let Self { data, load, node, .. } = *self;
        let served = load.per_second * CPU_DRAM / node.cores / LOAD_MAX;
        let nodes_for = |bytes: f64| (bytes / node.memory_bytes).max(served).ceil().max(1.0);
        let in_dram = plan.live_items * memcached_item_bytes(data);
        plan.memcached = (nodes_for(in_dram), in_dram);
        let headers = plan.live_items * extstore_dram_bytes(data);
        plan.extstore = (nodes_for(headers).max(plan.nodes), headers);
        if let Some(prices) = prices {
            let dram = prices.node + prices.dram_gib * node.memory_bytes / f64::from(1 << 30);
            let with_drives = dram + prices.drive * node.drives;
            let costs =
                [plan.nodes * with_drives, plan.memcached.0 * dram, plan.extstore.0 * with_drives];
            plan.costs = Some(costs);
            let nodes = if dram > 0.0 { (costs[0] / dram).floor() } else { plan.memcached.0 };
            let capacity_items = nodes * node.memory_bytes / memcached_item_bytes(data);
            let share = capacity_items.min(plan.live_items) / data.items;
            plan.same_money = Some(SameMoney { nodes, capacity_items, hits: (self.hits)(share) });
        }
        plan.stay_in_dram = self.reasons(plan);
    }

    fn reasons(&self, plan: &Plan) -> Vec<String> {
        let mut reasons = Vec::new();
        if let Some([terrace, memcached, _]) = plan.costs
            && memcached <= terrace
        {
            reasons.push(format!("DRAM alone costs {memcached:.0}, with flash it is {terrace:.0}"));
        }
        if plan.memcached.0 <= 1.0 {
            reasons.push("all of it fits into the DRAM of one node".into());
        } else if plan.memcached.0 <= plan.nodes {
            let nodes = plan.memcached.0;
            reasons.push(format!("memcached needs no more nodes ({nodes:.0}) with all in DRAM"));
        }
        if let Some(years) = plan.life_years
            && years < self.node.drive.warranty_years
        {
            reasons.push(format!("these drives would be worn out after {years:.1} years"));
        }
        if let Some(ttl) = self.data.ttl_seconds
            && plan.live_items * self.data.dram_bytes() < plan.hot_bytes
        {
            reasons.push(format!("with a time to live of {ttl:.0} s nothing needs to leave DRAM"));
        }
        reasons
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
        Node { memory_bytes, drive, drives: 2.0, network_bits, cores, tier_full }
    }

    fn reasons(data: &Data, load: Load, prices: Option<Prices>) -> Vec<String> {
        Plan::new(data, load, &node(), prices, None, &|share| share).unwrap().stay_in_dram
    }

    fn says(reasons: &[String], part: &str) -> bool {
        reasons.iter().any(|reason| reason.contains(part))
    }

    const READS: Load = Load { per_second: 100_000.0, get_share: 0.99 };

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
        let writes = Load { per_second: 5e6, get_share: 0.0 };
        let plan = Plan::new(&data(5e9), writes, &node(), None, Some(1), &|share| share).unwrap();
        assert!(plan.life_years.unwrap() < 5.0);
        assert!(says(&plan.stay_in_dram, "worn out"));
        assert!(plan.binding().used > 1.0, "one node can't do that: {:?}", plan.binding());
    }

    #[test]
    fn less_of_a_tier_holds_fewer_records_and_wears_it_less() {
        let writes = Load { per_second: 1e5, get_share: 0.5 };
        let [most, less] = [0.8, 0.6].map(|tier_full| {
            // Enough for the index of all that the drives hold.
            let node = Node { tier_full, memory_bytes: 512.0 * GIB, ..node() };
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
        let small = Node { memory_bytes: 4.0 * GIB, ..node() };
        let plan =
            |items, node| Plan::new(&data(items), READS, node, None, None, &|share| share).unwrap();
        let few = plan(1e6, &small);
        assert_eq!(few.nodes, 1.0);
        assert!(says(&few.stay_in_dram, "DRAM of one node"));
        assert!(few.flash_bytes < 1844.0 * GIB && few.least_memory_bytes <= 4.0 * GIB);
        let whole = few.whole_memory_bytes.unwrap();
        assert_eq!(whole, 16.0 * GIB);
        let told = few.to_string();
        assert!(told.contains("of each drive") && told.contains("all of it takes -m"), "{told}");
        // What a part can't hold takes more nodes.
        assert!(plan(2e10, &small).nodes > 3.0);
        let enough = Node { memory_bytes: whole, ..node() };
        let all = plan(1e6, &enough);
        assert_eq!(all.flash_bytes, 2.0 * 3.84e12);
        assert!(all.whole_memory_bytes.is_none() && !all.to_string().contains("of each drive"));
    }

    #[test]
    fn what_expires_soon_stays_in_dram() {
        // No more are alive than were stored within a time to live.
        let load = Load { per_second: 1e6, get_share: 0.5 };
        let short = Data { ttl_seconds: Some(60.0), ..data(5e9) };
        let plan = Plan::new(&short, load, &node(), None, Some(1), &|share| share).unwrap();
        assert_eq!(plan.live_items, 500_000.0 * 60.0);
        assert!(says(&plan.stay_in_dram, "nothing needs to leave DRAM"));
        let long = Data { ttl_seconds: Some(86_400.0), ..data(5e9) };
        let plan = Plan::new(&long, load, &node(), None, Some(1), &|share| share).unwrap();
        assert!(!says(&plan.stay_in_dram, "nothing needs to leave DRAM"));
    }
}

//! The same data in DRAM alone, and whether that is better.

use crate::peers::{extstore_dram_bytes, memcached_item_bytes};
use crate::plan::{CPU_DRAM, LOAD_MAX, Model};
use crate::{Plan, Prices, SameMoney};

impl Model<'_> {
    /// Fills in the peers and the verdict.
    pub(crate) fn compare(&self, plan: &mut Plan, prices: Option<Prices>) {
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

//! How much `-m` records need, and what more of it brings.

use crate::plan::Model;
use crate::{Layout, Node, Plan, PlanError};

const MIB: f64 = (1 << 20) as f64;
/// Where the search for the least memory begins, and its steps at most.
const MEMORY_LEAST: f64 = (1 << 20) as f64;
const MEMORY_STEP: f64 = 1.01;
/// With so many times the memory buffers have grown as far as they do.
const BUFFERS_GROW: f64 = 8.0;
/// Rows of the table of what DRAM answers, besides the first.
const ROWS_MAX: usize = 5;

impl Model<'_> {
    /// The least `-m` from which on a node holds `records`, as many of them as so much flash can. Segments, shards and
    /// buffers follow from memory in steps, so that somewhat more than what is enough can be too little.
    pub(crate) fn least_memory(&self, flash: f64, records: f64) -> Result<f64, PlanError> {
        let needed = |memory| {
            let layout = Layout::new(self.data, flash, memory)?;
            let held = records.min(layout.capacity(flash) * self.node.tier_full);
            Ok::<_, PlanError>(layout.memory_needed(held))
        };
        let mut enough = MEMORY_LEAST;
        while needed(enough)? > enough {
            enough = needed(enough)?.ceil().min(enough * MEMORY_STEP);
        }
        let mut memory = enough * BUFFERS_GROW;
        while memory / MEMORY_STEP >= enough
            && needed(memory / MEMORY_STEP)? <= memory / MEMORY_STEP
        {
            memory /= MEMORY_STEP;
        }
        // That of the node may be enough all the same.
        let own = self.node.memory_bytes;
        Ok(if needed(own)? <= own { memory.min(own) } else { memory })
    }

    /// What DRAM answers with the least `-m`, and with others up to twice that of the node.
    pub(crate) fn by_memory(&self, plan: &Plan) -> Result<Vec<(f64, f64)>, PlanError> {
        let least = (plan.least_memory_bytes / MIB).ceil() * MIB;
        let most = self.node.memory_bytes * 2.0;
        let others = std::iter::successors(Some(most), |memory| Some(memory / 2.0));
        let mut all: Vec<_> =
            others.take_while(|memory| *memory > least * 1.1).take(ROWS_MAX).collect();
        all.push(least);
        let hits = |memory_bytes| {
            let node = Node { memory_bytes, ..self.node.clone() };
            let plan = Model { node: &node, ..*self }.with_tiers(plan.nodes, plan.tier_bytes)?;
            Ok((memory_bytes, plan.dram_hits))
        };
        all.into_iter().rev().map(hits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Data, Drive, LeastMemory, Load, TIER_FULL, TierSize};
    use terrace_cache::RECORD_BYTES_WARNED;

    const GIB: f64 = (1_u64 << 30) as f64;

    #[test]
    fn model_needs_about_as_much_as_a_server_asks_for() {
        for gib in [2.0, 20.0, 100.0, 512.0, 1024.0, 4096.0] {
            let drive = Drive { capacity_bytes: gib * GIB, ..Drive::class("optane-0.4t").unwrap() };
            let (drives, tier, tier_full) = (1.0, TierSize::Whole, TIER_FULL);
            let (memory_bytes, network_bits, cores) = (64.0 * GIB, 1e9, 16.0);
            let node = Node { memory_bytes, drive, drives, tier, network_bits, cores, tier_full };
            // With headers they are of 512 bytes.
            let (key_bytes, value_bytes) = (20.0, 480.0);
            let items = gib * GIB * tier_full / RECORD_BYTES_WARNED as f64;
            let data =
                Data { items, key_bytes, value_bytes, ttl_seconds: None, client_flags: false };
            let load = Load { per_second: 1.0, get_share: 1.0, is_usual: true };
            let model =
                Model { data: &data, load, node: &node, largest: gib * GIB, hits: &|share| share };
            let least = model.least_memory(gib * GIB, items).unwrap() / MIB;
            let asked = LeastMemory::of(gib * GIB, &node).unwrap();
            println!("{gib} GiB: model {least:.0}, server {}", asked.fills);
            assert!((least / asked.fills as f64 - 1.0).abs() < 0.1, "{gib}: {least} for {asked:?}");
        }
    }
}

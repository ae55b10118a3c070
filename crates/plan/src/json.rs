//! The answer as one JSON object. Its form is documented in docs/plan.md: names stay, new ones may come.

use crate::Latency;
use crate::answer::{Answer, RECORD_BYTES, SizesRow};
use serde_json::{Map, Value, json};

const MIB: u64 = 1 << 20;
const DAY: f64 = 86_400.0;

impl Answer {
    pub(crate) fn json(&self) -> Value {
        let Self { plan, .. } = self;
        json!({
            "assumptions": self.assumed(),
            "proposal": self.proposed(),
            "expected": self.expected(),
            "dram_hit_ratio_by_memory": plan.by_memory.iter().map(|(memory, hits)| json!({
                "memory_bytes": memory,
                "dram_hit_ratio": hits,
            })).collect::<Vec<_>>(),
            "memory_by_tier": self.sizes.rows.iter().map(|row| self.least(row)).collect::<Vec<_>>(),
            "stay_in_dram": plan.stay_in_dram,
            "warnings": self.warnings,
        })
    }

    fn least(&self, row: &SizesRow) -> Value {
        let mut told = json!({
            "drives": self.plan.node.drives,
            "tier_bytes": row.tier_bytes,
            "these_records": row.of_these * MIB,
        });
        for (record_bytes, least) in RECORD_BYTES.iter().zip(&row.of) {
            told[format!("records_of_{record_bytes}_bytes")] = json!(least * MIB);
        }
        told
    }

    fn assumed(&self) -> Value {
        let all = self.assumptions.iter();
        let named = all.map(|a| (a.name.to_owned(), json!({ "value": a.value, "from": a.from })));
        Value::Object(named.collect::<Map<_, _>>())
    }

    fn proposed(&self) -> Value {
        let Self { proposal, plan, .. } = self;
        let tiers = proposal.tiers.iter();
        let tiers = tiers.map(|tier| json!({ "path": tier.path, "bytes": tier.bytes }));
        json!({
            "nodes": plan.nodes,
            "arguments": proposal.arguments(),
            "command": proposal.command(),
            "toml": proposal.toml(),
            "tiers": tiers.collect::<Vec<_>>(),
            "memory_bytes": proposal.memory_mib * MIB,
            "least_memory_bytes": plan.least_memory_bytes,
        })
    }

    fn expected(&self) -> Value {
        let Self { plan, .. } = self;
        let gets = plan.load.per_second * plan.load.get_share;
        let hits = plan.dram_hits + plan.flash_hits;
        let (into, out) = plan.network_bytes;
        json!({
            "live_records": plan.live_items,
            "record_bytes": self.sizes.record_bytes,
            "room_for_records": plan.capacity_items,
            "hit_ratio": hits,
            "dram_hit_ratio": plan.dram_hits,
            "flash_hit_ratio": plan.flash_hits,
            "misses_per_second": gets * (1.0 - hits),
            "latency_us": { "dram": latency(plan.dram_latency), "flash": latency(plan.flash_latency) },
            "memory": {
                "index_bytes": plan.index_bytes / plan.nodes,
                "buffer_bytes": plan.buffer_bytes / plan.nodes,
                "hot_bytes": plan.hot_bytes / plan.nodes,
            },
            "each_drive": {
                "reads_per_second": plan.drive_reads,
                "written_bytes_per_second": plan.drive_write_bytes,
                "written_bytes_per_day": plan.drive_write_bytes * DAY,
                "drive_writes_per_day": plan.drive_writes_per_day,
                "life_years": plan.life_years,
            },
            "write_amplification": plan.write_amplification,
            "processor_us_per_request": plan.cpu_us,
            "network_bytes_per_second": { "in": into, "out": out },
            "limits": plan.limits.iter().map(|limit| json!({ "name": limit.name, "used": limit.used }))
                .collect::<Vec<_>>(),
            "memcached": { "nodes": plan.memcached.0, "memory_bytes": plan.memcached.1 },
            "extstore": { "nodes": plan.extstore.0, "memory_bytes": plan.extstore.1 },
            "costs": plan.costs.map(|[terrace, memcached, extstore]| json!({
                "terrace": terrace, "memcached": memcached, "extstore": extstore,
            })),
        })
    }
}

fn latency(of: Option<Latency>) -> Value {
    of.map_or(Value::Null, |latency| json!({ "p50": latency.p50_us, "p99": latency.p99_us }))
}

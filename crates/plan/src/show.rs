//! The plan as a table.

use crate::{Node, Plan, SameMoney};
use std::fmt;

const MIB: f64 = (1 << 20) as f64;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, text: String| writeln!(f, "{name:<26}{text}");
        let all_hits = self.dram_hits + self.flash_hits;
        row("nodes", format!("{:.0}, each {}", self.nodes, kind(&self.node)))?;
        row(
            "records",
            format!("{} live, room for {}", count(self.live_items), count(self.capacity_items)),
        )?;
        row(
            "DRAM, all nodes",
            format!(
                "{} index ({:.2} B per record), {} buffers, {} for hot records",
                bytes(self.index_bytes),
                self.layout.index_bytes_per_record,
                bytes(self.buffer_bytes),
                bytes(self.hot_bytes)
            ),
        )?;
        row(
            "DRAM, least per node",
            format!(
                "-m {:.0} for index and buffers alone, with nothing left for hot records",
                (self.least_memory_bytes / MIB).ceil()
            ),
        )?;
        row(
            "flash, all nodes",
            format!("{} of {}", bytes(self.flash_used_bytes), bytes(self.flash_bytes)),
        )?;
        if let Some(memory) = self.whole_memory_bytes {
            let part = bytes(self.flash_bytes / self.nodes / self.node.drives);
            let all = bytes(self.node.drive.capacity_bytes);
            let memory = (memory / MIB).ceil();
            row("  of each drive", format!("{part} of {all}; all of it takes -m {memory:.0}"))?;
        }
        row(
            "hits",
            format!(
                "{:.2} % = {:.2} % DRAM (at best) + {:.2} % flash",
                all_hits * 100.0,
                self.dram_hits * 100.0,
                self.flash_hits * 100.0
            ),
        )?;
        row("processor per request", format!("{:.1} us, without pipelines", self.cpu_us))?;
        let (into, out) = self.network_bytes;
        row("network per node", format!("{}/s in, {}/s out, at most", bytes(into), bytes(out)))?;
        row("reads per drive", format!("{}/s", count(self.drive_reads)))?;
        row("written per drive", format!("{}/s", bytes(self.drive_write_bytes)))?;
        row(
            "write amplification",
            format!(
                "{:.2} without reclaim, at most {:.2} with overwrites at random",
                self.layout.write_amplification, self.write_amplification
            ),
        )?;
        let life = match (self.endurance_bytes, self.life_years) {
            (None, _) => "; endurance unknown".into(),
            (Some(_), None) => "; never worn out".into(),
            (Some(bytes), Some(years)) => {
                format!("; {years:.1} years until worn out by {:.2} PB written", bytes / 1e15)
            }
        };
        row("drive writes per day", format!("{:.3}{life}", self.drive_writes_per_day))?;
        row("limits, of what is planned", String::new())?;
        for (at, limit) in self.limits.iter().enumerate() {
            let binds = if at == 0 { "   <- binds first" } else { "" };
            row(&format!("  {}", limit.name), format!("{:6.1} %{binds}", limit.used * 100.0))?;
        }
        let gets = self.load.per_second * self.load.get_share;
        row("behind the cache", format!("{} reads/s", count(gets * (1.0 - all_hits))))?;
        row("the same data in", "nodes   DRAM, least".into())?;
        let peers = [
            ("  Terrace", (self.nodes, self.least_memory_bytes * self.nodes)),
            ("  memcached, DRAM only", self.memcached),
            ("  memcached with extstore", self.extstore),
        ];
        for (at, (name, (nodes, dram))) in peers.into_iter().enumerate() {
            let cost =
                self.costs.map_or(String::new(), |costs| format!("   cost {:.0}", costs[at]));
            row(name, format!("{nodes:5.0}   {}{cost}", bytes(dram)))?;
        }
        if let Some(SameMoney { nodes, capacity_items, hits }) = self.same_money {
            row(
                "same money, DRAM only",
                format!(
                    "{nodes:.0} nodes, room for {} (Terrace: {:.1} times as many), {:.2} % hits, {} \
                     reads/s behind the cache",
                    count(capacity_items),
                    self.capacity_items / capacity_items,
                    hits * 100.0,
                    count(gets * (1.0 - hits))
                ),
            )?;
        }
        if self.stay_in_dram.is_empty() {
            return row("verdict", "flash pays".into());
        }
        row("verdict", format!("stay in DRAM: {}", self.stay_in_dram.join("; ")))
    }
}

fn kind(node: &Node) -> String {
    let Node { memory_bytes, drive, drives, network_bits, cores, .. } = node;
    format!(
        "-m {:.0}, {drives:.0} x {} of {}, {:.0} Gbit/s, {cores:.0} cores",
        memory_bytes / MIB,
        drive.name,
        bytes(drive.capacity_bytes),
        network_bits / 1e9
    )
}

fn bytes(amount: f64) -> String {
    scaled(amount, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

fn count(amount: f64) -> String {
    scaled(amount, 1000.0, &["", "thousand", "million", "billion"])
}

fn scaled(mut amount: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while amount >= step && unit + 1 < units.len() {
        amount /= step;
        unit += 1;
    }
    let digits = if unit == 0 { 0 } else { 1 };
    format!("{amount:.digits$} {}", units[unit]).trim_end().to_owned()
}

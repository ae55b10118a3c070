//! The plan as a table.

use crate::Plan;
use std::fmt;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, text: String| writeln!(f, "{name:<26}{text}");
        let all_hits = self.dram_hits + self.flash_hits;
        row("nodes", format!("{:.0}", self.nodes))?;
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
        row("DRAM, least per node", bytes(self.memory_needed_bytes()))?;
        row(
            "flash, all nodes",
            format!("{} of {}", bytes(self.flash_used_bytes), bytes(self.flash_bytes)),
        )?;
        row(
            "hits",
            format!(
                "{:.2} % = {:.2} % DRAM (at best) + {:.2} % flash",
                all_hits * 100.0,
                self.dram_hits * 100.0,
                self.flash_hits * 100.0
            ),
        )?;
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
        row("the same data in", "nodes   DRAM".into())?;
        let peers = [
            ("  Terrace", (self.nodes, self.index_bytes + self.buffer_bytes)),
            ("  memcached, DRAM only", self.memcached),
            ("  memcached with extstore", self.extstore),
        ];
        for (at, (name, (nodes, dram))) in peers.into_iter().enumerate() {
            let cost =
                self.costs.map_or(String::new(), |costs| format!("   cost {:.0}", costs[at]));
            row(name, format!("{nodes:5.0}   {}{cost}", bytes(dram)))?;
        }
        if let Some((nodes, hits)) = self.same_money {
            row(
                "same money, DRAM only",
                format!(
                    "{nodes:.0} nodes, {:.2} % hits, {} reads/s behind the cache",
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

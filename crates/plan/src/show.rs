//! The answer as text: what is assumed, what to run, what to expect.

use crate::answer::{Answer, RECORD_BYTES};
use crate::{Latency, Node, Plan, SameMoney};
use std::fmt;

const MIB: f64 = (1 << 20) as f64;
const DAY: f64 = 86_400.0;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { assumptions, plan, proposal, sizes, warnings } = self;
        writeln!(f, "assumed")?;
        for assumption in assumptions {
            writeln!(f, "  {:<24}{}   ({})", assumption.label, assumption.text, assumption.from)?;
        }
        writeln!(f, "\nrun, on {}", nodes(plan.nodes))?;
        writeln!(f, "  {}", proposal.command())?;
        writeln!(f, "or write into a file for --config")?;
        for line in proposal.toml().lines() {
            writeln!(f, "  {line}")?;
        }
        write!(f, "\nexpected\n{plan}")?;
        let hits = plan
            .by_memory
            .iter()
            .map(|(memory, hits)| format!("-m {:.0} {:.1} %", memory / MIB, hits * 100.0));
        writeln!(f, "\nhits from DRAM by -m\n  {}", hits.collect::<Vec<_>>().join("   "))?;
        writeln!(f, "\nleast -m of a server, by the bytes of the records that fill its tiers")?;
        write!(f, "{:<24}", "  tiers")?;
        for record_bytes in RECORD_BYTES {
            write!(f, "{:>10}", format!("{record_bytes} B"))?;
        }
        writeln!(f, "{:>16}", format!("these, {} B", sizes.record_bytes))?;
        for (at, row) in sizes.rows.iter().enumerate() {
            write!(f, "  {:<22}", format!("{:.0} x {}", plan.node.drives, bytes(row.tier_bytes)))?;
            row.of.iter().try_for_each(|least| write!(f, "{least:>10}"))?;
            let mark = if at == 0 { "   <- proposed" } else { "" };
            writeln!(f, "{:>16}{mark}", row.of_these)?;
        }
        if !warnings.is_empty() {
            writeln!(f)?;
        }
        warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

fn nodes(number: f64) -> String {
    if number == 1.0 { "one node".into() } else { format!("each of {number:.0} nodes") }
}

fn latency(of: Option<Latency>, unknown: &str) -> String {
    of.map_or(unknown.into(), |Latency { p50_us, p99_us }| {
        format!("{p50_us:.0} us, {p99_us:.0} us")
    })
}

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
        let all_takes = self.whole_memory_bytes.map_or(String::new(), |memory| {
            format!("; all of it takes -m {:.0}", (memory / MIB).ceil())
        });
        let (part, all) = (bytes(self.tier_bytes), bytes(self.node.drive.capacity_bytes));
        row("  of each drive", format!("{part} of {all}{all_takes}"))?;
        row(
            "hits",
            format!(
                "{:.2} % = {:.2} % DRAM (at best) + {:.2} % flash",
                all_hits * 100.0,
                self.dram_hits * 100.0,
                self.flash_hits * 100.0
            ),
        )?;
        let queues = "requests only queue: too much is asked of it";
        row("GET from DRAM, p50, p99", latency(self.dram_latency, queues))?;
        let is_known = self.node.drive.read_us_p99.is_some();
        let unknown = if is_known { queues } else { "the drive's is unknown" };
        row("GET from flash, p50, p99", latency(self.flash_latency, unknown))?;
        row("processor per request", format!("{:.1} us, without pipelines", self.cpu_us))?;
        let (into, out) = self.network_bytes;
        row("network per node", format!("{}/s in, {}/s out, at most", bytes(into), bytes(out)))?;
        row("reads per drive", format!("{}/s", count(self.drive_reads)))?;
        let (rate, day) = (self.drive_write_bytes, self.drive_write_bytes * DAY);
        row("written per drive", format!("{}/s, {} a day", bytes(rate), bytes(day)))?;
        row(
            "write amplification",
            format!(
                "{:.2} without reclaim, at most {:.2} with overwrites at random",
                self.layout.write_amplification, self.write_amplification
            ),
        )?;
        let life = match (self.endurance_bytes, self.life_years) {
            (None, _) => "; endurance unknown".into(),
            (Some(_), None) if !self.load.is_usual => {
                "; years until worn out are told of a server that is up for a day".into()
            }
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

/// `amount` of bytes with a unit.
pub(crate) fn bytes(amount: f64) -> String {
    scaled(amount, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// A number as people say it.
pub(crate) fn count(amount: f64) -> String {
    scaled(amount, 1000.0, &["", "thousand", "million", "billion"])
}

/// Seconds with a unit.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 2.0 * DAY => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / DAY),
    }
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

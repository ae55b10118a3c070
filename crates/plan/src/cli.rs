//! `terrace plan`: flags into inputs.

use crate::source::Running;
use crate::{Data, Drive, Load, Node, Plan, PlanError, Popularity, Prices, Trace};
use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

const GIB: f64 = (1_u64 << 30) as f64;

/// Says what a cache needs: DRAM, flash, nodes; how it will do; and what it costs.
///
/// With --policy: runs the cache's policy over a trace instead, see `terrace plan --policy --help`.
#[derive(Parser)]
#[command(name = "terrace plan")]
struct Arguments {
    /// Records to be cached; or --trace, or --server.
    #[arg(long)]
    items: Option<f64>,
    /// Bytes per key.
    #[arg(long, default_value_t = 20.0)]
    key_bytes: f64,
    /// Bytes per value.
    #[arg(long)]
    value_bytes: Option<f64>,
    /// Time to live in seconds.
    #[arg(long)]
    ttl: Option<f64>,
    /// Clients set flags.
    #[arg(long)]
    client_flags: bool,
    /// A trace: CSV of time, object, size, or libcachesim's binary form; .zst too.
    #[arg(long, conflicts_with_all = ["items", "server"])]
    trace: Option<String>,
    /// HOST:PORT of a server that has such data now (memcached or Terrace).
    #[arg(long, conflicts_with = "items")]
    server: Option<String>,
    /// Requests per second.
    #[arg(long)]
    rate: Option<f64>,
    /// Reads per hundred requests.
    #[arg(long)]
    get_percent: Option<f64>,
    /// How popular records are; a trace knows itself.
    #[arg(long, value_enum, default_value_t = Choice::ZipfMandelbrot)]
    popularity: Choice,
    /// Exponent: 1.0 for zipf and 2.5 for zipf-mandelbrot if not given.
    #[arg(long)]
    exponent: Option<f64>,
    /// Offset of zipf-mandelbrot, as a share of the key range.
    #[arg(long, default_value_t = 0.03)]
    beta: f64,
    /// GiB of DRAM per node (-m).
    #[arg(long, default_value_t = 64.0)]
    dram: f64,
    /// A drive class, or a profile written by `terrace probe` (a path that ends with .toml).
    #[arg(long, default_value = "nvme-read-3.84t")]
    drive: String,
    /// Drives per node.
    #[arg(long, default_value_t = 2)]
    drives: u32,
    /// Gbit/s of network per node.
    #[arg(long, default_value_t = 25.0)]
    network: f64,
    /// Cores per node.
    #[arg(long, default_value_t = 16)]
    cores: u32,
    /// Percent of a tier that records may take (--tier-full of the server).
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(10..=90))]
    tier_full: u32,
    /// Plan for so many nodes instead of as few as suffice.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// What a GiB of DRAM costs.
    #[arg(long, requires = "price_drive", requires = "price_node")]
    price_dram: Option<f64>,
    /// What a drive costs.
    #[arg(long, requires = "price_dram")]
    price_drive: Option<f64>,
    /// What a node costs without the two.
    #[arg(long, requires = "price_dram")]
    price_node: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    /// All alike.
    Uniform,
    /// Zipf's law.
    Zipf,
    /// Density 1 / (x + beta)^s, as Facebook's ETC.
    ZipfMandelbrot,
}

/// Runs `terrace plan` with its arguments (the first is the program's name): prints the plan, or with
/// `--policy` what the policy laboratory finds.
/// Exit code 2 if there is none.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    if crate::lab::is_asked_for(&arguments) {
        return crate::lab::main(arguments);
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match arguments.plan() {
        Ok(plan) => {
            // Who does not listen any more needs no plan.
            let _ = write!(std::io::stdout(), "{plan}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("terrace plan: {error}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    fn plan(&self) -> Result<Plan, PlanError> {
        // First: a wrong name is answered with all classes, whatever else is missing.
        let node = self.node()?;
        let trace = self.trace.as_deref().map(Trace::read).transpose()?;
        let running = self.server.as_deref().map(Running::ask).transpose()?;
        let data = self.data(trace.as_ref(), running)?;
        let load = Load {
            per_second: self.rate.or(running.map(|r| r.per_second)).unwrap_or(100_000.0),
            get_share: self
                .get_percent
                .map(|percent| percent / 100.0)
                .or(running.map(|r| r.get_share))
                .unwrap_or(0.9),
        };
        let popularity = self.popularity()?;
        let items = data.items;
        let hits = move |share: f64| match &trace {
            Some(trace) => trace.hits(share * trace.bytes),
            None => popularity.hits(share, items),
        };
        let prices = match (self.price_dram, self.price_drive, self.price_node) {
            (Some(dram_gib), Some(drive), Some(node)) => Some(Prices { dram_gib, drive, node }),
            _ => None,
        };
        Plan::new(&data, load, &node, prices, self.nodes, &hits)
    }

    fn data(&self, trace: Option<&Trace>, running: Option<Running>) -> Result<Data, PlanError> {
        let key_bytes = self.key_bytes;
        let payload = trace
            .map(|trace| trace.bytes / trace.objects)
            .or(running.map(|running| running.payload_bytes));
        let items = self.items.or(trace.map(|t| t.objects)).or(running.map(|r| r.items));
        let value = self.value_bytes.or(payload.map(|payload| (payload - key_bytes).max(0.0)));
        let (Some(items), Some(value_bytes)) = (items, value) else {
            let text = "say what is cached: --items and --value-bytes, --trace, or --server";
            return Err(PlanError::Input(text.into()));
        };
        let (ttl_seconds, client_flags) = (self.ttl, self.client_flags);
        Ok(Data { items, key_bytes, value_bytes, ttl_seconds, client_flags })
    }

    fn popularity(&self) -> Result<Popularity, PlanError> {
        let s = self.exponent;
        let popularity = match self.popularity {
            Choice::Uniform => Popularity::Uniform,
            Choice::Zipf => Popularity::Zipf(s.unwrap_or(1.0)),
            Choice::ZipfMandelbrot => {
                Popularity::ZipfMandelbrot { s: s.unwrap_or(2.5), beta: self.beta }
            }
        };
        match popularity {
            Popularity::Zipf(s) if !(s.is_finite() && s >= 0.0) => {
                Err(PlanError::Input(format!("{s} is not an exponent of Zipf's law")))
            }
            Popularity::ZipfMandelbrot { s, beta }
                if !(s.is_finite() && s > 1.0 && beta.is_finite() && beta > 0.0) =>
            {
                let text = "zipf-mandelbrot needs an exponent above 1 and a beta above 0";
                Err(PlanError::Input(text.into()))
            }
            good => Ok(good),
        }
    }

    fn node(&self) -> Result<Node, PlanError> {
        let drive = if self.drive.ends_with(".toml") {
            Drive::profile(&self.drive)?
        } else {
            Drive::class(&self.drive)?
        };
        Ok(Node {
            memory_bytes: self.dram * GIB,
            drive,
            drives: f64::from(self.drives),
            network_bits: self.network * 1e9,
            cores: f64::from(self.cores),
            tier_full: f64::from(self.tier_full) / 100.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_alone_names_the_classes() {
        let arguments = Arguments::try_parse_from(["terrace plan", "--drive", "x"]).unwrap();
        let error = arguments.plan().unwrap_err().to_string();
        assert!(error.contains("nvme-mixed-1.6t"), "{error}");
    }
}

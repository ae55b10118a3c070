//! The flags of `terrace plan`.

use crate::TIER_FULL;
use clap::{Parser, ValueEnum};
use terrace_amounts as amounts;

/// What is taken where no flag, trace or server says otherwise.
pub(crate) const KEY_BYTES: f64 = 20.0;
pub(crate) const PER_SECOND: f64 = 100_000.0;
pub(crate) const GET_SHARE: f64 = 0.9;
pub(crate) const MEMORY_BYTES: f64 = 64.0 * (1_u64 << 30) as f64;
pub(crate) const DRIVE: &str = "nvme-read-3.84t";
pub(crate) const DRIVES: usize = 2;
pub(crate) const NETWORK_BITS: f64 = 25e9;
pub(crate) const CORES: u32 = 16;
pub(crate) const BETA: f64 = 0.03;
pub(crate) const FULL_PERCENT: u32 = (TIER_FULL * 100.0) as u32;

const AFTER: &str = "\
Sizes take k, m, g, t or p as the server's do (powers of 1024), numbers and rates k, m, g or b, t (powers of
1000), times s, m, h or d. Exit code: 0, 2 for wrong usage, 3 if the server does not answer.

Examples:
  terrace plan --items 1g --value-bytes 200 --gets 450k --sets 50k
  terrace plan --server 127.0.0.1:11211 --drive nvme-mixed-1.6t --path /dev/nvme1n1
  terrace plan --trace cluster52.csv.zst --rate 20k --dram 4g --drive drive.toml --json";

/// Says what a cache needs: DRAM, flash, nodes; how it will do; what it costs; and the command line for it.
///
/// What is cached is said by --items and --value-bytes, a --trace, or a running --server. All else has a default, and
/// the plan names each.
///
/// With --policy: runs the cache's policy over a trace instead, see `terrace plan --policy --help`.
#[derive(Parser)]
#[command(name = "terrace plan", after_help = AFTER, next_line_help = false)]
pub(crate) struct Arguments {
    /// Records to be cached; beside --server instead of those that it holds.
    #[arg(long, value_name = "NUMBER", value_parser = amounts::count, help_heading = "What is cached")]
    pub(crate) items: Option<f64>,
    /// Bytes per key, in the mean [default: 20].
    #[arg(long, value_name = "SIZE", value_parser = amounts::bytes, help_heading = "What is cached")]
    pub(crate) key_bytes: Option<f64>,
    /// Bytes per value, in the mean.
    #[arg(long, value_name = "SIZE", value_parser = amounts::bytes, help_heading = "What is cached")]
    pub(crate) value_bytes: Option<f64>,
    /// Time to live [default: none].
    #[arg(long, value_name = "TIME", value_parser = amounts::seconds, help_heading = "What is cached")]
    pub(crate) ttl: Option<f64>,
    /// Clients set flags.
    #[arg(long, help_heading = "What is cached")]
    pub(crate) client_flags: bool,
    /// A trace: CSV of time, object, size, or libcachesim's binary form; .zst too.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["items", "server"], help_heading = "What is cached")]
    pub(crate) trace: Option<String>,
    /// HOST:PORT or Unix socket of a server that has such data now, memcached or Terrace.
    #[arg(long, value_name = "ADDRESS", help_heading = "What is cached")]
    pub(crate) server: Option<String>,

    /// Requests per second [default: 100k, or those of the server].
    #[arg(long, value_name = "RATE", value_parser = amounts::count, help_heading = "Load")]
    pub(crate) rate: Option<f64>,
    /// Reads per hundred requests [default: 90, or those of the server].
    #[arg(long, value_name = "PERCENT", value_parser = amounts::percent, help_heading = "Load")]
    pub(crate) get_percent: Option<f64>,
    /// Reads per second, instead of --rate and --get-percent.
    #[arg(long, value_name = "RATE", value_parser = amounts::count, conflicts_with_all = ["rate", "get_percent"], help_heading = "Load")]
    pub(crate) gets: Option<f64>,
    /// Stores per second.
    #[arg(long, value_name = "RATE", value_parser = amounts::count, conflicts_with_all = ["rate", "get_percent"], help_heading = "Load")]
    pub(crate) sets: Option<f64>,
    /// How popular records are [default: zipf-mandelbrot]; a trace knows itself.
    #[arg(long, value_enum, conflicts_with = "trace", help_heading = "Load")]
    pub(crate) popularity: Option<Choice>,
    /// Exponent of popularity [default: 1.0 for zipf, 2.5 for zipf-mandelbrot].
    #[arg(long, value_name = "NUMBER", value_parser = amounts::number, help_heading = "Load")]
    pub(crate) exponent: Option<f64>,
    /// Offset of zipf-mandelbrot, as a share of the key range [default: 0.03].
    #[arg(long, value_name = "NUMBER", value_parser = amounts::number, help_heading = "Load")]
    pub(crate) beta: Option<f64>,

    /// DRAM per node; a bare number is GiB [default: 64g, or that of the server].
    #[arg(long, value_name = "SIZE", value_parser = amounts::gibibytes, help_heading = "Node")]
    pub(crate) dram: Option<f64>,
    /// The same as the server's -m has it: a bare number is MiB.
    #[arg(short = 'm', long = "memory-limit", value_name = "SIZE", value_parser = amounts::mebibytes, conflicts_with = "dram", help_heading = "Node")]
    pub(crate) memory_limit: Option<f64>,
    /// A drive class (--classes lists them), or a profile written by `terrace probe` (FILE.toml).
    #[arg(long, value_name = "CLASS|FILE", default_value = DRIVE, help_heading = "Node")]
    pub(crate) drive: String,
    /// Drives per node [default: 2, or as many as there are --path].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Node")]
    pub(crate) drives: Option<u32>,
    /// A drive or a file on it, for the command line; may be repeated, once for each.
    #[arg(long, value_name = "PATH", help_heading = "Node")]
    pub(crate) path: Vec<String>,
    /// Whole drives that may be written per day for five years, as its maker says.
    #[arg(long, value_name = "NUMBER", value_parser = amounts::number, help_heading = "Node")]
    pub(crate) dwpd: Option<f64>,
    /// What of each drive is a tier: a size, or `all` [default: as much as the records need].
    #[arg(long, value_name = "SIZE", value_parser = Part::parse, help_heading = "Node")]
    pub(crate) tier_size: Option<Part>,
    /// Percent of a tier that records may take (--tier-full of the server).
    #[arg(long, value_name = "PERCENT", default_value_t = FULL_PERCENT, value_parser = clap::value_parser!(u32).range(10..=90), help_heading = "Node")]
    pub(crate) tier_full: u32,
    /// Network per node; a bare number is Gbit/s [default: 25].
    #[arg(long, value_name = "RATE", value_parser = amounts::bits, help_heading = "Node")]
    pub(crate) network: Option<f64>,
    /// Cores per node, each with a worker thread (-t).
    #[arg(long, value_name = "NUMBER", default_value_t = CORES, value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Node")]
    pub(crate) cores: u32,
    /// Plan for so many nodes instead of as few as suffice.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Node")]
    pub(crate) nodes: Option<u32>,

    /// What a GiB of DRAM costs.
    #[arg(long, value_name = "PRICE", value_parser = amounts::count, requires = "price_drive", requires = "price_node", help_heading = "Prices")]
    pub(crate) price_dram: Option<f64>,
    /// What a drive costs.
    #[arg(long, value_name = "PRICE", value_parser = amounts::count, requires = "price_dram", help_heading = "Prices")]
    pub(crate) price_drive: Option<f64>,
    /// What a node costs without the two.
    #[arg(long, value_name = "PRICE", value_parser = amounts::count, requires = "price_dram", help_heading = "Prices")]
    pub(crate) price_node: Option<f64>,

    /// Print the classes of drives and what is assumed of them.
    #[arg(long)]
    pub(crate) classes: bool,
    /// Print one JSON object; docs/plan.md describes it.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A name of popularity.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Choice {
    /// All alike.
    Uniform,
    /// Zipf's law.
    Zipf,
    /// Density 1 / (x + beta)^s, as Facebook's ETC.
    ZipfMandelbrot,
}

/// What `--tier-size` says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    All,
    Bytes(f64),
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            text => {
                amounts::bytes(text).map(Self::Bytes).map_err(|error| format!("{error}, or all"))
            }
        }
    }
}

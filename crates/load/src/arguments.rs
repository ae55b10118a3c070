//! The command line of `terrace bench`.

use crate::{
    Address, End, Gaps, LoadError, Plan, Popularity, Protocol, Replay, Sizes, Tls, Workload,
};
use clap::{Parser, ValueEnum};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace_amounts as amounts;

/// Timed runs at least so long are divided into windows, unless told otherwise.
const WINDOWS_FROM: f64 = 5.0;

/// Bytes of one value.
fn length(text: &str) -> Result<usize, String> {
    amounts::whole_bytes(text).map(|bytes| bytes as usize)
}

/// One request at least.
fn requests(text: &str) -> Result<u64, String> {
    amounts::whole(text)
        .and_then(|count| if count == 0 { Err("write 1 at least".into()) } else { Ok(count) })
}

/// Puts load on a memcached server and checks every value that comes back.
#[derive(Clone, Parser)]
#[command(name = "terrace bench", version)]
pub(crate) struct Arguments {
    /// What to send.
    workload: Kind,
    /// The server: HOST:PORT, or the path of a Unix socket.
    #[arg(long, default_value = "127.0.0.1:11211")]
    pub(crate) server: String,
    /// Number of the first record; numbers decide keys.
    #[arg(long, default_value = "0", value_parser = amounts::whole)]
    first: u64,
    /// How many records there are.
    #[arg(long, default_value = "100k", value_parser = amounts::whole)]
    records: u64,
    /// The numbers of the records, one a line, where they are not in a row.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["first", "records", "trace", "back_end", "precondition"])]
    among: Option<PathBuf>,
    /// Bytes per key, 16 to 250.
    #[arg(long, default_value_t = 20)]
    key_bytes: usize,
    /// Bytes per value.
    #[arg(long, default_value = "80", value_parser = length)]
    value_bytes: usize,
    /// How long keys and values are.
    #[arg(long, value_enum, default_value_t = Lengths::Fixed)]
    sizes: Lengths,
    /// The trace that `replay` reads: libcachesim's CSV or binary form, plain or .zst.
    #[arg(long)]
    trace: Option<String>,
    /// Requests to send; each record once if not given, or for --seconds.
    #[arg(long, value_parser = requests)]
    requests: Option<u64>,
    /// How long to send, for each point of a series.
    #[arg(long, conflicts_with = "requests", value_parser = amounts::seconds)]
    seconds: Option<f64>,
    /// Seconds before that, which are not reported.
    #[arg(long, default_value = "0", requires = "seconds", value_parser = amounts::seconds)]
    warm_up: f64,
    /// Seconds of the windows of which the longest steady stretch is reported, with --rate or --search all: 1
    /// from --seconds 5 on if not given; 0 for none.
    #[arg(long, requires = "seconds")]
    window: Option<f64>,
    /// Before anything else, stores each record once and overwrites them until reclaim runs steadily.
    #[arg(long)]
    pub(crate) precondition: bool,
    /// Connections, all threads together; several numbers for a series.
    #[arg(short, long, value_delimiter = ',', default_value = "8")]
    connections: Vec<usize>,
    /// Threads of the generator.
    #[arg(short, long, default_value_t = 1)]
    threads: usize,
    /// Requests in flight per connection; several numbers for a series.
    #[arg(short, long, value_delimiter = ',', default_value = "32")]
    depth: Vec<usize>,
    /// Open loop: requests per second, all connections together; several for a series. Latencies
    /// count from when a request was due, however late the server let it be sent. Costs the generator
    /// a core while it waits.
    #[arg(long, value_delimiter = ',', value_parser = amounts::count)]
    rate: Vec<f64>,
    /// The times between requests of an open loop.
    #[arg(long, value_enum, default_value_t = Between::Even)]
    gaps: Between,
    /// Searches the highest rate that keeps a latency, such as mean=1ms or p99=500us.
    #[arg(long, requires = "seconds", conflicts_with_all = ["rate", "batch"])]
    pub(crate) search: Option<String>,
    /// Wait for all replies of --depth requests before the next so many. With --rate so many are due at once.
    #[arg(long)]
    batch: bool,
    /// What to speak.
    #[arg(long, value_enum, default_value_t = Speech::Ascii)]
    protocol: Speech,
    /// Speak TLS with a server whose certificate these CAs vouch for (a PEM file).
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the address.
    #[arg(long, requires = "tls_ca")]
    tls_name: Option<String>,
    /// Speak TLS with whoever answers.
    #[arg(long, conflicts_with = "tls_ca")]
    tls: bool,
    /// Keys per read.
    #[arg(long, default_value_t = 1)]
    multiget: usize,
    /// Reads per hundred requests of `mixed`.
    #[arg(long, default_value_t = 90)]
    get_percent: u32,
    /// Deletes per hundred requests of `mixed`.
    #[arg(long, default_value_t = 0)]
    delete_percent: u32,
    /// Store what was missed after so many microseconds, the latency of a back end; `replay` always
    /// does, at once if not told.
    #[arg(long, value_name = "MICROSECONDS")]
    back_end: Option<u64>,
    /// How `get`, `overwrite` and `mixed` choose records.
    #[arg(long, value_enum, default_value_t = Choice::Uniform)]
    popularity: Choice,
    /// The exponent of --popularity zipf (1.0 if not given) and zipf-mandelbrot (2.5).
    #[arg(long)]
    exponent: Option<f64>,
    /// The offset of --popularity zipf-mandelbrot, as a share of the key range.
    #[arg(long, default_value_t = 0.03)]
    beta: f64,
    /// Time to live of stored records in seconds; 0 for ever.
    #[arg(long, default_value_t = 0)]
    ttl: u32,
    /// Client flags of stored records.
    #[arg(long, default_value_t = 0)]
    flags: u32,
    /// Version of stored values, and what read ones must have.
    #[arg(long, default_value_t = 0)]
    version_of_values: u32,
    /// Accept each version of a value.
    #[arg(long)]
    any_version: bool,
    /// Don't look at values.
    #[arg(long)]
    blind: bool,
    /// Start of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The server's process; taken from its statistics if not given.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// Tell on standard error how far it is, also where that is no terminal.
    #[arg(long)]
    pub(crate) progress: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with tables and curves to this file, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Start Terrace and the server of this command, and compare them by turns. {dir} in a command
    /// stands for a folder of the server's own, {socket} for the path of a Unix socket to listen on;
    /// without it, -l 127.0.0.1 -p -1 are added.
    #[arg(long, value_name = "COMMAND", requires = "seconds",
        conflicts_with_all = ["pid", "server", "search", "warm_up", "window", "tls", "tls_ca"])]
    pub(crate) compare: Option<String>,
    /// Terrace's command for --compare; `terrace` without a path is this program.
    #[arg(long, value_name = "COMMAND", default_value = "terrace -m 1024 -t 1")]
    pub(crate) terrace: String,
    /// Turns that each server of --compare has.
    #[arg(long, default_value_t = 7)]
    pub(crate) rounds: usize,
    /// Cores of both servers of --compare.
    #[arg(long, value_delimiter = ',', value_name = "CORES")]
    pub(crate) server_cpus: Vec<usize>,
    /// Cores of the generator.
    #[arg(long, value_delimiter = ',', value_name = "CORES")]
    pub(crate) cpus: Vec<usize>,
    /// Folder of the files of servers that --compare starts.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Store each record once.
    Fill,
    /// Read each record once.
    Verify,
    /// Read.
    Get,
    /// Store records again.
    Overwrite,
    /// Read, delete, and store the rest again.
    Mixed,
    /// Read as --trace does, and store what was missed.
    Replay,
    /// Store each record once, in the order of their numbers.
    Fillseq,
    /// Store random records, as many as there are.
    Fillrandom,
    /// Read random records, as many as there are.
    Readrandom,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lengths {
    /// As --key-bytes and --value-bytes say.
    Fixed,
    /// As in Facebook's ETC pool, 230 bytes per record in the mean.
    Etc,
}

#[derive(Clone, Copy, ValueEnum)]
enum Between {
    /// All alike.
    Even,
    /// As in Facebook's ETC pool.
    Etc,
}

#[derive(Clone, Copy, ValueEnum)]
enum Speech {
    Ascii,
    Meta,
    Binary,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    /// All alike.
    Uniform,
    /// 80 % of requests for 20 % of records.
    Hot,
    /// Zipf's law.
    Zipf,
    /// Density 1 / (x + beta)^s over the key range, as Facebook's ETC.
    ZipfMandelbrot,
}

impl Arguments {
    /// One plan per point of the series, for this server.
    ///
    /// # Errors
    /// Flags contradict each other, or a file can't be read.
    pub(crate) fn plans(&self, address: &Address) -> Result<Vec<Plan>, LoadError> {
        let plan = self.plan(address)?;
        let rates = match &self.rate[..] {
            [] => vec![None],
            rates => rates.iter().copied().map(Some).collect(),
        };
        let mut plans = Vec::new();
        for &connections in &self.connections {
            for &depth in &self.depth {
                for &rate in &rates {
                    plans.push(Plan { connections, depth, rate, ..plan.clone() });
                }
            }
        }
        Ok(plans)
    }

    fn plan(&self, address: &Address) -> Result<Plan, LoadError> {
        let trace = match (&self.trace, self.workload) {
            (Some(path), Kind::Replay) => Some(Arc::new(Replay::read(path, self.key_bytes)?)),
            (None, Kind::Replay) => return Err(LoadError::Plan("replay needs --trace".into())),
            (Some(_), _) => return Err(LoadError::Plan("--trace is for replay".into())),
            _ => None,
        };
        let fixed = Sizes::Fixed { key: self.key_bytes, value: self.value_bytes };
        let sizes = match (&trace, self.sizes) {
            (Some(trace), _) => trace.sizes(self.key_bytes),
            (None, Lengths::Etc) => Sizes::etc(),
            (None, Lengths::Fixed) => fixed,
        };
        let among = self.among.as_deref().map(numbers).transpose()?;
        let listed = among.as_ref().map_or(self.records, |numbers| numbers.len() as u64);
        let records = trace.as_ref().map_or(listed, |trace| trace.objects());
        let all = trace.as_ref().map_or(listed, |trace| trace.requests());
        let at_once = trace.is_some().then_some(0);
        let seconds = self.seconds.map(|seconds| time(self.warm_up + seconds)).transpose()?;
        Ok(Plan {
            tls: self.tls()?,
            workload: self.workload(trace),
            first: if self.workload == Kind::Replay { 0 } else { self.first },
            among,
            sizes,
            threads: self.threads,
            gaps: match self.gaps {
                Between::Even => Gaps::Even,
                Between::Etc => Gaps::Etc,
            },
            batch: self.batch,
            protocol: match self.protocol {
                Speech::Ascii => Protocol::Ascii,
                Speech::Meta => Protocol::Meta,
                Speech::Binary => Protocol::Binary,
            },
            keys_per_get: self.multiget,
            back_end: self.back_end.or(at_once).map(Duration::from_micros),
            ttl: self.ttl,
            flags: self.flags,
            version: self.version_of_values,
            any_version: self.any_version,
            check: !self.blind,
            seed: self.seed,
            end: match (self.requests, seconds) {
                (Some(requests), _) => End::Requests(requests),
                (None, Some(seconds)) => End::Time(seconds),
                (None, None) => End::Requests(all),
            },
            warm_up: time(self.warm_up)?,
            window: self.window()?,
            progress: self.progress || stderr().is_terminal(),
            ..Plan::new(address.clone(), Workload::Fill, records)
        })
    }

    fn workload(&self, trace: Option<Arc<Replay>>) -> Workload {
        let popularity = match self.popularity {
            Choice::Uniform => Popularity::Uniform,
            Choice::Hot => Popularity::Hot,
            Choice::Zipf => Popularity::Zipf(self.exponent.unwrap_or(1.0)),
            Choice::ZipfMandelbrot => {
                Popularity::ZipfMandelbrot { s: self.exponent.unwrap_or(2.5), beta: self.beta }
            }
        };
        match self.workload {
            Kind::Fill | Kind::Fillseq => Workload::Fill,
            Kind::Verify => Workload::Verify,
            Kind::Get => Workload::Get(popularity),
            Kind::Readrandom => Workload::Get(Popularity::Uniform),
            Kind::Overwrite => Workload::Overwrite(popularity),
            Kind::Fillrandom => Workload::Overwrite(Popularity::Uniform),
            Kind::Mixed => {
                let (get_percent, delete_percent) = (self.get_percent, self.delete_percent);
                Workload::Mixed { popularity, get_percent, delete_percent }
            }
            Kind::Replay => trace.map_or(Workload::Verify, Workload::Replay),
        }
    }

    pub(crate) fn tls(&self) -> Result<Option<Tls>, LoadError> {
        match &self.tls_ca {
            Some(ca) => Tls::trusting(ca, self.tls_name.as_deref()).map(Some),
            None => self.tls.then(Tls::blind).transpose(),
        }
    }

    fn window(&self) -> Result<Option<Duration>, LoadError> {
        let usual = self.seconds.filter(|&seconds| seconds >= WINDOWS_FROM).map(|_| 1.0);
        let window = self.window.or(usual).filter(|&seconds| seconds != 0.0);
        window.map(time).transpose()
    }
}

/// The numbers in a file, one a line.
fn numbers(path: &Path) -> Result<Arc<[u64]>, LoadError> {
    let wrong = |why: String| LoadError::Plan(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let number = |line: &str| line.parse().map_err(|_| wrong(format!("{line:?} is no number")));
    text.lines().map(number).collect()
}

fn time(seconds: f64) -> Result<Duration, LoadError> {
    let wrong = |_| LoadError::Plan(format!("{seconds} is not a number of seconds"));
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}

//! `terrace bench`: puts load on a memcached server and says what came back.

use crate::{Client, End, LoadError, Plan, Popularity, Process, Protocol, Report, Workload, run};
use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

/// Puts load on a memcached server and checks every value that comes back.
#[derive(Parser)]
#[command(name = "terrace bench", version)]
struct Arguments {
    /// What to send.
    workload: Kind,
    /// The server.
    #[arg(long, default_value = "127.0.0.1:11211")]
    server: String,
    /// Number of the first record; numbers decide keys.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many records there are.
    #[arg(long, default_value_t = 100_000)]
    records: u64,
    /// Bytes per key, 16 to 250.
    #[arg(long, default_value_t = 20)]
    key_bytes: usize,
    /// Bytes per value.
    #[arg(long, default_value_t = 80)]
    value_bytes: usize,
    /// Requests to send; each record once if not given, or for --seconds.
    #[arg(long)]
    requests: Option<u64>,
    /// How long to send.
    #[arg(long, conflicts_with = "requests")]
    seconds: Option<f64>,
    /// Connections, all threads together.
    #[arg(short, long, default_value_t = 8)]
    connections: usize,
    /// Threads of the generator.
    #[arg(short, long, default_value_t = 1)]
    threads: usize,
    /// Requests in flight per connection.
    #[arg(short, long, default_value_t = 32)]
    depth: usize,
    /// Open loop: requests per second, all connections together. Latencies count from when a request
    /// was due, however late the server let it be sent. Costs the generator a core while it waits.
    #[arg(long, conflicts_with = "batch")]
    rate: Option<f64>,
    /// Wait for all replies of --depth requests before the next so many.
    #[arg(long)]
    batch: bool,
    /// What to speak.
    #[arg(long, value_enum, default_value_t = Speech::Ascii)]
    protocol: Speech,
    /// Keys per get.
    #[arg(long, default_value_t = 1)]
    multiget: usize,
    /// Reads per hundred requests of `mixed`.
    #[arg(long, default_value_t = 90)]
    get_percent: u32,
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
    pid: Option<u32>,
    /// Tell on standard error how far it is.
    #[arg(long)]
    progress: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Store each record once.
    Fill,
    /// Read each record once.
    Verify,
    /// Read.
    Get,
    /// Store records again.
    Overwrite,
    /// Read, and store the rest again.
    Mixed,
}

#[derive(Clone, Copy, ValueEnum)]
enum Speech {
    Ascii,
    Meta,
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
    fn plan(&self) -> Result<Plan, LoadError> {
        let popularity = match self.popularity {
            Choice::Uniform => Popularity::Uniform,
            Choice::Hot => Popularity::Hot,
            Choice::Zipf => Popularity::Zipf(self.exponent.unwrap_or(1.0)),
            Choice::ZipfMandelbrot => {
                Popularity::ZipfMandelbrot { s: self.exponent.unwrap_or(2.5), beta: self.beta }
            }
        };
        Ok(Plan {
            address: resolve(&self.server)?,
            workload: match self.workload {
                Kind::Fill => Workload::Fill,
                Kind::Verify => Workload::Verify,
                Kind::Get => Workload::Get(popularity),
                Kind::Overwrite => Workload::Overwrite(popularity),
                Kind::Mixed => Workload::Mixed { popularity, get_percent: self.get_percent },
            },
            first: self.first,
            records: self.records,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            connections: self.connections,
            threads: self.threads,
            depth: self.depth,
            rate: self.rate,
            batch: self.batch,
            protocol: match self.protocol {
                Speech::Ascii => Protocol::Ascii,
                Speech::Meta => Protocol::Meta,
            },
            keys_per_get: self.multiget,
            ttl: self.ttl,
            flags: self.flags,
            version: self.version_of_values,
            any_version: self.any_version,
            check: !self.blind,
            seed: self.seed,
            end: match (self.requests, self.seconds) {
                (Some(requests), _) => End::Requests(requests),
                (None, Some(seconds)) => {
                    End::Time(Duration::try_from_secs_f64(seconds).map_err(|_| {
                        LoadError::Plan(format!("{seconds} is not a number of seconds"))
                    })?)
                }
                (None, None) => End::Requests(self.records),
            },
            progress: self.progress,
        })
    }
}

fn resolve(server: &str) -> Result<SocketAddr, LoadError> {
    let not_found = |error| LoadError::Connect { address: server.to_string(), error };
    let mut addresses = server.to_socket_addrs().map_err(not_found)?;
    addresses.next().ok_or_else(|| LoadError::Plan(format!("{server} has no address")))
}

/// The server's process, where this machine runs it.
fn process(arguments: &Arguments, plan: &Plan) -> Option<Process> {
    let told = || -> Option<u32> {
        let stats = Client::connect(plan.address).ok()?.stats("").ok()?;
        stats.get("pid")?.parse().ok()
    };
    let local = plan.address.ip().is_loopback();
    arguments.pid.or_else(|| local.then(told).flatten()).and_then(Process::new)
}

fn measure(arguments: &Arguments) -> Result<Report, LoadError> {
    let plan = arguments.plan()?;
    run(&plan, process(arguments, &plan).as_ref())
}

/// Runs with these arguments (the first is the program's name). Exit code 0: every value was right;
/// 1: some were wrong; 2: the run could not be finished.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match measure(&arguments) {
        Ok(report) => {
            match arguments.json {
                true => println!("{}", serde_json::json!(report)),
                false => print!("{report}"),
            }
            ExitCode::from(u8::from(report.wrong > 0))
        }
        Err(error) => {
            eprintln!("terrace bench: {error}");
            ExitCode::from(2)
        }
    }
}

//! Flags of the laboratory, and its tables.

use super::chart::{Curve, chart};
use super::optimum::Optimum;
use super::peers::{Fifo, Lru};
use super::run::{Counts, run};
use super::s3fifo::S3Fifo;
use super::sieve::Sieve;
use super::stream::{Kind, Stream};
use super::tiers::{Sizes, Tiers};
use super::tinylfu::TinyLfu;
use crate::{PlanError, Popularity, Trace};
use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use terrace_policy::WritePolicy;

/// Runs the cache's policy without I/O over a trace or a made-up stream, beside other policies.
///
/// Sizes are in objects. A trace is measured from its first request on; a made-up stream begins with
/// all objects on flash where they fit, and its second half is measured.
#[derive(Parser)]
#[command(name = "terrace plan")]
struct Arguments {
    /// Run the laboratory instead of planning.
    #[arg(long)]
    policy: bool,
    /// A trace: CSV of time, object, size, or libcachesim's binary form; .zst too.
    #[arg(long, conflicts_with = "stream")]
    trace: Option<String>,
    /// A made-up stream.
    #[arg(long, value_enum)]
    stream: Option<Kind>,
    /// Objects of a made-up stream.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..1 << 31))]
    objects: u32,
    /// Requests of a made-up stream; 20 per object if not given.
    #[arg(long)]
    requests: Option<usize>,
    /// SETs among a hundred requests of a made-up stream.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=99))]
    set_percent: u64,
    /// Objects that fit DRAM and flash together, in percent of all objects.
    #[arg(long, value_delimiter = ',', default_value = "10")]
    cached: Vec<f64>,
    /// Objects that fit DRAM, in percent of those that are cached.
    #[arg(long, value_delimiter = ',', default_value = "10")]
    dram: Vec<f64>,
    /// The part of DRAM that holds what is not written yet, in percent.
    #[arg(long, default_value_t = 25.0)]
    fresh: f64,
    /// Names that the ghost list remembers, in percent of the objects that are cached.
    #[arg(long, default_value_t = 100.0)]
    ghost: f64,
    /// Counters of the sketch per copy in DRAM.
    #[arg(long, default_value_t = 8.0)]
    counters: f64,
    /// Print what a least-recently-used cache of so many bytes would miss of the trace, and nothing else.
    #[arg(long, value_name = "SIZE", value_parser = terrace_amounts::bytes, requires = "trace")]
    lru_bytes: Option<f64>,
    /// Write policies to run.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all-once,all-twice,reused-once,reused-none"
    )]
    write_policies: Vec<WritePolicy>,
    /// Leave the other policies out.
    #[arg(long)]
    alone: bool,
    /// Print the share of GETs that DRAM answers for each stretch of so many requests.
    #[arg(long, default_value_t = 0)]
    every: usize,
    /// Write curves of the miss ratio over --cached (or of --every over time) to this file.
    #[arg(long)]
    svg: Option<String>,
}

/// Whether arguments ask for the laboratory.
pub(crate) fn is_asked_for(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == OsStr::new("--policy"))
}

/// Runs the laboratory; see [`Arguments`]. Exit code 2 if it can't.
pub(crate) fn main(arguments: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match arguments.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("terrace plan: {error}");
            ExitCode::from(2)
        }
    }
}

/// One row of the table.
struct Row {
    name: String,
    counts: Counts,
    series: Vec<f64>,
    note: String,
}

impl Arguments {
    fn run(&self) -> Result<(), PlanError> {
        if let (Some(room), Some(path)) = (self.lru_bytes, &self.trace) {
            println!("{}", of_bytes(&Trace::read(path)?, room));
            return Ok(());
        }
        let stream = self.stream()?;
        println!("{} requests for {} objects", stream.len(), stream.objects);
        println!(
            "{:>7} {:>6}  {:<12} {:>7} {:>11} {:>11} {:>11}  notes",
            "cached", "DRAM", "policy", "misses", "DRAM of all", "DRAM of hits", "writes/miss"
        );
        let (mut curves, mut series) = (Vec::<Curve>::new(), Vec::new());
        for &cached in &self.cached {
            for &dram in &self.dram {
                for row in self.rows(&stream, cached, dram)? {
                    row.print(cached, dram);
                    let name = match self.dram.len() {
                        1 => row.name.clone(),
                        _ => format!("{} {dram} %", row.name),
                    };
                    let time = row.series.iter().zip(1..);
                    let points = time.map(|(y, x)| (f64::from(x) * self.every as f64, *y));
                    series.push(Curve { name: name.clone(), points: points.collect() });
                    let point = (cached, row.counts.miss_ratio());
                    match curves.iter_mut().find(|curve| curve.name == name) {
                        Some(curve) => curve.points.push(point),
                        None => curves.push(Curve { name, points: vec![point] }),
                    }
                }
            }
        }
        self.draw(&curves, &series)
    }

    fn draw(&self, curves: &[Curve], series: &[Curve]) -> Result<(), PlanError> {
        let Some(path) = &self.svg else { return Ok(()) };
        let title = self.trace.clone().unwrap_or_else(|| format!("{:?}", self.stream));
        let svg = match self.every {
            0 => chart(&title, "objects cached, percent", "miss ratio", curves),
            _ => chart(&title, "requests", "DRAM share", series),
        };
        std::fs::write(path, svg).map_err(|error| PlanError::File { path: path.clone(), error })
    }

    fn stream(&self) -> Result<Stream, PlanError> {
        match (&self.trace, self.stream) {
            (Some(path), _) => Stream::read(path),
            (None, Some(kind)) => {
                let length = self.requests.unwrap_or(20 * self.objects as usize);
                Ok(Stream::make(kind, self.objects, length, self.set_percent))
            }
            (None, None) => Err(PlanError::Input("say --trace or --stream".into())),
        }
    }

    fn rows(&self, stream: &Stream, cached: f64, dram: f64) -> Result<Vec<Row>, PlanError> {
        let of = |all: usize, percent: f64| (all as f64 * percent / 100.0).round() as usize;
        let room = of(stream.objects, cached).max(2);
        let dram_room = of(room, dram).max(2);
        let fresh = of(dram_room, self.fresh).max(1);
        let sizes = Sizes {
            fresh,
            copies: dram_room - fresh,
            flash: self.flash(stream, room - fresh.min(room)),
            ghost: of(room, self.ghost),
            counters: self.counters,
        };
        let mut rows = Vec::new();
        for &write_policy in &self.write_policies {
            let mut tiers = Tiers::new(sizes, write_policy, stream.objects);
            if self.stream.is_some() && sizes.flash > stream.objects {
                tiers.load(scattered(stream.objects));
            }
            let (counts, series) = run(&mut tiers, stream, self.warm_up(stream), self.every);
            let (name, note) = (write_policy.to_string(), tiers.describe());
            rows.push(Row { name, counts, series, note });
        }
        if !self.alone {
            rows.extend(self.peers(stream, room));
        }
        if let Some(ideal) = self.ideal(dram_room as f64 / stream.objects as f64) {
            let mut row = Row::bare("ideal DRAM");
            (row.counts.gets, row.counts.dram) = (1 << 40, (ideal * (1u64 << 40) as f64) as u64);
            row.counts.flash = row.counts.gets - row.counts.dram;
            rows.push(row);
        }
        Ok(rows)
    }

    /// Objects that flash has places for. Where all are cached there is room for dead ones, as in a
    /// tier that is not full.
    fn flash(&self, stream: &Stream, room: usize) -> usize {
        let all_fit = self.stream.is_some() && room + room / 8 >= stream.objects;
        if all_fit { stream.objects * 4 / 3 } else { room.max(1) }
    }

    fn warm_up(&self, stream: &Stream) -> usize {
        if self.trace.is_some() { 0 } else { stream.len() / 2 }
    }

    fn peers(&self, stream: &Stream, room: usize) -> Vec<Row> {
        let objects = stream.objects;
        let row = |name: &str, (counts, series)| {
            let mut row = Row::bare(name);
            (row.counts, row.series) = (counts, series);
            row
        };
        let (warm, every) = (self.warm_up(stream), self.every);
        let all = || stream.iter().map(|(object, _)| object);
        vec![
            row("LRU", run(&mut Lru::new(room, objects), stream, warm, every)),
            row("FIFO", run(&mut Fifo::new(room, objects), stream, warm, every)),
            row("SIEVE", run(&mut Sieve::new(room, objects), stream, warm, every)),
            row("S3-FIFO", run(&mut S3Fifo::new(room, 10, objects), stream, warm, every)),
            row("W-TinyLFU", run(&mut TinyLfu::new(room, objects), stream, warm, every)),
            row("optimum", run(&mut Optimum::new(room, all(), objects), stream, warm, every)),
        ]
    }

    /// The share of requests for the objects that DRAM would hold if it held the most popular.
    fn ideal(&self, share: f64) -> Option<f64> {
        let popularity = match self.stream? {
            Kind::Uniform => Popularity::Uniform,
            Kind::Zipf => Popularity::Zipf(1.0),
            Kind::ZipfMandelbrot | Kind::Shift | Kind::Etc => {
                Popularity::ZipfMandelbrot { s: 2.5, beta: 0.03 }
            }
            Kind::Loop | Kind::Scan => return None,
        };
        Some(popularity.hits(share, f64::from(self.objects)))
    }
}

fn of_bytes(trace: &Trace, room: f64) -> String {
    let Trace { requests, objects, bytes, .. } = trace;
    let misses = 1.0 - trace.hits(room);
    format!(
        "{requests} requests for {objects} objects of {bytes} bytes; LRU of {room} bytes: misses {misses:.4}"
    )
}

/// All objects, so that the popular ones do not lie together.
fn scattered(objects: usize) -> impl Iterator<Item = u32> {
    let step = (objects * 5 / 8..).find(|step| gcd(*step, objects) == 1).unwrap_or(1);
    (0..objects).map(move |at| (at * step % objects) as u32)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Row {
    fn bare(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            counts: Counts::default(),
            series: Vec::new(),
            note: String::new(),
        }
    }

    fn print(&self, cached: f64, dram: f64) {
        let counts = &self.counts;
        println!(
            "{cached:>5.1} % {dram:>4.1} %  {:<12} {:>7.4} {:>11.4} {:>12.4} {:>11.3}  {}",
            self.name,
            counts.miss_ratio(),
            counts.dram_share(),
            counts.dram_share_of_hits(),
            counts.writes_per_miss(),
            self.note
        );
        if !self.series.is_empty() {
            let series: Vec<_> = self.series.iter().map(|share| format!("{share:.3}")).collect();
            println!("        DRAM share over time: {}", series.join(" "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_of_bytes_misses_what_came_back_too_late() {
        // 7 comes back after 30 bytes, itself included, 8 after 50.
        let trace = Trace::of(&[(7, 10), (8, 20), (7, 10), (9, 20), (8, 20)]);
        let of_40 = "5 requests for 3 objects of 50 bytes; LRU of 40 bytes: misses 0.8000";
        assert_eq!(of_bytes(&trace, 40.0), of_40);
        assert!(of_bytes(&trace, 50.0).ends_with("misses 0.6000"));
    }
}

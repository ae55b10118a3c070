//! Runs seeds until a count or a time is reached, and says which of them failed.
//!
//! `sim [--from SEED] [--seeds COUNT] [--seconds S] [--failures COUNT] [--threads N]`, or
//! `sim --seed SEED [--trace]`. `--twice` runs every seed twice and compares the runs; with `--ladder` there are
//! several tiers, one below the other; with `--silent` drives answer nothing for a while, now and then. Each seed
//! runs on one thread; as many as there are processors run at once, unless told otherwise.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_sim::{Options, Outcome, Tally, run};

/// After so many failures it is clear that something is wrong, unless told otherwise.
const FAILURES_MAX: u64 = 10;

struct Arguments {
    from: u64,
    seeds: u64,
    limit: Option<Duration>,
    failures_max: u64,
    threads: usize,
    options: Options,
    checks_repetition: bool,
}

/// What is left to be run, and what those that ran came to.
struct Progress {
    start: Instant,
    seeds: Range<u64>,
    sum: Tally,
    runs: u64,
    failures: u64,
}

impl Progress {
    /// The next seed, as long as more are to be run.
    fn next(&mut self, arguments: &Arguments) -> Option<u64> {
        let is_late = arguments.limit.is_some_and(|limit| self.start.elapsed() >= limit);
        let is_over = is_late || self.failures >= arguments.failures_max;
        if is_over { None } else { self.seeds.next() }
    }
}

fn main() -> ExitCode {
    match arguments() {
        Ok(arguments) => simulate(&arguments),
        Err(why) => {
            eprintln!(
                "{why}\nusage: sim [--seed N | --from N] [--seeds N] [--seconds N] [--failures N] [--threads N] [--trace] [--twice] [--ladder] [--silent] [--members]"
            );
            ExitCode::from(2)
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        from: 1,
        seeds: 1000,
        limit: None,
        failures_max: FAILURES_MAX,
        threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        options: Options::default(),
        checks_repetition: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let word = words.next().ok_or("a number is missing")?;
            word.parse::<u64>().map_err(|_| format!("{word}: not a number"))
        };
        match word.as_str() {
            "--seed" => (parsed.from, parsed.seeds) = (number()?, 1),
            "--from" => parsed.from = number()?,
            "--seeds" => parsed.seeds = number()?,
            "--seconds" => {
                parsed.limit = Some(Duration::from_secs(number()?));
                parsed.seeds = u64::MAX - parsed.from;
            }
            "--failures" => parsed.failures_max = number()?,
            "--threads" => parsed.threads = number()?.max(1) as usize,
            "--trace" => parsed.options.prints = true,
            "--ladder" => parsed.options.is_ladder = true,
            "--silent" => parsed.options.falls_silent = true,
            "--members" => parsed.options.moves_drives = true,
            "--twice" => parsed.checks_repetition = true,
            other => return Err(format!("{other}: unknown")),
        }
    }
    Ok(parsed)
}

fn simulate(arguments: &Arguments) -> ExitCode {
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    let (start, sum) = (Instant::now(), Tally::default());
    let progress = Mutex::new(Progress { start, seeds, sum, runs: 0, failures: 0 });
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| run_seeds(arguments, &progress));
        }
    });
    let ended = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary(&ended);
    if ended.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One seed after the other, until none is left.
fn run_seeds(arguments: &Arguments, progress: &Mutex<Progress>) {
    let locked = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(seed) = locked().next(arguments) else { return };
        let outcome = run(seed, arguments.options);
        let is_repeated = !arguments.checks_repetition || outcome.failure.is_some() || {
            run(seed, Options { prints: false, ..arguments.options }).digest == outcome.digest
        };
        // What is printed of one seed stays together.
        let mut progress = locked();
        progress.runs += 1;
        progress.sum.add(&outcome.tally);
        if report(seed, arguments.options, &outcome) {
            progress.failures += 1;
        } else if !is_repeated {
            println!("seed {seed}: another run of it was not the same");
            progress.failures += 1;
        }
    }
}

/// Prints a failure; `false` if there is none.
fn report(seed: u64, options: Options, outcome: &Outcome) -> bool {
    let Some(failure) = &outcome.failure else { return false };
    println!("seed {seed} FAILED at step {}: {}", failure.step, failure.what);
    failure.events.iter().for_each(|event| println!("    {event}"));
    let ladder = if options.is_ladder { " --ladder" } else { "" };
    let silent = if options.falls_silent { " --silent" } else { "" };
    println!(
        "  replay: cargo run --release -p terrace-sim -- --seed {seed}{ladder}{silent} --trace"
    );
    true
}

fn summary(ended: &Progress) {
    let Progress { start, sum, runs, failures, .. } = ended;
    let took = start.elapsed();
    let rate = sum.operations as f64 / took.as_secs_f64() * 60.0;
    println!("{sum:?}");
    println!(
        "{runs} seeds, {} operations, {failures} failures in {:.1} s: {:.2} million operations a minute",
        sum.operations,
        took.as_secs_f64(),
        rate / 1e6
    );
}

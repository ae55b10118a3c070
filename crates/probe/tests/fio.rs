//! Random reads beside fio's on the same file, by turns: within 5 % is what is wanted, and judged.
//!
//! Single rounds differ by more than that on any machine, so that it is the median of the rounds'
//! ratios which is judged, by its confidence interval: as soon as that lies on one side of the bound, or when
//! all rounds are done. Rounds in which other programs were busy, or a processor was what
//! limited the reads, say nothing of the drive and do not count; where too few do, that is told.
//!
//! Only where TERRACE_PROBE_FIO is set (`make test-weekly`), since it takes a minute or two. A number is how
//! many rounds are measured at least, however clear it is.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use terrace_probe::{Access, Target, read};

/// Short ones, many: what changes on the machine falls on both alike.
const NAME: &str = "random_reads_are_those_of_fio";
const TIME: Duration = Duration::from_millis(500);
const ROUNDS_MAX: usize = 100;
/// So many that count are enough for their median to be judged.
const ROUNDS_ENOUGH: usize = 40;
const DEPTH: u32 = 32;
/// How far the median may be from 1.
const APART_MAX: f64 = 0.05;
/// That the interval misses the median by chance, at any of its looks.
const MISSED_MAX: f64 = 0.001;
/// Shares of one processor: what others may use, and what fio or the probe may.
const OTHERS_MAX: f64 = 0.05;
const OWN_MAX: f64 = 0.85;
/// Ticks of the kernel's accounting.
const TICKS_PER_SECOND: f64 = 100.0;

fn fio(path: &Path) -> Option<f64> {
    let output = Command::new("fio")
        .args(["--name=r", "--ioengine=io_uring", "--direct=1", "--rw=randread", "--bs=4k"])
        .args(["--registerfiles", "--fixedbufs", "--time_based", "--output-format=json"])
        // Any block, as the probe, and others in each round: those that it has read already may lie in
        // a cache of the host.
        .args(["--norandommap", "--randrepeat=0"])
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--runtime={}ms", TIME.as_millis()))
        .arg(format!("--filename={}", path.display()))
        .output()
        .ok()?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    json["jobs"][0]["read"]["iops"].as_f64().filter(|per_second| *per_second > 0.0)
}

/// Processor time in ticks, since the start of the machine or of this process.
#[derive(Clone, Copy)]
struct Used {
    /// Of all programs, and of other machines on the same processors. Time within the kernel is not
    /// in it: whose it is can't be told.
    all: f64,
    /// The same of this process and those that it has waited for.
    own: f64,
    /// With their time within the kernel.
    own_with_kernel: f64,
}

impl Used {
    fn now() -> Self {
        let file = |path| std::fs::read_to_string(path).expect("the kernel tells");
        let numbers = |text: &str| -> Vec<f64> {
            text.split_whitespace().map(|word| word.parse().unwrap_or_default()).collect()
        };
        // `cpu user nice system idle iowait irq softirq steal`
        let all = numbers(file("/proc/stat").lines().next().unwrap_or_default());
        // Behind the name: state, ten others, then user, system, and both of children.
        let own = file("/proc/self/stat");
        let own = numbers(own.rsplit(')').next().unwrap_or_default());
        Self {
            all: all[1] + all[2] + all.get(8).unwrap_or(&0.0),
            own: own[11] + own[13],
            own_with_kernel: own[11..15].iter().sum(),
        }
    }
}

/// What a measurement gave, and whether it was the drive that it measured.
fn undisturbed(measure: impl FnOnce() -> Option<f64>) -> Option<(f64, bool)> {
    let (before, start) = (Used::now(), Instant::now());
    let per_second = measure()?;
    let ticks = start.elapsed().as_secs_f64() * TICKS_PER_SECOND;
    let after = Used::now();
    let others = (after.all - before.all) - (after.own - before.own);
    let own = after.own_with_kernel - before.own_with_kernel;
    Some((per_second, others <= OTHERS_MAX * ticks && own <= OWN_MAX * ticks))
}

/// The bounds of the median of what sorted values were drawn from: those between which it lies but
/// for [`MISSED_MAX`]. `None` while they are too few for that.
fn median_bounds(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    // The chance that at most `k` of them lie below the median.
    let (mut chance, mut below) = (0.5_f64.powi(n as i32), 0.0);
    let mut bounds = None;
    for k in 0..n / 2 {
        below += chance;
        if 2.0 * below > MISSED_MAX {
            break;
        }
        bounds = Some((sorted[k], sorted[n - 1 - k]));
        chance *= (n - k) as f64 / (k + 1) as f64;
    }
    bounds
}

#[test]
fn random_reads_are_those_of_fio() {
    let skip = |why: &str| terrace_e2e::skip(NAME, why);
    let Ok(rounds_min) = std::env::var("TERRACE_PROBE_FIO") else {
        return skip("TERRACE_PROBE_FIO is not set");
    };
    let rounds_min: usize = rounds_min.parse().unwrap_or_default();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let path = dir.path().join("file");
    // One that is there keeps its name, by which fio opens it.
    std::fs::File::create(&path).expect("a file");
    let target = Target::open(&path, 1 << 30, false).expect("a target");
    let ours = || Some(read(&target, Access::Random, 4096, DEPTH, TIME).expect("reads").per_second);
    let mut ratios = Vec::new();
    for round in 0..ROUNDS_MAX {
        // Neither is always the first.
        let (theirs, ours) = match round % 2 {
            0 => (undisturbed(|| fio(&path)), undisturbed(ours)),
            _ => {
                let ours = undisturbed(ours);
                (undisturbed(|| fio(&path)), ours)
            }
        };
        let (Some((theirs, quiet)), Some((ours, quiet_too))) = (theirs, ours) else {
            return skip("fio does not run here");
        };
        let (ratio, counts) = (ours / theirs, quiet && quiet_too);
        let note = if counts { "" } else { ", disturbed" };
        println!("fio {theirs:.0}/s, probe {ours:.0}/s, ratio {ratio:.3}{note}");
        if !counts {
            continue;
        }
        ratios.push(ratio);
        ratios.sort_by(f64::total_cmp);
        let Some((least, most)) = median_bounds(&ratios) else { continue };
        let is_clear = least >= 1.0 - APART_MAX && most <= 1.0 + APART_MAX
            || most < 1.0 - APART_MAX
            || least > 1.0 + APART_MAX;
        if is_clear && round + 1 >= rounds_min {
            return judge(&ratios);
        }
    }
    if ratios.len() < ROUNDS_ENOUGH {
        return skip(&format!("only {} of {ROUNDS_MAX} rounds were undisturbed", ratios.len()));
    }
    judge(&ratios);
}

/// Tells the median of sorted ratios with its bounds. It must be within 5 %, unless the bounds leave that
/// open: then it is told to be undecided.
fn judge(ratios: &[f64]) {
    let median = ratios[ratios.len() / 2];
    let (least, most) = median_bounds(ratios).expect("there are enough");
    let sure = (1.0 - MISSED_MAX) * 100.0;
    let rounds = ratios.len();
    let told = format!(
        "the median ratio of {rounds} rounds is {median:.3}, with {sure} % confidence {least:.3} to {most:.3}"
    );
    println!("{told}");
    let is_apart = most < 1.0 - APART_MAX || least > 1.0 + APART_MAX;
    assert!(!is_apart, "not within 5 %: {told}");
    if (median - 1.0).abs() > APART_MAX {
        terrace_e2e::skip(NAME, "undecided");
    }
}

#[test]
fn bounds_of_a_median_need_some_values_and_close_in() {
    let values = |n: u32| (0..n).map(f64::from).collect::<Vec<_>>();
    // Ten on one side of the median: two in 1024 by chance, more than allowed; eleven are enough.
    assert_eq!(median_bounds(&values(10)), None);
    assert_eq!(median_bounds(&values(11)), Some((0.0, 10.0)));
    let (least, most) = median_bounds(&values(40)).expect("enough");
    assert!(least > 8.0 && most < 31.0, "{least} {most}");
}

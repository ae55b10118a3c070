//! Random reads beside fio's on the same file, by turns. A measurement: only where TERRACE_PROBE_FIO
//! is set (`make test-long`), since it needs a machine that does nothing else.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use terrace_probe::{Access, Target, read};

const SECONDS: u64 = 3;
const ROUNDS: usize = 7;
const DEPTH: u32 = 32;
/// How far the median of the rounds' ratios may be from 1 before something must be wrong. On a quiet
/// machine it is within 0.05; what is printed is the measurement.
const APART_MAX: f64 = 0.3;

fn fio(path: &Path) -> Option<f64> {
    let output = Command::new("fio")
        .args(["--name=r", "--ioengine=io_uring", "--direct=1", "--rw=randread", "--bs=4k"])
        .args(["--registerfiles", "--fixedbufs", "--time_based", "--output-format=json"])
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--runtime={SECONDS}"))
        .arg(format!("--filename={}", path.display()))
        .output()
        .ok()?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    json["jobs"][0]["read"]["iops"].as_f64()
}

#[test]
fn random_reads_are_those_of_fio() {
    let skip = |why: &str| println!("skipped: random_reads_are_those_of_fio: {why}");
    if std::env::var_os("TERRACE_PROBE_FIO").is_none() {
        return skip("TERRACE_PROBE_FIO is not set");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let path = dir.path().join("file");
    let target = Target::open(&path, 1 << 30, false).expect("a target");
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let Some(theirs) = fio(&path) else { return skip("fio does not run here") };
        let time = Duration::from_secs(SECONDS);
        let ours = read(&target, Access::Random, 4096, DEPTH, time).expect("reads").per_second;
        println!("fio {theirs:.0}/s, probe {ours:.0}/s, ratio {:.3}", ours / theirs);
        ratios.push(ours / theirs);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ROUNDS / 2];
    println!("median ratio {median:.3}");
    assert!((median - 1.0).abs() <= APART_MAX, "{median}");
}

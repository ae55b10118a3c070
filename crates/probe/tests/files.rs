//! What happens to the files that are measured, by the program as it is started.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use terrace_e2e::skip;
use terrace_probe::{Access, Profile, Target, read, write};

fn probe(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terrace-probe"))
        .args(["--seconds", "2", "--size", "64m"])
        .args(words)
        .output()
        .expect("the program runs")
}

fn measured(words: &[&str]) -> String {
    let output = probe(words);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {told}");
    String::from_utf8(output.stdout).expect("text")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn what_holds_something_is_not_written_unless_told() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("data");
    let content = vec![7_u8; 8 << 20];
    std::fs::write(&path, &content).expect("a file");
    let target = Target::open(&path, 64 << 20, false).expect("a target");
    assert!(!target.writable);
    assert!(write(&target, Access::Random, 4096, 1, Duration::from_millis(20)).is_err());
    drop(target);
    let told = measured(&[text(&path)]);
    assert!(told.contains("--destroy overwrites it") && !told.contains("writes of"), "{told}");
    assert!(std::fs::read(&path).expect("a file") == content, "it was written");
    measured(&["--destroy", text(&path)]);
    assert!(std::fs::read(&path).expect("a file") != content, "it was not written");
}

#[test]
fn a_file_that_was_hardly_written_is_told() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("data");
    std::fs::write(&path, vec![7_u8; 8 << 20]).expect("a file");
    let notes = |path: &Path| Target::open(path, 0, false).expect("a target").notes.clone();
    let told = |notes: Vec<String>| notes.iter().any(|note| note.contains("never written"));
    assert!(!told(notes(&path)));
    let file = std::fs::File::options().write(true).open(&path).expect("the file");
    file.set_len(32 << 20).expect("a hole");
    assert!(told(notes(&path)));
    let told = measured(&[text(&path)]);
    assert!(told.contains("note: ") && told.contains("24 of 32 MiB were never written"), "{told}");
    // What is made here is filled.
    let told = measured(&[text(&dir.path().join("new"))]);
    assert!(!told.contains("never written"), "{told}");
}

#[test]
fn a_new_file_and_dram_are_measured_side_by_side_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let kept = tempfile::tempdir().expect("a temporary folder");
    let [profile, svg, json] =
        ["profile.toml", "curves.svg", "all.json"].map(|name| kept.path().join(name));
    let told = measured(&[
        text(&dir.path().join("new")),
        "dram",
        "--profile",
        text(&profile),
        "--svg",
        text(&svg),
        "--json",
        text(&json),
    ]);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);

    let profile = Profile::read(&profile).expect("a profile");
    assert_eq!(profile.capacity_bytes, f64::from(64 << 20));
    assert!(profile.read_iops > 0.0 && profile.write_bytes_per_second.is_some_and(|r| r > 0.0));
    assert!(profile.queue_depth >= 1 && profile.read_us_p50 <= profile.read_us_p99);

    let json = std::fs::read_to_string(json).expect("JSON");
    let media: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let svg = std::fs::read_to_string(svg).expect("curves");
    assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"));
    // All eight kinds by processes of the file; memory of each process of DRAM.
    for (medium, shared) in [(&media[0], 4), (&media[1], 0)] {
        let series = medium["series"].as_array().expect("series");
        let by = |by: &str| series.iter().filter(|series| series["by"] == by).count();
        assert_eq!((by("inflight"), by("block"), by("shared"), by("own")), (4, 4, shared, 4));
        for series in series {
            let title = series["title"].as_str().expect("a title");
            assert!(told.contains(title), "{title}");
            let (what, by) = title.split_once(" by ").expect("two parts");
            assert!(svg.contains(&format!(">{what}</text>")), "{what}");
            assert!(svg.contains(&format!(">{by}</text>")), "{by}");
            let points = series["points"].as_array().expect("points");
            let at_once: Vec<_> =
                points.iter().map(|point| point["concurrency"].as_u64()).collect();
            if series["by"] == "shared" || series["by"] == "own" {
                assert_eq!(at_once, [1, 2, 4, 8, 16, 32].map(Some), "{title}");
                assert_eq!(series["sensitivity"].as_array().map(Vec::len), Some(6));
            }
            for point in points {
                assert!(point["per_second"].as_f64() > Some(0.0), "{title}: {point}");
            }
        }
        assert_eq!(medium["mixed"].as_array().map(Vec::len), Some(4));
    }
    // Bandwidth and latency of all kinds, sensitivity of those that are not by block, reads beside writers three times;
    // no file of DRAM is shared. And the legend.
    let curves = (16 * 2 + 12 + 3) + (12 * 2 + 8 + 3) + 2;
    assert_eq!(svg.matches("<polyline").count(), curves);
    assert_eq!(svg.matches(">writers of 1 MiB blocks</text>").count(), 3);
}

#[test]
fn a_file_in_the_way_of_those_for_processes_is_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let other = dir.path().join("new.5");
    std::fs::write(&other, b"somebody's").expect("a file");
    let output = probe(&[text(&dir.path().join("new"))]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("new.5 is there already"), "{told}");
    assert_eq!(std::fs::read(&other).expect("a file"), b"somebody's");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
}

#[test]
fn a_block_larger_than_the_drive_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let target = Target::open(&dir.path().join("small"), 1 << 20, false).expect("a target");
    assert!(read(&target, Access::Random, 2 << 20, 1, Duration::from_millis(20)).is_err());
}

/// A block device over a file, until dropped.
struct Loop(String);

impl Loop {
    /// None where this user can't make one.
    fn over(file: &Path) -> Option<Self> {
        let output =
            Command::new("losetup").args(["--find", "--show", text(file)]).output().ok()?;
        let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && Path::new(&name).exists()).then_some(Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_written_while_it_is_blank_and_then_only_if_told() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("device");
    let new = std::fs::File::create(&file).and_then(|file| file.set_len(64 << 20));
    new.expect("a file");
    let Some(device) = Loop::over(&file) else {
        return skip("a_block_device_is_written_while_it_is_blank", "no loop device here");
    };
    let told = measured(&[&device.0]);
    assert!(told.contains("writes of 4 KiB by requests in flight"), "{told}");
    assert!(told.contains("(inferred)") && !told.contains("(told)"), "{told}");
    // Now it holds what was written.
    let content = std::fs::read(&file).expect("the device's file");
    assert!(content.iter().any(|&byte| byte != 0));
    let told = measured(&[&device.0]);
    assert!(told.contains("--destroy overwrites it") && !told.contains("writes of"), "{told}");
    assert!(std::fs::read(&file).expect("the device's file") == content, "it was written");
    let told = measured(&["--destroy", "--lanes", "8", "--max", "900", &device.0]);
    assert!(told.contains("with 8 lanes (told) and 900 MB/s (told)"), "{told}");
    assert!(told.contains("writes of 4 KiB by requests in flight"), "{told}");
    assert!(std::fs::read(&file).expect("the device's file") != content, "it was not written");
}

//! What happens to the files that are measured.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use terrace_probe::{Access, Profile, Target, main, read, write};

fn probe(words: &[&str]) -> bool {
    let words = ["probe", "--seconds", "2", "--size", "64"].iter().chain(words);
    main(words.map(OsString::from)) == ExitCode::SUCCESS
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
    let name = path.to_str().expect("text");
    assert!(probe(&[name]));
    assert!(std::fs::read(&path).expect("a file") == content, "it was written");
    assert!(probe(&["--destroy", name]));
    assert!(std::fs::read(&path).expect("a file") != content, "it was not written");
}

#[test]
fn a_new_file_is_measured_and_removed_and_its_profile_written() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (file, profile) = (dir.path().join("new"), dir.path().join("profile.toml"));
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    assert!(probe(&[&text(&file), "--profile", &text(&profile)]));
    assert!(!file.exists());
    let read: Profile =
        toml::from_str(&std::fs::read_to_string(&profile).expect("a profile")).expect("TOML");
    assert_eq!(read.capacity_bytes, f64::from(64 << 20));
    assert!(read.read_iops > 0.0 && read.write_bytes_per_second.is_some_and(|rate| rate > 0.0));
    assert!(read.queue_depth >= 1 && read.read_us_p50 <= read.read_us_p99);
}

#[test]
fn a_block_larger_than_the_drive_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let target = Target::open(&dir.path().join("small"), 1 << 20, false).expect("a target");
    assert!(read(&target, Access::Random, 2 << 20, 1, Duration::from_millis(20)).is_err());
}

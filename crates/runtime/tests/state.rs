//! What a store with a state keeps when its process is killed.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use terrace_runtime::{OpenError, Options, Set, Store};

/// Names the folder of the drive, and that of the state, to a process that is to be killed.
const DRIVE: &str = "TERRACE_TEST_DRIVE";
const STATE: &str = "TERRACE_TEST_STATE";
const RECORDS: u32 = 1000;

fn options(drive: &Path, state: &Path) -> Options {
    Options::new().memory(16 << 20).drive(drive.join("drive"), 64 << 20).state(state)
}

fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(100)
}

#[test]
fn records_outlive_a_killed_process() {
    if let (Some(drive), Some(state)) = (env::var_os(DRIVE), env::var_os(STATE)) {
        return store_and_wait(Path::new(&drive), Path::new(&state));
    }
    let drive = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "records_outlive_a_killed_process", "--nocapture"])
        .envs([(DRIVE, drive.path()), (STATE, state.path())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_stored = lines.map_while(Result::ok).any(|line| line.ends_with("stored"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_stored);
    let store = Store::open(options(drive.path(), state.path())).unwrap();
    let found = (0..RECORDS).filter(|&n| store.get(&n.to_le_bytes()).unwrap() == Some(value(n)));
    assert_eq!(found.count(), RECORDS as usize);
}

fn store_and_wait(drive: &Path, state: &Path) {
    let store = Store::open(options(drive, state)).expect("opens");
    for number in 0..RECORDS {
        store.set(&number.to_le_bytes(), &value(number), Set::default()).expect("stored");
    }
    println!("stored");
    loop {
        thread::park();
    }
}

#[test]
fn a_folder_on_a_disk_is_refused_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let error = Store::open(options(dir.path(), dir.path())).err().unwrap();
    assert!(matches!(&error, OpenError::NoState { why } if why.contains("is no tmpfs")), "{error}");
    assert!(!dir.path().join("drive").exists());
}

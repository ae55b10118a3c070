//! Drives that can't be used: each is refused at start with one line that says what is wrong, an
//! exit code, and nothing harmed.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_e2e::{LoopDevice, Mount, Server, free_port, is_terrace, run_as_root, skip};

/// Starts with `flags`, which must fail by itself; gives back the line that says why.
fn refusal(flags: &str) -> String {
    refusal_under("env", flags)
}

/// As [`refusal`], started by the command `wrapper`.
fn refusal_under(wrapper: &str, flags: &str) -> String {
    let flags = format!("-l 127.0.0.1 -p {} {flags}", free_port());
    let failed = Server::run_under(wrapper, &flags);
    assert!(matches!(failed.code, Some(1..)), "{flags}: exit code {:?}", failed.code);
    let complaints: Vec<_> =
        failed.output.lines().filter(|line| line.contains(" ERROR ")).collect();
    assert_eq!(complaints.len(), 1, "{flags} said: {}", failed.output);
    assert!(!failed.output.contains("panicked"), "{}", failed.output);
    complaints[0].to_string()
}

fn not_for_others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "memcached's messages are its own");
    }
    !is_terrace()
}

#[test]
fn a_directory() {
    if not_for_others("a_directory") {
        return;
    }
    let line = refusal("--tier ssd:DIR:256m");
    assert!(line.contains("directory"), "{line}");
}

#[test]
fn a_path_that_leads_nowhere() {
    if not_for_others("a_path_that_leads_nowhere") {
        return;
    }
    let line = refusal("--tier ssd:DIR/no/such/place:256m");
    assert!(line.contains("/no/such/place"), "{line}");
    let line = refusal("--tier ssd:DIR/new");
    assert!(line.contains("size"), "a new file needs a size: {line}");
    let line = refusal("--tier ssd:DIR/new:4k");
    assert!(line.contains("/new: 4 KiB are too small"), "{line}");
}

#[test]
fn a_thing_that_is_no_drive() {
    if not_for_others("a_thing_that_is_no_drive") {
        return;
    }
    for path in ["/dev/null", "/dev/zero", "/proc/version"] {
        let line = refusal(&format!("--tier ssd:{path}:256m"));
        assert!(line.contains(path), "{line}");
    }
}

#[test]
fn a_file_of_somebody_else() {
    if not_for_others("a_file_of_somebody_else") {
        return;
    }
    let dir = Arc::new(TempDir::new().unwrap());
    let path = dir.path().join("tier");
    let precious = "not to be overwritten\n".repeat(100_000);
    fs::write(&path, &precious).unwrap();
    let line = refusal(&format!("--tier ssd:{}:256m", path.display()));
    assert!(line.contains("did not write"), "{line}");
    let after = fs::read(&path).unwrap();
    assert!(after == precious.as_bytes(), "the file was written to, or grown");
}

#[test]
fn without_permission() {
    if not_for_others("without_permission") {
        return;
    }
    if !run_as_root() {
        skip("without_permission", "only root can start it as another user");
        return;
    }
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("tier");
    File::create(&path).unwrap().set_len(256 << 20).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let line = refusal(&format!("-u nobody --tier ssd:{}", path.display()));
    assert!(line.contains("ermission denied"), "{line}");
    let line = refusal(&format!("-u nobody --tier ssd:{}/other:256m", dir.path().display()));
    assert!(line.contains("ermission denied"), "{line}");
}

#[test]
fn in_use_by_another_server() {
    if not_for_others("in_use_by_another_server") {
        return;
    }
    let mut first = Server::start("-m 64 --tier ssd:DIR/tier:256m");
    let client = &mut first.client();
    assert!(client.set("k", b"value"));
    let path = first.dir.path().join("tier");
    let line = refusal(&format!("-m 64 --tier ssd:{}:256m", path.display()));
    assert!(line.contains("use"), "{line}");
    assert_eq!(client.get("k").as_deref(), Some(&b"value"[..]));
    first.assert_alive();

    // Once the first is gone, even by a kill, the file is free.
    let dir = Arc::clone(&first.dir);
    drop(first);
    match Server::try_start("-m 64 --tier ssd:DIR/tier:256m", dir) {
        Ok(mut second) => second.assert_alive(),
        Err(failed) => panic!("the lock outlived its owner: {}", failed.output),
    }
}

#[test]
fn a_file_smaller_than_its_size_grows() {
    if not_for_others("a_file_smaller_than_its_size_grows") {
        return;
    }
    let dir = Arc::new(TempDir::new().unwrap());
    let path = dir.path().join("tier");
    drop(Server::try_start("-m 64 --tier ssd:DIR/tier:128m", Arc::clone(&dir)).ok().unwrap());
    assert!(fs::metadata(&path).unwrap().len() >= 128 << 20, "the space is reserved at start");
    let mut server =
        Server::try_start("-m 64 --tier ssd:DIR/tier:256m", Arc::clone(&dir)).ok().unwrap();
    server.assert_alive();
    assert!(fs::metadata(&path).unwrap().len() >= 256 << 20);
}

#[test]
fn on_a_full_disk() {
    if not_for_others("on_a_full_disk") {
        return;
    }
    let Some(disk) = Mount::tmpfs(32) else {
        skip("on_a_full_disk", "no small file system can be mounted here");
        return;
    };
    let path = disk.path().join("tier");
    let line = refusal(&format!("--tier ssd:{}:256m", path.display()));
    assert!(line.contains("is full"), "{line}");
    // What could not be had is given back.
    let left = fs::metadata(&path).map_or(0, |file| std::os::unix::fs::MetadataExt::blocks(&file));
    assert_eq!(left, 0, "{left} blocks of the full disk are still taken");
    // What outlives the process needs room too.
    while fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(disk.path().join("filler"))
        .and_then(|mut file| std::io::Write::write_all(&mut file, &[1; 1 << 20]))
        .is_ok()
    {}
    let line = refusal(&format!("-m 64 --state {}", disk.path().display()));
    assert!(line.contains("--state") && line.contains("is full"), "{line}");
}

#[test]
fn a_device_smaller_than_its_size() {
    if not_for_others("a_device_smaller_than_its_size") {
        return;
    }
    let device = match LoopDevice::new(env!("CARGO_TARGET_TMPDIR").as_ref(), 64 << 20) {
        Ok(device) => device,
        Err(why) => return skip("a_device_smaller_than_its_size", &why),
    };
    let path = device.path().display();
    let line = refusal(&format!("--tier ssd:{path}:256m"));
    assert!(line.contains("64"), "it does not say how large the device is: {line}");
    let mut server = Server::start(&format!("-m 64 --tier ssd:{path}"));
    server.assert_alive();
}

#[test]
fn above_the_file_size_limit() {
    if not_for_others("above_the_file_size_limit") {
        return;
    }
    // The kernel sends a signal besides, which would end a process that does not ignore it.
    let line = refusal_under("prlimit --fsize=33554432", "--tier ssd:DIR/tier:256m");
    assert!(line.contains("tier"), "{line}");
}

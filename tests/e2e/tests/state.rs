//! Where the state lies, and what becomes of the server when it can't be had there any more.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use terrace_e2e::{
    Client, Mount, Server, count_right, fill, free_port, is_terrace, skip, value_of,
};

/// Records that are stored where their number does not matter.
const RECORDS: usize = 200;
const TIER: &str = "-m 64 --tier ssd:DIR/tier:128m";
const MIB: u64 = 1 << 20;

fn others(test: &str) -> bool {
    if !is_terrace() {
        skip(test, "memcached has no state");
    }
    !is_terrace()
}

/// A tmpfs of its own, or a word on why the test is skipped.
fn tmpfs(test: &str, megabytes: u32) -> Option<Mount> {
    let mount = Mount::tmpfs(megabytes);
    if mount.is_none() {
        skip(test, "nothing can be mounted here; needs root");
    }
    mount
}

fn start(flags: &str, dir: &Arc<TempDir>) -> Server {
    match Server::try_start(flags, Arc::clone(dir)) {
        Ok(server) => server,
        Err(failed) => panic!("{flags}: {:?}: {}", failed.code, failed.output),
    }
}

/// How many of the records are there, each of which must be right.
fn found(server: &Server) -> usize {
    count_right(&mut server.client(), "key", RECORDS, 300)
}

/// The file that the server says its state is in.
fn state_of(server: &Server) -> PathBuf {
    let output = server.output();
    let line = output.lines().find_map(|line| Some(line.split_once(" INFO state: ")?.1));
    line.expect("a line about the state").into()
}

/// Takes all that is left of a file system.
fn fill_up(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let mut file = File::create(&path).expect("a file");
    while file.write_all(&[1; 4096]).is_ok() {}
    path
}

/// Memory that the cap gives back is for others, who may keep it.
#[test]
fn room_that_a_lower_cap_gave_back_is_asked_for_before_it_is_used() {
    const TEST: &str = "room_that_a_lower_cap_gave_back_is_asked_for_before_it_is_used";
    if others(TEST) {
        return;
    }
    let Some(disk) = tmpfs(TEST, 160) else { return };
    let taken = || {
        let stat = rustix::fs::statvfs(disk.path()).expect("a file system");
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    };
    let mut server = Server::start(&format!("-m 64 --state {}", disk.path().display()));
    let client = &mut server.client();
    fill(client, "key", 8000, 9000);
    let reserved = taken();
    client.check("cache_memlimit 24\r\n", "OK\r\n");
    terrace_e2e::wait_until("memory that is given back", || {
        (taken() + 32 * MIB < reserved).then_some(())
    });
    let filler = fill_up(disk.path());
    let refusal = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust";
    assert_eq!(client.ask("cache_memlimit 64"), refusal);
    server.output_with("the file system of the state has no room");
    fill(client, "more", 8000, 9000);
    server.assert_alive();
    fs::remove_file(filler).expect("it is there");
    client.check("cache_memlimit 64\r\n", "OK\r\n");
    let again = fill_up(disk.path());
    fill(client, "again", 8000, 9000);
    server.assert_alive();
    // What a crash leaves has holes as well, which are filled before it is used.
    client.check("cache_memlimit 24\r\n", "OK\r\n");
    terrace_e2e::wait_until("memory that is given back", || {
        (taken() + 32 * MIB < 160 * MIB).then_some(())
    });
    let dir = server.kill();
    fs::remove_file(again).expect("it is there");
    let mut server = start(&format!("-m 64 --state {}", disk.path().display()), &dir);
    fill_up(disk.path());
    fill(&mut server.client(), "key", 8000, 9000);
    server.assert_alive();
}

/// It could die under the server, and what rots on it would be served.
#[test]
fn state_on_a_disk_is_not_used() {
    const TEST: &str = "state_on_a_disk_is_not_used";
    if others(TEST) {
        return;
    }
    for flags in ["-m 64", TIER] {
        let dir = Arc::new(TempDir::new().expect("a directory"));
        let path = dir.path().display();
        let probe = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir.path()).output();
        if probe.is_ok_and(|output| output.stdout.starts_with(b"tmpfs")) {
            return skip(TEST, "temporary files do not lie on a disk here");
        }
        let flags = format!("{flags} --state {path}");
        let server = start(&flags, &dir);
        fill(&mut server.client(), "key", RECORDS, 300);
        let line = format!("state: none, since {path} is no tmpfs");
        assert!(server.output().contains(&line), "{}", server.output());
        let dir = server.kill();
        let mut names = fs::read_dir(dir.path()).expect("a directory").flatten();
        assert!(!names.any(|entry| entry.path().extension().is_some_and(|e| e == "state")));
        assert_eq!(found(&start(&flags, &dir)), 0, "{flags}");
    }
}

/// As in a container, whose `/dev/shm` has 64 MiB unless told otherwise.
#[test]
fn a_small_shared_memory_is_said_and_served_without() {
    const TEST: &str = "a_small_shared_memory_is_said_and_served_without";
    if others(TEST) {
        return;
    }
    let mount = "mount -t tmpfs -o size=1m terrace-test /dev/shm";
    let probe = Command::new("unshare").args(["--mount", "sh", "-c", mount]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skip(TEST, "nothing can be mounted here; needs root");
    }
    let dir = TempDir::new().expect("a directory");
    let (path, port) = (dir.path().display(), free_port());
    let program = terrace_e2e::program().display();
    let flags = format!("-u root -m 64 -l 127.0.0.1 -p {port} --tier ssd:{path}/tier:128m");
    let log = File::create(dir.path().join("log")).expect("a log");
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", &format!("{mount} && exec {program} {flags}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("unshare runs");
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    terrace_e2e::wait_until("the server", || std::net::TcpStream::connect(address).ok());
    let mut client = Client::connect(address);
    fill(&mut client, "key", RECORDS, 300);
    let line = "state: none, since /dev/shm has no room for 64 MiB";
    terrace_e2e::wait_until(line, || {
        fs::read_to_string(dir.path().join("log")).is_ok_and(|log| log.contains(line)).then_some(())
    });
    let _ = child.kill();
    let _ = child.wait();
}

/// ramfs knows no reservations, and has no limit.
#[test]
fn a_file_system_without_reservations_does() {
    const TEST: &str = "a_file_system_without_reservations_does";
    if others(TEST) {
        return;
    }
    let Some(disk) = Mount::of("ramfs", "mode=755") else {
        return skip(TEST, "nothing can be mounted here; needs root");
    };
    let flags = format!("{TIER} --state {}", disk.path().display());
    let server = Server::start(&flags);
    fill(&mut server.client(), "key", RECORDS, 300);
    assert!(state_of(&server).starts_with(disk.path()));
    let dir = server.kill();
    assert_eq!(found(&start(&flags, &dir)), RECORDS);
}

/// Every user can write to the machine's tmpfs.
#[test]
fn a_name_that_another_user_took_is_neither_used_nor_in_the_way() {
    const TEST: &str = "a_name_that_another_user_took_is_neither_used_nor_in_the_way";
    if others(TEST) {
        return;
    }
    let Some(disk) = tmpfs(TEST, 200) else { return };
    let flags = format!("{TIER} --state {}", disk.path().display());
    let server = Server::start(&flags);
    let taken = state_of(&server);
    let dir = Arc::clone(&server.dir);
    assert_eq!(server.stop(), Some(0));
    fs::remove_file(dir.path().join("tier")).expect("it is there");
    fs::write(&taken, "not yours").expect("room");
    std::os::unix::fs::chown(&taken, Some(65534), Some(65534)).expect("root gives files away");
    let server = start(&flags, &dir);
    fill(&mut server.client(), "key", RECORDS, 300);
    let path = state_of(&server);
    assert!(path != taken && path.starts_with(disk.path()), "{}", path.display());
    assert_eq!(path.metadata().expect("it is there").mode() & 0o777, 0o600);
    server.kill();
    let server = start(&flags, &dir);
    assert_eq!(state_of(&server), path, "it is found again");
    assert_eq!(found(&server), RECORDS);
    assert_eq!(fs::read(&taken).expect("still there"), b"not yours");
}

/// Asks for a record, and says whether it is there; it must be right then.
fn is_right(client: &mut Client, key: &str, bytes: usize) -> bool {
    let value = client.get(key);
    assert!(value.as_ref().is_none_or(|value| *value == value_of(key, 0, bytes)), "{key}");
    value.is_some()
}

/// Another process cuts the file off under the server: what lay in it is missed, and nothing of it is believed again.
#[test]
fn a_truncated_state_costs_what_was_in_dram_and_the_next_warm_start() {
    const TEST: &str = "a_truncated_state_costs_what_was_in_dram_and_the_next_warm_start";
    if others(TEST) {
        return;
    }
    let Some(disk) = tmpfs(TEST, 300) else { return };
    for (flags, part) in [("-m 64", 0), ("-m 64", 3), (TIER, 0), (TIER, 2)] {
        let what = format!("{flags}, cut to {part} quarters");
        let flags = format!("{flags} --state {}", disk.path().display());
        let mut server = Server::start(&flags);
        let client = &mut server.client();
        fill(client, "key", RECORDS, 300);
        // Pieces of it lie in the state as well, and it is read in several.
        client.set("large", &value_of("large", 0, 700_000));
        client.check("set number 0 0 2\r\n41\r\n", "STORED\r\n");
        assert_eq!(client.stat("tiers", "state_lost"), 0);
        let path = state_of(&server);
        let file = File::options().write(true).open(&path).expect("it is there");
        let bytes = file.metadata().expect("it is there").len();
        file.set_len(bytes / 4 * part).expect("it can be cut");
        let answer = client.ask("incr number 1");
        assert!(answer == "42" || answer == "NOT_FOUND", "{what}: {answer}");
        is_right(client, "large", 700_000);
        let there = (0..RECORDS).filter(|n| is_right(client, &format!("key{n}"), 300)).count();
        server.assert_alive();
        for n in 0..RECORDS {
            let key = format!("new{n}");
            client.set(&key, &value_of(&key, 0, 300));
        }
        // Where this is the first to need a page that is gone, it is lost before it is whole.
        client.set("large", &value_of("large", 0, 700_000));
        is_right(client, "large", 700_000);
        let lost = client.stat("tiers", "state_lost") == 1;
        assert!(lost || there == RECORDS && part > 0, "{what}: {there} are there");
        if lost {
            server.output_with("state: a part of its file is gone");
            for n in 0..RECORDS {
                let key = format!("new{n}");
                client.set(&key, &value_of(&key, 0, 300));
            }
            let is_kept = |n: &usize| is_right(client, &format!("new{n}"), 300);
            assert_eq!((0..RECORDS).filter(is_kept).count(), RECORDS, "{what}");
            assert!(!path.exists(), "{what}: it is not found again");
        }
        client.set("large", &value_of("large", 0, 700_000));
        assert!(is_right(client, "large", 700_000), "{what}");
        let dir = Arc::clone(&server.dir);
        drop(server);
        if !lost {
            fs::remove_file(&path).expect("it is there");
            continue;
        }
        // However long the file is made again.
        let server = start(&flags, &dir);
        let client = &mut server.client();
        assert_eq!((0..RECORDS).filter(|n| is_right(client, &format!("new{n}"), 300)).count(), 0);
        let says_why = server.output().contains("the state of the last run is missing");
        assert!(says_why || !flags.contains("--tier"), "{what}: {}", server.output());
        let path = state_of(&server);
        drop(server);
        fs::remove_file(path).expect("it is there");
    }
}

/// Elsewhere the signal ends the process, as it does without a handler.
#[test]
fn a_bus_error_elsewhere_still_ends_the_process() {
    const TEST: &str = "a_bus_error_elsewhere_still_ends_the_process";
    if others(TEST) {
        return;
    }
    let server = Server::start("-m 64");
    let pid = i32::try_from(server.pid()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.expect("a process");
    // The standard library has a handler of its own, which lets the first one pass where there was no fault.
    for _ in 0..2 {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::BUS);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert_eq!(server.ended(), None, "a signal ends it");
}

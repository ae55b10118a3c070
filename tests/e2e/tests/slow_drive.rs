//! A drive that hardly answers, or not at all: what needs no drive is not kept waiting for it, and what does is
//! not for ever.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_e2e::{
    Client, LoopDevice, Server, assert_on_flash, fill, is_terrace, run_as_root, skip, wait_until,
};

/// Of records on the drive, at four reads a second: they take two seconds.
const GETS: usize = 8;
/// A drive of four reads a second answers this number of them before they are given up.
const FEW: usize = 2;
/// What the server waits for a drive at most, and what a busy machine takes besides.
const PATIENCE: Duration = Duration::from_secs(10);
const BESIDES: Duration = Duration::from_secs(10);

/// A loop device, and a control group whose processes it serves as slowly as is told.
struct SlowDrive {
    device: LoopDevice,
    group: PathBuf,
}

impl SlowDrive {
    /// Says why there can't be one.
    fn new(name: &str) -> Result<Self, String> {
        if !is_terrace() || !run_as_root() {
            return Err("it is about tiers, and needs root".to_owned());
        }
        let device = LoopDevice::new(env!("CARGO_TARGET_TMPDIR").as_ref(), 64 << 20)?;
        let group = format!("/sys/fs/cgroup/blkio/terrace-test-{name}-{}", std::process::id());
        let drive = Self { device, group: group.into() };
        let made = fs::create_dir(&drive.group).and_then(|()| drive.limit("read_iops", 1_000_000));
        made.map_err(|error| format!("control groups for reads: {error}"))?;
        Ok(drive)
    }

    /// A server on it, with more records than DRAM takes, `r0` to `r999` among them.
    fn server(&self) -> (Server, Client) {
        let (server, mut client) = self.server_with("");
        assert_on_flash(&mut client, "r500");
        (server, client)
    }

    /// With other drives besides.
    fn server_with(&self, tiers: &str) -> (Server, Client) {
        let device = self.device.path().display();
        let server = Server::start(&format!("-m 16 -t 1 --tier ssd:{device} {tiers}"));
        let mut client = server.client();
        fill(&mut client, "r", 1000, 500);
        fill(&mut client, "filler", 20_000, 1000);
        fs::write(self.group.join("cgroup.procs"), server.pid().to_string()).expect("a process");
        (server, client)
    }

    /// Lets through so many operations (`read_iops`, `write_iops`) or bytes (`read_bps`, `write_bps`) per
    /// second; all for 0.
    fn limit(&self, what: &str, per_second: u32) -> io::Result<()> {
        let number = fs::metadata(self.device.path())?.st_rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let limit = format!("{major}:{minor} {per_second}");
        fs::write(self.group.join(format!("blkio.throttle.{what}_device")), limit)
    }

    /// Answers nothing until the guard is gone.
    fn hang(&self) -> Hanging<'_> {
        self.hang_for(&["read_bps", "write_bps"])
    }

    fn hang_for(&self, limits: &'static [&'static str]) -> Hanging<'_> {
        // A page takes an hour.
        limits.iter().for_each(|what| self.limit(what, 1).expect("a limit"));
        Hanging(self, limits)
    }
}

impl Drop for SlowDrive {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

/// To be dropped before the server, which can't end as long as a thread of it writes to the drive.
struct Hanging<'d>(&'d SlowDrive, &'static [&'static str]);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        for what in self.1 {
            let _ = self.0.limit(what, 0);
        }
    }
}

#[test]
fn what_is_in_dram_does_not_wait_for_a_drive_that_hardly_answers() {
    const NAME: &str = "what_is_in_dram_does_not_wait_for_a_drive_that_hardly_answers";
    let drive = match SlowDrive::new("slow") {
        Ok(drive) => drive,
        Err(why) => return skip(NAME, &why),
    };
    let (_server, mut client) = drive.server();
    assert!(client.set("hot", b"here"));
    drive.limit("read_iops", 4).expect("a limit");
    let from_drive: String = (0..FEW).map(|at| format!("get r{}\r\n", at * 100)).collect();
    let start = Instant::now();
    client.send(format!("get hot\r\n{from_drive}get hot\r\n"));
    assert_eq!(client.read_get("hot").as_deref(), Some(&b"here"[..]));
    let first = start.elapsed();
    for at in 0..FEW {
        assert!(client.read_get(&format!("r{}", at * 100)).is_some(), "{at}");
    }
    let last = start.elapsed();
    assert!(last.as_secs_f64() > 0.2, "the drive answered as fast as others: {last:?}");
    assert!(first < last / 4, "the first answer took {first:?} of {last:?}");
}

#[test]
fn a_drive_that_answers_nothing_costs_misses_until_it_does() {
    const NAME: &str = "a_drive_that_answers_nothing_costs_misses_until_it_does";
    let drive = match SlowDrive::new("silent") {
        Ok(drive) => drive,
        Err(why) => return skip(NAME, &why),
    };
    let (server, mut client) = drive.server();
    let mut other = server.client();
    assert!(client.set("hot", b"here"));
    let hanging = drive.hang();
    let start = Instant::now();
    let from_drive: String = (0..GETS).map(|at| format!("get r{}\r\n", at * 100)).collect();
    client.send(from_drive);
    assert_eq!(other.get("hot").as_deref(), Some(&b"here"[..]));
    assert!(start.elapsed() < PATIENCE, "another connection waited");
    for at in 0..GETS {
        assert_eq!(client.read_get(&format!("r{}", at * 100)), None, "{at}");
    }
    let took = start.elapsed();
    assert!(took < PATIENCE + BESIDES, "the misses took {took:?}");
    server.output_with("unresponsive: no answer for ");
    // Now it is known: only one in a tick is kept waiting.
    let start = Instant::now();
    client.send("get r150\r\n");
    other.send((0..100).map(|at| format!("get r{}\r\n", 200 + at)).collect::<String>());
    (0..100).for_each(|at| assert_eq!(other.read_get(&format!("r{}", 200 + at)), None));
    assert_eq!(client.read_get("r150"), None);
    let took = start.elapsed();
    assert!(took < 2 * PATIENCE, "what is known to fail took {took:?}");
    drop(hanging);
    wait_until("the drive is read again", || client.get("r150"));
    server.output_with("answers again after ");
    for at in 0..GETS {
        assert!(client.get(&format!("r{}", at * 100)).is_some(), "{at} is gone");
    }
}

#[test]
fn a_drive_that_takes_nothing_has_what_needs_it_refused_until_it_does() {
    const NAME: &str = "a_drive_that_takes_nothing_has_what_needs_it_refused_until_it_does";
    let drive = match SlowDrive::new("full") {
        Ok(drive) => drive,
        Err(why) => return skip(NAME, &why),
    };
    let (_server, mut client) = drive.server();
    let hanging = drive.hang();
    let value = [7; 1000];
    let start = Instant::now();
    // More than DRAM takes.
    let stored = (0..20_000).take_while(|at| client.set(&format!("new{at}"), &value)).count();
    assert!(stored < 20_000, "the drive took all");
    let took = start.elapsed();
    assert!(took < PATIENCE + BESIDES, "it was refused after {took:?}");
    let start = Instant::now();
    let reply = "SERVER_ERROR out of memory storing object";
    for _ in 0..100 {
        assert_eq!(client.ask(&format!("set more 0 0 1000\r\n{}", "x".repeat(1000))), reply);
    }
    assert!(start.elapsed() < PATIENCE, "what is known to fail was tried for long");
    assert!(client.get(&format!("new{}", stored - 1)).is_some(), "DRAM answers");
    drop(hanging);
    wait_until("SETs are taken again", || client.set("more", &value).then_some(()));
    (0..1000).for_each(|at| assert!(client.set(&format!("newer{at}"), &value), "{at}"));
}

#[test]
fn another_drive_takes_what_a_silent_one_does_not() {
    const NAME: &str = "another_drive_takes_what_a_silent_one_does_not";
    let drive = match SlowDrive::new("other") {
        Ok(drive) => drive,
        Err(why) => return skip(NAME, &why),
    };
    let (_server, mut client) = drive.server_with("--tier ssd:DIR/other:64m");
    let found = |client: &mut Client| {
        (0..1000).filter(|at| client.get(&format!("r{at}")).is_some()).count()
    };
    assert_eq!(found(&mut client), 1000);
    let hanging = drive.hang();
    let value = [7; 1000];
    // DRAM takes some until it is known that the drive does not answer.
    let start = Instant::now();
    let mut stored = 0;
    while start.elapsed() < 2 * PATIENCE {
        stored += usize::from(client.set(&format!("early{stored}"), &value));
    }
    assert!(stored > 20_000, "{stored} in DRAM and on the other drive");
    for at in 0..20_000 {
        assert!(client.set(&format!("new{at}"), &value), "{at} was refused");
    }
    drop(hanging);
    wait_until("the drive is read again", || (found(&mut client) > 300).then_some(()));
}

#[test]
fn a_stop_does_not_wait_for_reads_that_are_not_answered() {
    const NAME: &str = "a_stop_does_not_wait_for_reads_that_are_not_answered";
    let drive = match SlowDrive::new("stop") {
        Ok(drive) => drive,
        Err(why) => return skip(NAME, &why),
    };
    let (server, mut client) = drive.server();
    if !server.output().contains("I/O engine: io_uring") {
        return skip(NAME, "the kernel ends no thread that reads such a drive");
    }
    let dir = Arc::clone(&server.dir);
    let hanging = drive.hang_for(&["read_bps"]);
    assert_eq!(client.get("r500"), None);
    let start = Instant::now();
    assert_eq!(server.stop(), Some(0));
    let took = start.elapsed();
    assert!(took < PATIENCE + BESIDES, "it took {took:?}");
    drop(hanging);
    let flags = format!("-m 16 -t 1 --tier ssd:{}", drive.device.path().display());
    let server =
        Server::try_start(&flags, dir).unwrap_or_else(|failed| panic!("{}", failed.output));
    assert!(!server.output().to_lowercase().contains("cold"), "{}", server.output());
    wait_until("the record", || server.client().get("r500"));
}

#[test]
fn a_second_signal_does_not_wait_for_a_slow_stop() {
    const NAME: &str = "a_second_signal_does_not_wait_for_a_slow_stop";
    let drive = match SlowDrive::new("again") {
        Ok(drive) => drive,
        Err(why) => return skip(NAME, &why),
    };
    let (server, _client) = drive.server();
    drive.limit("write_bps", 300_000).expect("a limit");
    let terminate = || {
        let pid = Pid::from_raw(server.pid() as i32).expect("a process");
        kill_process(pid, Signal::TERM).expect("a signal");
    };
    // What comes at once is the same one.
    (0..2).for_each(|_| terminate());
    server.output_with("stopping; a second signal ends it at once");
    std::thread::sleep(Duration::from_millis(1500));
    terminate();
    assert_eq!(server.ended(), Some(128 + 15));
}

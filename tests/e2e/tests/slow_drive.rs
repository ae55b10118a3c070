//! A drive that hardly answers: what needs no drive is not kept waiting for it.

use std::fs::{self, File};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use terrace_e2e::{Server, assert_on_flash, fill, is_terrace, run_as_root, skip};

/// Reads of the drive that the kernel lets through per second.
const READS_PER_SECOND: u32 = 4;
/// Of records on the drive, which take two seconds.
const GETS: usize = 8;

/// A loop device, and a control group whose processes get few reads of it.
struct SlowDrive {
    device: PathBuf,
    group: PathBuf,
}

impl SlowDrive {
    /// On a file that is there. Says why there can't be one.
    fn new(file: &Path) -> Result<Self, String> {
        let output = Command::new("losetup")
            // Else the page cache would answer instead of the drive.
            .args(["--direct-io=on", "--find", "--show"])
            .arg(file)
            .output()
            .map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let group = format!("/sys/fs/cgroup/blkio/terrace-test-{}", std::process::id());
        let drive = Self { device, group: group.into() };
        drive.limit().map_err(|error| format!("control groups for reads: {error}"))?;
        Ok(drive)
    }

    fn limit(&self) -> io::Result<()> {
        let number = fs::metadata(&self.device)?.st_rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        fs::create_dir(&self.group)?;
        let limit = format!("{major}:{minor} {READS_PER_SECOND}");
        fs::write(self.group.join("blkio.throttle.read_iops_device"), limit)
    }

    /// Slows a process down.
    fn add(&self, server: &Server) {
        fs::write(self.group.join("cgroup.procs"), server.pid().to_string()).expect("a process");
    }
}

impl Drop for SlowDrive {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
        let _ = fs::remove_dir(&self.group);
    }
}

#[test]
fn what_is_in_dram_does_not_wait_for_a_drive_that_hardly_answers() {
    const NAME: &str = "what_is_in_dram_does_not_wait_for_a_drive_that_hardly_answers";
    if !is_terrace() || !run_as_root() {
        return skip(NAME, "it is about tiers, and needs root");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let path = dir.path().join("drive");
    File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let drive = match SlowDrive::new(&path) {
        Ok(drive) => drive,
        Err(why) => return skip(NAME, &why),
    };
    let server = Server::start(&format!("-m 16 -t 1 --tier ssd:{}", drive.device.display()));
    let mut client = server.client();
    fill(&mut client, "r", 1000, 500);
    // More than DRAM takes.
    fill(&mut client, "filler", 20_000, 1000);
    assert_on_flash(&mut client, "r500");
    assert!(client.set("hot", b"here"));
    drive.add(&server);
    let from_drive: String = (0..GETS).map(|at| format!("get r{}\r\n", at * 100)).collect();
    let start = Instant::now();
    client.send(format!("get hot\r\n{from_drive}get hot\r\n"));
    assert_eq!(client.read_get("hot").as_deref(), Some(&b"here"[..]));
    let first = start.elapsed();
    for at in 0..GETS {
        assert!(client.read_get(&format!("r{}", at * 100)).is_some(), "{at}");
    }
    let last = start.elapsed();
    assert!(last.as_secs_f64() > 0.5, "the drive answered as fast as others: {last:?}");
    assert!(first < last / 4, "the first answer took {first:?} of {last:?}");
}

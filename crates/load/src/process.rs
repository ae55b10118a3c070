//! What a process has used, as Linux counts it.

use serde::Serialize;
use std::path::PathBuf;

/// A process of this machine.
#[derive(Clone, Debug)]
pub struct Process {
    dir: PathBuf,
}

/// Counters of a process; unknown ones (of a process that has ended, or is somebody else's) are 0.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    /// Processor time of all threads that still run, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory now, in bytes.
    pub resident_bytes: u64,
    /// The most that was ever resident, in bytes.
    pub resident_bytes_max: u64,
    /// Bytes that drives read for it.
    pub drive_read_bytes: u64,
    /// Bytes that drives wrote, or will write, for it.
    pub drive_write_bytes: u64,
}

impl Process {
    /// The process `pid`, if it is there and not known to be another machine's.
    pub fn new(pid: u32) -> Option<Self> {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        dir.join("task").is_dir().then_some(Self { dir })
    }

    /// The counters now.
    pub fn usage(&self) -> Usage {
        let kib = |name| self.field("status", name) * 1024;
        Usage {
            cpu_ns: self.cpu_ns(),
            resident_bytes: kib("VmRSS:"),
            resident_bytes_max: kib("VmHWM:"),
            drive_read_bytes: self.field("io", "read_bytes:"),
            drive_write_bytes: self.field("io", "write_bytes:"),
        }
    }

    fn field(&self, file: &str, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_default()
    }

    /// The scheduler's own clock, which counts nanoseconds; the one in `stat` counts 10 ms ticks.
    fn cpu_ns(&self) -> u64 {
        let Ok(threads) = std::fs::read_dir(self.dir.join("task")) else { return 0 };
        let of_thread = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        threads.flatten().filter_map(of_thread).sum()
    }
}

/// Processor time of this process, threads that have ended included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnTime {
    /// All of it, in nanoseconds.
    pub(crate) all_ns: u64,
    /// What was not spent in the kernel, in nanoseconds; Linux counts it less finely.
    pub(crate) user_ns: u64,
}

impl OwnTime {
    pub(crate) fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let all_ns = (time.tv_sec * 1_000_000_000 + time.tv_nsec).unsigned_abs();
        Self { all_ns, user_ns: user_ns().unwrap_or_default() }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            all_ns: self.all_ns.saturating_sub(earlier.all_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
        }
    }
}

fn user_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; the 12th field behind it is the time in ticks.
    let ticks: u64 = text.rsplit_once(')')?.1.split_whitespace().nth(11)?.parse().ok()?;
    Some(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

impl Usage {
    /// What was used after `earlier`; memory as it is now.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            drive_read_bytes: self.drive_read_bytes.saturating_sub(earlier.drive_read_bytes),
            drive_write_bytes: self.drive_write_bytes.saturating_sub(earlier.drive_write_bytes),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A process of its own: in this one other tests' threads end, and take their time along.
    #[test]
    fn a_busy_process_uses_something() {
        let mut busy = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell");
        let process = Process::new(busy.id()).unwrap();
        let before = process.usage();
        let end = Instant::now() + Duration::from_secs(60);
        let mut used = process.usage().since(&before);
        while used.cpu_ns < 1_000_000 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            used = process.usage().since(&before);
        }
        let _ = busy.kill();
        let _ = busy.wait();
        assert!(used.cpu_ns >= 1_000_000, "{used:?}");
        assert!(used.resident_bytes > 100_000 && used.resident_bytes_max >= used.resident_bytes);
        assert!(OwnTime::now().all_ns > 0);
        assert!(Process::new(u32::MAX).is_none());
    }
}

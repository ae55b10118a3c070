//! Servers that were started, with their folders: they are not left behind when this process is told
//! to end either.

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static STARTED: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

fn started() -> MutexGuard<'static, Vec<(u32, PathBuf)>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a server and its folder.
pub(crate) fn note(pid: u32, dir: &Path) {
    static WATCH: Once = Once::new();
    started().push((pid, dir.to_owned()));
    WATCH.call_once(|| {
        // Without it signals end this process as ever.
        if let Ok(signals) = Signals::new([SIGHUP, SIGINT, SIGTERM]) {
            std::thread::spawn(|| end_at(signals));
        }
    });
}

/// It has ended, and its folder is gone.
pub(crate) fn forget(pid: u32) {
    started().retain(|&(noted, _)| noted != pid);
}

fn end_at(mut signals: Signals) {
    let Some(signal) = signals.forever().next() else { return };
    // Nobody starts or ends another meanwhile.
    let started = started();
    for (pid, dir) in &*started {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(dir);
    }
    // As a shell tells of a process that a signal has ended.
    std::process::exit(128 + signal);
}

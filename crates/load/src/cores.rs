//! Which cores threads run on.

use crate::LoadError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps this thread, and all that it starts from now on, to `cores`; to those it has, if none are
/// given.
pub(crate) fn keep_to(cores: &[usize]) -> Result<(), LoadError> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(LoadError::Plan(format!("there is no core {core}")));
        }
        set.set(core);
    }
    let failed = |error| LoadError::Plan(format!("cores {cores:?}: {error}"));
    sched_setaffinity(None, &set).map_err(failed)
}

/// Calls `start` while this thread is kept to `cores`; what it starts stays there.
pub(crate) fn start_on<T>(
    cores: &[usize],
    start: impl FnOnce() -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let before = sched_getaffinity(None)?;
    keep_to(cores)?;
    let started = start();
    sched_setaffinity(None, &before)?;
    started
}

//! Writes, from one or more threads that wait for each.

use crate::point::{Access, Point, Walk, times};
use crate::{ProbeError, Target};
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use terrace_device::AlignedBuf;

/// Writes blocks for `time` from `writers` threads, and flushes; the flush counts.
///
/// # Errors
/// The drive may not be written, is smaller than a block, or fails.
pub fn write(
    target: &Target,
    access: Access,
    block_bytes: usize,
    writers: u32,
    time: Duration,
) -> Result<Point, ProbeError> {
    let device = &target.device;
    let label = device.label();
    if !target.writable {
        return Err(ProbeError::Input(format!("{label} holds something; --destroy overwrites it")));
    }
    let bytes = device.geometry().bytes;
    let one = |seed: u64| {
        let mut walk = Walk::new(access, bytes, block_bytes, seed)?;
        let mut buffer = AlignedBuf::zeroed(block_bytes);
        rand::rngs::SmallRng::seed_from_u64(seed).fill_bytes(&mut buffer);
        let mut times = times();
        let start = Instant::now();
        // One at least, however short the time or late the thread.
        while times.is_empty() || start.elapsed() < time {
            let begun = Instant::now();
            if let Err(error) = device.write_at(walk.next() * block_bytes as u64, &buffer) {
                return Some(Err(error));
            }
            times.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        Some(Ok(times))
    };
    let start = Instant::now();
    let mut all = times();
    let parts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..u64::from(writers)).map(|seed| scope.spawn(move || one(seed))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    for part in parts {
        let part = part.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let too_small = || ProbeError::Input(format!("{label} is smaller than a block"));
        let part = part.ok_or_else(too_small)?.map_err(ProbeError::io(label))?;
        // Fails only on histograms of other bounds.
        let _ = all.add(&part);
    }
    device.flush().map_err(ProbeError::io(label))?;
    Ok(Point::of(block_bytes, writers, &all, start.elapsed()))
}

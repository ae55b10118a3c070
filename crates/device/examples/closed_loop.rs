//! What a drive gives a program that looks at what it reads, and does nothing else: with more to do for each read than
//! `fio` has, fewer reads are begun in time.
//!
//! `closed_loop FILE BYTES AT_ONCE NANOSECONDS SECONDS`: random reads of 4 KiB of the first BYTES, AT_ONCE of them at a
//! time. Of each that comes back one byte in 64 is looked at, and then the processor is busy for NANOSECONDS; the next
//! reads are handed to the drive ahead of that. Prints as JSON reads per second.

mod places;

use places::{LONG, Places, Shared};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{Done, Drive, Engine, Read, ReadQueue, WorkerQueue};

type Failure = Box<dyn std::error::Error>;

const LINE: usize = 64;
/// A drive that brings nothing for so long is looked at again.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes, at_once, nanoseconds, seconds] = &words[..] else {
        return Err("closed_loop FILE BYTES AT_ONCE NANOSECONDS SECONDS".into());
    };
    let bytes: u64 = bytes.parse()?;
    let places = Places { bytes: bytes - bytes % LONG, long_percent: 0 };
    let drive: Arc<dyn Drive> = Arc::new(Shared::open(path, places.bytes)?);
    let at_once = at_once.parse()?;
    let mut queue = WorkerQueue::open(&[drive], Engine::IoUring, at_once)?;
    let (busy, length) =
        (Duration::from_nanos(nanoseconds.parse()?), Duration::from_secs_f64(seconds.parse()?));
    let (mut begun, mut reads, mut done) = (0, 0, Vec::new());
    let start = Instant::now();
    while start.elapsed() < length {
        while queue.in_flight() < at_once as usize {
            begin(&mut queue, &places, begun);
            begun += 1;
        }
        queue.flush()?;
        reads += look_at(&mut done, busy)?;
        queue.wait(&mut done, PATIENCE)?;
    }
    let rate = reads as f64 / start.elapsed().as_secs_f64();
    println!(r#"{{"reads_per_second": {rate:.0}}}"#);
    Ok(())
}

fn begin(queue: &mut dyn ReadQueue, places: &Places, number: usize) {
    let (offset, len) = places.of(number);
    let buf = queue.buffer(len as usize);
    queue.submit(Read { device: 0, offset, buf, token: 0 });
}

/// Says how many there were.
fn look_at(done: &mut Vec<Done>, busy: Duration) -> Result<usize, Failure> {
    let count = done.len();
    for read in done.drain(..) {
        read.result?;
        let seen = Instant::now();
        black_box(read.buf.iter().step_by(LINE).fold(0, |all, byte| all ^ byte));
        while seen.elapsed() < busy {}
    }
    Ok(count)
}

//! What a drive takes for random reads that become due whether it has answered those before or not, as requests of
//! clients do. `fio` counts from when it begins a read, and begins none while its queue is full; through io_uring it
//! can't do otherwise.
//!
//! `open_loop FILE BYTES RATE SECONDS LONG_PERCENT`: so many reads per second of the first BYTES, evenly spaced;
//! LONG_PERCENT of them are of 8 KiB, the others of 4 KiB. Prints as JSON how many there were and, in microseconds
//! from when a read was due, their median and 99th percentile.

mod places;

use places::{LONG, Places, Shared};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{Drive, Engine, Read, ReadQueue, WorkerQueue};

type Failure = Box<dyn std::error::Error>;

/// As many as the server hands to a drive. What is due while a drive pauses waits here, which is sooner over than
/// waiting in the drive.
const AT_ONCE: u32 = 128;
/// Where nothing can be begun, completions alone end a wait.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes, rate, seconds, long_percent] = &words[..] else {
        return Err("open_loop FILE BYTES RATE SECONDS LONG_PERCENT".into());
    };
    let bytes: u64 = bytes.parse()?;
    let places = Places { bytes: bytes - bytes % LONG, long_percent: long_percent.parse()? };
    let (rate, seconds): (f64, f64) = (rate.parse()?, seconds.parse()?);
    let drive: Arc<dyn Drive> = Arc::new(Shared::open(path, places.bytes)?);
    let queue = WorkerQueue::open(&[drive], Engine::IoUring, AT_ONCE)?;
    let mut took = read_all(queue, (rate * seconds) as usize, rate, &places)?;
    took.sort_unstable();
    let part = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    let (reads, p50, p99) = (took.len(), part(0.5), part(0.99));
    println!(r#"{{"reads": {reads}, "p50_us": {p50:.1}, "p99_us": {p99:.1}}}"#);
    Ok(())
}

/// Makes so many reads at `rate` per second; how long each took.
fn read_all(
    mut queue: WorkerQueue,
    count: usize,
    rate: f64,
    places: &Places,
) -> Result<Vec<Duration>, Failure> {
    let start = Instant::now();
    let due = |number: usize| start + Duration::from_secs_f64(number as f64 / rate);
    let (mut took, mut done, mut begun) = (Vec::with_capacity(count), Vec::new(), 0);
    while took.len() < count {
        let may_begin = |queue: &dyn ReadQueue| queue.in_flight() < AT_ONCE as usize;
        while begun < count && may_begin(&queue) && due(begun) <= Instant::now() {
            let (offset, len) = places.of(begun);
            let buf = queue.buffer(len as usize);
            queue.submit(Read { device: 0, offset, buf, token: begun as u64 });
            begun += 1;
        }
        let patience = match begun < count && may_begin(&queue) {
            true => due(begun).saturating_duration_since(Instant::now()),
            false => LONGEST_WAIT,
        };
        match queue.in_flight() {
            0 => std::thread::sleep(patience),
            _ => queue.wait(&mut done, patience)?,
        }
        for read in done.drain(..) {
            read.result?;
            took.push(due(read.token as usize).elapsed());
        }
    }
    Ok(took)
}

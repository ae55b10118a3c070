//! Random reads of 4 KiB from a file or a remote drive, always as many at once, and what they cost this process.
//!
//! `random_reads PLACE BYTES AT_ONCE SECONDS`: of the first BYTES of PLACE, a file or `nvme-tcp:HOST[:PORT]/NQN[/NSID]`. Prints
//! as JSON reads per second, latencies, and processor time per read.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{Drive, Engine, FileDevice, Read, ReadQueue, Reads, WorkerQueue};
use terrace_remote::{Address, Options, PREFIX, Purpose, RemoteDrive};

type Failure = Box<dyn std::error::Error>;

const BLOCK: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [place, bytes, at_once, seconds] = &words[..] else {
        return Err("random_reads PLACE BYTES AT_ONCE SECONDS".into());
    };
    let drive: Arc<dyn Drive> = if place.starts_with(PREFIX) {
        let options = Options { purpose: Purpose::Read, ..Options::default() };
        Arc::new(RemoteDrive::open(&Address::parse(place)?, None, &options, &|_| false)?)
    } else {
        Arc::new(FileDevice::open(place, None)?)
    };
    let is_alone = matches!(drive.reads(), Reads::Ring(_));
    let blocks = bytes.parse::<u64>()?.min(drive.geometry().bytes) / BLOCK;
    let (at_once, length) = (at_once.parse()?, Duration::from_secs_f64(seconds.parse()?));
    let mut queue = WorkerQueue::open(&[drive], Engine::Auto, at_once)?;
    let (mut random, mut done, mut nanos) = (1, Vec::new(), Vec::new());
    let mut begun = vec![Instant::now(); at_once as usize];
    let (start, cpu) = (Instant::now(), cpu_time());
    for token in 0..u64::from(at_once) {
        submit(&mut queue, &mut random, blocks, token);
    }
    while start.elapsed() < length {
        queue.wait(&mut done, PATIENCE)?;
        let now = Instant::now();
        for read in done.drain(..) {
            read.result?;
            let begun = &mut begun[read.token as usize];
            nanos.push((now - *begun).as_nanos() as u64);
            *begun = now;
            submit(&mut queue, &mut random, blocks, read.token);
            // A drive that gets its reads in batches is idle between them; over a network that costs more.
            if is_alone {
                queue.flush()?;
            }
        }
    }
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu);
    let reads = nanos.len().max(1);
    nanos.sort_unstable();
    let us = |percent: usize| nanos[(reads * percent / 100).min(reads - 1)] as f64 / 1e3;
    let (rate, cost) = (reads as f64 / elapsed, cpu.as_secs_f64() * 1e6 / reads as f64);
    let (p50, p99) = (us(50), us(99));
    println!(
        r#"{{"reads_per_second": {rate:.0}, "p50_us": {p50:.1}, "p99_us": {p99:.1}, "cpu_us": {cost:.2}}}"#
    );
    Ok(())
}

fn submit(queue: &mut dyn ReadQueue, random: &mut u64, blocks: u64, token: u64) {
    // Marsaglia's xorshift.
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let (offset, buf) = (*random % blocks * BLOCK, queue.buffer(BLOCK as usize));
    queue.submit(Read { device: 0, offset, buf, token });
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

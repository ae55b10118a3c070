//! What a drive takes for random reads that become due whether it has answered those before or not, as requests of
//! clients do. `fio` counts from when it begins a read, and begins none while its queue is full; through io_uring it
//! can't do otherwise.
//!
//! `open_loop FILE BYTES RATE SECONDS LONG_PERCENT`: so many reads per second of the first BYTES, evenly spaced;
//! LONG_PERCENT of them are of 8 KiB, the others of 4 KiB. Prints as JSON how many there were and, in microseconds
//! from when a read was due, their median and 99th percentile.

use io_uring::{IoUring, opcode, types};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use terrace_device::AlignedBuf;

type Failure = Box<dyn std::error::Error>;

/// As many as the server hands to a drive. What is due while a drive pauses waits here, which is sooner over than
/// waiting in the drive.
const AT_ONCE: usize = 128;
const SHORT: u64 = 4 << 10;
const LONG: u64 = 2 * SHORT;
/// Where nothing can be begun, completions alone end a wait.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes, rate, seconds, long_percent] = &words[..] else {
        return Err("open_loop FILE BYTES RATE SECONDS LONG_PERCENT".into());
    };
    let places = Places { bytes: bytes.parse()?, long_percent: long_percent.parse()? };
    let (rate, seconds): (f64, f64) = (rate.parse()?, seconds.parse()?);
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(path.as_str(), flags, Mode::empty())?;
    let mut took = Drive::open(&file)?.reads((rate * seconds) as usize, rate, &places)?;
    took.sort_unstable();
    let part = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    let (reads, p50, p99) = (took.len(), part(0.5), part(0.99));
    println!(r#"{{"reads": {reads}, "p50_us": {p50:.1}, "p99_us": {p99:.1}}}"#);
    Ok(())
}

/// Where reads go.
struct Places {
    bytes: u64,
    long_percent: u64,
}

impl Places {
    /// Offset and length of a read.
    fn of(&self, number: usize) -> (u64, u64) {
        let random = mix(number as u64);
        let len = if random % 100 < self.long_percent { LONG } else { SHORT };
        let places = (self.bytes - len) / SHORT + 1;
        (mix(random) % places * SHORT, len)
    }
}

/// A file, asked through a ring.
struct Drive {
    ring: IoUring,
    buffers: AlignedBuf,
    /// Places in `buffers` without a read.
    free: Vec<usize>,
    /// When the read in a place was due.
    due: Vec<Instant>,
}

impl Drive {
    fn open(file: &impl AsRawFd) -> Result<Self, Failure> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        let ring = builder.build(AT_ONCE as u32)?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let buffers = AlignedBuf::zeroed(AT_ONCE * LONG as usize);
        Ok(Self { ring, buffers, free: (0..AT_ONCE).collect(), due: vec![Instant::now(); AT_ONCE] })
    }

    /// Makes so many reads at `rate` per second; how long each took.
    fn reads(mut self, count: usize, rate: f64, places: &Places) -> Result<Vec<Duration>, Failure> {
        let (start, mut begun) = (Instant::now(), 0);
        let due = |number: usize| start + Duration::from_secs_f64(number as f64 / rate);
        let mut took = Vec::with_capacity(count);
        while took.len() < count {
            while begun < count && due(begun) <= Instant::now() {
                let Some(slot) = self.free.pop() else { break };
                self.push(slot, due(begun), places.of(begun))?;
                begun += 1;
            }
            let can_begin = begun < count && !self.free.is_empty();
            let until_next = due(begun).saturating_duration_since(Instant::now());
            self.wait(if can_begin { until_next } else { LONGEST_WAIT })?;
            self.reap(&mut took)?;
        }
        Ok(took)
    }

    fn push(
        &mut self,
        slot: usize,
        due: Instant,
        (offset, len): (u64, u64),
    ) -> Result<(), Failure> {
        self.due[slot] = due;
        let buffer = self.buffers[slot * LONG as usize..].as_mut_ptr();
        let read = opcode::Read::new(types::Fixed(0), buffer, len as u32).offset(offset);
        // SAFETY: `reads` returns early only upon an error that ends the program; else the buffers outlive all
        // reads, and a slot is free only when its read is over.
        unsafe { self.ring.submission().push(&read.build().user_data(slot as u64)) }?;
        Ok(())
    }

    /// Hands reads over, and waits for one to end, but no longer than that.
    fn wait(&mut self, patience: Duration) -> io::Result<()> {
        let timeout = types::Timespec::from(patience);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if error.raw_os_error() != Some(libc::ETIME) => Err(error),
            _ => Ok(()),
        }
    }

    fn reap(&mut self, took: &mut Vec<Duration>) -> io::Result<()> {
        for completion in self.ring.completion() {
            if completion.result() < SHORT as i32 {
                return Err(io::Error::from_raw_os_error(-completion.result()));
            }
            let slot = completion.user_data() as usize;
            took.push(self.due[slot].elapsed());
            self.free.push(slot);
        }
        Ok(())
    }
}

/// Numbers that look random, the same for the same `number`: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

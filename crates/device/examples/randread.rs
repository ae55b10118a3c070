//! Random 4 KiB reads through a [`ReadQueue`], the way a worker does them: how many per second, and
//! what each costs in CPU.
//!
//! ```text
//! cargo run --release -p terrace-device --example randread -- FILE:SIZE_MIB [DEPTH] [SECONDS] [ENGINE]
//! fio --name=r --filename=FILE --ioengine=io_uring --direct=1 --rw=randread --bs=4k \
//!     --iodepth=32 --registerfiles --fixedbufs --time_based --runtime=5
//! ```
//!
//! A file without contents is filled first. Like fio, it submits a read for each that came back.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{
    AlignedBuf, Device, Done, Engine, FileDevice, Opened, Read, ReadQueue, open_queue,
};

const BLOCK: usize = 4096;
const FILL_BYTES: usize = 4 << 20;

struct Arguments {
    path: String,
    bytes: u64,
    depth: u32,
    time: Duration,
    engine: Engine,
}

fn arguments() -> Option<Arguments> {
    let mut words = std::env::args().skip(1);
    let file = words.next()?;
    let (path, mib) = file.rsplit_once(':')?;
    let depth = words.next().map_or(Some(32), |word| word.parse().ok())?;
    let seconds = words.next().map_or(Some(5), |word| word.parse().ok())?;
    let engine = match words.next().as_deref() {
        None | Some("auto") => Engine::Auto,
        Some("io_uring") => Engine::IoUring,
        Some("pool") => Engine::Pool,
        Some(_) => return None,
    };
    let bytes = mib.parse::<u64>().ok()? << 20;
    Some(Arguments {
        path: path.to_owned(),
        bytes,
        depth,
        time: Duration::from_secs(seconds),
        engine,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "randread FILE:SIZE_MIB [DEPTH] [SECONDS] [auto|io_uring|pool]";
    let arguments = arguments().ok_or(usage)?;
    let device = open_filled(Path::new(&arguments.path), arguments.bytes)?;
    for note in device.notes() {
        println!("note: {note}");
    }
    let blocks = device.geometry().bytes / BLOCK as u64;
    let opened = open_queue(&[Arc::new(device)], arguments.engine, arguments.depth)?;
    println!("{}", measure(opened, blocks, arguments.depth as usize, arguments.time)?);
    Ok(())
}

/// The file, with every block written: reading what was never written costs the drive nothing.
fn open_filled(path: &Path, bytes: u64) -> Result<FileDevice, Box<dyn Error>> {
    let is_new = !path.exists();
    let device = FileDevice::open(path, Some(bytes))?;
    if is_new {
        let mut buf = AlignedBuf::zeroed(FILL_BYTES);
        let mut random = Random(1);
        for (at, byte) in buf.iter_mut().enumerate() {
            *byte = (random.next() >> (at % 56)) as u8;
        }
        for offset in (0..device.geometry().bytes).step_by(FILL_BYTES) {
            buf.set_len(FILL_BYTES.min((device.geometry().bytes - offset) as usize));
            device.write_at(offset, &buf)?;
        }
        device.flush()?;
    }
    Ok(device)
}

/// Reads until `time` has passed, always `depth` at a time, waiting in an epoll set.
fn measure(
    Opened { mut queue, engine, .. }: Opened,
    blocks: u64,
    depth: usize,
    time: Duration,
) -> Result<String, Box<dyn Error>> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&set, queue.event_fd(), EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
    let mut random = Random(42);
    let mut read = move |queue: &mut dyn ReadQueue, buf| {
        let offset = random.next() % blocks * BLOCK as u64;
        queue.submit(Read { device: 0, offset, buf, token: offset });
    };
    for _ in 0..depth {
        let buf = queue.buffer(BLOCK);
        read(queue.as_mut(), buf);
    }
    let (mut done, mut reads, mut waits) = (Vec::<Done>::new(), 0u64, 0u64);
    let mut events = Vec::<Event>::with_capacity(1);
    let (begin, cpu_begin) = (Instant::now(), cpu_time()?);
    while begin.elapsed() < time {
        queue.flush()?;
        events.clear();
        match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => waits += 1,
            Err(error) => return Err(error.into()),
        }
        queue.reap(&mut done);
        for Done { buf, result, .. } in done.drain(..) {
            result?;
            reads += 1;
            read(queue.as_mut(), buf);
        }
    }
    let (elapsed, cpu) = (begin.elapsed(), cpu_time()? - cpu_begin);
    let us_per_read = |time: Duration| time.as_secs_f64() * 1e6 / reads as f64;
    Ok(format!(
        "{engine}, depth {depth}: {:.0} reads/s, {:.2} us CPU per read, {:.1} reads per wait",
        reads as f64 / elapsed.as_secs_f64(),
        us_per_read(cpu),
        reads as f64 / waits as f64,
    ))
}

/// User and system time of all threads of this process so far.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::new(now.tv_sec.try_into()?, now.tv_nsec.try_into()?))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

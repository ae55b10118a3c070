//! Both engines on a real file: every read brings what was written, no epoll set sleeps through a
//! completion or spins, and whatever happens the buffer stays with the queue until it is done.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[path = "common/queue.rs"]
mod queue;

use common::{BLOCK, Random, Scratch, is_stamped, stamped};
use queue::{DEPTH, Silent, Waiter, read, with_each};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{
    AlignedBuf, Done, Drive, Engine, Geometry, Read, ReadPath, ReadQueue, Reads, WorkerQueue,
};

/// Many reads of one to four blocks, the number in flight now below and now far above the depth.
fn storm(level: bool, reads: u64) {
    const BLOCKS: u64 = 4096;
    let scratch = Scratch::new();
    with_each(&[stamped(&scratch, BLOCKS)], |engine, mut queue| {
        let mut random = Random(7);
        let mut waiter = Waiter::new(queue.as_ref(), level);
        let (mut started, mut finished, mut done) = (0, 0, Vec::new());
        let begin = Instant::now();
        while finished < reads {
            let wanted = [1, 3, 20, 200][random.below(4) as usize];
            while queue.in_flight() < wanted && started < reads {
                let blocks = 1 + random.below(4);
                let token = random.below(BLOCKS - blocks);
                let mut buf = queue.buffer(BLOCK * blocks as usize);
                buf.fill(0xaa);
                queue.submit(Read { device: 0, offset: token * BLOCK as u64, buf, token });
                started += 1;
            }
            queue.flush().unwrap();
            waiter.wait_and_reap(queue.as_mut(), &mut done);
            for Done { token, buf, result } in done.drain(..) {
                result.unwrap();
                assert!(is_stamped(&buf, token), "block {token} has another's content");
                finished += 1;
            }
        }
        assert_eq!((queue.in_flight(), started), (0, reads));
        let rate = reads as f64 / begin.elapsed().as_secs_f64();
        println!("{engine}: {rate:.0} reads/s, {} wake-ups", waiter.wakes);
        assert!(waiter.wakes <= reads * 2, "spins");
        // At rest it stays at rest, after at most one last belated wake-up.
        if waiter.wait(Duration::ZERO) {
            queue.clear_event();
            queue.reap(&mut done);
            assert!(done.is_empty());
        }
        assert!(!waiter.wait(Duration::from_millis(20)), "woken without any read");
    });
}

#[test]
fn an_edge_triggered_worker_never_clears_and_misses_nothing() {
    storm(false, 100_000);
}

#[test]
fn a_level_triggered_worker_clears_and_misses_nothing() {
    storm(true, 25_000);
}

/// One at a time is where a lost wake-up has nothing to hide behind.
#[test]
fn single_reads_each_wake_the_worker() {
    let scratch = Scratch::new();
    with_each(&[stamped(&scratch, 256)], |_, mut queue| {
        let (mut waiter, mut done) = (Waiter::new(queue.as_ref(), false), Vec::new());
        for at in 0..2000 {
            queue.submit(read(0, at % 256, 1));
            queue.flush().unwrap();
            while queue.in_flight() > 0 {
                waiter.wait_and_reap(queue.as_mut(), &mut done);
            }
        }
        assert_eq!(done.len(), 2000);
        assert!(done.iter().all(|done| done.result.is_ok() && is_stamped(&done.buf, done.token)));
    });
}

/// A thread with nothing else to do waits in the queue, now and then for its event instead: whatever
/// was read comes, however it is waited for.
#[test]
fn waiting_in_the_queue_misses_nothing() {
    const READS: u64 = 50_000;
    let scratch = Scratch::new();
    with_each(&[stamped(&scratch, 1024)], |engine, mut queue| {
        let mut random = Random(11);
        let mut waiter = Waiter::new(queue.as_ref(), true);
        let (mut started, mut finished, mut done) = (0, 0, Vec::new());
        while finished < READS {
            let wanted = [1, 3, 32, 100][random.below(4) as usize];
            while queue.in_flight() < wanted && started < READS {
                queue.submit(read(0, random.below(1024), 1));
                started += 1;
            }
            match random.below(4) {
                0 => {
                    queue.flush().unwrap();
                    waiter.wait_and_reap(queue.as_mut(), &mut done);
                }
                _ => queue.wait(&mut done, Duration::from_secs(60)).unwrap(),
            }
            for Done { token, buf, result } in done.drain(..) {
                result.unwrap();
                assert!(is_stamped(&buf, token), "{engine}: block {token} has another's content");
                finished += 1;
            }
        }
        // Nothing is left: no wait for what does not come.
        let begin = Instant::now();
        queue.wait(&mut done, Duration::from_millis(50)).unwrap();
        assert!(done.is_empty() && begin.elapsed() < Duration::from_secs(10));
    });
}

/// Who waits for ever is not woken before there is something.
#[test]
fn waiting_in_the_queue_for_ever_is_one_call() {
    const READS: u64 = 100;
    let scratch = Scratch::new();
    with_each(&[stamped(&scratch, 64)], |engine, mut queue| {
        let (mut calls, mut done) = (0, Vec::new());
        for block in 0..READS {
            queue.submit(read(0, block % 64, 1));
            while done.len() as u64 <= block {
                queue.wait(&mut done, Duration::MAX).unwrap();
                calls += 1;
            }
        }
        // Now and then a call is for reads already reaped.
        assert!(calls <= READS + READS / 10, "{engine}: {calls} calls");
    });
}

/// A read that can't be is told to one that waits in the queue, too.
#[test]
fn waiting_in_the_queue_brings_refusals() {
    let scratch = Scratch::new();
    with_each(&[stamped(&scratch, 64)], |_, mut queue| {
        let mut done = Vec::new();
        queue.submit(read(0, 64, 1));
        while queue.in_flight() > 0 {
            queue.wait(&mut done, Duration::from_secs(60)).unwrap();
        }
        assert_eq!(done[0].result.as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    });
}

/// What exceeds the depth starts by reaping alone, without another flush.
#[test]
fn reads_beyond_the_depth_start_when_others_finish() {
    let scratch = Scratch::new();
    with_each(&[stamped(&scratch, 1024)], |_, mut queue| {
        let (mut waiter, mut done) = (Waiter::new(queue.as_ref(), false), Vec::new());
        for block in 0..1000 {
            queue.submit(read(0, block, 1));
        }
        assert_eq!(queue.in_flight(), 1000);
        queue.flush().unwrap();
        while queue.in_flight() > 0 {
            waiter.wait_and_reap(queue.as_mut(), &mut done);
        }
        let mut tokens: Vec<_> = done.iter().map(|done| done.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..1000).collect::<Vec<_>>());
    });
}

#[test]
fn a_read_that_can_not_be_fails_alone() {
    let scratch = Scratch::new();
    let end = 64 * BLOCK as u64;
    with_each(&[stamped(&scratch, 64)], |engine, mut queue| {
        let cases = [
            (0, end, BLOCK, Some(io::ErrorKind::UnexpectedEof)),
            (0, end - BLOCK as u64, 2 * BLOCK, Some(io::ErrorKind::UnexpectedEof)),
            (0, u64::MAX - BLOCK as u64 + 1, BLOCK, Some(io::ErrorKind::UnexpectedEof)),
            (0, 1, BLOCK, Some(io::ErrorKind::InvalidInput)),
            (0, 0, 100, Some(io::ErrorKind::InvalidInput)),
            (1, 0, BLOCK, Some(io::ErrorKind::InvalidInput)),
            (0, 0, BLOCK, None),
        ];
        // Alone each, since a healthy neighbour's wake-up would hide a missing one.
        for (device, offset, bytes, wanted) in cases {
            let (mut waiter, mut done) = (Waiter::new(queue.as_ref(), false), Vec::new());
            queue.submit(Read { device, offset, buf: AlignedBuf::zeroed(bytes), token: offset });
            queue.flush().unwrap();
            while queue.in_flight() > 0 {
                waiter.wait_and_reap(queue.as_mut(), &mut done);
            }
            let kinds: Vec<_> =
                done.iter().map(|d| d.result.as_ref().err().map(io::Error::kind)).collect();
            assert_eq!(kinds, [wanted], "{engine}: {bytes} bytes at {offset} of {device}");
            assert_eq!((done[0].token, done[0].buf.len()), (offset, bytes));
        }
    });
}

/// The file shrinks under the device: the kernel reads less than was asked for.
#[test]
fn a_short_read_is_an_error() {
    let scratch = Scratch::new();
    let device = stamped(&scratch, 64);
    let file = std::fs::OpenOptions::new().write(true).open(scratch.path("stamped")).unwrap();
    file.set_len(10 * BLOCK as u64).unwrap();
    with_each(&[device], |engine, mut queue| {
        let (mut waiter, mut done) = (Waiter::new(queue.as_ref(), false), Vec::new());
        queue.submit(read(0, 9, 2));
        queue.submit(read(0, 20, 1));
        queue.flush().unwrap();
        while queue.in_flight() > 0 {
            waiter.wait_and_reap(queue.as_mut(), &mut done);
        }
        for done in &done {
            let kind = done.result.as_ref().err().map(io::Error::kind);
            assert_eq!(kind, Some(io::ErrorKind::UnexpectedEof), "{engine}: {}", done.token);
        }
        assert_eq!(done.len(), 2);
    });
}

/// A drive whose descriptor can't be read: the kernel takes the reads and fails them.
struct Unreadable(std::fs::File);

impl Drive for Unreadable {
    fn label(&self) -> &str {
        "unreadable"
    }
    fn geometry(&self) -> Geometry {
        Geometry { bytes: 1 << 20, block_bytes: 4096 }
    }
    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
    fn write_at(&self, _: u64, _: &AlignedBuf) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn reads(&self) -> Reads<'_> {
        Reads::Ring(self.0.as_fd())
    }
}

#[test]
fn a_failing_drive_fails_its_own_reads_only() {
    let scratch = Scratch::new();
    let write_only = std::fs::File::create(scratch.path("unreadable")).unwrap();
    let devices: [Arc<dyn Drive>; 2] = [Arc::new(Unreadable(write_only)), stamped(&scratch, 64)];
    with_each(&devices, |engine, mut queue| {
        let (mut waiter, mut done) = (Waiter::new(queue.as_ref(), false), Vec::new());
        for block in 0..60 {
            queue.submit(read(block as usize % 2, block, 1));
        }
        queue.flush().unwrap();
        while queue.in_flight() > 0 {
            waiter.wait_and_reap(queue.as_mut(), &mut done);
        }
        assert_eq!(done.len(), 60);
        for done in done {
            match done.result {
                Ok(()) => assert!(done.token % 2 == 1 && is_stamped(&done.buf, done.token)),
                Err(error) => {
                    assert_eq!((done.token % 2, error.raw_os_error()), (0, Some(9)), "{engine}");
                }
            }
        }
    });
}

#[test]
fn a_silent_drive_holds_up_no_other() {
    let scratch = Scratch::new();
    let silent = Arc::new(Silent::default());
    let devices: [Arc<dyn Drive>; 2] = [silent.clone(), stamped(&scratch, 64)];
    let mut queue = WorkerQueue::open(&devices, Engine::Pool, 2 * DEPTH).unwrap();
    let (mut waiter, mut done) = (Waiter::new(&queue, false), Vec::new());
    (100..200).for_each(|block| queue.submit(read(0, block, 1)));
    queue.flush().unwrap();
    (0..60).for_each(|block| queue.submit(read(1, block, 1)));
    queue.flush().unwrap();
    while done.len() < 60 {
        waiter.wait_and_reap(&mut queue, &mut done);
    }
    assert!(done.iter().all(|done| done.token < 60 && is_stamped(&done.buf, done.token)));
    *silent.is_open.lock().unwrap() = true;
    silent.opened.notify_all();
    while queue.in_flight() > 0 {
        waiter.wait_and_reap(&mut queue, &mut done);
    }
    assert_eq!(done.len(), 160);
}

#[test]
fn a_read_knows_its_device() {
    let (one, other) = (Scratch::new(), Scratch::new());
    let devices = [stamped(&one, 64), stamped(&other, 32)];
    let mut block = AlignedBuf::zeroed(BLOCK);
    block.fill(0xee);
    devices[1].write_at(0, &block).unwrap();
    with_each(&devices, |_, mut queue| {
        let (mut waiter, mut done) = (Waiter::new(queue.as_ref(), false), Vec::new());
        queue.submit(read(1, 0, 1));
        queue.submit(read(0, 40, 1));
        queue.flush().unwrap();
        while queue.in_flight() > 0 {
            waiter.wait_and_reap(queue.as_mut(), &mut done);
        }
        done.sort_by_key(|done| done.token);
        assert!(done[0].buf.iter().all(|&byte| byte == 0xee));
        assert!(is_stamped(&done[1].buf, 40));
    });
}

/// A kernel that still wrote into freed buffers would corrupt the heap; reusing the memory at once,
/// and checking that it stays as it was, would show that.
#[test]
fn dropping_a_queue_waits_for_its_reads() {
    let scratch = Scratch::new();
    let device = stamped(&scratch, 1024);
    for round in 0..100 {
        with_each(&[Arc::clone(&device)], |engine, mut queue| {
            for block in 0..100 {
                queue.submit(read(0, block, 1 + round % 4));
            }
            if round % 3 != 0 {
                queue.flush().unwrap();
            }
            drop(queue);
            let reused: Vec<_> = (0..100).map(|_| AlignedBuf::zeroed(BLOCK)).collect();
            std::thread::sleep(Duration::from_micros(300));
            let untouched = reused.iter().all(|buf| buf.iter().all(|&byte| byte == 0));
            assert!(untouched, "{engine}: a read came after its queue was gone");
        });
    }
}

#[test]
fn dropping_a_queue_does_not_wait_for_a_silent_drive() {
    let (reader, writer) = io::pipe().unwrap();
    let silent = Arc::new(Silent { pipe: Some(reader), ..Silent::default() });
    let devices: [Arc<dyn Drive>; 1] = [silent.clone()];
    with_each(&devices, |engine, mut queue| {
        for block in 0..2 * u64::from(DEPTH) {
            let buf = if block % 2 == 0 { queue.buffer(BLOCK) } else { AlignedBuf::zeroed(BLOCK) };
            queue.submit(Read { device: 0, offset: block * BLOCK as u64, buf, token: block });
        }
        queue.flush().unwrap();
        let start = Instant::now();
        drop(queue);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(30), "{engine}: {took:?}");
        let reused: Vec<_> = (0..100).map(|_| AlignedBuf::zeroed(BLOCK)).collect();
        (&writer).write_all(&[0xaa; 2 * BLOCK]).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        let untouched = reused.iter().all(|buf| buf.iter().all(|&byte| byte == 0));
        assert!(untouched, "{engine}: a read came into memory that was another's");
    });
    *silent.is_open.lock().unwrap() = true;
    silent.opened.notify_all();
}

#[test]
fn buffers_of_the_queue_can_outlive_it() {
    let scratch = Scratch::new();
    with_each(&[stamped(&scratch, 64)], |_, mut queue| {
        let mut waiter = Waiter::new(queue.as_ref(), false);
        // More than it has, so that some are of other memory.
        for block in 0..60 {
            let buf = queue.buffer(BLOCK);
            queue.submit(Read { device: 0, offset: block * BLOCK as u64, buf, token: block });
        }
        queue.flush().unwrap();
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            waiter.wait_and_reap(queue.as_mut(), &mut done);
        }
        drop(queue);
        assert!(done.iter().all(|done| is_stamped(&done.buf, done.token)));
    });
}

#[test]
fn auto_says_what_it_took() {
    let scratch = Scratch::new();
    let queue = WorkerQueue::open(&[stamped(&scratch, 16)], Engine::Auto, 0).unwrap();
    match queue.fallback() {
        None => assert_eq!(queue.path(0), Some(ReadPath::IoUring)),
        Some(why) => {
            println!("io_uring: skipped, {why}");
            assert_eq!(queue.path(0), Some(ReadPath::Threads));
        }
    }
}

/// As in containers, where the kernel says no. Here it says so because no descriptor is left for
/// the ring's event; the pool, which comes after it, then finds the one that the ring had.
#[test]
fn auto_falls_back_where_io_uring_is_refused() {
    const CHILD: &str = "TERRACE_TEST_WITHOUT_IO_URING";
    if std::env::var_os(CHILD).is_none() {
        // In a process of its own, since the limit holds for all of it.
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "auto_falls_back_where_io_uring_is_refused"])
            .env(CHILD, "1")
            .status();
        return assert!(child.unwrap().success());
    }
    let scratch = Scratch::new();
    let devices = [stamped(&scratch, 16)];
    let limits = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let one_more = Rlimit { current: Some(next + 1), maximum: limits.maximum };
    setrlimit(Resource::Nofile, one_more).unwrap();
    let forced = WorkerQueue::open(&devices, Engine::IoUring, 8);
    let opened = WorkerQueue::open(&devices, Engine::Auto, 8);
    setrlimit(Resource::Nofile, limits).unwrap();
    assert!(forced.is_err());
    let mut queue = opened.unwrap();
    assert_eq!((queue.path(0), queue.uses_io_uring()), (Some(ReadPath::Threads), false));
    assert!(queue.fallback().is_some());
    let (mut waiter, mut done) = (Waiter::new(&queue, false), Vec::new());
    queue.submit(read(0, 3, 1));
    queue.flush().unwrap();
    while done.is_empty() {
        waiter.wait_and_reap(&mut queue, &mut done);
    }
    assert!(is_stamped(&done[0].buf, 3));
}

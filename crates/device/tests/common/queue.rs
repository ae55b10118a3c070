//! Queues of each engine, how a worker waits for one, and a drive that does not answer.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "shared by test crates")]

use crate::common::BLOCK;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use terrace_device::{
    AlignedBuf, Done, Drive, Engine, Geometry, Monitor, Read, ReadQueue, Reads, WorkerQueue,
};

const ENGINES: [Engine; 2] = [Engine::IoUring, Engine::Pool];
pub const DEPTH: u32 = 32;

/// Runs `test` with a queue of each engine.
pub fn with_each(devices: &[Arc<dyn Drive>], test: impl Fn(Engine, Box<dyn ReadQueue>)) {
    for engine in ENGINES {
        match WorkerQueue::open(devices, engine, DEPTH) {
            Ok(queue) => test(engine, Box::new(queue)),
            Err(error) if engine == Engine::IoUring => println!("io_uring: skipped, {error}"),
            Err(error) => panic!("{engine}: {error}"),
        }
    }
}

pub fn read(device: usize, block: u64, blocks: usize) -> Read {
    let buf = AlignedBuf::zeroed(BLOCK * blocks);
    Read { device, offset: block * BLOCK as u64, buf, token: block }
}

/// A worker's wait for its queue.
pub struct Waiter {
    epoll: OwnedFd,
    level: bool,
    pub wakes: u64,
}

impl Waiter {
    pub fn new(queue: &dyn ReadQueue, level: bool) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let flags = if level { EventFlags::IN } else { EventFlags::IN | EventFlags::ET };
        epoll::add(&epoll, queue.event_fd(), EventData::new_u64(0), flags).unwrap();
        Self { epoll, level, wakes: 0 }
    }

    /// Whether anything happened within `patience`.
    pub fn wait(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut events = Vec::<Event>::with_capacity(1);
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                result => {
                    result.unwrap();
                    self.wakes += u64::from(!events.is_empty());
                    return !events.is_empty();
                }
            }
        }
    }

    /// Waits, then reaps; panics rather than wait long.
    pub fn wait_and_reap(&mut self, queue: &mut dyn ReadQueue, done: &mut Vec<Done>) {
        assert!(self.wait(Duration::from_secs(60)), "slept through {} reads", queue.in_flight());
        if self.level {
            queue.clear_event();
        }
        queue.reap(done);
    }
}

/// A drive that answers nothing until its gate is opened, or its pipe is written to.
#[derive(Default)]
pub struct Silent {
    pub is_open: Mutex<bool>,
    pub opened: Condvar,
    pub pipe: Option<PipeReader>,
    pub monitor: Monitor,
}

impl Drive for Silent {
    fn label(&self) -> &str {
        "silent"
    }
    fn geometry(&self) -> Geometry {
        Geometry { bytes: 1 << 20, block_bytes: 4096 }
    }
    fn read_at(&self, _: u64, _: &mut AlignedBuf) -> io::Result<()> {
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        Ok(())
    }
    fn write_at(&self, _: u64, _: &AlignedBuf) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn monitor(&self) -> Option<&Monitor> {
        Some(&self.monitor)
    }
    fn reads(&self) -> Reads<'_> {
        self.pipe.as_ref().map_or(Reads::Threads, |pipe| Reads::Ring(pipe.as_fd()))
    }
}

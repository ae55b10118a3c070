//! The threads of a [`crate::DeadlineDrive`], which carry out its transfers and own their memory meanwhile.

use crate::buffer::AlignedBuf;
use crate::drive::Drive;
use crate::health::Direction;
use crate::queue::ReadQueue;
use crate::read::Read;
use crate::worker_queue::{Engine, WorkerQueue};
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Reads of one transfer that are under way at the same time, at most.
const AT_ONCE: u32 = 16;

/// The thread as it is seen from outside.
pub(crate) struct IoThread {
    /// `None` once the device is being dropped.
    asked: Option<Sender<Transfer>>,
    pub(crate) done: Receiver<Transfer>,
    /// It has not done what it was asked, and its caller waits no more.
    pub(crate) is_late: bool,
    thread: Option<JoinHandle<()>>,
}

/// What is asked of the thread at once.
pub(crate) struct Transfer {
    direction: Direction,
    pub(crate) steps: Vec<Step>,
}

/// A read or a write.
pub(crate) struct Step {
    offset: u64,
    pub(crate) buffer: AlignedBuf,
    pub(crate) result: io::Result<()>,
}

impl IoThread {
    /// Transfers of `device`; reads go through `engine`.
    pub(crate) fn open(device: Arc<dyn Drive>, engine: Engine) -> io::Result<Self> {
        let (asked, asking) = channel::<Transfer>();
        let (doing, done) = channel();
        let work = move || {
            let mut worker = Worker { device, engine, queue: None };
            for mut transfer in asking {
                worker.carry_out(&mut transfer);
                if doing.send(transfer).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("drive".into()).spawn(work)?;
        Ok(Self { asked: Some(asked), done, is_late: false, thread: Some(thread) })
    }

    pub(crate) fn ask(&self, transfer: Transfer) -> io::Result<()> {
        let asked = self.asked.as_ref().ok_or_else(ended)?;
        asked.send(transfer).map_err(|_| ended())
    }

    /// Nothing is asked any more.
    pub(crate) fn close(&mut self) -> Option<JoinHandle<()>> {
        self.asked = None;
        self.thread.take()
    }
}

impl Transfer {
    pub(crate) fn write(offset: u64, buffer: AlignedBuf) -> Self {
        Self { direction: Direction::Write, steps: vec![Step::new(offset, buffer)] }
    }

    /// Has the thread close what it has open of the device.
    pub(crate) fn none() -> Self {
        Self { direction: Direction::Read, steps: Vec::new() }
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    pub(crate) fn reads(steps: impl Iterator<Item = (u64, AlignedBuf)>) -> Self {
        let steps = steps.map(|(offset, buffer)| Step::new(offset, buffer));
        Self { direction: Direction::Read, steps: steps.collect() }
    }
}

impl Step {
    fn new(offset: u64, buffer: AlignedBuf) -> Self {
        Self { offset, buffer, result: Ok(()) }
    }
}

/// What the thread works with.
struct Worker {
    device: Arc<dyn Drive>,
    engine: Engine,
    /// For reads, from the first of them on. A process that ends in a read of a ring need not wait for the drive, as
    /// it does in a blocking call.
    queue: Option<WorkerQueue>,
}

impl Worker {
    fn carry_out(&mut self, transfer: &mut Transfer) {
        match (transfer.direction, &mut transfer.steps[..]) {
            (Direction::Read, []) => self.queue = None,
            (Direction::Read, steps) => self.read_all(steps),
            (Direction::Write, steps) => {
                for step in steps {
                    step.result = self.device.write_at(step.offset, &step.buffer);
                }
            }
        }
    }

    fn read_all(&mut self, steps: &mut [Step]) {
        if self.queue.is_none() {
            let devices = [Arc::clone(&self.device)];
            self.queue = WorkerQueue::open(&devices, self.engine, AT_ONCE).ok();
        }
        let Some(queue) = &mut self.queue else {
            return read_in_turn(self.device.as_ref(), steps);
        };
        let lengths: Vec<_> = steps.iter().map(|step| step.buffer.len()).collect();
        if read_at_once(queue, steps).is_err() {
            // A ring that can't be used after all, and gives back nothing of what it has begun.
            (self.queue, self.engine) = (None, Engine::Pool);
            for (step, len) in steps.iter_mut().zip(lengths) {
                if step.buffer.is_empty() {
                    step.buffer = AlignedBuf::zeroed(len);
                    read_in_turn(self.device.as_ref(), std::slice::from_mut(step));
                }
            }
        }
    }
}

fn read_in_turn(device: &dyn Drive, steps: &mut [Step]) {
    for step in steps {
        step.result = device.read_at(step.offset, &mut step.buffer);
    }
}

/// An error leaves those without memory that are not over.
fn read_at_once(queue: &mut dyn ReadQueue, steps: &mut [Step]) -> io::Result<()> {
    for (token, step) in (0..).zip(steps.iter_mut()) {
        let buf = mem::replace(&mut step.buffer, AlignedBuf::zeroed(0));
        queue.submit(Read { device: 0, offset: step.offset, buf, token });
    }
    let (mut left, mut done) = (steps.len(), Vec::new());
    while left > 0 {
        queue.wait(&mut done, Duration::MAX)?;
        left -= done.len();
        for read in done.drain(..) {
            let step = &mut steps[read.token as usize];
            (step.buffer, step.result) = (read.buf, read.result);
        }
    }
    Ok(())
}

pub(crate) fn ended() -> io::Error {
    io::Error::other("the thread that carries out the drive's transfers has ended")
}

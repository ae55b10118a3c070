//! Reads that complete in an order drawn from a seed.

use super::random::Random;
use crate::drive::Drive;
use crate::event::Event;
use crate::queue::{ReadQueue, no_such_drive};
use crate::read::{Done, Read};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A queue without threads: a reap completes some of the reads in flight, at least one, in any
/// order. What a read sees, the device held at some moment between its flush and its reap, as with
/// real drives.
pub struct SimQueue {
    devices: Vec<Arc<dyn Drive>>,
    random: Random,
    /// For the next flush.
    submitted: Vec<Read>,
    in_flight: Vec<InFlight>,
    event: Event,
}

enum InFlight {
    /// Will look at the device when it is reaped.
    Late(Read),
    /// Has looked when it was flushed.
    Early(Done),
}

impl SimQueue {
    /// A queue over `devices`.
    ///
    /// # Errors
    /// When descriptors run out.
    pub fn new(devices: &[Arc<dyn Drive>], seed: u64) -> io::Result<Self> {
        Ok(Self {
            devices: devices.to_vec(),
            random: Random::new(seed),
            submitted: Vec::new(),
            in_flight: Vec::new(),
            event: Event::new()?,
        })
    }

    fn carry_out(&self, Read { device, offset, mut buf, token }: Read) -> Done {
        let result = match self.devices.get(device) {
            Some(device) => device.read_at(offset, &mut buf),
            None => Err(no_such_drive(device)),
        };
        Done { token, buf, result }
    }
}

impl ReadQueue for SimQueue {
    fn attach(&mut self, device: Arc<dyn Drive>) -> io::Result<usize> {
        self.devices.push(device);
        Ok(self.devices.len() - 1)
    }

    fn submit(&mut self, read: Read) {
        self.submitted.push(read);
    }

    fn flush(&mut self) -> io::Result<()> {
        for read in std::mem::take(&mut self.submitted) {
            let in_flight = match self.random.coin() {
                true => InFlight::Early(self.carry_out(read)),
                false => InFlight::Late(read),
            };
            self.in_flight.push(in_flight);
            self.event.signal();
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.in_flight.is_empty() {
            return;
        }
        for _ in 0..=self.random.below(self.in_flight.len()) {
            let at = self.random.below(self.in_flight.len());
            done.push(match self.in_flight.swap_remove(at) {
                InFlight::Early(done) => done,
                InFlight::Late(read) => self.carry_out(read),
            });
        }
        if !self.in_flight.is_empty() {
            self.event.signal();
        }
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn clear_event(&mut self) {
        self.event.clear();
    }

    fn in_flight(&self) -> usize {
        self.submitted.len() + self.in_flight.len()
    }
}

//! One connection with its window of requests.

use crate::plan::Plan;
use crate::replies::Replies;
use crate::requests::{Requests, Window};
use crate::tally::Tally;
use crate::{LoadError, Values};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Room for replies besides the longest one.
const INPUT_BYTES: usize = 256 << 10;

/// One connection; never blocks.
pub(crate) struct Connection {
    stream: TcpStream,
    requests: Requests,
    replies: Replies,
    window: Window,
    depth: usize,
    batch: bool,
    out: Vec<u8>,
    /// How much of `out` the kernel has taken.
    sent: usize,
    input: Vec<u8>,
    /// How much of `input` holds bytes.
    filled: usize,
    /// Whether the poller tells when there is room to send.
    pub(crate) awaits_room: bool,
}

impl Connection {
    pub(crate) fn open(plan: &Plan, values: &Arc<Values>, part: usize) -> Result<Self, LoadError> {
        let stream = TcpStream::connect(plan.address)
            .map_err(|error| LoadError::Connect { address: plan.address.to_string(), error })?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            requests: Requests::new(plan, values, part)?,
            replies: Replies::new(plan, values)?,
            window: Window::default(),
            depth: plan.depth,
            batch: plan.batch,
            out: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES + values.bytes() + 512],
            filled: 0,
            awaits_room: false,
        })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// No more requests; what is in flight is still waited for.
    pub(crate) fn stop(&mut self) {
        self.requests.stop();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.window.requests.is_empty()
    }

    /// Whether bytes wait for room in the kernel's buffer.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Fills the window and sends.
    pub(crate) fn send(&mut self, now: u64) -> Result<(), LoadError> {
        let may_send = !self.batch || self.is_done();
        while may_send && self.window.requests.len() < self.depth {
            if !self.requests.next(now, &mut self.out, &mut self.window) {
                break;
            }
        }
        while self.has_unsent() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(LoadError::Closed(self.window.requests.len())),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads once, and takes the replies that came.
    pub(crate) fn receive(&mut self, now: u64, tally: &mut Tally) -> Result<(), LoadError> {
        let bytes = match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err(LoadError::Closed(self.window.requests.len())),
            Ok(bytes) => bytes,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.filled += bytes;
        let input = &self.input[..self.filled];
        let taken = self.replies.take(input, now, &mut self.window, tally)?;
        self.input.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        if self.filled == self.input.len() {
            return Err(LoadError::Reply("a value longer than any that was stored".into()));
        }
        Ok(())
    }
}

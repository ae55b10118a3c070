//! One connection with its window of requests.

use crate::pace::Pace;
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
    pace: Option<Pace>,
    out: Vec<u8>,
    /// How much of `out` the kernel has taken.
    sent: usize,
    input: Vec<u8>,
    /// How much of `input` holds bytes.
    filled: usize,
    /// Whether the poller tells when there is room to send.
    pub(crate) awaits_room: bool,
    /// Whether the poller knows it.
    pub(crate) is_watched: bool,
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
            pace: Pace::of(plan, part),
            out: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES + values.bytes() + 512],
            filled: 0,
            awaits_room: false,
            is_watched: true,
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
        self.window.requests.is_empty() && self.requests.is_over()
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    /// When the next request is due, in nanoseconds from the start; `None` in a closed loop, and
    /// where requests in flight must be answered first.
    pub(crate) fn due(&self) -> Option<u64> {
        let has_room = self.window.requests.len() < self.depth && !self.requests.is_over();
        self.pace.as_ref().filter(|_| has_room).map(Pace::due)
    }

    /// Whether bytes wait for room in the kernel's buffer.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Fills the window and sends.
    pub(crate) fn send(&mut self, now: u64) -> Result<(), LoadError> {
        let may_send = !self.batch || self.window.requests.is_empty();
        while may_send && self.window.requests.len() < self.depth {
            let since = match &self.pace {
                Some(pace) if pace.due() > now => break,
                Some(pace) => pace.due(),
                None => now,
            };
            if !self.requests.next(since, &mut self.out, &mut self.window) {
                break;
            }
            if let Some(pace) = &mut self.pace {
                pace.advance();
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

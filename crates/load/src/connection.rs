//! One connection with its window of requests.

use crate::LoadError;
use crate::back_end::BackEnd;
use crate::pace::Pace;
use crate::plan::Plan;
use crate::records::Records;
use crate::replies::Replies;
use crate::requests::Requests;
use crate::socket::Socket;
use crate::tally::Tally;
use crate::window::Window;
use std::io::{ErrorKind, Read, Write};

/// Room for replies besides the longest one.
const INPUT_BYTES: usize = 256 << 10;

/// One connection; never blocks.
pub(crate) struct Connection {
    socket: Socket,
    requests: Requests,
    replies: Replies,
    window: Window,
    depth: usize,
    batch: bool,
    pace: Option<Pace>,
    back_end: Option<BackEnd>,
    out: Vec<u8>,
    /// How much of `out` the socket has taken.
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
    pub(crate) fn open(plan: &Plan, records: &Records, part: usize) -> Result<Self, LoadError> {
        let socket = Socket::connect(&plan.address, plan.tls.as_ref())?;
        socket.set_nonblocking()?;
        let missed = plan.back_end.map(|_| Vec::new());
        Ok(Self {
            socket,
            requests: Requests::new(plan, records, part)?,
            replies: Replies::new(plan, records),
            window: Window { missed, ..Window::default() },
            depth: plan.depth,
            batch: plan.batch,
            pace: Pace::of(plan, part),
            back_end: plan.back_end.map(BackEnd::new),
            out: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES + records.sizes.value_max() + 512],
            filled: 0,
            awaits_room: false,
            is_watched: true,
        })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// No more requests; what is in flight is still waited for.
    pub(crate) fn stop(&mut self) {
        self.requests.stop();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.in_flight() == 0 && self.requests.is_over()
    }

    /// Whether it has something to do at times, and not only when replies come.
    pub(crate) fn has_clock(&self) -> bool {
        self.pace.is_some() || self.back_end.is_some()
    }

    /// Requests that wait for the server or the back end.
    #[inline]
    fn in_flight(&self) -> usize {
        self.window.requests.len() + self.back_end.as_ref().map_or(0, BackEnd::len)
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.in_flight() < if self.batch { 1 } else { self.depth }
    }

    /// When there is something to send again, in nanoseconds from the start, if replies don't decide
    /// that.
    pub(crate) fn due(&self) -> Option<u64> {
        let may_ask = self.has_room() && !self.requests.is_over();
        let request = self.pace.as_ref().filter(|_| may_ask).map(Pace::due);
        let record = self.back_end.as_ref().and_then(BackEnd::due);
        request.into_iter().chain(record).min()
    }

    /// Whether bytes wait for room in the kernel's buffer.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.out.len() || self.socket.has_unsent()
    }

    /// Fills the window and sends.
    #[inline]
    pub(crate) fn send(&mut self, now: u64) -> Result<(), LoadError> {
        self.store_missed(now);
        let at_once = if self.batch { self.depth } else { 1 };
        while self.has_room() {
            let since = match &self.pace {
                Some(pace) if pace.due() > now => break,
                Some(pace) => pace.due(),
                None => now,
            };
            let mut ask = || self.requests.next(since, &mut self.out, &mut self.window);
            if !(0..at_once).all(|_| ask()) {
                break;
            }
            if let Some(pace) = &mut self.pace {
                pace.advance();
            }
        }
        if self.has_unsent() { self.write() } else { Ok(()) }
    }

    fn store_missed(&mut self, now: u64) {
        let Some(back_end) = &mut self.back_end else { return };
        while let Some(number) = back_end.answer(now) {
            self.requests.store_missed(number, now, &mut self.out, &mut self.window);
        }
    }

    fn write(&mut self) -> Result<(), LoadError> {
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(0) => return Err(LoadError::Closed(self.window.requests.len())),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        match self.socket.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Reads what came, and takes the replies that are whole.
    #[inline]
    pub(crate) fn receive(&mut self, now: u64, tally: &mut Tally) -> Result<(), LoadError> {
        while self.read()? {
            let input = &self.input[..self.filled];
            let taken = self.replies.take(input, now, &mut self.window, tally)?;
            self.input.copy_within(taken..self.filled, 0);
            self.filled -= taken;
            if self.filled == self.input.len() {
                return Err(LoadError::Reply("a value longer than any that was stored".into()));
            }
            // The poller tells what else the kernel has.
            if !self.socket.has_own_buffer() {
                break;
            }
        }
        if let (Some(back_end), Some(missed)) = (&mut self.back_end, &mut self.window.missed) {
            missed.drain(..).for_each(|number| back_end.ask(number, now));
        }
        Ok(())
    }

    /// Reads once; gives back whether there was something.
    #[inline]
    fn read(&mut self) -> Result<bool, LoadError> {
        match self.socket.read(&mut self.input[self.filled..]) {
            Ok(0) => Err(LoadError::Closed(self.window.requests.len())),
            Ok(bytes) => {
                self.filled += bytes;
                Ok(true)
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

//! The one loop that finds a record: look up, read what the cache asks for, check it, look again.
//!
//! 1. [`Search::evidence`] goes with a call of the session, and is none at first.
//! 2. Where the session asks for a read, [`Search::begin`] keeps what it is for; the caller reads [`ReadPlan`].
//! 3. [`Search::take`] checks what was read. The next call of the session then has its evidence, or another read follows.

use std::io;
use terrace_cache::{Checked, Evidence, Key, Probe, ReadPlan, Session};
use terrace_device::AlignedBuf;

/// What is known of a record on a drive so far.
#[derive(Default)]
pub(crate) struct Search {
    probe: Option<Box<Probe>>,
    /// What was read for the probe, once it was checked.
    read: Option<AlignedBuf>,
}

/// What a call that may need a read came to.
pub(crate) enum Step<T> {
    /// This must be read, and given to [`Search::take`].
    Read(ReadPlan),
    /// Buffers are full, or a start has not brought the record back yet: the same call again in about a millisecond.
    Wait,
    Done(T),
}

impl Search {
    /// What was found out, for the next call of the session.
    pub(crate) fn evidence(&self) -> Option<Evidence<'_>> {
        Some(Evidence { probe: self.probe.as_deref()?, bytes: self.read.as_deref()? })
    }

    /// The session asks for a read.
    pub(crate) fn begin<T>(&mut self, probe: Probe) -> Step<T> {
        let plan = probe.plan();
        (self.probe, self.read) = (Some(Box::new(probe)), None);
        Step::Read(plan)
    }

    /// Takes what was read. `Some` if something else has to be read before the session is called again, into the buffer
    /// that comes back in `spare`.
    pub(crate) fn take(
        &mut self,
        session: &Session,
        key: Key<'_>,
        (mut buffer, result): (AlignedBuf, io::Result<()>),
        spare: &mut Option<AlignedBuf>,
    ) -> Option<ReadPlan> {
        let probe = self.probe.as_mut()?;
        let read = result.map(|()| &mut buffer[..]);
        match session.check(probe, key, read) {
            Checked::Match | Checked::Absent => {
                self.read = Some(buffer);
                None
            }
            Checked::Read => {
                *spare = Some(buffer);
                Some(probe.plan())
            }
            Checked::Restart => {
                *spare = Some(buffer);
                self.probe = None;
                None
            }
        }
    }

    /// Forgets what was found out; returns the buffer for the next read.
    pub(crate) fn finish(&mut self) -> Option<AlignedBuf> {
        self.probe = None;
        self.read.take()
    }
}

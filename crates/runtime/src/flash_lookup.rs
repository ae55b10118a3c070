//! A lookup that has to read tiers.
//!
//! 1. A call of the session returns a [`Search`]: its caller reads what [`FlashLookup::begin`] then says.
//! 2. [`FlashLookup::take`] checks what was read. It has the next read, or says that it is known enough.
//! 3. The same call of the session with [`FlashLookup::evidence`] has its result, or returns the next search: the record
//!    may have moved meanwhile.
//! 4. [`FlashLookup::end`] gives the buffer back.

use std::io;
use terrace_cache::{Evidence, Key, ReadPlan, Search, Session, Taken};
use terrace_device::AlignedBuf;

/// What was read of tiers for one key. Owned by the request; holds no reference into the cache.
#[derive(Default)]
pub struct FlashLookup {
    /// What the session asked for last; `None` before the first read.
    search: Option<Box<Search>>,
    /// What was read, once it is known whether it holds the record.
    read: Option<AlignedBuf>,
}

/// What comes after a read.
pub enum Next {
    /// The session is to be called again. The buffer of the read comes back here where it shows nothing, else from
    /// [`FlashLookup::end`].
    Call(Option<AlignedBuf>),
    /// This is to be read; the buffer of the last read is free.
    Read(ReadPlan, AlignedBuf),
}

impl FlashLookup {
    /// Returns the read that the session asks for. What was read before must have been given back by
    /// [`FlashLookup::end`], or its buffer is freed.
    #[inline]
    pub fn begin(&mut self, search: Box<Search>) -> ReadPlan {
        let plan = search.plan();
        (self.search, self.read) = (Some(search), None);
        plan
    }

    /// Takes what was read, of the same key as the session was asked for. An error is counted, and a miss.
    #[inline]
    pub fn take(
        &mut self,
        session: &Session,
        key: Key<'_>,
        (mut buffer, result): (AlignedBuf, io::Result<()>),
    ) -> Next {
        let Some(search) = &mut self.search else { return Next::Call(Some(buffer)) };
        match search.take(session, key, result.map(|()| &mut buffer[..])) {
            Taken::Known => {
                self.read = Some(buffer);
                Next::Call(None)
            }
            Taken::Moved => Next::Call(Some(buffer)),
            Taken::Read => Next::Read(search.plan(), buffer),
        }
    }

    /// As [`FlashLookup::take`], of bytes that are a part of a longer read, which [`FlashLookup::evidence_in`] must be
    /// shown then. Returns the next read, if there is one. Pages are joined in place: show them once.
    pub fn take_part(
        &mut self,
        session: &Session,
        key: Key<'_>,
        read: io::Result<&mut [u8]>,
    ) -> Option<ReadPlan> {
        let search = self.search.as_mut()?;
        match search.take(session, key, read) {
            Taken::Known => None,
            Taken::Moved => {
                self.search = None;
                None
            }
            Taken::Read => Some(search.plan()),
        }
    }

    /// Reads what the session asks for, read by read, until it is to be called again. `read` may block.
    pub fn read_with(
        &mut self,
        session: &Session,
        key: Key<'_>,
        search: Box<Search>,
        mut read: impl FnMut(ReadPlan, &mut AlignedBuf) -> io::Result<()>,
    ) {
        let mut plan = self.begin(search);
        loop {
            let mut buffer = AlignedBuf::zeroed(plan.bytes as usize);
            let result = read(plan, &mut buffer);
            match self.take(session, key, (buffer, result)) {
                Next::Call(_) => return,
                Next::Read(next, _) => plan = next,
            }
        }
    }

    /// What was read, for the next call of the session; `None` before the first read, and where the record was moved
    /// meanwhile.
    #[inline]
    pub fn evidence(&self) -> Option<Evidence<'_>> {
        self.evidence_in(self.read.as_deref()?)
    }

    /// The same of bytes that [`FlashLookup::take_part`] was shown.
    pub fn evidence_in<'a>(&'a self, bytes: &'a [u8]) -> Option<Evidence<'a>> {
        Some(self.search.as_ref()?.evidence(bytes))
    }

    /// The read that was asked for last.
    #[inline]
    pub fn plan(&self) -> Option<ReadPlan> {
        Some(self.search.as_ref()?.plan())
    }

    /// Prefetches what [`FlashLookup::take`] of these bytes begins with; see [`Session::prefetch_check`].
    #[inline]
    pub fn prefetch(&self, session: &Session, hash: u64, bytes: &[u8]) {
        if let Some(search) = &self.search {
            session.prefetch_check(search, hash, bytes);
        }
    }

    /// Gives the buffer back that was read into, if there is one: there is no evidence any more.
    #[inline]
    pub fn end(&mut self) -> Option<AlignedBuf> {
        self.read.take()
    }
}

//! What executing a command needs.

use crate::server::shared::Shared;
use crate::stats::counters::Counters;
use std::ops::Deref;
use std::time::Duration;
use terrace_cache::{Access, Change, Evidence, Hit, Key, Lookup, Search, Session, Update};
use terrace_runtime::limits::Limits;

/// One worker's means to execute commands, at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Executor<'w> {
    pub(crate) session: &'w Session,
    pub(crate) shared: &'w Shared,
    pub(crate) counters: &'w Counters,
    /// Which worker it is.
    pub(crate) worker: usize,
    /// Unix time in seconds.
    pub(crate) now: u32,
    pub(crate) limits: Limits,
}

/// A command on one key: what executes it, and what it is about.
#[derive(Clone, Copy)]
pub(crate) struct Keyed<'w> {
    pub(crate) executor: Executor<'w>,
    pub(crate) key: Key<'w>,
    /// What was read for it; `None` at first.
    pub(crate) evidence: Option<Evidence<'w>>,
}

impl<'w> Deref for Keyed<'w> {
    type Target = Executor<'w>;

    #[inline(always)]
    fn deref(&self) -> &Executor<'w> {
        &self.executor
    }
}

impl<'w> Keyed<'w> {
    /// Looks the record up.
    #[inline(always)]
    pub(crate) fn get(&self, access: Access) -> Lookup<'w> {
        self.session.get(self.key, self.now, access, self.evidence)
    }

    /// Has `decide` say what becomes of the record; see [`Session::update`]. Returns the CAS number of a record that was
    /// changed; `None` if the cache is full, and not allowed to evict.
    #[inline(always)]
    pub(crate) fn update<'v>(
        &'v self,
        is_blind: bool,
        decide: impl FnOnce(Option<Hit<'v>>) -> Change<'v>,
    ) -> Result<Option<u64>, Unfinished> {
        match self.session.update(self.key, self.now, self.evidence, is_blind, decide) {
            Update::Done { cas } => Ok(Some(cas)),
            Update::Full => Ok(None),
            Update::Read(search) => Err(Unfinished::Read(search)),
            Update::Wait => Err(Unfinished::Wait),
            Update::Recovering => Err(Unfinished::Recovering),
        }
    }
}

/// Why an operation has no result yet. It changed nothing and wrote nothing.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// A page must be read first.
    Read(Box<Search>),
    /// Buffers are full: try again in about a millisecond.
    Wait,
    /// The record may not be back yet after a start: try again in about a millisecond, for [`RECOVERY_PATIENCE`].
    Recovering,
}

/// What waits for a start to bring a record back is refused after this.
pub(crate) const RECOVERY_PATIENCE: Duration = Duration::from_secs(1);

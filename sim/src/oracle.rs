//! What every key may be.
//!
//! One thread executes all operations, so each takes effect at a known moment: the call that decides
//! it. A key is therefore in one known state, except after a crash, when the operation that was under
//! way may have happened or not, and after a power loss, when what was not acknowledged may have been
//! undone. Then several states are possible until one of them is seen; from there on it is that one.

use crate::value::describe;
use std::rc::Rc;
use terrace_cache::{Body, Manifest, Record};

/// The value of a record.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Inline(Rc<[u8]>),
    /// Chunks, and what they are together.
    Chunked(Manifest, Rc<[u8]>),
}

/// A record as it was stored.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) content: Content,
    pub(crate) client_flags: u32,
    pub(crate) expires: u32,
    pub(crate) cas: u64,
    /// Everything was flushed between the first chunk and the manifest: who flushed meant the chunks
    /// too.
    pub(crate) is_hollow: bool,
}

/// `None`: there is no record.
pub(crate) type State = Option<Rc<Version>>;

impl Version {
    pub(crate) fn is_expired(&self, now: u32) -> bool {
        self.expires != 0 && self.expires <= now
    }

    pub(crate) fn bytes(&self) -> &Rc<[u8]> {
        match &self.content {
            Content::Inline(bytes) | Content::Chunked(_, bytes) => bytes,
        }
    }

    /// Records that hold it: chunks are records of their own.
    fn records(&self) -> u64 {
        match &self.content {
            Content::Inline(_) => 1,
            Content::Chunked(manifest, _) => {
                1 + manifest.runs.iter().map(|run| u64::from(run.chunks)).sum::<u64>()
            }
        }
    }

    fn is(&self, record: &Record<'_>) -> bool {
        let same_content = || match (&self.content, record.body()) {
            (Content::Inline(ours), Body::Inline(found)) => **ours == *found,
            (Content::Chunked(ours, _), Body::Chunked(found)) => *ours == found,
            _ => false,
        };
        self.cas == record.cas
            && self.expires == record.expires
            && self.client_flags == record.client_flags
            && same_content()
    }

    fn describe(&self) -> String {
        let kind = if matches!(self.content, Content::Inline(_)) { "" } else { " in chunks" };
        format!(
            "{}{kind}, cas {}, expires {}, flags {}",
            describe(self.bytes()),
            self.cas,
            self.expires,
            self.client_flags
        )
    }
}

/// A state that a change replaced, but that a power loss may bring back.
struct Undone {
    state: State,
    /// Number of the change that replaced it.
    by: u64,
}

#[derive(Default)]
struct Entry {
    /// What the key may be now; at least one.
    now: Vec<State>,
    /// Until the change is acknowledged.
    before: Vec<Undone>,
    /// CAS numbers that were given out, the latest.
    cas: Vec<u64>,
}

/// All keys.
pub(crate) struct Oracle {
    entries: Vec<Entry>,
    changes: u64,
    /// See [`Oracle::expire`].
    expired_at: u32,
    /// How often everything was flushed.
    pub(crate) flushes: u64,
    /// What is undone by a power loss unless acknowledged is of interest.
    keeps_before: bool,
}

/// What a miss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// There was nothing to be found.
    Rightly,
    /// A record that was acknowledged and has not expired.
    Lost,
}

impl Oracle {
    pub(crate) fn new(keys: u32, keeps_before: bool) -> Self {
        let entry = || Entry { now: vec![None], ..Entry::default() };
        Self {
            entries: (0..keys).map(|_| entry()).collect(),
            changes: 0,
            expired_at: 0,
            flushes: 0,
            keeps_before,
        }
    }

    pub(crate) fn keys(&self) -> u32 {
        self.entries.len() as u32
    }

    /// A record was found: the state that it is, or why it is none that the key may be in.
    pub(crate) fn hit(
        &mut self,
        key: u32,
        record: &Record<'_>,
        now: u32,
    ) -> Result<Rc<Version>, String> {
        let entry = &mut self.entries[key as usize];
        let is_it = |state: &&State| state.as_ref().is_some_and(|version| version.is(record));
        let Some(found) = entry.now.iter().find(is_it).cloned().flatten() else {
            return Err(format!("found {}\n{}", describe_record(record), self.describe(key)));
        };
        if found.is_expired(now.max(self.expired_at)) {
            return Err(format!("found {} at {now}: it is expired", describe_record(record)));
        }
        if entry.now.len() > 1 {
            entry.now = vec![Some(Rc::clone(&found))];
        }
        Ok(found)
    }

    /// Nothing was found. `is_final`: and nothing can be found later, unless it is stored. What has expired was there
    /// perhaps, and still is.
    pub(crate) fn miss(&mut self, key: u32, now: u32, is_final: bool) -> Missed {
        let entry = &mut self.entries[key as usize];
        let is_gone = |state: &State| state.as_ref().is_none_or(|version| version.is_expired(now));
        if !entry.now.iter().any(is_gone) {
            return Missed::Lost;
        }
        if is_final {
            entry.now.retain(is_gone);
        }
        Missed::Rightly
    }

    /// The key's state changes. Answers the number of the change.
    pub(crate) fn change(&mut self, key: u32, after: State) -> u64 {
        self.changes += 1;
        let by = self.changes;
        let entry = &mut self.entries[key as usize];
        let before = std::mem::replace(&mut entry.now, vec![after]);
        if self.keeps_before {
            entry.before.extend(before.into_iter().map(|state| Undone { state, by }));
        }
        by
    }

    /// The crash came while the key's state was to be changed: it was or was not, or the record is
    /// lost over it.
    pub(crate) fn change_in_doubt(&mut self, key: u32, after: State) {
        self.entries[key as usize].now.extend([after, None]);
    }

    /// Change number `by` of the key was acknowledged: it is not undone any more.
    pub(crate) fn acknowledge(&mut self, key: u32, by: u64) {
        self.entries[key as usize].before.retain(|undone| undone.by > by);
    }

    /// Notes a CAS number; `false` if the key had it before.
    pub(crate) fn note_cas(&mut self, key: u32, cas: u64) -> bool {
        let seen = &mut self.entries[key as usize].cas;
        let is_new = !seen.contains(&cas);
        if seen.len() >= 64 {
            seen.remove(0);
        }
        seen.push(cas);
        is_new
    }

    /// After a cold start numbers begin at random.
    pub(crate) fn forget_cas(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.cas.clear());
    }

    /// Background work has seen this time: what is expired by it is expired for good, whatever the clock
    /// says after a restart.
    pub(crate) fn expire(&mut self, now: u32) {
        self.expired_at = self.expired_at.max(now);
    }

    /// A new beginning: time may go on from an earlier one.
    pub(crate) fn forget_time(&mut self) {
        self.expired_at = 0;
    }

    /// Everything that was stored is gone. What is not `durable` is answered by an error, and a power
    /// loss may undo it.
    pub(crate) fn flush(&mut self, is_durable: bool) {
        self.flushes += 1;
        for key in 0..self.keys() {
            let by = self.change(key, None);
            if is_durable {
                self.acknowledge(key, by);
            }
        }
    }

    /// The crash came while everything was to be made to go.
    pub(crate) fn flush_in_doubt(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.now.push(None));
    }

    /// No power loss undoes anything that happened so far.
    pub(crate) fn all_is_durable(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.before.clear());
    }

    /// Whatever is not on a drive may be gone, and what was not acknowledged may be undone.
    pub(crate) fn after_power_loss(&mut self) {
        for entry in &mut self.entries {
            entry.now.extend(entry.before.drain(..).map(|undone| undone.state));
            entry.now.push(None);
        }
    }

    /// A drive may have gone with the record of any key.
    pub(crate) fn after_a_lost_drive(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.now.push(None));
    }

    /// Keys whose record must be there, as far as promises go.
    pub(crate) fn live(&self, now: u32) -> impl Iterator<Item = u32> {
        let is_live =
            move |state: &State| state.as_ref().is_some_and(|version| !version.is_expired(now));
        let live = move |(key, entry): (usize, &Entry)| {
            entry.now.iter().all(is_live).then_some(key as u32)
        };
        self.entries.iter().enumerate().filter_map(live)
    }

    /// Records that a cache must hold which has let go of none.
    pub(crate) fn least_records(&self, now: u32) -> u64 {
        let must = |state: &State| {
            let live = state.as_ref().filter(|version| !version.is_expired(now));
            live.filter(|version| !version.is_hollow).map_or(0, |version| version.records())
        };
        self.entries.iter().filter_map(|entry| entry.now.iter().map(must).min()).sum()
    }

    /// Records that a cache may hold of a key that was just looked up: expired ones stay until something comes across
    /// them.
    pub(crate) fn most_records_of(&self, key: u32, is_found: bool, now: u32) -> u64 {
        let states = self.entries[key as usize].now.iter().flatten();
        let may_be = states.filter(|version| is_found || version.is_expired(now));
        may_be.map(|version| version.records()).max().unwrap_or(0)
    }

    /// Whether nothing else has happened to the key since it was in this state.
    pub(crate) fn is_still(&self, key: u32, version: &Rc<Version>) -> bool {
        let is_it = |state: &State| state.as_ref().is_some_and(|state| Rc::ptr_eq(state, version));
        self.entries[key as usize].now.iter().all(is_it)
    }

    /// The only state that the key may be in, if there is one.
    pub(crate) fn certain(&self, key: u32) -> Option<&State> {
        match &self.entries[key as usize].now[..] {
            [state] => Some(state),
            _ => None,
        }
    }

    pub(crate) fn describe(&self, key: u32) -> String {
        let states = self.entries[key as usize].now.iter().map(|state| match state {
            None => "  nothing".to_owned(),
            Some(version) => format!("  {}", version.describe()),
        });
        let states: Vec<_> = states.collect();
        format!("expected:\n{}", states.join("\n"))
    }
}

fn describe_record(record: &Record<'_>) -> String {
    let content = match record.body() {
        Body::Inline(value) => describe(value),
        Body::Chunked(manifest) => format!("{manifest:?}"),
    };
    format!(
        "{content}, cas {}, expires {}, flags {}",
        record.cas, record.expires, record.client_flags
    )
}

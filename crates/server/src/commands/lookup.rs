//! Reading a record, with what a read may change: its expiry, its marks, and, where it is missing,
//! its existence.

use super::executor::{Keyed, Unfinished};
use super::expiry::Expiry;
use super::keyed::{Executed, LargeValue};
use terrace_cache::{
    Access, Body, Change, Chunks, Evidence, Hit, Lookup, Manifest, NewRecord, NewValue, Record,
};

/// What a read may change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    /// The record's new expiry.
    pub(crate) touch: Option<Expiry>,
    /// A missing record is created, empty, with this expiry.
    pub(crate) vivify: Option<Expiry>,
    /// The CAS number of a record so created.
    pub(crate) assign: Option<u64>,
    /// Whether the reader can be told that it won, as the first to see a stale record does. Others
    /// leave that right to somebody who can.
    pub(crate) can_win: bool,
    /// Who reads a record that is gone before this wins the right to renew it.
    pub(crate) recache: Option<Recache>,
    /// Whether it counts for no use (meta `u`).
    pub(crate) leaves_no_trace: bool,
    /// Whether the record had been fetched and how long it had lain there, where an earlier look of this request
    /// has changed that.
    pub(crate) before: Option<(bool, u32)>,
}

/// When a record is to be renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recache {
    /// Unix time; 0 if it is never to be.
    pub(crate) before: u32,
    /// Whether the time counts that a touch gives it.
    pub(crate) is_behind_touch: bool,
}

impl Recache {
    pub(crate) fn new(expiry: Expiry, is_behind_touch: bool) -> Self {
        let before = match expiry {
            Expiry::At(time) => time,
            Expiry::Already => 0,
        };
        Self { before, is_behind_touch }
    }
}

/// A record as one reader sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) record: Record<'a>,
    /// When it is gone, after this request; 0 for never.
    pub(crate) expires: u32,
    pub(crate) fetched: bool,
    pub(crate) idle_seconds: u32,
    /// This reader has the right to renew it.
    pub(crate) won: bool,
}

/// Reads a record that nothing is done to; `None` if there is none.
#[inline(always)]
pub(crate) fn read<'a>(on: &Keyed<'a>, access: Access) -> Result<Option<Hit<'a>>, Unfinished> {
    match on.get(access) {
        Lookup::Hit(hit) => Ok(Some(hit)),
        Lookup::Miss => Ok(None),
        Lookup::Read(search) => Err(Unfinished::Read(search)),
    }
}

/// Counts a get that found nothing.
pub(crate) fn count_miss(on: &Keyed<'_>) {
    on.counters.cmd_get.add(1);
    on.counters.get_misses.add(1);
    if is_lost(on.evidence) {
        on.counters.miss_from_extstore.add(1);
    }
}

/// Whether what a miss was to find may have stood in a page that could not be read.
pub(crate) fn is_lost(evidence: Option<Evidence<'_>>) -> bool {
    evidence.is_some_and(|evidence| evidence.met_unreadable())
}

/// Takes a hit that was written to `out` from `before` on back, unless all that it promises is there: the chunks
/// of a large item may be lost one by one. An item that can't be sent any more is removed, so that no later
/// request finds what this one missed; where it is another one by now, that is to be looked at. One whose chunks may
/// not be back yet after a start is missed, and stays.
#[inline(always)]
pub(crate) fn if_whole(
    on: &Keyed<'_>,
    executed: Executed,
    (out, before): (&mut Vec<u8>, usize),
) -> Result<Option<Executed>, Unfinished> {
    if !on.session.is_intact() {
        // The record was lost while it was copied.
        out.truncate(before);
        return Ok(None);
    }
    let is_whole = match &executed {
        Executed::Replied => return Ok(Some(executed)),
        Executed::Streams(large) => has_chunks(on, large),
    };
    if !matches!(is_whole, Ok(true)) {
        out.truncate(before);
    }
    Ok(is_whole?.then_some(executed))
}

#[inline(never)]
fn has_chunks(
    on: &Keyed<'_>,
    LargeValue { manifest, pin, .. }: &LargeValue,
) -> Result<bool, Unfinished> {
    let look = |pin| on.session.look_for_chunks(manifest, pin);
    match pin.as_ref().map_or(Chunks::Gone, look) {
        Chunks::There => Ok(true),
        Chunks::Recovering => Ok(false),
        Chunks::Gone if forget(on, manifest)? => Ok(false),
        Chunks::Gone => Err(Unfinished::Wait),
    }
}

/// Removes a large item of which a chunk is lost, so that no later request finds what one has missed. Says whether
/// it was still the key's.
pub(crate) fn forget(on: &Keyed<'_>, manifest: &Manifest) -> Result<bool, Unfinished> {
    let is_it = |hit: &Hit<'_>| matches!(hit.record.body(), Body::Chunked(m) if m == *manifest);
    let mut is_lost = false;
    let update = on.update(false, |hit| {
        is_lost = hit.as_ref().is_some_and(is_it);
        if is_lost { Change::Remove } else { Change::Keep }
    });
    if is_lost {
        on.session.note_chunk_lost(&on.key);
    }
    match update {
        Ok(_) | Err(Unfinished::Recovering) => Ok(is_lost),
        Err(why) => Err(why),
    }
}

/// What [`with_effects`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Found,
    Missing,
    /// Created by this request, with this CAS number and expiry (unix time; 0 for never).
    Created {
        cas: u64,
        expires: u32,
    },
    /// Full, and not allowed to evict.
    NoMemory,
}

/// Reads a record and changes it as asked. `see` is shown a record that was found; what it writes
/// counts only if this returns `Ok`.
pub(crate) fn with_effects(
    on: &Keyed<'_>,
    effects: &Effects,
    see: impl FnOnce(&Seen<'_>),
) -> Result<Outcome, Unfinished> {
    let now = on.now;
    let mut outcome = Outcome::Missing;
    let mut manifest: Option<Manifest> = None;
    let place = &mut manifest;
    let update = on.update(false, |hit| match hit {
        Some(hit) => {
            outcome = Outcome::Found;
            let (seen, expiry) = look(effects, &hit, now);
            see(&seen);
            change(&seen, expiry, place)
        }
        None => match effects.vivify {
            None => Change::Keep,
            Some(expiry) => {
                let expires = match expiry {
                    Expiry::At(expires) => expires,
                    Expiry::Already => now,
                };
                outcome = Outcome::Created { cas: 0, expires };
                vivify(expiry, effects.assign)
            }
        },
    });
    match (update, &mut outcome) {
        (Ok(Some(new)), Outcome::Created { cas, .. }) => *cas = new,
        (Ok(Some(_)), _) => {}
        (Ok(None), outcome) => *outcome = Outcome::NoMemory,
        // Who only reads may miss it.
        (Err(Unfinished::Recovering), _) if effects.touch.is_none() && effects.vivify.is_none() => {
        }
        (Err(why), _) => return Err(why),
    }
    if outcome == Outcome::Found && !effects.leaves_no_trace {
        // After what `see` was shown, which is how it was before.
        if let Lookup::Hit(hit) = on.get(Access::Use)
            && let Body::Chunked(manifest) = hit.record.body()
        {
            on.session.use_chunks(&manifest, now);
        }
    }
    Ok(outcome)
}

/// Gives a record a new expiry. `see` is shown the record; what it writes counts only if this
/// returns `Ok`.
pub(crate) fn touch(
    on: &Keyed<'_>,
    expiry: Expiry,
    see: impl FnOnce(&Seen<'_>),
) -> Result<Outcome, Unfinished> {
    let effects = Effects { touch: Some(expiry), ..Effects::default() };
    let outcome = with_effects(on, &effects, see)?;
    let counters = on.counters;
    counters.cmd_touch.add(1);
    match outcome {
        Outcome::Found => counters.touch_hits.add(1),
        Outcome::Missing | Outcome::Created { .. } => counters.touch_misses.add(1),
        Outcome::NoMemory => {}
    }
    Ok(outcome)
}

fn look<'a>(effects: &Effects, hit: &Hit<'a>, now: u32) -> (Seen<'a>, Expiry) {
    let old = hit.record;
    let expiry = effects.touch.unwrap_or(Expiry::At(old.expires));
    let expires = match expiry {
        Expiry::At(expires) => expires,
        Expiry::Already => now,
    };
    let is_short_lived = effects.recache.is_some_and(|recache| {
        let end = if recache.is_behind_touch { expires } else { old.expires };
        end != 0 && end < recache.before
    });
    let won = effects.can_win && !old.win_sent && (old.stale || is_short_lived);
    let (fetched, idle_seconds) = effects.before.unwrap_or((hit.fetched, hit.idle_seconds));
    (Seen { record: old, expires, fetched, idle_seconds, won }, expiry)
}

fn change<'v>(seen: &Seen<'v>, expiry: Expiry, place: &'v mut Option<Manifest>) -> Change<'v> {
    let old = seen.record;
    match expiry {
        Expiry::Already => Change::Remove,
        Expiry::At(expires) if expires == old.expires && !seen.won => Change::Keep,
        Expiry::At(expires) => Change::Store(NewRecord {
            expires,
            win_sent: old.win_sent || seen.won,
            // What is read stays the same: so does its CAS number.
            cas: Some(old.cas),
            ..super::kept(&old, super::same_value(&old, place), None)
        }),
    }
}

fn vivify<'v>(expiry: Expiry, assign: Option<u64>) -> Change<'v> {
    let Expiry::At(expires) = expiry else { return Change::Keep };
    // Whoever creates it wins: others are told so.
    let new = NewRecord::new(NewValue::Inline(&[], &[]), expires);
    Change::Store(NewRecord { cas: assign, win_sent: true, ..new })
}

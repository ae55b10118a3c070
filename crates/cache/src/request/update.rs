//! Changes of a record: find the present one, decide, and store or remove, under the shard's lock.

use crate::dram::lane::Lane;
use crate::dram::resident::{Resident, mark};
use crate::dram::table::SlotAt;
use crate::engine::{Engine, chunks, fullness};
use crate::records::access::Access;
use crate::records::key::{Key, Name};
use crate::records::manifest::{ItemId, Manifest, Run};
use crate::records::record::{Encoder, NewRecord, NewValue, Record};
use crate::request::search::{Evidence, Search, next_search};
use crate::request::session::{Hit, Session, hit_in_dram, matched};
use crate::segments::segment::Sealed;
use crate::shard::{Asker, Candidates, Locked};
use crate::stats::counters::count;
use arrayvec::ArrayVec;

/// Decision of the caller of [`Session::update`].
#[derive(Debug)]
pub enum Change<'v> {
    /// Leave the record as it is.
    Keep,
    /// Remove it.
    Remove,
    /// Put this in its place.
    Store(NewRecord<'v>),
}

/// Answer of [`Session::update`] and [`Session::store_chunk`].
#[derive(Debug)]
pub enum Update {
    /// Decided and done.
    Done {
        /// CAS number of the stored record; 0 if none was stored.
        cas: u64,
    },
    /// Not decided: a page must be read first.
    Read(Box<Search>),
    /// Not decided: buffers are full until background work has written some out. Repeat the call in about a
    /// millisecond.
    Wait,
    /// Not decided: the key has no record here, and may have one in a segment that is not recovered yet
    /// ([`crate::Cache::recover`]). Repeat the call in about a millisecond. Never the result of a blind change.
    Recovering,
    /// Refused: the cache is full and must not evict (`-M`), background work hangs ([`crate::Cache::note_hanging`]), or
    /// the record is longer than [`crate::Cache::inline_bytes_max`] allows.
    Full,
}

/// The key's present record.
enum Current<'a> {
    Absent,
    Resident(Resident<'a>, Record<'a>, SlotAt),
    Sealed(Sealed, Record<'a>),
}

/// What `change` knows of the key's sealed records.
enum Known<'a> {
    Nothing,
    /// The decision does not depend on them.
    Irrelevant,
    /// The key never had a record.
    NeverStored,
    Shown(Evidence<'a>),
}

impl Session {
    /// Decides and changes one record, atomically with respect to every other request.
    ///
    /// `decide` gets the newest unexpired record, or `None`, and returns the change. It runs at most once per call,
    /// under the shard's lock: it must be short and must not call the session. After `Read`, `Wait` or `Recovering`
    /// nothing was changed and the call must be repeated (after `Read`, with evidence). `blind` means that `decide`
    /// ignores the record (a plain `set`): then no page is read, unless the record may be an item with chunks, the
    /// deferred entries have no room, or new keys are refused. The change may borrow from the hit, so that a touch or
    /// an append copies the old value once.
    #[inline]
    pub fn update<'v>(
        &'v self,
        key: Key<'_>,
        now: u32,
        evidence: Option<Evidence<'v>>,
        blind: bool,
        decide: impl FnOnce(Option<Hit<'v>>) -> Change<'v>,
    ) -> Update {
        let known = match evidence {
            Some(evidence) => Known::Shown(evidence),
            // Where new keys are refused, the read must show whether this is one.
            None if blind && !self.engine().refuses_new() => Known::Irrelevant,
            None => Known::Nothing,
        };
        self.change(key, now, (known, blind), decide)
    }

    /// Inlined for the caller that most SETs come through; there are two.
    #[inline(always)]
    fn change<'v>(
        &'v self,
        key: Key<'_>,
        now: u32,
        (known, blind): (Known<'v>, bool),
        decide: impl FnOnce(Option<Hit<'v>>) -> Change<'v>,
    ) -> Update {
        self.begin_reading();
        let guard = self.guard();
        let engine = self.engine();
        let (shard, name) = self.shard(&key);
        // Prefetched during the lookup in DRAM, for one on tiers.
        shard.deferred_at().prefetch(name.pos);
        let mut locked = shard.lock(engine.shared(), guard);
        let (mut removable, mut unread) = (Candidates::new(), Unread::new());
        let current = if let Some((resident, record, at)) =
            shard.find_resident(engine.shared(), guard, &key, name.pos)
        {
            Current::Resident(resident, record, at)
        } else if !engine.has_tiers() {
            Current::Absent
        } else {
            match look_on_flash(engine, &locked, name, &known) {
                Ok(seen) => {
                    (removable, unread) = (seen.removable, seen.unread);
                    seen.current
                }
                Err(search) => return Update::Read(search),
            }
        };
        if matches!(current, Current::Absent) && !blind && locked.may_come_back(name) {
            return Update::Recovering;
        }
        let hit = locked.hit(name, &current, now);
        let expired = hit.as_ref().is_some_and(|hit| hit.record.is_expired(now));
        let change = decide(hit.filter(|_| !expired));
        let before = current.manifest();
        if !self.is_intact() {
            // The decision may be based on zeros.
            return Update::Wait;
        }
        let (update, after) = match change {
            Change::Keep if !expired => return Update::Done { cas: 0 },
            // The tombstones of the change need room in the log; background work makes some.
            _ if !engine.shared().logs_have_room() => {
                count(engine.shared().counters().waits());
                return Update::Wait;
            }
            Change::Keep | Change::Remove => {
                if expired {
                    count(engine.shared().counters().expired());
                }
                locked.log_void(name, &current, &removable, &unread);
                locked.remove(name, &current);
                (Update::Done { cas: 0 }, None)
            }
            Change::Store(new) => {
                let voided = (&current, &removable[..], &unread[..]);
                let stored = self.store(&mut locked, &key, name, voided, &new, now);
                if !matches!(stored, Update::Done { .. }) {
                    return stored;
                }
                if let Some(manifest) = new.value.manifest() {
                    shard.items_due().note(new.expires);
                    chunks::end_uploads(engine, &manifest.runs);
                }
                (stored, new.value.manifest())
            }
        };
        for sealed in &removable {
            chunks::note_lost(engine, shard, *sealed);
            if locked.unlink(name, sealed.number, None) {
                count(engine.shared().counters().removed_unread());
            }
        }
        for sealed in &unread {
            locked.defer(name, sealed.number);
        }
        if !self.is_intact() {
            locked.forget_sealed(name);
        }
        drop(locked);
        self.note_change();
        if let Some(after) = after {
            self.use_chunks_of_known(&key, before.is_some(), after, now);
        }
        if let Some(before) = before {
            let in_use = |run: &Run| after.is_some_and(|after| after.runs.contains(run));
            chunks::discard_runs(engine, before.runs.into_iter().filter(|run| !in_use(run)));
        }
        update
    }

    fn store(
        &self,
        locked: &mut Locked<'_>,
        key: &Key<'_>,
        name: Name,
        (current, removable, unread): (&Current<'_>, &[Sealed], &[Sealed]),
        new: &NewRecord<'_>,
        now: u32,
    ) -> Update {
        let engine = self.engine();
        // The cache may have become full since the decision to read nothing.
        let is_new = matches!(current, Current::Absent) && unread.is_empty();
        if is_new && engine.refuses_new() {
            return Update::Full;
        }
        let cas = match new.cas {
            _ if !engine.with_cas() => 0,
            Some(cas) => cas,
            None => locked.next_cas(),
        };
        let manifest = match new.value {
            NewValue::Chunked(manifest) => manifest.encode(),
            NewValue::Inline(..) => Vec::new(),
        };
        let encoder = Encoder::new(key, new, &manifest, cas);
        if encoder.bytes() > engine.geometry().record_bytes_max() as usize {
            return Update::Full;
        }
        let Ok(addr) = locked.append_fresh(Asker::Request, &encoder, now) else {
            count(engine.shared().counters().waits());
            return if engine.is_out_of_room() { Update::Full } else { Update::Wait };
        };
        if !self.is_intact() {
            // The new record may have a part of the old one.
            return Update::Wait;
        }
        // In this order a crash in between loses the record; in the other one it could bring back an older one.
        locked.log_void(name, current, removable, unread);
        locked.commit();
        match current {
            Current::Resident(old, _, at) => {
                locked.unlink_origin(name, old);
                locked.supersede(name.pos, old, *at, addr, Lane::Fresh);
                crate::dram::heat::note_rewrite(
                    old,
                    &engine.shared().arena().view(locked.guard(), addr),
                );
            }
            Current::Sealed(sealed, record) => {
                locked.enter(name.pos, addr, Lane::Fresh);
                engine.shared().arena().view(locked.guard(), addr).set(mark::CHANGED);
                locked.unlink(name, sealed.number, Some(record.encoded_bytes()));
            }
            Current::Absent => locked.enter(name.pos, addr, Lane::Fresh),
        }
        locked.note_stored();
        Update::Done { cas }
    }

    /// Stores chunk `index` of an item (at most [`crate::Cache::inline_bytes_max`] bytes). The item appears when a
    /// record with its [`Manifest`] is stored; [`Session::discard_chunks`] gives it up.
    pub fn store_chunk(&self, item: ItemId, index: u32, bytes: &[u8], now: u32) -> Update {
        let mut name = [0; 12];
        let key = self.chunk_key(item, index, &mut name);
        let new = NewRecord { cas: Some(0), ..NewRecord::new(NewValue::Inline(bytes, &[]), 0) };
        self.change(key, now, (Known::NeverStored, true), |_| Change::Store(new))
    }
}

/// What is known of a name's records on tiers.
struct Seen<'a> {
    current: Current<'a>,
    /// Entries that may be older records of the key, and can't be read or need not be: a change removes them.
    removable: Candidates,
    /// Entries that were not read: a change defers them.
    unread: Unread,
}

/// At most 4; if there are more, they are read.
type Unread = ArrayVec<Sealed, 4>;

fn look_on_flash<'a>(
    engine: &Engine,
    locked: &Locked<'_>,
    name: Name,
    known: &Known<'a>,
) -> Result<Seen<'a>, Box<Search>> {
    let absent = |removable, unread| Ok(Seen { current: Current::Absent, removable, unread });
    if matches!(known, Known::NeverStored) {
        return absent(Candidates::new(), Unread::new());
    }
    let mut candidates = locked.candidates(name);
    if candidates.is_empty() {
        return absent(Candidates::new(), Unread::new());
    }
    // A change must know the chunks of the item that it replaces.
    let may_be_item = |sealed: &Sealed| locked.shard().segments().has_manifests(sealed.number);
    if matches!(known, Known::Irrelevant)
        && locked.may_take_out(&candidates)
        && !candidates.iter().any(may_be_item)
    {
        // A record that was used is not evicted unread.
        let is_unused = |sealed: &Sealed| {
            locked.index().get(name, sealed.number).is_some_and(|entry| entry.uses() == 0)
        };
        if fullness::may_cost_another_its_place(engine) && candidates.iter().all(is_unused) {
            return absent(candidates, Unread::new());
        }
        if locked.has_room_to_defer(&candidates)
            && let Ok(unread) = Unread::try_from(&candidates[..])
        {
            return absent(Candidates::new(), unread);
        }
    }
    let Known::Shown(evidence) = known else {
        return unread(locked, &mut candidates, name, None, Candidates::new());
    };
    // An unreadable record may be an older one of the key that can be read again later.
    let rejected = &evidence.search.rejected;
    let unreadable = |sealed: &Sealed| rejected.iter().any(|r| r.unreadable && r.sealed == *sealed);
    let removable = candidates.iter().copied().filter(unreadable).collect();
    if let Some((sealed, record)) = matched(evidence)
        && candidates.contains(&sealed)
    {
        let current = Current::Sealed(sealed, record);
        return Ok(Seen { current, removable, unread: Unread::new() });
    }
    if candidates.iter().all(|candidate| evidence.search.was_rejected(*candidate)) {
        return absent(removable, Unread::new());
    }
    unread(locked, &mut candidates, name, Some(evidence.search), removable)
}

/// Asks for the next read. A candidate without a place to read (a segment of extents only, none of them at the name's
/// position) holds another key's record, and stays.
fn unread<'a>(
    locked: &Locked<'_>,
    candidates: &mut Candidates,
    name: Name,
    before: Option<&Search>,
    removable: Candidates,
) -> Result<Seen<'a>, Box<Search>> {
    match next_search(locked.shard(), candidates, name, before) {
        Some(search) => Err(search),
        None => Ok(Seen { current: Current::Absent, removable, unread: Unread::new() }),
    }
}

impl Current<'_> {
    #[inline]
    fn manifest(&self) -> Option<Manifest> {
        match self {
            Current::Resident(_, record, _) | Current::Sealed(_, record)
                if record.is_manifest() =>
            {
                Some(Manifest::decode(record.raw()))
            }
            _ => None,
        }
    }
}

impl Locked<'_> {
    /// Appends the tombstones of the sealed records that a change voids.
    fn log_void(
        &mut self,
        name: Name,
        current: &Current<'_>,
        removable: &[Sealed],
        unread: &[Sealed],
    ) {
        if self.shared().logs().is_empty() {
            return;
        }
        match current {
            Current::Absent => {}
            Current::Resident(old, ..) => self.log_tombstone_of_origin(name, old),
            Current::Sealed(sealed, _) => self.log_tombstone(name, sealed.number),
        }
        removable.iter().for_each(|sealed| self.log_tombstone_by_prefix(name, sealed.number));
        unread.iter().for_each(|sealed| self.log_tombstone(name, sealed.number));
        self.log_change(name);
    }

    /// Whether a record of the name may still be recovered: it was not changed since the start.
    fn may_come_back(&self, name: Name) -> bool {
        self.state().recovering().as_ref().is_some_and(|recovering| recovering.may_hold(name))
    }

    fn hit<'a>(&self, name: Name, current: &Current<'a>, now: u32) -> Option<Hit<'a>> {
        match current {
            Current::Absent => None,
            Current::Resident(resident, record, _) => {
                Some(hit_in_dram(resident, *record, now, Access::Peek))
            }
            Current::Sealed(sealed, record) => Some(Hit {
                record: *record,
                fetched: self.index().get(name, sealed.number).is_some_and(|e| e.uses() > 0),
                idle_seconds: now.saturating_sub(self.shard().segments().sealed_at(sealed.number)),
                from_dram: false,
            }),
        }
    }

    fn remove(&mut self, name: Name, current: &Current<'_>) {
        match current {
            Current::Absent => {}
            Current::Resident(old, _, at) => {
                self.unlink_origin(name, old);
                self.forget(name.pos, old, *at);
            }
            Current::Sealed(sealed, record) => {
                self.unlink(name, sealed.number, Some(record.encoded_bytes()));
            }
        }
    }
}

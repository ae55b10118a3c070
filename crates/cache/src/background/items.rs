//! Large items: finds live chunks and manifests in a segment or in a block, and removes expired manifests.

use crate::background::footers::{Unreadable, check_footer};
use crate::dram::resident::Resident;
use crate::engine::{Engine, chunks};
use crate::platform::quiesce::Guard;
use crate::records::key::Name;
use crate::records::large::Large;
use crate::records::record::Record;
use crate::segments::packing;
use crate::segments::segment::Sealed;
use crate::segments::spans::spans;
use crate::shard::{Locked, Shard};
use crate::stats::counters::count;
use terrace_device::AlignedBuf;

/// Records checked per hold of the shard's lock.
pub(crate) const BATCH: usize = 64;

/// Reads a segment for [`of_segment`].
pub(crate) fn read(
    engine: &Engine,
    shard: &Shard,
    sealed: Sealed,
    buffer: &mut AlignedBuf,
) -> Result<(), Unreadable> {
    let slot = shard.segments().slot(sealed.number);
    buffer.set_len(engine.shared().slots().segment_bytes_on(slot.tier) as usize);
    engine.shared().slots().read_tail(slot, buffer).map_err(Unreadable::of)
}

/// Shows the live chunks and manifests of a segment that was read. Expired manifests are removed instead, and their
/// chunks after them. After an error none was shown.
pub(crate) fn of_segment(
    (engine, guard): (&Engine, Guard<'_>),
    (shard, sealed): (&Shard, Sealed),
    buffer: &mut AlignedBuf,
    now: u32,
    mut show: impl FnMut(Large),
) -> Result<(), Unreadable> {
    let footer = check_footer(engine, shard, sealed, buffer)?;
    let spans: Option<Vec<_>> = spans(shard.segments(), sealed, buffer).into_iter().collect();
    let spans = spans.filter(|spans| spans.len() == footer.names().len());
    let spans = spans.ok_or(Unreadable::Corrupt)?;
    let records = spans.into_iter().filter_map(|span| Record::decode(&buffer[span]));
    let large = records.filter(|(record, _)| record.is_manifest() || record.is_chunk());
    let large: Vec<_> = large.map(|(record, _)| record).collect();
    let mut expiries = Vec::new();
    for batch in large.chunks(BATCH) {
        engine.shared().make_log_room();
        let mut locked = shard.lock(engine.shared(), guard);
        if !shard.segments().is_current(sealed) {
            return Ok(());
        }
        for record in batch {
            let name = name_of(engine, record);
            // A deferred entry may return.
            if locked.entry(name, sealed.number).is_none() {
                continue;
            }
            let is_listed = locked.index().get(name, sealed.number).is_some();
            if record.is_manifest() && record.is_expired(now) && is_listed {
                locked.log_tombstone(name, sealed.number);
                locked.unlink(name, sealed.number, Some(record.encoded_bytes()));
                count(engine.shared().counters().expired());
                chunks::discard_chunks_of(engine, record);
                continue;
            }
            if record.is_manifest() {
                expiries.push(record.expires);
            }
            Large::of(record).into_iter().for_each(&mut show);
        }
    }
    // Deferred entries stay for a moment, and must not cause a search every time.
    let due = packing::due(expiries);
    shard.segments().set_items_due(sealed.number, if due == 0 { 0 } else { due.max(now + 1) });
    Ok(())
}

/// The chunks and manifests of a block with `fill` bytes, from byte `from` on, void ones too.
pub(crate) fn in_block<'g>(
    engine: &'g Engine,
    guard: Guard<'g>,
    (id, fill, from): (u32, u32, u32),
) -> Vec<Resident<'g>> {
    let residents = engine.shared().arena().records_from(guard, id, from, fill);
    residents.filter(|resident| Record::is_large_at(resident.bytes)).collect()
}

/// As [`of_segment`], for records from [`in_block`].
pub(crate) fn of_residents(
    engine: &Engine,
    locked: &mut Locked<'_>,
    residents: &[Resident<'_>],
    now: u32,
    mut show: impl FnMut(Large),
) {
    for resident in residents {
        let Some((record, _)) = Record::decode(resident.bytes) else { continue };
        let name = name_of(engine, &record);
        let Some(at) = locked.table().find_addr(name.pos, resident.addr) else { continue };
        if record.is_manifest() && record.is_expired(now) {
            locked.log_tombstone_of_origin(name, resident);
            locked.forget(name.pos, resident, at);
            count(engine.shared().counters().expired());
            chunks::discard_chunks_of(engine, &record);
            continue;
        }
        if record.is_manifest() {
            locked.shard().items_due().note(record.expires);
        }
        Large::of(&record).into_iter().for_each(&mut show);
    }
}

fn name_of(engine: &Engine, record: &Record<'_>) -> Name {
    engine.hasher().name(engine.hasher().key(record.key, record.is_chunk()).hash())
}

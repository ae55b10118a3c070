//! Finding a tier's kill log without the state: by the directory on the tier, and by what its pages say of each
//! other.

use crate::kill_log::PAGE_WORDS;
use crate::kill_log::log_page::{self, DIRECTORY_BYTES, Directory, Page};
use crate::kill_log::word::Word;
use crate::recovery::state::{LOG_SLOTS_MAX, LogField, State};
use crate::segments::layout::{PAGE, SEGMENTS_AT};
use std::io;
use std::sync::atomic::Ordering;
use terrace_device::{AlignedBuf, Device};

/// The tier of a set on which a log is sought.
pub(crate) struct Place<'d> {
    pub(crate) device: &'d dyn Device,
    pub(crate) tier: usize,
    pub(crate) set: u64,
    pub(crate) segment_bytes: u32,
}

/// A log that was found by its directory.
pub(crate) struct Found {
    /// The highest seal sequence in it.
    pub(crate) seq_max: u64,
}

/// Finds the log, and tells `state` of it. `pages` is how many there must be, where that is known; else the log
/// ends with the last page in order. Pages behind that one are no part of it: the power was lost before they were
/// durable, or they are of a log that ended otherwise.
///
/// # Errors
/// Says what is missing.
pub(crate) fn find_log(
    place: &Place<'_>,
    state: &State,
    pages: Option<u64>,
) -> Result<Found, String> {
    let directory = newest_directory(place.device, place.set).map_err(|why| unreadable(&why))?;
    let directory = directory.ok_or("the kill log's directory is lost")?;
    let per_slot = u64::from(place.segment_bytes) / PAGE as u64;
    if per_slot == 0 || !directory.tail.is_multiple_of(per_slot) {
        return Err("the kill log's directory says what can't be".into());
    }
    let slots_end = directory.tail + directory.slots.len() as u64 * per_slot;
    let list = state.log_slots(place.tier);
    for (n, &slot) in (0u64..).zip(&directory.slots) {
        let at = (directory.tail / per_slot + n) % LOG_SLOTS_MAX as u64;
        list[at as usize].store(slot.into(), Ordering::Relaxed);
    }
    let read = |page: u64| {
        let slot = directory.slots[((page - directory.tail) / per_slot) as usize];
        place.read(slot, page, per_slot)
    };
    let first = Some(directory.link).filter(|&link| link != 0);
    let (mut end, mut last, mut seq_max) = (directory.tail, first, 0);
    while end < slots_end
        && let Some(page) = read(end)?
        && last.is_none_or(|last| page.follows(last))
    {
        seq_max = seq_max.max(seq_of(&page));
        (end, last) = (end + 1, Some(page.checksum));
    }
    match pages {
        Some(pages) if pages != end && !(directory.slots.is_empty() && pages == directory.tail) => {
            return Err("pages of the kill log are lost".into());
        }
        Some(_) => {}
        None => {
            for page in end + 1..slots_end {
                if read(page)?.is_some_and(|page| page.header.durable > end) {
                    // Page `end` was durable when this one was written.
                    return Err("a page of the kill log is damaged".into());
                }
            }
        }
    }
    let set_field =
        |field, value| state.log_field(place.tier, field).store(value, Ordering::Relaxed);
    set_field(LogField::Head, end * PAGE_WORDS);
    set_field(LogField::Spilled, end);
    set_field(LogField::Tail, directory.tail);
    Ok(Found { seq_max })
}

impl Place<'_> {
    /// None where this page was not written, or not wholly.
    fn read(&self, slot: u32, page: u64, per_slot: u64) -> Result<Option<Page>, String> {
        let offset = SEGMENTS_AT
            + u64::from(slot) * u64::from(self.segment_bytes)
            + page % per_slot * PAGE as u64;
        let mut bytes = AlignedBuf::zeroed(PAGE);
        self.device.read_at(offset, &mut bytes).map_err(|why| unreadable(&why))?;
        Ok(log_page::decode(&bytes, self.set, page))
    }
}

/// The highest seal sequence in a page.
fn seq_of(page: &Page) -> u64 {
    let seqs = page.words.iter().filter_map(|&bits| match Word::from_bits(bits)? {
        Word::Begin { seq, .. } | Word::Again { seq, .. } => Some(seq),
        _ => None,
    });
    seqs.max().unwrap_or(0)
}

/// What can't be read may be what matters: the older directory, or the pages ahead, are no substitute.
fn unreadable(why: &io::Error) -> String {
    format!("the kill log can't be read: {why}")
}

/// The newest directory on a tier, none if there is none of that set.
///
/// # Errors
/// They can't be read.
pub(crate) fn newest_directory(device: &dyn Device, set: u64) -> io::Result<Option<Directory>> {
    let mut newest: Option<Directory> = None;
    for offset in Directory::offsets() {
        let mut bytes = AlignedBuf::zeroed(DIRECTORY_BYTES);
        device.read_at(offset, &mut bytes)?;
        let found = Directory::decode(&bytes).filter(|directory| directory.set == set);
        newest = newest.into_iter().chain(found).max_by_key(|directory| directory.generation);
    }
    Ok(newest)
}

//! Finds a tier's tombstone log without the state: by the directory on the tier, and by the links and counts of its
//! pages.

use crate::log::page::{DIRECTORY_BYTES, Directory, Page};
use crate::log::word::Word;
use crate::log::{PAGE_WORDS, PAGES_PER_READ, page};
use crate::platform::getters::getters;
use crate::segments::layout::{PAGE, SEGMENTS_AT};
use crate::state::{LogField, State};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_device::{AlignedBuf, Drive};

/// The tier on which a log is searched.
pub(crate) struct Place<'d> {
    pub(super) device: &'d dyn Drive,
    pub(super) tier: usize,
    pub(super) key: u64,
    pub(super) segment_bytes: u32,
}

impl<'d> Place<'d> {
    /// Of tier number `tier`, with what its pages are marked with.
    pub(crate) fn new(device: &'d dyn Drive, tier: usize, key: u64, segment_bytes: u32) -> Self {
        Self { device, tier, key, segment_bytes }
    }
}

/// A log that was found by its directory.
pub(crate) struct Found {
    /// The highest seal sequence in it.
    pub(super) seq_max: u64,
}

getters! {
    Found {
        seq_max: u64,
    }
}

/// Finds the log and stores its ends in `state`. `pages` is the number that there must be, if that is known; else the
/// log ends with the last page in order. Pages behind that one do not belong to it: a power loss came before they were
/// durable, or they are of an earlier log.
///
/// # Errors
/// Returns what is missing.
pub(crate) fn find_log(
    place: &Place<'_>,
    state: &State,
    pages: Option<u64>,
) -> Result<Found, String> {
    let directory = newest_directory(place.device, place.key).map_err(|why| unreadable(&why))?;
    let directory = directory.ok_or("the tombstone log's directory is lost")?;
    let per_slot = u64::from(place.segment_bytes) / PAGE as u64;
    if per_slot == 0 || !directory.tail.is_multiple_of(per_slot) {
        return Err("the tombstone log's directory says what can't be".into());
    }
    let slots_end = directory.tail + directory.slots.len() as u64 * per_slot;
    for (at, &slot) in (directory.tail / per_slot..).zip(&directory.slots) {
        state.set_log_slot(place.tier, at, slot);
    }
    // One page behind the last one that there must be shows that the log ends there.
    let pages_end = pages.map_or(slots_end, |pages| slots_end.min(pages.saturating_add(1)));
    let mut reader = Reader {
        place,
        directory: &directory,
        per_slot,
        end: pages_end,
        run: AlignedBuf::zeroed(PAGE * per_slot.min(PAGES_PER_READ) as usize),
        held: 0..0,
    };
    let first = Some(directory.link).filter(|&link| link != 0);
    let (mut end, mut last, mut seq_max) = (directory.tail, first, 0);
    while end < pages_end
        && let Some(page) = reader.read(end)?
        && last.is_none_or(|last| page.follows(last))
    {
        seq_max = seq_max.max(seq_of(&page));
        (end, last) = (end + 1, Some(page.checksum));
    }
    match pages {
        Some(pages) if pages != end && !(directory.slots.is_empty() && pages == directory.tail) => {
            return Err("pages of the tombstone log are lost".into());
        }
        Some(_) => {}
        None => {
            for page in end + 1..slots_end {
                if reader.read(page)?.is_some_and(|page| page.header.durable > end) {
                    // Page `end` was durable when this one was written.
                    return Err("a page of the tombstone log is damaged".into());
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

/// Reads pages in order, up to [`PAGES_PER_READ`] at once.
struct Reader<'l> {
    place: &'l Place<'l>,
    directory: &'l Directory,
    per_slot: u64,
    /// No page from here on is read.
    end: u64,
    run: AlignedBuf,
    /// The pages that are in `run`.
    held: Range<u64>,
}

impl Reader<'_> {
    /// A page; `None` if it was not written, or not wholly.
    fn read(&mut self, page: u64) -> Result<Option<Page>, String> {
        if !self.held.contains(&page) {
            self.read_run(page).map_err(|why| unreadable(&why))?;
        }
        let at = (page - self.held.start) as usize * PAGE;
        Ok(page::decode(&self.run[at..at + PAGE], self.place.key, page))
    }

    /// Reads pages from `page` on, at most to the end of its slot.
    fn read_run(&mut self, page: u64) -> io::Result<()> {
        let slot = self.directory.slots[((page - self.directory.tail) / self.per_slot) as usize];
        let slot_end = page - page % self.per_slot + self.per_slot;
        let end = self.end.min(slot_end).min(page + PAGES_PER_READ);
        let offset = SEGMENTS_AT
            + u64::from(slot) * u64::from(self.place.segment_bytes)
            + page % self.per_slot * PAGE as u64;
        self.held = 0..0;
        self.run.set_len((end - page) as usize * PAGE);
        self.place.device.read_at(offset, &mut self.run)?;
        self.held = page..end;
        Ok(())
    }
}

/// The highest seal sequence in a page.
fn seq_of(page: &Page) -> u64 {
    let seqs = page.words.iter().filter_map(|&bits| match Word::from_bits(bits)? {
        Word::Begin { seq, .. } | Word::Relog { seq, .. } => Some(seq),
        _ => None,
    });
    seqs.max().unwrap_or(0)
}

/// An unreadable page may be the one that counts: the older directory, or the pages ahead, do not replace it.
fn unreadable(why: &io::Error) -> String {
    format!("the tombstone log can't be read: {why}")
}

/// The newest directory with this key on a tier; `None` if there is none.
///
/// # Errors
/// They can't be read.
pub(crate) fn newest_directory(device: &dyn Drive, key: u64) -> io::Result<Option<Directory>> {
    let mut newest: Option<Directory> = None;
    for offset in Directory::offsets() {
        let mut bytes = AlignedBuf::zeroed(DIRECTORY_BYTES);
        device.read_at(offset, &mut bytes)?;
        let found = Directory::decode(&bytes).filter(|directory| directory.key == key);
        newest = newest.into_iter().chain(found).max_by_key(|directory| directory.generation);
    }
    Ok(newest)
}

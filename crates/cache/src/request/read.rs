//! What comes of a read: the bytes are checked, and the search knows the record, or its next read.

use crate::platform::quiesce::Guard;
use crate::records::key::{Key, Name};
use crate::request::search::{Rejected, Search, Taken, next_search};
use crate::request::session::Session;
use crate::segments::look::{Sight, look};
use crate::segments::pages::PageRange;
use crate::segments::segment::{Place, page_plan};
use crate::shard::Shard;
use crate::stats::counters::count;
use std::io;

impl Search {
    /// Takes what [`Search::plan`] was read into, to be shown to [`Search::evidence`] then, or the error that came
    /// instead, which is counted, and a miss. Pages are joined in place: the bytes must be taken only once.
    pub fn take(&mut self, session: &Session, key: Key<'_>, read: io::Result<&mut [u8]>) -> Taken {
        let guard = session.guard();
        let (shard, name) = session.shard(&key);
        if !shard.segments().is_current(self.sealed) {
            return Taken::Moved;
        }
        let tier = shard.segments().slot(self.sealed.number).tier;
        let counters = session.engine().shared().counters().tier(tier);
        counters.reads().add(session.reader_number(), 1);
        counters.read_bytes().add(session.reader_number(), self.plan.bytes.into());
        let sight = match read {
            Ok(bytes) => look(&key, self.sealed, self.place, bytes),
            Err(_) => {
                count(counters.read_errors());
                return reject(shard, guard, name, self, true);
            }
        };
        match sight {
            Sight::Record(range) => {
                self.found = range.start as u32..range.end as u32;
                Taken::Known
            }
            Sight::Cut(page) => {
                let range = PageRange::straddling(page);
                let slot = shard.segments().slot(self.sealed.number);
                (self.place, self.plan) = (Place::Pages(range), page_plan(slot, range));
                Taken::Read
            }
            Sight::Others => {
                count(counters.false_reads());
                reject(shard, guard, name, self, false)
            }
            Sight::Replaced | Sight::Corrupt if !shard.segments().is_current(self.sealed) => {
                Taken::Moved
            }
            Sight::Replaced | Sight::Corrupt => {
                count(counters.corrupt_pages());
                reject(shard, guard, name, self, true)
            }
        }
    }
}

/// Notes that the segment of `search` does not hold the key's record, at least not in this place; plans the next read.
fn reject(
    shard: &Shard,
    guard: Guard<'_>,
    name: Name,
    search: &mut Search,
    unreadable: bool,
) -> Taken {
    search.unreadable |= unreadable;
    if matches!(search.place, Place::Extent { .. })
        && let Some((place, plan)) = shard.segments().plan(search.sealed, name.pos, search.skip + 1)
    {
        (search.place, search.plan, search.skip) = (place, plan, search.skip + 1);
        return Taken::Read;
    }
    search.rejected.push(Rejected { sealed: search.sealed, unreadable: search.unreadable });
    match next_search(shard, &mut shard.candidates(guard, name), name, Some(search)) {
        Some(next) => {
            *search = *next;
            Taken::Read
        }
        None => Taken::Known,
    }
}

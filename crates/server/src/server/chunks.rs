//! Reads for chunks of items that are being sent. Those that stand beside each other in an item do so
//! on the drive, and are read at once: drives need long reads, or very many, to reach their bandwidth.

use super::context::Context;
use super::pending::Job;
use super::replies::SlotId;
use super::slab::Id;
use super::stream::{ChunkName, Lost, Piece};
use crate::commands::lookup;
use std::ops::Range;
use std::sync::Arc;
use terrace_cache::{Evidence, Key, ReadPlan, Search};
use terrace_device::AlignedBuf;
use terrace_runtime::flash_lookup::FlashLookup;

/// Reads are not joined beyond this.
const JOINED_BYTES_MAX: u64 = 160 << 10;
/// Shorter reads may be for pages, which are changed when they are looked at, and are not joined. What
/// they bring is copied, so that the few buffers of that size that the kernel knows are free for other
/// reads while the client takes its time.
const SHORT_BYTES_MAX: u32 = 8 << 10;

/// A read, and the chunks that it is for.
pub(crate) struct ChunkRead {
    pub(crate) connection: Id,
    /// Where the item's reply goes.
    pub(crate) slot: SlotId,
    pub(crate) plan: ReadPlan,
    parts: Vec<Part>,
}

/// One of the chunks, and the part of the read that is for it.
pub(crate) struct Part {
    name: ChunkName,
    pub(crate) plan: ReadPlan,
    lookup: FlashLookup,
}

impl Part {
    /// What `search` asks for.
    pub(crate) fn new(name: ChunkName, search: Box<Search>) -> Self {
        let mut lookup = FlashLookup::default();
        Self { name, plan: lookup.begin(search), lookup }
    }
}

impl ChunkRead {
    pub(crate) fn new(connection: Id, slot: SlotId, part: Part) -> Self {
        Self { connection, slot, plan: part.plan, parts: vec![part] }
    }

    /// Whether a chunk of the reply in `slot` that lies there is best read at once with these.
    pub(crate) fn reaches(&self, slot: SlotId, plan: ReadPlan) -> bool {
        let own = self.plan;
        let end = own.offset + u64::from(own.bytes);
        slot == self.slot
            && plan.tier == own.tier
            && plan.bytes.min(own.bytes) > SHORT_BYTES_MAX
            && (own.offset..=end).contains(&plan.offset)
            && plan.offset + u64::from(plan.bytes) - own.offset <= JOINED_BYTES_MAX
    }

    /// Adds a chunk that it [`ChunkRead::reaches`].
    pub(crate) fn join(&mut self, part: Part) {
        let bytes = (part.plan.offset - self.plan.offset) as u32 + part.plan.bytes;
        self.plan.bytes = self.plan.bytes.max(bytes);
        self.parts.push(part);
    }
}

/// A chunk that was looked for.
enum Found {
    /// Here in what was read.
    Here(Range<usize>),
    Copied(Vec<u8>),
    Lost(Lost),
    /// Something must be read first.
    Elsewhere(Part),
}

impl Found {
    fn new(name: ChunkName, found: Result<Result<&[u8], Lost>, Box<Search>>, read: &[u8]) -> Self {
        match found {
            Ok(Ok(bytes)) => match range_within(read, bytes) {
                Some(range) if read.len() > SHORT_BYTES_MAX as usize => Self::Here(range),
                _ => Self::Copied(bytes.to_vec()),
            },
            Ok(Err(why)) => Self::Lost(why),
            Err(search) => Self::Elsewhere(Part::new(name, search)),
        }
    }
}

/// What became of a chunk that was to be read.
pub(crate) type Outcome = (ChunkName, Result<Piece, Lost>);

impl Context {
    /// Reads chunks; their stream goes on when they are there.
    pub(crate) fn read_chunks(&mut self, chunks: ChunkRead) {
        let plan = chunks.plan;
        let id = self.pending.insert(Job::Chunks(Box::new(chunks)));
        self.reads.submit(plan, id);
    }

    /// The bytes of a chunk, or why there are none; an error is what must be read first.
    pub(crate) fn find_chunk<'a>(
        &'a self,
        name: ChunkName,
        key: Key<'_>,
        evidence: Option<Evidence<'a>>,
    ) -> Result<Result<&'a [u8], Lost>, Box<Search>> {
        let lost = || match lookup::is_lost(evidence) {
            true => Lost::Unreadable,
            false => Lost::Gone,
        };
        let found = name.chunk.find(&self.session, key, self.now, evidence)?;
        Ok(found.ok_or_else(lost))
    }

    /// Takes the chunks out of what was read for them. Those that turn out to lie elsewhere are read
    /// there.
    pub(crate) fn take_chunks(
        &mut self,
        chunks: ChunkRead,
        mut read: AlignedBuf,
        result: std::io::Result<()>,
        outcomes: &mut Vec<Outcome>,
    ) {
        self.reads.hand_over(&read);
        let ChunkRead { connection, slot, plan, parts } = chunks;
        let mut found = Vec::with_capacity(parts.len());
        for Part { name, plan: part, mut lookup } in parts {
            let mut scratch = [0; 12];
            let key = name.chunk.key(&self.session, &mut scratch);
            let start = (part.offset - plan.offset) as usize;
            let range = start..start + part.bytes as usize;
            let bytes = match &result {
                Ok(()) => Ok(&mut read[range.clone()]),
                Err(error) => Err(error.kind().into()),
            };
            let is_found = match lookup.take_part(&self.session, key, bytes) {
                Some(plan) => Found::Elsewhere(Part { name, plan, lookup }),
                None => {
                    let evidence = lookup.evidence_in(&read[range]);
                    Found::new(name, self.find_chunk(name, key, evidence), &read)
                }
            };
            // Copied from DRAM, and lost meanwhile.
            let is_lost = matches!(is_found, Found::Copied(_)) && !self.session.is_intact();
            found.push((name, if is_lost { Found::Lost(Lost::Gone) } else { is_found }));
        }
        let read = Arc::new(read);
        for (name, found) in found {
            let piece = match found {
                Found::Here(range) => Ok(Piece::Read(Arc::clone(&read), range)),
                Found::Copied(bytes) => Ok(Piece::Copied(bytes)),
                Found::Lost(why) => Err(why),
                Found::Elsewhere(part) => {
                    self.read_chunks(ChunkRead::new(connection, slot, part));
                    continue;
                }
            };
            outcomes.push((name, piece));
        }
    }
}

/// Where in `whole` these bytes are, if they are a part of it.
fn range_within(whole: &[u8], bytes: &[u8]) -> Option<Range<usize>> {
    let start = bytes.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start + bytes.len();
    (end <= whole.len()).then_some(start..end)
}

//! The state: bytes that outlive the process, in a file that is mapped shared, on a tmpfs where there is room.
//!
//! ```text
//! header (4 KiB) | next CAS number per shard | areas: log state, log ring | block table | blocks | more areas
//! ```
//!
//! Each member of the set has an area. A state that outlives its process keeps its blocks where they are, so that areas
//! of members that join later lie behind them.
//!
//! After `kill -9` it holds every store that the processor had executed, in program order of each thread. So the order
//! of stores is the protocol: a store must come after everything that it vouches for. After a power loss or a reboot,
//! which the boot id shows, the state must not be used. All numbers are in the machine's own byte order, since the
//! bytes never leave it.

pub(crate) mod file;
mod owner;
pub(crate) mod standing;

use crate::platform::appended::Appended;
use crate::platform::getters::getters;
use crate::platform::mapped::{Loss, SharedMap};
pub use crate::state::file::{RETIRED, StateFile, is_in_memory};
pub use crate::state::owner::StateOwner;
use crate::state::standing::{RosterId, Standing, member_of_format_3};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Version of the layout of this file. 1 had a whole word for each slot of a log.
const VERSION: u64 = 2;
const MAGIC: u64 = 0x5445_5252_5354_4154;
pub(super) const PAGE: usize = 4096;
const PAGE_WORDS: usize = PAGE / 8;
/// Slots of one tier that its log can take at a time.
pub(crate) const LOG_SLOTS_MAX: usize = 6528;
/// Slot numbers of a log in a word.
const SLOTS_PER_WORD: usize = 2;

/// Tiers of a cache at most, those that were removed included, as long as it is open.
pub const TIERS_MAX: usize = 256;
/// Areas behind the blocks, at most.
const AREAS_MAX: usize = 2 * TIERS_MAX;

const _: () = assert!(PAGE_WORDS + LOG_SLOTS_MAX / SLOTS_PER_WORD <= TIER_WORDS);
/// Words per tier before its ring of log pages.
const TIER_WORDS: usize = 8 * PAGE_WORDS;

/// The sizes that determine all offsets in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    shards: usize,
    /// Areas of tiers before the blocks.
    tiers: usize,
    /// Pages of 4 KiB in each tier's ring, where the log is before it goes to the tier.
    ring_pages: usize,
    blocks: u32,
    block_bytes: u32,
}

getters! {
    Layout {
        block_bytes: u32,
        shards: usize,
    }
}

impl Layout {
    /// For `shards` shards and `tiers` tiers with logs that have rings of `ring_pages` pages of 4 KiB.
    pub(crate) fn new(shards: usize, tiers: usize, ring_pages: usize) -> Self {
        Self { shards, tiers, ring_pages, blocks: 0, block_bytes: 0 }
    }

    /// The layout with this many blocks.
    pub(crate) fn with_blocks(self, blocks: u32, block_bytes: u32) -> Self {
        Self { blocks, block_bytes, ..self }
    }

    /// The layout with this many areas before the blocks.
    pub(crate) fn with_tiers(self, tiers: usize) -> Self {
        Self { tiers, ..self }
    }

    fn shard_words(&self) -> usize {
        self.shards.next_multiple_of(PAGE_WORDS)
    }

    fn tier_words(&self) -> usize {
        TIER_WORDS + self.ring_pages * PAGE_WORDS
    }

    fn blocks_at(&self) -> usize {
        let words = PAGE_WORDS + self.shard_words() + self.tiers * self.tier_words();
        (words * 8 + self.blocks as usize * 16).next_multiple_of(PAGE)
    }

    /// Bytes besides the blocks.
    pub(crate) fn overhead(&self) -> u64 {
        self.blocks_at() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks_at() + self.blocks as usize * self.block_bytes as usize
    }
}

/// Words of an [`Identity`], and the indices of set, boot, and numbers of areas and blocks among them.
const IDENTITY_WORDS: usize = 9;
const SET_AT: usize = 1;
const BOOT_AT: Range<usize> = 2..4;
const TIERS_AT: usize = 5;
const BLOCKS_AT: usize = 7;

/// The cache that the state belongs to, and the boot that it is valid for; compared as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The set in the tiers' superblocks.
    set: u64,
    /// Kernel's boot id; another one means that memory and page cache were lost in between.
    boot: [u64; 2],
    layout: Layout,
}

getters! {
    Identity {
        layout: &Layout,
    }
}

impl Identity {
    /// For a set of tiers and a boot of the kernel.
    pub(crate) fn new(set: u64, boot: [u64; 2], layout: Layout) -> Self {
        Self { set, boot, layout }
    }

    /// The identity with another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Self { layout, ..*self }
    }

    fn words(&self) -> [u64; IDENTITY_WORDS] {
        let layout = &self.layout;
        [
            VERSION,
            self.set,
            self.boot[0],
            self.boot[1],
            layout.shards as u64,
            layout.tiers as u64,
            layout.ring_pages as u64,
            u64::from(layout.blocks),
            u64::from(layout.block_bytes),
        ]
    }
}

/// Words of the header behind magic and identity.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    /// The latest time (unix seconds) that the cache has acted on.
    Clock = 16,
    /// Unix seconds at which a delayed `flush_all` is due; 0 if none is.
    FlushDue,
    /// The number of the next large item.
    NextItem,
    /// The next seal sequence.
    NextSeq,
    /// The order of the next block, see [`crate::dram::memory::Block::order`].
    NextOrder,
    /// Seed of the key hash.
    Seed,
    /// A number above all CAS numbers of earlier runs.
    FirstCas,
    /// The generation of the roster that this state has; before format 4 an epoch.
    Epoch,
    /// 1 when the state is complete.
    Ready,
    /// The generation of the roster before; before format 4 the epoch that all tiers had, or 0.
    EpochBefore,
    /// The nonces of both; 0 in states from before format 4.
    Nonce,
    NonceBefore,
    /// 1 if the roster is in force.
    InForce,
    /// Areas behind the blocks.
    MoreAreas,
}

/// The first page of a state, whatever comes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    blocks: u32,
    tiers: usize,
    standing: Standing,
}

getters! {
    Header {
        blocks: u32,
        tiers: usize,
        standing: Standing,
    }
}

impl Header {
    fn of(words: &[AtomicU64]) -> Self {
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        let standing = standing_of(words);
        Self { blocks: word(1 + BLOCKS_AT) as u32, tiers: word(1 + TIERS_AT) as usize, standing }
    }
}

/// The standing in the first page of a state.
fn standing_of(words: &[AtomicU64]) -> Standing {
    let word = |field: Field| words[field as usize].load(Ordering::Acquire);
    let (epoch, before) = (word(Field::Epoch), word(Field::EpochBefore));
    if word(Field::Nonce) == 0 {
        let set = words[1 + SET_AT].load(Ordering::Relaxed);
        return Standing::of_format_3(set, epoch, before == 0 || before >= epoch);
    }
    let roster = RosterId::new(epoch, word(Field::Nonce));
    let standing = Standing::proposed(roster, RosterId::new(before, word(Field::NonceBefore)));
    if word(Field::InForce) == 1 { standing.put_in_force() } else { standing }
}

/// Words of a tier: of its log, and of its write budget.
#[derive(Clone, Copy)]
pub(crate) enum LogField {
    /// Words appended so far.
    Head,
    /// Pages written to the tier so far.
    Spilled,
    /// The first page that is still needed.
    Tail,
    /// 1 once the tier refused writes: its records must not be trusted any more.
    Failed,
    /// Bytes saved up of the write budget as of [`Field::Clock`], signed.
    Balance,
    /// The id of the member that has the area; 0 in an unused one, and in states from before format 4.
    Member,
}

/// The mapped state.
pub(crate) struct State {
    file: std::sync::Arc<StateFile>,
    map: SharedMap,
    /// The areas behind the blocks.
    more: Appended<SharedMap>,
    layout: Layout,
    /// The area of each tier.
    areas: Appended<usize>,
    /// Held while a loss is reconciled; must be locked before the locks of shards.
    loss_handling: Mutex<()>,
}

impl State {
    /// The state of this set and boot, if the file holds it.
    pub(crate) fn kept(
        file: &std::sync::Arc<StateFile>,
        identity: &Identity,
    ) -> io::Result<Option<Self>> {
        let bytes = file.bytes()?;
        if bytes < identity.layout.bytes() as u64 {
            return Ok(None);
        }
        let state = Self::map(file, identity.layout)?;
        if !is_headed(state.map.words(), identity) {
            return Ok(None);
        }
        let more = state.field(Field::MoreAreas).load(Ordering::Relaxed);
        let more_bytes = more.saturating_mul(identity.layout.tier_words() as u64 * 8);
        if bytes < (identity.layout.bytes() as u64).saturating_add(more_bytes) {
            return Ok(None);
        }
        (0..more as usize).try_for_each(|_| state.map_one_more())?;
        file.fill_holes()?;
        Ok(Some(state))
    }

    /// Maps the next area behind the blocks.
    fn map_one_more(&self) -> io::Result<()> {
        let part = self.next_area();
        let area = SharedMap::new(self.file.fd(), part, self.file.loss())?;
        let full = || io::Error::other("the state has as many areas as it can have");
        self.more.append(area).map(|_| ()).map_err(|_| full())
    }

    /// Where the next area behind the blocks would lie in the file.
    fn next_area(&self) -> Range<usize> {
        let bytes = self.layout.tier_words() * 8;
        let at = self.layout.bytes().next_multiple_of(PAGE) + self.more.len() * bytes;
        at..at + bytes
    }

    /// Gives each tier the area of its member. A member without one gets an area that is of no member in `kept`, emptied;
    /// where there is none, the file grows.
    ///
    /// # Errors
    /// The file system is full.
    pub(crate) fn assign(&mut self, members: &[u64], kept: &[u64]) -> io::Result<()> {
        self.areas = Appended::new([], TIERS_MAX);
        members.iter().try_for_each(|&member| {
            self.append(member, |owner| kept.contains(&owner) || members.contains(&owner))
        })
    }

    /// Gives one more tier the area of its member, as [`State::assign`] does. The areas of tiers stay theirs, also of
    /// those that were removed.
    ///
    /// # Errors
    /// The file system is full.
    pub(crate) fn join(&self, member: u64, kept: &[u64]) -> io::Result<()> {
        self.append(member, |owner| kept.contains(&owner))
    }

    fn append(&self, member: u64, is_kept: impl Fn(u64) -> bool) -> io::Result<()> {
        let count = self.layout.tiers + self.more.len();
        let own = (0..count).find(|&area| self.owner(area) == member);
        let is_unused = |&area: &usize| !self.areas.contains(&area) && !is_kept(self.owner(area));
        let area = match own.or_else(|| (0..count).find(is_unused)) {
            Some(area) => area,
            None => {
                self.add_area()?;
                count
            }
        };
        if own.is_none() {
            self.area(area).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        self.area(area)[LogField::Member as usize].store(member, Ordering::Relaxed);
        let full = |_| io::Error::other("the cache has as many tiers as it can have");
        self.areas.append(area).map(|_| ()).map_err(full)
    }

    /// Adds an area behind the blocks, in two steps: its space is reserved, then it counts.
    fn add_area(&self) -> io::Result<()> {
        let part = self.next_area();
        self.file.grow(part.end as u64)?;
        self.map_one_more()?;
        self.field(Field::MoreAreas).store(self.more.len() as u64, Ordering::Release);
        Ok(())
    }

    /// The member that has an area.
    fn owner(&self, area: usize) -> u64 {
        let owner = self.area(area)[LogField::Member as usize].load(Ordering::Relaxed);
        let is_of_format_3 = self.field(Field::Nonce).load(Ordering::Relaxed) == 0;
        match owner {
            0 if is_of_format_3 && area < self.layout.tiers => {
                let set = self.map.words()[1 + SET_AT].load(Ordering::Relaxed);
                member_of_format_3(set, area)
            }
            owner => owner,
        }
    }

    /// A word of a member's area; `None` if it has none.
    pub(crate) fn field_of(&self, member: u64, field: LogField) -> Option<u64> {
        let area =
            (0..self.layout.tiers + self.more.len()).find(|&area| self.owner(area) == member)?;
        Some(self.area(area)[field as usize].load(Ordering::Relaxed))
    }

    fn area(&self, area: usize) -> &[AtomicU64] {
        if let Some(more) = area.checked_sub(self.layout.tiers) {
            return self.more[more].words();
        }
        let at = PAGE_WORDS + self.layout.shard_words() + area * self.layout.tier_words();
        &self.map.words()[at..at + self.layout.tier_words()]
    }

    /// The roster that the state has.
    pub(crate) fn standing(&self) -> Standing {
        standing_of(self.map.words())
    }

    /// Notes a roster that is proposed while the one in force is known, or is put in force. A crash between two of the
    /// stores leaves a proposal that no other member has, and the roster in force.
    pub(crate) fn set_standing(&self, standing: Standing) {
        let set = |field, value| self.field(field).store(value, Ordering::Release);
        let (roster, before) = (standing.roster(), standing.before());
        let had = self.standing();
        if had == standing {
            return;
        }
        let is_of_format_3 = self.field(Field::Nonce).load(Ordering::Relaxed) == 0;
        if !is_of_format_3 && had.roster() == standing.last_in_force() {
            set(Field::InForce, 1);
        }
        if standing.is_in_force() && had.roster() == roster {
            return;
        }
        set(Field::EpochBefore, before.generation());
        set(Field::NonceBefore, before.nonce());
        set(Field::InForce, 0);
        set(Field::Nonce, roster.nonce());
        set(Field::Epoch, roster.generation());
        set(Field::InForce, standing.is_in_force().into());
    }

    /// Erases the file and maps it. Of what was there, `before` stays, the roster in force, whenever a crash comes: the
    /// file may be all that knows it, and what has an older one must not be believed later.
    pub(crate) fn anew(
        file: std::sync::Arc<StateFile>,
        identity: &Identity,
        before: RosterId,
    ) -> io::Result<Self> {
        file.erase(identity.layout.bytes(), &first_page(identity, before))?;
        Self::map(&file, identity.layout)
    }

    /// Erases the state and maps it anew, for a cold start.
    pub(crate) fn erase(self, identity: &Identity, before: RosterId) -> io::Result<Self> {
        let file = std::sync::Arc::clone(&self.file);
        drop(self);
        Self::anew(file, identity, before)
    }

    fn map(file: &std::sync::Arc<StateFile>, layout: Layout) -> io::Result<Self> {
        let map = SharedMap::new(file.fd(), 0..layout.blocks_at(), file.loss())?;
        let (file, loss_handling) = (std::sync::Arc::clone(file), Mutex::default());
        let areas = Appended::new(0..layout.tiers, TIERS_MAX);
        Ok(Self { file, map, more: Appended::new([], AREAS_MAX), layout, areas, loss_handling })
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether pages of the file were lost: then words of the state may be zeros.
    pub(crate) fn loss(&self) -> Loss {
        self.file.loss()
    }

    /// Lets one thread at a time reconcile a loss.
    pub(crate) fn begin_handling_loss(&self) -> MutexGuard<'_, ()> {
        crate::platform::lock::lock(&self.loss_handling)
    }

    /// Replaces the state, after a clean stop wrote everything to the tiers. See [`StateFile::retire`].
    pub(crate) fn retire(&self) -> io::Result<()> {
        self.file.retire()
    }

    /// Makes the state useless for a start.
    pub(crate) fn forget(&self) {
        self.file.forget();
    }

    pub(crate) fn field(&self, field: Field) -> &AtomicU64 {
        &self.map.words()[field as usize]
    }

    /// A shard's next CAS number.
    pub(crate) fn next_cas(&self, shard: usize) -> &AtomicU64 {
        &self.map.words()[PAGE_WORDS + shard]
    }

    fn tier(&self, tier: usize) -> &[AtomicU64] {
        self.area(self.areas[tier])
    }

    /// Bytes besides the blocks.
    pub(crate) fn overhead(&self) -> u64 {
        self.layout.overhead() + (self.more.len() * self.layout.tier_words() * 8) as u64
    }

    pub(crate) fn log_field(&self, tier: usize, field: LogField) -> &AtomicU64 {
        &self.tier(tier)[field as usize]
    }

    /// A slot that a tier's log lies in: page `p` is in the one at `p / pages per slot`.
    pub(crate) fn log_slot(&self, tier: usize, at: u64) -> u32 {
        let (word, shift) = self.log_slot_at(tier, at);
        (word.load(Ordering::Acquire) >> shift) as u32
    }

    /// Must be called by one thread at a time.
    pub(crate) fn set_log_slot(&self, tier: usize, at: u64, slot: u32) {
        let (word, shift) = self.log_slot_at(tier, at);
        let others = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(others | u64::from(slot) << shift, Ordering::Release);
    }

    fn log_slot_at(&self, tier: usize, at: u64) -> (&AtomicU64, u32) {
        let at = (at % LOG_SLOTS_MAX as u64) as usize;
        let word = &self.tier(tier)[PAGE_WORDS + at / SLOTS_PER_WORD];
        (word, (at % SLOTS_PER_WORD) as u32 * u32::BITS)
    }

    /// The page of a tier's log with this number, while it is in the ring.
    pub(crate) fn log_page(&self, tier: usize, page: u64) -> &[AtomicU64] {
        let at = TIER_WORDS + (page % self.layout.ring_pages as u64) as usize * PAGE_WORDS;
        &self.tier(tier)[at..at + PAGE_WORDS]
    }

    pub(crate) fn ring_pages(&self) -> u64 {
        self.layout.ring_pages as u64
    }

    /// Two words per block, see [`crate::dram::memory`].
    pub(crate) fn block_table(&self) -> &[AtomicU64] {
        let layout = &self.layout;
        let at = PAGE_WORDS + layout.shard_words() + layout.tiers * layout.tier_words();
        &self.map.words()[at..at + layout.blocks as usize * 2]
    }

    /// Reserves space for a block, so that no store into it can fail.
    ///
    /// # Errors
    /// The file system is full.
    pub(crate) fn reserve_block(&self, id: u32) -> io::Result<()> {
        let block = u64::from(self.layout.block_bytes);
        let at = self.layout.blocks_at() as u64 + u64::from(id) * block;
        self.file.reserve(at..at + block)
    }

    /// The file, and the offset and number of the blocks in it.
    pub(crate) fn blocks(&self) -> (BorrowedFd<'_>, u64, u32) {
        (self.file.fd(), self.layout.blocks_at() as u64, self.layout.blocks)
    }
}

/// The first page of a state that is not ready yet: its identity, and the roster in force before.
fn first_page(identity: &Identity, before: RosterId) -> [u8; PAGE] {
    let mut words = [0; PAGE_WORDS];
    words[0] = MAGIC;
    words[1..][..IDENTITY_WORDS].copy_from_slice(&identity.words());
    words[Field::Epoch as usize] = before.generation();
    words[Field::Nonce as usize] = before.nonce();
    words[Field::InForce as usize] = before.is_any().into();
    bytemuck::cast(words)
}

/// Whether a state with these first words has this identity.
fn is_headed(words: &[AtomicU64], identity: &Identity) -> bool {
    words[0].load(Ordering::Acquire) == MAGIC
        && words[1..].iter().zip(identity.words()).all(|(w, v)| w.load(Ordering::Relaxed) == v)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn identity(set: u64) -> Identity {
        let layout = Layout { shards: 4, tiers: 2, ring_pages: 3, blocks: 5, block_bytes: 4096 };
        Identity { set, boot: [1, 2], layout }
    }

    #[test]
    fn state_is_kept_for_the_same_set_and_boot_only() {
        let file = Arc::new(StateFile::volatile().unwrap());
        assert!(State::kept(&file, &identity(7)).unwrap().is_none());
        let state = State::anew(Arc::clone(&file), &identity(7), RosterId::default()).unwrap();
        state.field(Field::Clock).store(9, Ordering::Relaxed);
        state.log_page(1, 2)[511].store(8, Ordering::Relaxed);
        state.block_table()[9].store(6, Ordering::Relaxed);
        let copy = Arc::new(file.snapshot().unwrap());
        drop(state);
        for (file, name) in [(&file, "same file"), (&copy, "copy")] {
            let state = State::kept(file, &identity(7)).unwrap().expect(name);
            assert_eq!(state.field(Field::Clock).load(Ordering::Relaxed), 9);
            assert_eq!(state.log_page(1, 5)[511].load(Ordering::Relaxed), 8);
            assert_eq!(state.block_table()[9].load(Ordering::Relaxed), 6);
        }
        for other in [identity(8), Identity { boot: [1, 3], ..identity(7) }] {
            assert!(State::kept(&copy, &other).unwrap().is_none());
            let state = State::anew(Arc::clone(&copy), &other, RosterId::default()).unwrap();
            assert_eq!(state.field(Field::Clock).load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn header_is_read_for_the_same_set_only() {
        let file = Arc::new(StateFile::volatile().unwrap());
        assert_eq!(file.header_of(&identity(7)).unwrap(), None);
        assert!(!file.may_be_needed().unwrap());
        drop(State::anew(Arc::clone(&file), &identity(7), RosterId::default()).unwrap());
        let with = |set, blocks, shards| {
            let layout = Layout { blocks, shards, ..identity(set).layout };
            let header = file.header_of(&Identity { layout, ..identity(set) }).unwrap();
            header.map(|header| header.blocks)
        };
        assert_eq!([with(7, 5, 4), with(7, 9, 4)], [Some(5); 2]);
        assert_eq!([with(8, 5, 4), with(7, 5, 8)], [None; 2]);
    }
}

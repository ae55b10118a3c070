//! The first pages of a device, which make it a member of a set: two superblocks, written by turns. The newer whole one
//! counts.

use crate::config::error::OpenError;
use crate::platform::getters::getters;
use crate::segments::layout::{PAGE, checksum, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::state::standing::{Standing, member_of_format_3};
use crate::tiers::roster::{HEADER_BYTES, MEMBERS_MAX, Roster};
use std::cmp::Reverse;
use std::io;
use terrace_device::{AlignedBuf, Drive};

const MAGIC: &[u8; 8] = b"TERRACE\0";
/// Where the two superblocks of a device lie.
const PAGES_AT: [u64; 2] = [0, PAGE as u64];
/// The first version with member ids and rosters.
const ROSTERS_SINCE: u32 = 4;
const ROSTER_AT: usize = 152;
const MEMBERS_AT: usize = 512;
const _: () = assert!(ROSTER_AT + HEADER_BYTES <= MEMBERS_AT);
const _: () = assert!(MEMBERS_AT + MEMBERS_MAX * 8 <= PAGE);

/// One superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) version: u32,
    /// The set that the device is a member of.
    pub(crate) set: u64,
    /// Seed of the key hash.
    pub(crate) seed: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) segments: u32,
    pub(crate) shards: u16,
    /// Kernel's boot id at the last opening.
    pub(crate) boot: [u64; 2],
    /// The tier holds everything: set when the cache is closed, cleared before its first change.
    pub(crate) clean: bool,
    /// Tombstones are on the tier before a change is acknowledged.
    pub(crate) strict: bool,
    pub(crate) fingerprint_bits: u8,
    /// The next seal sequence, as of a clean stop.
    pub(crate) next_seq: u64,
    /// A number above all CAS numbers in use, as of a clean stop.
    pub(crate) next_cas: u64,
    /// Latest time acted on, as of a clean stop; unix seconds.
    pub(crate) clock: u32,
    /// Unix seconds at which a `flush_all` is due; 0 for never.
    pub(crate) flush_due: u32,
    /// Pages written to the tombstone log so far, as of a clean stop.
    pub(crate) log_pages: u64,
    pub(crate) next_item: u64,
    /// Bytes saved up of the write budget, negative when overdrawn; as of a clean stop.
    pub(crate) balance: i64,
    pub(crate) owner: Owner,
    pub(crate) roster: Roster,
}

/// Whose superblock it is, and which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Identifies the member; drawn when the device is formatted.
    member: u64,
    /// What the pages and directories of its tombstone log are marked with: the member's id, or the set's on devices
    /// that were formatted before format 4.
    log_key: u64,
    /// Counts the superblocks written to the device.
    number: u64,
}

getters! {
    Owner {
        member: u64,
        log_key: u64,
        number: u64,
    }
}

impl Owner {
    pub(crate) fn new(member: u64, log_key: u64, number: u64) -> Self {
        Self { member, log_key, number }
    }
}

/// What one page holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FirstPage {
    /// Nothing but zeros.
    Blank,
    /// A superblock of this or another version.
    Ours(Box<Superblock>),
    /// Has the magic number of a superblock, but not its checksum.
    Damaged,
    /// Any other data.
    Foreign,
}

/// What the first pages of a device hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FirstPages {
    Blank,
    /// The whole superblocks, the newest first; at least one.
    Ours(Vec<Superblock>),
    Damaged,
    Foreign,
}

impl Superblock {
    /// One for tests of rosters.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn of_test(set: u64, member: u64, written: u64, roster: Roster) -> Self {
        Self {
            version: crate::segments::layout::VERSION,
            set,
            seed: 4,
            segment_bytes: 1 << 18,
            segments: 4095,
            shards: 16,
            boot: [6, 7],
            clean: true,
            strict: false,
            fingerprint_bits: 15,
            next_seq: 8,
            next_cas: 9,
            clock: 10,
            flush_due: 11,
            log_pages: 12,
            next_item: 13,
            balance: -14,
            owner: Owner::new(member, member, written),
            roster,
        }
    }

    /// Whether the tier's log, as its directory lists it, holds all that was acknowledged.
    pub(crate) fn has_complete_log(&self) -> bool {
        self.clean || self.strict
    }

    pub(crate) fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        page[..8].copy_from_slice(MAGIC);
        put_u32(page, 8, self.version);
        put_u64(page, 16, self.set);
        put_u64(page, 24, self.seed);
        put_u32(page, 32, self.segment_bytes);
        put_u32(page, 36, self.segments);
        put_u16(page, 40, self.shards);
        put_u64(page, 56, self.boot[0]);
        put_u64(page, 64, self.boot[1]);
        page[72] = u8::from(self.clean);
        page[73] = u8::from(self.strict);
        page[74] = self.fingerprint_bits;
        put_u64(page, 80, self.next_seq);
        put_u64(page, 88, self.next_cas);
        put_u32(page, 96, self.clock);
        put_u32(page, 100, self.flush_due);
        put_u64(page, 104, self.log_pages);
        put_u64(page, 112, self.next_item);
        put_u64(page, 120, self.balance.cast_unsigned());
        put_u64(page, 128, self.owner.member);
        put_u64(page, 136, self.owner.log_key);
        put_u64(page, 144, self.owner.number);
        self.roster.put(page, ROSTER_AT, MEMBERS_AT);
        let crc = checksum(0, &page[16..]);
        put_u32(page, 12, crc);
    }

    pub(crate) fn decode(page: &[u8]) -> FirstPage {
        if page.iter().all(|&byte| byte == 0) {
            return FirstPage::Blank;
        }
        if page.len() < PAGE || &page[..8] != MAGIC {
            return FirstPage::Foreign;
        }
        if u32_at(page, 12) != checksum(0, &page[16..]) {
            return FirstPage::Damaged;
        }
        let (version, set) = (u32_at(page, 8), u64_at(page, 16));
        let (owner, roster) = match version {
            ROSTERS_SINCE.. => {
                let Some(roster) = Roster::get(page, ROSTER_AT, MEMBERS_AT) else {
                    return FirstPage::Damaged;
                };
                (Owner::new(u64_at(page, 128), u64_at(page, 136), u64_at(page, 144)), roster)
            }
            _ => {
                // A set was a number of tiers that had all to be there, each in its place.
                let (tier, tiers, epoch) = (u16_at(page, 42), u16_at(page, 44), u64_at(page, 48));
                let member = |tier| member_of_format_3(set, tier);
                let members = (0..usize::from(tiers).min(MEMBERS_MAX)).map(member).collect();
                let standing = Standing::of_format_3(set, epoch, true);
                let owner = Owner::new(member(tier.into()), set, 0);
                (owner, Roster::new(standing, false, members))
            }
        };
        FirstPage::Ours(Box::new(Self {
            version,
            set,
            seed: u64_at(page, 24),
            segment_bytes: u32_at(page, 32),
            segments: u32_at(page, 36),
            shards: u16_at(page, 40),
            boot: [u64_at(page, 56), u64_at(page, 64)],
            clean: page[72] != 0,
            strict: page[73] != 0,
            fingerprint_bits: page[74],
            next_seq: u64_at(page, 80),
            next_cas: u64_at(page, 88),
            clock: u32_at(page, 96),
            flush_due: u32_at(page, 100),
            log_pages: u64_at(page, 104),
            next_item: u64_at(page, 112),
            balance: u64_at(page, 120).cast_signed(),
            owner,
            roster,
        }))
    }

    /// Whether the other page can count beside this one, which was written before format 4: an upgrade was cut short.
    /// Otherwise the other page is from before an older program formatted the device.
    fn is_upgraded_by(&self, other: &Self) -> bool {
        let before = self.roster.standing();
        other.owner.member == self.owner.member && other.roster.standing().holds(before.roster())
    }
}

/// The superblocks on a device: the number of the newest one, and which page has the one that counts until another is in
/// force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    newest: u64,
    kept: u64,
}

impl Written {
    /// There is none yet. The first one goes to the first page, since a device is new as long as that one is blank.
    pub(crate) const NONE: Self = Self { newest: 0, kept: 1 };

    /// `pages`: the whole superblocks, the newest first.
    pub(crate) fn of(pages: &[Superblock]) -> Self {
        let newest = pages.first().map_or(0, |page| page.owner.number);
        let in_force = pages.iter().find(|page| page.roster.standing().is_in_force());
        match in_force.or(pages.first()) {
            Some(kept) => Self { newest, kept: kept.owner.number },
            None => Self::NONE,
        }
    }

    /// This one is the one that counts.
    pub(crate) fn keep(&mut self, page: &Superblock) {
        self.kept = page.owner.number;
    }

    /// The number of the next superblock, which goes to another page than the one that counts.
    pub(crate) fn next(self) -> u64 {
        let next = self.newest + 1;
        next + u64::from(next % PAGES_AT.len() as u64 == self.kept % PAGES_AT.len() as u64)
    }

    /// Notes that superblock number `number` was written, or a part of it; it counts if `is_in_force`.
    pub(crate) fn note(&mut self, number: u64, is_in_force: bool) {
        self.newest = number;
        if is_in_force {
            self.kept = number;
        }
    }
}

/// Reads the first pages of a device.
///
/// # Errors
/// The device's.
pub(crate) fn read(device: &dyn Drive) -> io::Result<FirstPages> {
    let mut bytes = AlignedBuf::zeroed(PAGES_AT.len() * PAGE);
    if device.geometry().bytes < bytes.len() as u64 {
        // No cache was ever on it, and it is refused as too small.
        device.read_at(0, &mut AlignedBuf::zeroed(PAGE))?;
        return Ok(FirstPages::Blank);
    }
    device.read_at(0, &mut bytes)?;
    Ok(first_pages(&bytes))
}

fn first_pages(bytes: &[u8]) -> FirstPages {
    let [first, second] = [0, PAGE].map(|at| Superblock::decode(&bytes[at..at + PAGE]));
    let second = match second {
        FirstPage::Ours(page) if page.version >= ROSTERS_SINCE => Some(*page),
        _ => None,
    };
    let mut pages = match first {
        FirstPage::Blank => return FirstPages::Blank,
        FirstPage::Foreign => return FirstPages::Foreign,
        FirstPage::Damaged => Vec::from_iter(second),
        FirstPage::Ours(page) if page.version < ROSTERS_SINCE => {
            let second = second.filter(|second| page.is_upgraded_by(second));
            [Some(*page), second].into_iter().flatten().collect()
        }
        FirstPage::Ours(page) => [Some(*page), second].into_iter().flatten().collect(),
    };
    pages.sort_by_key(|page| Reverse(page.owner.number));
    if pages.is_empty() { FirstPages::Damaged } else { FirstPages::Ours(pages) }
}

/// Writes a superblock to the page that its number names, and makes it durable by `flush`, which is of the device.
pub(crate) fn write(
    device: &dyn Drive,
    superblock: &Superblock,
    flush: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mut page = AlignedBuf::zeroed(PAGE);
    superblock.encode(&mut page);
    let at = PAGES_AT[(superblock.owner.number % PAGES_AT.len() as u64) as usize];
    device.write_at(at, &page).and_then(|()| flush())
}

pub(crate) fn device_error(device: &dyn Drive, source: io::Error) -> OpenError {
    OpenError::Device { device: device.label().to_owned(), source }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::segments::layout::VERSION;
    use crate::state::standing::RosterId;

    fn superblock(version: u32, written: u64) -> Superblock {
        let standing = Standing::proposed(RosterId::new(5, 15), RosterId::new(4, 16));
        let roster = Roster::new(standing, true, [17, 20].into());
        Superblock { version, ..Superblock::of_test(3, 17, written, roster) }
    }

    fn device(pages: [&Superblock; 2]) -> Vec<u8> {
        let mut bytes = vec![0; 2 * PAGE];
        for (page, bytes) in pages.into_iter().zip(bytes.chunks_exact_mut(PAGE)) {
            page.encode(bytes);
        }
        bytes
    }

    /// Changes a page as format 3 had it: tier and number of tiers, epoch, and nothing behind the balance.
    fn as_of_format_3(page: &mut [u8], (tier, tiers): (u16, u16), epoch: u64) {
        page[128..].fill(0);
        put_u32(page, 8, 3);
        put_u16(page, 42, tier);
        put_u16(page, 44, tiers);
        put_u64(page, 48, epoch);
        let crc = checksum(0, &page[16..]);
        put_u32(page, 12, crc);
    }

    #[test]
    fn superblock_round_trips_and_damage_is_found() {
        let superblock = superblock(VERSION, 19);
        let mut page = vec![0; PAGE];
        assert_eq!(Superblock::decode(&page), FirstPage::Blank);
        superblock.encode(&mut page);
        assert_eq!(Superblock::decode(&page), FirstPage::Ours(Box::new(superblock)));
        page[100] ^= 1;
        assert_eq!(Superblock::decode(&page), FirstPage::Damaged);
        page[0] = b'x';
        assert_eq!(Superblock::decode(&page), FirstPage::Foreign);
    }

    #[test]
    fn proposal_leaves_the_page_that_counts() {
        let mut written = Written::NONE;
        assert_eq!(written.next(), 2);
        written.note(2, false);
        assert_eq!(written.next(), 4, "the same page again");
        written.note(4, true);
        assert_eq!(written.next(), 5);
        written.note(5, true);
        assert_eq!(written.next(), 6);
    }

    #[test]
    fn newer_whole_page_counts() {
        let [old, new] = [4, 5].map(|written| superblock(VERSION, written));
        let mut bytes = device([&old, &new]);
        assert_eq!(first_pages(&bytes), FirstPages::Ours(vec![new.clone(), old.clone()]));
        bytes[PAGE + 100] ^= 1;
        assert_eq!(first_pages(&bytes), FirstPages::Ours(vec![old]));
        bytes[100] ^= 1;
        assert_eq!(first_pages(&bytes), FirstPages::Damaged);
        bytes[..PAGE].fill(0);
        assert_eq!(first_pages(&bytes), FirstPages::Blank, "its first page was wiped");
    }

    /// An older program writes the first page only, and whatever it began counts.
    #[test]
    fn second_page_counts_beside_one_of_format_3_only_if_it_upgrades_that() {
        let mut bytes = device([&superblock(3, 0), &superblock(VERSION, 1)]);
        as_of_format_3(&mut bytes[..PAGE], (1, 2), 9);
        let FirstPages::Ours(pages) = first_pages(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(pages.len(), 1, "the other member's, or another start's");
        let old = &pages[0];
        assert_eq!((old.owner.log_key, old.owner.member), (3, member_of_format_3(3, 1)));
        assert!(old.roster.has(member_of_format_3(3, 0)) && old.roster.members().len() == 2);
        let (next, before) = (RosterId::new(10, 1), old.roster.standing().roster());
        let upgraded = Superblock {
            roster: Roster::new(
                Standing::proposed(next, before),
                false,
                old.roster.members().clone(),
            ),
            owner: Owner { member: old.owner.member, ..superblock(VERSION, 1).owner },
            ..superblock(VERSION, 1)
        };
        upgraded.encode(&mut bytes[PAGE..]);
        let FirstPages::Ours(pages) = first_pages(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(pages[0], upgraded);
    }
}

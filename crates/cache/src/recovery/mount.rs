//! Inspects the tiers before the cache is laid out: the set that they belong to, and whether they can be trusted.

use crate::config::error::OpenError;
use crate::config::note::Note;
use crate::config::{Config, Durability, OnMismatch, Tuning};
use crate::platform::random::Random;
use crate::recovery::members;
use crate::segments::layout::{FirstPage, PAGE, Superblock, VERSION, VERSION_MIN};
use crate::shared::geometry::Geometry;
use crate::tiers::slots::segments_on;
use crate::tiers::superblock::device_error;
use std::sync::Arc;
use terrace_device::{AlignedBuf, Drive};

/// Bytes of a tier's first page.
pub const FIRST_PAGE: usize = PAGE;

/// The findings about the tiers.
pub(crate) struct Mount {
    pub(super) geometry: Geometry,
    /// The superblock fields that all tiers have in common from now on.
    common: Superblock,
    /// The common superblock of a set that may be trusted.
    pub(super) found: Option<Superblock>,
    /// The oldest and the newest epoch of the superblocks of such a set.
    pub(super) epochs: (u64, u64),
    /// If these differ: a message about a tier that is behind, unless the state explains it.
    pub(super) missed: Option<String>,
    /// The length of each tier's log in such a set.
    log_pages: Vec<u64>,
    /// The balance of each tier's write budget, whether the set may be trusted or not.
    pub(super) balances: Vec<i64>,
    /// The random numbers of this opening.
    pub(super) random: Random,
    /// Lines for the log.
    pub(super) notes: Vec<Note>,
    /// If the tiers do not fit: a warning of what the start erases.
    pub(super) cost: Option<Note>,
}

impl Mount {
    /// If the tiers do not fit: a warning of what the start erases.
    pub(crate) fn into_cost(self) -> Option<Note> {
        self.cost
    }

    /// Reads the first page of every tier; writes nothing.
    pub(crate) fn inspect(config: &Config) -> Result<Self, OpenError> {
        let mut notes = Vec::new();
        let pages: Vec<_> = config.tiers.iter().map(|t| first_page(t.device.as_ref())).collect();
        let pages = pages.into_iter().collect::<Result<Vec<_>, _>>()?;
        let epochs = pages.iter().map(epoch_of);
        let epochs = (epochs.clone().min().unwrap_or(0), epochs.max().unwrap_or(0));
        let epoch = epochs.1 + 1;
        let behind = pages.iter().position(|page| epoch_of(page) < epochs.1);
        let missed = behind.map(|at| {
            let label = config.tiers[at].device.label();
            format!("{label}: belongs to another set of tiers, or missed a start of it")
        });
        let balances = pages.iter().map(balance_of).collect();
        let mut random = Random::new(config.tuning.seed, epoch)?;
        if let Some(order) = members::right_order(&pages) {
            let label = |at: usize| config.tiers[at].device.label().to_owned();
            let labels = order.iter().map(|&at| label(at)).collect();
            return Err(OpenError::Order { order, labels });
        }
        let mut cost = None;
        let mut give_up = |why: String| {
            refuse_if_asked(config, &why)?;
            cost = members::cost(config, &pages, &why);
            notes.push(cold(&why));
            Ok::<_, OpenError>(None)
        };
        let warm = match common(config, &pages) {
            Ok(None) => None,
            Ok(Some(found)) => match Geometry::derive(&found.adjust(config)) {
                Ok(geometry) => Some((found, geometry)),
                Err(why) => give_up(why.to_string())?,
            },
            Err(why) => give_up(why)?,
        };
        let boot = boot_words(config.boot);
        let strict = config.durability == Durability::Power;
        let fresh = |random: &mut Random| {
            let geometry = Geometry::derive(config)?;
            let seed = config.tuning.seed.unwrap_or_else(|| random.next());
            let superblock = Superblock {
                version: VERSION,
                set: random.next() | 1,
                seed,
                segment_bytes: geometry.segment_bytes(),
                segments: 0,
                shards: geometry.shards() as u16,
                tier: 0,
                tiers: config.tiers.len() as u16,
                epoch,
                boot,
                clean: false,
                strict,
                fingerprint_bits: config.tuning.fingerprint_bits.clamp(1, 15) as u8,
                // Far from the sequences of an earlier set on these tiers.
                next_seq: (random.next() >> 24) + 1,
                next_cas: 0,
                clock: 0,
                flush_due: 0,
                log_pages: 0,
                next_item: random.next(),
                balance: 0,
            };
            Ok::<_, OpenError>((geometry, superblock))
        };
        let (geometry, common, found, log_pages) = match warm {
            None => {
                let (geometry, common) = fresh(&mut random)?;
                (geometry, common, None, Vec::new())
            }
            Some((found, geometry)) => {
                let common =
                    Superblock { version: VERSION, epoch, boot, strict, clean: false, ..found };
                let log_pages = pages.iter().map(|page| match page {
                    FirstPage::Ours(superblock) => superblock.log_pages,
                    _ => 0,
                });
                (geometry, common, Some(found), log_pages.collect())
            }
        };
        Ok(Self {
            geometry,
            common,
            found,
            epochs,
            missed,
            log_pages,
            balances,
            random,
            notes,
            cost,
        })
    }

    /// Gives up the found set, unless the operator wants no cold start: a new set begins.
    pub(crate) fn go_cold(&mut self, config: &Config, why: &str) -> Result<(), OpenError> {
        refuse_if_asked(config, why)?;
        self.notes.push(cold(why));
        self.begin_anew();
        Ok(())
    }

    /// As [`Mount::go_cold`] where no other start could do better: the operator can't refuse it.
    pub(crate) fn give_up(&mut self, why: &str) {
        self.notes.push(Note::Warning(format!("COLD START: {why}; what the tiers held is gone")));
        self.begin_anew();
    }

    fn begin_anew(&mut self) {
        self.found = None;
        self.common.set = self.random.next() | 1;
        self.common.next_seq = (self.random.next() >> 24) + 1;
        self.common.next_item = self.random.next();
        self.common.flush_due = 0;
    }

    /// Pages of a tier's log, as of a clean stop.
    pub(crate) fn pages_of(&self, tier: usize) -> Option<u64> {
        self.log_pages.get(tier).copied()
    }

    pub(crate) fn set(&self) -> &Superblock {
        &self.common
    }
}

impl Superblock {
    /// The configuration, with the sizes of the set.
    fn adjust(&self, config: &Config) -> Config {
        let tuning = Tuning {
            shards: Some(self.shards.into()),
            segment_bytes: Some(self.segment_bytes),
            ..config.tuning.clone()
        };
        Config { tuning, ..config.clone() }
    }
}

fn cold(why: &str) -> Note {
    Note::Warning(format!(
        "COLD START: {why}; what the tiers held is gone; with --on-mismatch refuse the next start leaves them as they are"
    ))
}

pub(crate) fn refuse_if_asked(config: &Config, why: &str) -> Result<(), OpenError> {
    match config.on_mismatch {
        OnMismatch::Cold => Ok(()),
        OnMismatch::Refuse => Err(OpenError::Mismatch(why.to_owned())),
    }
}

pub(crate) fn boot_words(boot: [u8; 16]) -> [u64; 2] {
    let (words, _) = boot.as_chunks::<8>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

/// Whether the first page of a tier, or the part of it that exists, was written by another program.
pub fn is_foreign(page: &[u8]) -> bool {
    Superblock::decode(page) == FirstPage::Foreign
}

/// Whether the first page of a tier is that of a member of a set.
pub fn is_member(page: &[u8; FIRST_PAGE]) -> bool {
    matches!(Superblock::decode(page), FirstPage::Ours(_))
}

/// The set that tiers are of, as the first one says that is of any: what their state is found by. `None` if all are new.
pub fn set_of(devices: &[Arc<dyn Drive>]) -> Option<u64> {
    devices.iter().find_map(|device| match first_page(device.as_ref()) {
        Ok(FirstPage::Ours(page)) => Some(page.set),
        _ => None,
    })
}

fn first_page(device: &dyn Drive) -> Result<FirstPage, OpenError> {
    let mut page = AlignedBuf::zeroed(PAGE);
    device.read_at(0, &mut page).map_err(|source| device_error(device, source))?;
    match Superblock::decode(&page) {
        FirstPage::Foreign => Err(OpenError::Foreign { device: device.label().to_owned() }),
        page => Ok(page),
    }
}

fn epoch_of(page: &FirstPage) -> u64 {
    match page {
        FirstPage::Ours(superblock) => superblock.epoch,
        _ => 0,
    }
}

fn balance_of(page: &FirstPage) -> i64 {
    match page {
        FirstPage::Ours(superblock) => superblock.balance,
        _ => 0,
    }
}

/// The formats that this program reads, for a message.
fn formats_read() -> String {
    match VERSION_MIN {
        VERSION => format!("format {VERSION}"),
        oldest => format!("formats {oldest} to {VERSION}"),
    }
}

/// The superblock fields that all tiers share, if they are one complete set; `None` if they are all new.
fn common(config: &Config, pages: &[FirstPage]) -> Result<Option<Superblock>, String> {
    if pages.iter().all(|page| *page == FirstPage::Blank) {
        return Ok(None);
    }
    let mut first: Option<Superblock> = None;
    // One tier that denies it decides for all: the flag of a drive that failed may be out of date.
    let (mut strict, mut clean) = (true, true);
    for (at, (page, tier)) in pages.iter().zip(&config.tiers).enumerate() {
        let label = tier.device.label();
        let superblock = match page {
            FirstPage::Ours(superblock) => superblock,
            FirstPage::Damaged => {
                return Err(format!("{label}: its superblock is damaged; check the drive"));
            }
            _ => {
                return Err(format!(
                    "{label}: is new, the other tiers are not; give the tier that was there before"
                ));
            }
        };
        let first = *first.get_or_insert(*superblock);
        if !(VERSION_MIN..=VERSION).contains(&superblock.version) {
            return Err(format!(
                "{label}: was written in format {}, and this program reads {}; start the version that wrote it to keep \
                 what it holds",
                superblock.version,
                formats_read()
            ));
        }
        if superblock.set != first.set {
            return Err(format!(
                "{label}: belongs to another set of tiers; give the tiers of one set"
            ));
        }
        if usize::from(superblock.tiers) != config.tiers.len() {
            return Err(format!(
                "{label}: is one of {} tiers, and {} are given; give all of them",
                superblock.tiers,
                config.tiers.len()
            ));
        }
        if usize::from(superblock.tier) != at {
            return Err(format!("{label}: is given twice, and another tier of its set is not"));
        }
        if superblock.segment_bytes == 0
            || !superblock.segment_bytes.is_multiple_of(PAGE as u32)
            || superblock.segments != segments_on(tier.device.as_ref(), superblock.segment_bytes)
        {
            return Err(format!(
                "{label}: has another size than when it was written; give the size that it had"
            ));
        }
        if u32::from(superblock.fingerprint_bits) != config.tuning.fingerprint_bits.clamp(1, 15)
            || !superblock.shards.is_power_of_two()
        {
            return Err(format!("{label}: was made with other index sizes"));
        }
        strict &= superblock.strict;
        clean &= superblock.clean;
    }
    Ok(first.map(|first| Superblock { strict, clean, ..first }))
}

//! Inspects the tiers before the cache is laid out: the set that they belong to, and which of them can be believed.

use crate::config::error::OpenError;
use crate::config::note::{Note, display_bytes};
use crate::config::witness::Witness;
use crate::config::{Config, OnMismatch, Tuning};
use crate::platform::random::Random;
use crate::recovery::membership::{Given, Judged, Reason, Verdict, judge, set_of as set_of_most};
use crate::segments::layout::{PAGE, VERSION, VERSION_MIN};
use crate::shared::geometry::Geometry;
use crate::state::Header;
use crate::state::standing::{RosterId, Standing};
use crate::tiers::roster::{Generations, MEMBERS_MAX, Roster};
use crate::tiers::superblock::{self, FirstPage, FirstPages, Owner, Superblock, Written};
use std::io;
use std::sync::Arc;
use terrace_device::Drive;

/// A tier as a start takes it.
pub(crate) enum Seat {
    /// Its device can't be read: it is given up from the beginning.
    Absent(io::Error),
    /// It is formatted, for this reason, as the member of this id.
    Empty(Reason, u64),
    /// What it held is believed.
    Holder(Box<Superblock>),
}

/// The findings about the tiers.
pub(crate) struct Mount {
    pub(super) geometry: Geometry,
    /// The superblock fields that all tiers have in common from now on.
    common: Superblock,
    /// One for each tier.
    pub(super) seats: Vec<Seat>,
    /// The roster that was in force last.
    pub(super) last: Option<Roster>,
    /// The newest roster in force that anything tells of, perhaps without its members.
    pub(super) known: RosterId,
    pub(super) generations: Generations,
    /// The superblocks that each tier has.
    pub(super) written: Vec<Written>,
    /// The balance of each tier's write budget, whether it is believed or not.
    pub(super) balances: Vec<i64>,
    /// The random numbers of this opening.
    pub(super) random: Random,
    /// Lines for the log.
    pub(super) notes: Vec<Note>,
    /// What the start erases, before it does.
    pub(super) cost: Option<Note>,
}

impl Mount {
    /// If the tiers do not fit: a warning of what the start erases.
    pub(crate) fn into_cost(self) -> Option<Note> {
        self.cost
    }

    /// Reads the first pages of every tier; writes nothing.
    pub(crate) fn inspect(config: &Config) -> Result<Self, OpenError> {
        if config.tiers.len() > MEMBERS_MAX {
            let count = config.tiers.len();
            return Err(OpenError::Config(format!("{count} tiers; give at most {MEMBERS_MAX}")));
        }
        let given = given(config)?;
        let balances = given.iter().map(balance_of).collect();
        let mut written: Vec<_> = given.iter().map(written_on).collect();
        let witness = witnessed(config.witness.as_deref()).map_err(OpenError::Witness)?;
        let set = witness.as_ref().map(|(set, _)| *set).or_else(|| set_of_most(&given));
        let state = header_of_set(config, set)?.map(|header| header.standing());
        let Judged { set, last, known, generations, verdicts } =
            judge(given, set, state, witness.as_ref().map(|(_, roster)| roster));
        let missing = missing(config, last.as_ref());
        let mut random = Random::new(config.tuning.seed, salt(config, generations.proposed()))?;
        let mut verdicts = verdicts;
        sort_out_sizes(config, &mut verdicts);
        let mut found = common_of(&verdicts);
        let mut geometry = None;
        if let Some(found_ones) = &found {
            match Geometry::derive(&found_ones.adjust(config)) {
                Ok(fits) => geometry = Some(fits),
                Err(why) => {
                    let reason = Reason::Log(why.to_string());
                    let holders = verdicts.iter_mut().filter(|v| matches!(v, Verdict::Holder(_)));
                    holders.for_each(|verdict| *verdict = Verdict::Empty(reason.clone()));
                    found = None;
                }
            }
        }
        refuse_unknown(config, &mut verdicts, last.as_ref())?;
        refuse_if_asked(config, &verdicts, missing)?;
        let geometry = geometry.map_or_else(|| Geometry::derive(config), Ok)?;
        let common = match &found {
            Some(found) => {
                Superblock { version: VERSION, boot: boot_words(config.boot), ..found.clone() }
            }
            None => new_set(config, &geometry, set, &mut random),
        };
        for (verdict, written) in verdicts.iter().zip(&mut written) {
            if let Verdict::Holder(page) = verdict {
                written.keep(page);
            }
        }
        let mut mount = Self {
            geometry,
            common,
            seats: Vec::new(),
            last,
            known,
            generations,
            written,
            balances,
            random,
            notes: Vec::new(),
            cost: cost(config, &verdicts),
        };
        if missing > 0 && found.is_some() {
            mount.notes.push(Note::Warning(match missing {
                1 => "a tier that the cache ran with last is not given; its records are gone".into(),
                _ => format!(
                    "{missing} tiers that the cache ran with last are not given; their records are gone"
                ),
            }));
        }
        for verdict in verdicts {
            let seat = match verdict {
                Verdict::Absent(error) => Seat::Absent(error),
                Verdict::Empty(reason) => Seat::Empty(reason, mount.random.next()),
                Verdict::Holder(page) => Seat::Holder(page),
            };
            mount.seats.push(seat);
        }
        Ok(mount)
    }

    /// Whether anything that the tiers held is believed.
    pub(crate) fn has_holders(&self) -> bool {
        self.holders().next().is_some()
    }

    /// The tiers that are believed, by number.
    pub(super) fn holders(&self) -> impl Iterator<Item = (usize, &Superblock)> {
        self.seats.iter().enumerate().filter_map(|(tier, seat)| match seat {
            Seat::Holder(page) => Some((tier, &**page)),
            _ => None,
        })
    }

    /// No longer believes a tier, unless the operator wants no start then.
    pub(super) fn empty(
        &mut self,
        config: &Config,
        tier: usize,
        reason: Reason,
    ) -> Result<(), OpenError> {
        let label = config.tiers[tier].device.label();
        if reason.is_avoidable() && config.on_mismatch == OnMismatch::Refuse {
            return Err(OpenError::Mismatch(format!("{label}: {reason}")));
        }
        let member = self.random.next();
        self.seats[tier] = Seat::Empty(reason, member);
        Ok(())
    }

    /// The member that each tier is from now on.
    pub(super) fn members(&mut self) -> Vec<u64> {
        let random = &mut self.random;
        let id = |seat: &Seat| match seat {
            Seat::Absent(_) => random.next(),
            Seat::Empty(_, member) => *member,
            Seat::Holder(page) => page.owner.member(),
        };
        self.seats.iter().map(id).collect()
    }

    /// What the pages of a tier's log are marked with.
    pub(super) fn log_key(&self, tier: usize) -> u64 {
        match &self.seats[tier] {
            Seat::Absent(_) => 0,
            Seat::Empty(_, member) => *member,
            Seat::Holder(page) => page.owner.log_key(),
        }
    }

    pub(crate) fn set(&self) -> &Superblock {
        &self.common
    }

    /// Begins with nothing: numbers far from those of earlier runs.
    pub(super) fn begin_anew(&mut self) {
        self.common.next_seq = (self.random.next() >> 24) + 1;
        self.common.next_item = self.random.next();
        self.common.flush_due = 0;
    }

    /// Begins a line of rosters behind all that the tiers know, so that no later start believes what they hold.
    pub(super) fn believe_none_later(&mut self) {
        let line = self.last.as_ref().map(|last| last.line().clone()).unwrap_or_default();
        let (line, generation) = line.begin(self.generations, self.random.next());
        self.known = RosterId::new(generation + 1, self.random.next() | 1);
        self.generations = Generations::new(generation + 1, generation + 1);
        let none = Roster::new(Standing::in_force(self.known), false, [].into());
        self.last = Some(none.of_line(line));
    }

    /// Lines for the log about tiers that start empty although they may have held something.
    pub(super) fn note_losses(&mut self, config: &Config) {
        let label = |tier: usize| config.tiers[tier].device.label();
        let losses = self.seats.iter().enumerate().filter_map(|(tier, seat)| match seat {
            Seat::Empty(Reason::New, _) | Seat::Holder(_) => None,
            Seat::Empty(reason, _) => Some(format!("{}: {reason}", label(tier))),
            Seat::Absent(error) => Some(format!("{}: {error}; its records are gone", label(tier))),
        });
        let losses = losses.collect::<Vec<_>>();
        if self.has_holders() {
            let note =
                |loss| Note::Warning(format!("{loss}; this tier starts empty, the others do not"));
            self.notes.extend(losses.into_iter().map(note));
        } else if let Some(first) = losses.first() {
            let could_be_kept =
                |seat: &Seat| matches!(seat, Seat::Empty(reason, _) if reason.is_avoidable());
            let advice = match self.seats.iter().any(could_be_kept) {
                true => "; with --on-mismatch refuse the next start leaves them as they are",
                false => "",
            };
            self.notes.push(Note::Warning(format!(
                "COLD START: {first}; what the tiers held is gone{advice}"
            )));
        }
    }
}

impl Superblock {
    /// Whether this program reads its format.
    pub(super) fn is_readable(&self) -> bool {
        (VERSION_MIN..=VERSION).contains(&self.version)
    }

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

/// The first pages of all tiers.
fn given(config: &Config) -> Result<Vec<Given>, OpenError> {
    let mut all = Vec::new();
    for tier in &config.tiers {
        let device = tier.device.as_ref();
        all.push(match superblock::read(device) {
            Ok(FirstPages::Foreign) => {
                return Err(OpenError::Foreign { device: device.label().to_owned() });
            }
            Ok(pages) => Given::Pages(pages),
            Err(error) => Given::Absent(error),
        });
    }
    Ok(all)
}

/// Has starts with other drives draw other random numbers, where a seed is given.
fn salt(config: &Config, generation: u64) -> u64 {
    let labels = config.tiers.iter().flat_map(|tier| tier.device.label().bytes());
    labels.fold(generation, |salt, byte| (salt ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The set and the roster that the witness has.
fn witnessed(witness: Option<&dyn Witness>) -> io::Result<Option<(u64, Roster)>> {
    let bytes = witness.map_or(Ok(None), Witness::read)?;
    Ok(bytes.and_then(|bytes| Roster::decode(&bytes)))
}

/// The first page of the set's state, if it is of this boot.
fn header_of_set(config: &Config, set: Option<u64>) -> io::Result<Option<Header>> {
    match (&config.state, set) {
        (Some(file), Some(set)) => file.header_of_set(set, boot_words(config.boot)),
        _ => Ok(None),
    }
}

/// Tiers of other sizes than the first one that is believed can't be used with it.
fn sort_out_sizes(config: &Config, verdicts: &mut [Verdict]) {
    let bits = config.tuning.fingerprint_bits.clamp(1, 15);
    let mut first: Option<Superblock> = None;
    for verdict in verdicts {
        let Verdict::Holder(page) = verdict else { continue };
        let is_sound = page.segment_bytes > 0
            && page.segment_bytes.is_multiple_of(PAGE as u32)
            && page.shards.is_power_of_two();
        if !is_sound || u32::from(page.fingerprint_bits) != bits {
            *verdict = Verdict::Empty(Reason::OtherSizes);
            continue;
        }
        let first = first.get_or_insert_with(|| (**page).clone());
        let sizes = |page: &Superblock| (page.segment_bytes, page.shards, page.seed);
        if sizes(first) != sizes(page) {
            *verdict = Verdict::Empty(Reason::OtherSizes);
        }
    }
}

/// What the believed superblocks have in common: of numbers that must not be used again, the largest.
fn common_of(verdicts: &[Verdict]) -> Option<Superblock> {
    let holders = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Holder(page) => Some(&**page),
        _ => None,
    });
    holders.cloned().reduce(|common, page| Superblock {
        next_seq: common.next_seq.max(page.next_seq),
        next_cas: common.next_cas.max(page.next_cas),
        next_item: common.next_item.max(page.next_item),
        clock: common.clock.max(page.clock),
        flush_due: match (common.flush_due, page.flush_due) {
            (0, due) | (due, 0) => due,
            (a, b) => a.min(b),
        },
        ..common
    })
}

/// The common fields of tiers of which none is believed.
fn new_set(
    config: &Config,
    geometry: &Geometry,
    set: Option<u64>,
    random: &mut Random,
) -> Superblock {
    let seed = config.tuning.seed.unwrap_or_else(|| random.next());
    Superblock {
        version: VERSION,
        set: set.unwrap_or_else(|| random.next() | 1),
        seed,
        segment_bytes: geometry.segment_bytes(),
        segments: 0,
        shards: geometry.shards() as u16,
        boot: boot_words(config.boot),
        clean: false,
        strict: false,
        fingerprint_bits: config.tuning.fingerprint_bits.clamp(1, 15) as u8,
        // Far from the sequences of an earlier set on these tiers.
        next_seq: (random.next() >> 24) + 1,
        next_cas: 0,
        clock: 0,
        flush_due: 0,
        log_pages: 0,
        next_item: random.next(),
        balance: 0,
        owner: Owner::default(),
        roster: Roster::new(Standing::default(), false, [].into()),
    }
}

/// Members of the last roster that no tier can be, since fewer tiers are given: a new one may replace a drive.
fn missing(config: &Config, last: Option<&Roster>) -> usize {
    last.map_or(0, |last| last.members().len().saturating_sub(config.tiers.len()))
}

/// Refuses a start with a device that can't be read, unless it may be a member that is missing: else it is a mistake.
fn refuse_unknown(
    config: &Config,
    verdicts: &mut [Verdict],
    last: Option<&Roster>,
) -> Result<(), OpenError> {
    let there = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Holder(_))).count();
    let missing = last.map_or(0, |last| last.members().len().saturating_sub(there));
    let absent = verdicts.iter_mut().enumerate().filter_map(|(tier, verdict)| match verdict {
        Verdict::Absent(error) => Some((tier, error)),
        _ => None,
    });
    match absent.collect::<Vec<_>>() {
        absent if absent.len() <= missing && there > 0 => Ok(()),
        mut absent => match absent.first_mut() {
            Some((tier, error)) => {
                let error = std::mem::replace(*error, io::ErrorKind::Other.into());
                Err(superblock::device_error(config.tiers[*tier].device.as_ref(), error))
            }
            None => Ok(()),
        },
    }
}

/// Refuses the start if the operator wants that, and another start could keep more.
fn refuse_if_asked(config: &Config, verdicts: &[Verdict], missing: usize) -> Result<(), OpenError> {
    if config.on_mismatch == OnMismatch::Cold {
        return Ok(());
    }
    for (verdict, tier) in verdicts.iter().zip(&config.tiers) {
        if let Verdict::Empty(reason) = verdict
            && reason.is_avoidable()
        {
            return Err(OpenError::Mismatch(format!("{}: {reason}", tier.device.label())));
        }
    }
    match missing {
        0 => Ok(()),
        _ => Err(OpenError::Mismatch(format!(
            "tiers that the cache ran with last are not given ({missing}), and would be empty when they come back; give \
             them"
        ))),
    }
}

/// A warning of what the start erases; `None` if that is nothing.
fn cost(config: &Config, verdicts: &[Verdict]) -> Option<Note> {
    let is_erased = |verdict: &Verdict| match verdict {
        Verdict::Empty(reason) => !matches!(reason, Reason::New | Reason::Damaged),
        _ => false,
    };
    let erased = verdicts.iter().zip(&config.tiers).filter(|(verdict, _)| is_erased(verdict));
    let erased: Vec<_> = erased.collect();
    let (Verdict::Empty(reason), first) = erased.first()? else { return None };
    let bytes = erased.iter().map(|(_, tier)| tier.device.geometry().bytes).sum();
    let whose = match erased.len() {
        1 => "1 tier holds".to_owned(),
        count => format!("{count} tiers hold"),
    };
    let (label, bytes) = (first.device.label(), display_bytes(bytes));
    Some(Note::Warning(format!("{label}: {reason}; this start erases what {whose}, up to {bytes}")))
}

pub(crate) fn boot_words(boot: [u8; 16]) -> [u64; 2] {
    let (words, _) = boot.as_chunks::<8>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

/// Whether the first page of a tier, or the part of it that exists, was written by another program.
pub fn is_foreign(page: &[u8]) -> bool {
    Superblock::decode(page) == FirstPage::Foreign
}

/// Whether a device was a member of a set, as far as it can be read.
pub fn is_member(device: &dyn Drive) -> bool {
    matches!(superblock::read(device), Ok(FirstPages::Ours(_)))
}

/// The set that a start goes on with: that of the witness; without one that of most of the tiers, and of several the
/// first one. The state is found by it. `None` if all is new.
///
/// # Errors
/// The witness can't be read.
pub fn set_of(
    devices: &[Arc<dyn Drive>],
    witness: Option<&dyn Witness>,
) -> io::Result<Option<u64>> {
    if let Some((set, _)) = witnessed(witness)? {
        return Ok(Some(set));
    }
    let given = devices.iter().map(|device| match superblock::read(device.as_ref()) {
        Ok(pages) => Given::Pages(pages),
        Err(error) => Given::Absent(error),
    });
    Ok(set_of_most(&given.collect::<Vec<_>>()))
}

fn balance_of(given: &Given) -> i64 {
    match given {
        Given::Pages(FirstPages::Ours(pages)) => pages[0].balance,
        _ => 0,
    }
}

fn written_on(given: &Given) -> Written {
    match given {
        Given::Pages(FirstPages::Ours(pages)) => Written::of(pages),
        _ => Written::NONE,
    }
}

/// The formats that this program reads, for a message.
pub(super) fn formats_read() -> String {
    match VERSION_MIN {
        VERSION => format!("format {VERSION}"),
        oldest => format!("formats {oldest} to {VERSION}"),
    }
}

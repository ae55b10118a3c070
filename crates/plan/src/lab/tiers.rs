//! A model of the cache in objects: what it holds where, moved by the policy that the cache itself
//! uses. Blocks and segments are lists of names; a stamp tells which of them are still alive.

use super::{Answer, Object, Policy};
use std::collections::VecDeque;
use terrace_policy::{Ghost, Heat, Past, Promotion, Sketch, Untold, Weights, WritePolicy};

/// Sizes, in objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Records that are nowhere else, waiting to be written.
    pub(super) fresh: usize,
    /// Copies of what lies on flash.
    pub(super) copies: usize,
    /// Of flash.
    pub(super) flash: usize,
    /// Names that the ghost list remembers.
    pub(super) ghost: usize,
    /// Counters of the sketch per copy.
    pub(super) counters: f64,
}

/// Blocks of the copies' room, and segments of flash: as many as in a small real cache.
const PARTS: usize = 128;
/// When more of flash than this is alive it is full, in percent, as in the cache.
const FULL_PERCENT: usize = 80;
/// At most this share of a segment stays when it is taken back, in percent, as in the cache.
const KEEP_PERCENT: usize = 60;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Fresh,
    Flash,
}

#[derive(Clone, Copy, Default)]
struct Record {
    place: Place,
    /// Uses on flash since it was written, 2 at most.
    uses: u8,
    has_copy: bool,
    /// Uses since it came into the fresh lane, 2 at most.
    early_uses: u8,
    /// It was on flash before.
    is_old: bool,
    heat: Heat,
    /// Changes whenever it moves between fresh lane and flash.
    stamp: u32,
    /// The place of its copy in the order of copying, which tells its block too.
    copy: u32,
}

type Entry = (Object, u32);

/// Copies in the order in which they were made.
struct Block {
    first: u32,
    copies: Vec<Object>,
}

/// DRAM over flash.
pub(super) struct Tiers {
    sizes: Sizes,
    write_policy: WritePolicy,
    promotion: Promotion,
    untold: Untold,
    ghost: Ghost,
    records: Vec<Record>,
    fresh: VecDeque<Entry>,
    fresh_live: usize,
    segment: usize,
    segments: VecDeque<Vec<Entry>>,
    block: usize,
    open: Vec<Object>,
    full: VecDeque<Block>,
    /// Live copies of each block there ever was.
    live: Vec<u32>,
    copied: u32,
    copies: u64,
    flash_live: usize,
    written: u64,
    pub(super) promotions: u64,
    /// Copies moved to make room.
    pub(super) moves: u64,
}

impl Tiers {
    pub(super) fn new(sizes: Sizes, write_policy: WritePolicy, objects: usize) -> Self {
        Self {
            sizes,
            write_policy,
            promotion: Promotion::new((sizes.copies as f64 * sizes.counters / 2.0) as usize),
            untold: Untold::default(),
            ghost: Ghost::new(sizes.ghost),
            records: vec![Record::default(); objects],
            fresh: VecDeque::new(),
            fresh_live: 0,
            segment: (sizes.flash / PARTS).clamp(1, sizes.fresh.max(1)),
            segments: VecDeque::new(),
            block: (sizes.copies / PARTS).max(1),
            open: Vec::new(),
            full: VecDeque::new(),
            live: Vec::new(),
            copied: 0,
            copies: 0,
            flash_live: 0,
            written: 0,
            promotions: 0,
            moves: 0,
        }
    }

    /// Puts every object on flash, as after loading them.
    pub(super) fn load(&mut self, order: impl Iterator<Item = Object>) {
        let order: Vec<_> = order.collect();
        for part in order.chunks(self.segment) {
            for &object in part {
                self.records[object as usize].place = Place::Flash;
            }
            self.flash_live += part.len();
            let stamp = |&object: &Object| (object, self.records[object as usize].stamp);
            self.segments.push_back(part.iter().map(stamp).collect());
        }
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "{} promotions, {} copies moved, edge {:.1}, sketch {} bytes",
            self.promotions,
            self.moves,
            f64::from(self.promotion.edge()) / 256.0,
            self.promotion.bytes()
        )
    }

    fn enter_fresh(&mut self, object: Object, is_old: bool) {
        self.forget_copy(object);
        let record = &mut self.records[object as usize];
        self.flash_live -= usize::from(record.place == Place::Flash);
        (record.place, record.is_old, record.early_uses) = (Place::Fresh, is_old, 0);
        record.stamp += 1;
        self.fresh.push_back((object, record.stamp));
        self.fresh_live += 1;
    }

    fn store(&mut self, object: Object) {
        let record = &mut self.records[object as usize];
        let in_dram = record.place == Place::Fresh || record.has_copy;
        if !in_dram {
            record.heat = self.promotion.known(object.into());
        }
        if record.place == Place::Fresh {
            return;
        }
        self.enter_fresh(object, false);
        while self.fresh_live > self.sizes.fresh {
            if self.segments.len() * self.segment >= self.sizes.flash {
                self.reclaim();
            }
            self.seal();
        }
    }

    /// Writes a segment of the oldest fresh records; lets go what the write policy does not write.
    fn seal(&mut self) {
        let is_full = self.is_full();
        let goal = self.sizes.fresh.saturating_sub(self.segment);
        let mut segment = Vec::with_capacity(self.segment);
        while segment.len() < self.segment && (self.fresh_live > goal || !segment.is_empty()) {
            let Some((object, stamp)) = self.fresh.pop_front() else { break };
            let record = &mut self.records[object as usize];
            if record.place != Place::Fresh || record.stamp != stamp {
                continue;
            }
            self.fresh_live -= 1;
            let returned = is_full && !record.is_old && self.ghost.recall(object.into());
            let past = Past { uses: record.early_uses, returned };
            if is_full && !record.is_old && !self.write_policy.writes(past) {
                self.ghost.note(object.into());
                record.place = Place::Nowhere;
                continue;
            }
            (record.place, record.uses) = (Place::Flash, 0);
            self.flash_live += 1;
            self.written += 1;
            segment.push((object, stamp));
            let heat = record.heat;
            if self.promotion.keeps(heat, 1) {
                self.promote(object, heat);
            } else {
                self.promotion.remember(object.into(), heat);
            }
        }
        if !segment.is_empty() {
            self.segments.push_back(segment);
        }
    }

    fn is_full(&self) -> bool {
        self.flash_live * 100 >= self.sizes.flash * FULL_PERCENT
    }

    /// Takes the oldest segment back, or below full the emptiest.
    fn reclaim(&mut self) {
        let is_full = self.is_full();
        let at = if is_full { 0 } else { self.emptiest() };
        let Some(segment) = self.segments.remove(at) else { return };
        let mut keep_left =
            if is_full { segment.len() * KEEP_PERCENT / 100 } else { segment.len() };
        for (object, stamp) in segment {
            let record = &mut self.records[object as usize];
            if record.place != Place::Flash || record.stamp != stamp {
                continue;
            }
            if keep_left > 0 && (!is_full || self.write_policy.keeps(record.uses, record.has_copy))
            {
                keep_left -= 1;
                if !record.has_copy {
                    record.heat = self.promotion.known(object.into());
                }
                self.enter_fresh(object, true);
            } else {
                record.place = Place::Nowhere;
                self.flash_live -= 1;
                self.forget_copy(object);
            }
        }
    }

    fn emptiest(&self) -> usize {
        let live = |segment: &Vec<Entry>| {
            let is_live = |&&(object, stamp): &&Entry| {
                let record = self.records[object as usize];
                record.place == Place::Flash && record.stamp == stamp
            };
            segment.iter().filter(is_live).count()
        };
        let segments = self.segments.iter().enumerate();
        segments.min_by_key(|(_, segment)| live(segment)).map_or(0, |(at, _)| at)
    }

    fn promote(&mut self, object: Object, heat: Heat) {
        if self.sizes.copies == 0 {
            return;
        }
        self.promotions += 1;
        self.records[object as usize].heat = heat;
        self.copies += 1;
        self.append(object);
        while (self.full.len() + 1) * self.block > self.sizes.copies && !self.full.is_empty() {
            self.drop_block();
        }
    }

    /// Making room leaves a block or two free, which are not meant.
    fn has_room(&self) -> bool {
        (self.full.len() + 4) * self.block < self.sizes.copies
    }

    fn append(&mut self, object: Object) {
        let record = &mut self.records[object as usize];
        (record.has_copy, record.copy) = (true, self.copied);
        if self.open.is_empty() {
            self.live.push(0);
        }
        self.live[self.copied as usize / self.block] += 1;
        self.copied += 1;
        self.open.push(object);
        if self.open.len() == self.block {
            let first = self.copied - self.block as u32;
            self.full.push_back(Block { first, copies: std::mem::take(&mut self.open) });
        }
    }

    fn forget_copy(&mut self, object: Object) {
        let record = &mut self.records[object as usize];
        if std::mem::take(&mut record.has_copy) {
            self.live[record.copy as usize / self.block] -= 1;
            self.copies -= 1;
        }
    }

    /// Empties a block of copies: one that overwritten copies left sparse, or the oldest, of which the
    /// hottest move on and the others go.
    fn drop_block(&mut self) {
        let room = self.block - Promotion::gain(self.block as u32) as usize;
        let live = |block: &Block| self.live[block.first as usize / self.block] as usize;
        let sparse = self.full.iter().enumerate().min_by_key(|(_, block)| live(block));
        let at = sparse.filter(|(_, block)| live(block) <= room).map_or(0, |(at, _)| at);
        let Some(Block { first, copies }) = self.full.remove(at) else { return };
        let epoch = self.promotion.epoch();
        let live: Vec<_> = (first..)
            .zip(copies)
            .filter(|&(copy, object)| {
                let record = self.records[object as usize];
                record.has_copy && record.copy == copy
            })
            .map(|(_, object)| (object, self.records[object as usize].heat.count(epoch)))
            .collect();
        let mut weights: Weights = [0; Sketch::MAX as usize + 1];
        live.iter().for_each(|&(_, count)| weights[usize::from(count)] += 1);
        let mut cut = self.promotion.cut(&weights, room as u64);
        for (object, count) in live {
            self.forget_copy(object);
            if cut.keeps(count, 1) {
                self.moves += 1;
                self.copies += 1;
                self.append(object);
            } else {
                self.promotion.remember(object.into(), self.records[object as usize].heat);
            }
        }
    }
}

impl Policy for Tiers {
    fn get(&mut self, object: Object) -> Answer {
        let record = &mut self.records[object as usize];
        let in_dram = record.place == Place::Fresh || record.has_copy;
        if in_dram {
            record.heat = record.heat.used(self.promotion.epoch());
            record.early_uses = (record.early_uses + 1).min(2);
            self.promotion.note_hits(1);
            return Answer::Dram;
        }
        if record.place == Place::Nowhere {
            self.store(object);
            return Answer::Miss;
        }
        let before = record.uses;
        record.uses = (before + 1).min(2);
        let heat = self.promotion.note_read(object.into(), &mut self.untold);
        self.promotion.turn(self.copies, (self.flash_live as u64).saturating_sub(self.copies));
        if before > 0 && self.promotion.admits(heat, 1, self.has_room()) {
            self.promote(object, heat);
        }
        Answer::Flash
    }

    fn set(&mut self, object: Object) {
        self.store(object);
    }

    fn written(&self) -> u64 {
        self.written
    }
}

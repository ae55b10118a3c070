//! Drives that come and go between runs of the cache: which are there at a start, and what must be warm then.

use crate::random::Random;
use crate::scenario::{SEGMENTS_AT, Scenario};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use terrace_cache::{TierStats, Witness};
use terrace_device::sim::SimDevice;

/// Drives that a machine has had, at most.
const DRIVES_MAX: usize = 9;

/// The roster of the set outside of the drives, as durable as a file.
#[derive(Default)]
pub(crate) struct WitnessFile(Mutex<Option<Vec<u8>>>);

impl WitnessFile {
    /// As it is at this moment.
    pub(crate) fn copy(&self) -> Arc<Self> {
        Arc::new(Self(Mutex::new(self.0.lock().expect("no panic").clone())))
    }
}

impl Witness for WitnessFile {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().expect("no panic").clone())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        *self.0.lock().expect("no panic") = Some(bytes.to_vec());
        Ok(())
    }
}

/// A drive that is not in the machine at the moment, or the place of one that is.
struct Unit {
    device: Option<SimDevice>,
    /// The last run that it took part in for certain; 0 for none.
    run: usize,
    /// It was in a start that died after that, which may or may not have begun to count.
    is_doubtful: bool,
}

/// All drives, and the runs that they took part in.
pub(crate) struct Members {
    units: Vec<Unit>,
    /// Those in the machine, in the order of its tiers.
    pub(crate) present: Vec<usize>,
    /// Each run that came to serve; the first is no run.
    runs: Vec<Run>,
    /// Starts after that which died when they may or may not have begun to count.
    doubtful: Vec<Run>,
    pub(crate) has_witness: bool,
}

/// A run, or a start that died.
#[derive(Default)]
struct Run {
    members: BTreeSet<usize>,
    /// Those that are not new in a start that died: what these hold is complete.
    complete: BTreeSet<usize>,
    /// The newest run that its members knew of before it.
    before: usize,
}

/// What a start must bring back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It must believe the members of the last run that are there.
    Warm,
    /// It must believe nothing.
    Cold,
    /// Either is right.
    Any,
}

impl Members {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let drives = scenario.tiers.len();
        let units =
            (0..drives).map(|_| Unit { device: None, run: 0, is_doubtful: false }).collect();
        let has_witness = scenario.trouble.has_witness;
        let present = (0..drives).collect();
        Self { units, present, runs: vec![Run::default()], doubtful: Vec::new(), has_witness }
    }

    fn present_set(&self) -> BTreeSet<usize> {
        self.present.iter().copied().collect()
    }

    fn last(&self) -> &Run {
        self.runs.last().expect("the first is there from the beginning")
    }

    /// The start with the present drives came to serve.
    pub(crate) fn serve(&mut self) {
        let (members, before) = (self.present_set(), self.newest_known());
        self.runs.push(Run { complete: members.clone(), members, before });
        self.doubtful.clear();
        let run = self.runs.len() - 1;
        for &unit in &self.present {
            (self.units[unit].run, self.units[unit].is_doubtful) = (run, false);
        }
    }

    /// It died before.
    pub(crate) fn die_in_a_start(&mut self) {
        let members = self.present_set();
        let is_warm = self.expected() == Expected::Warm;
        let is_complete =
            |unit: &usize| is_warm && self.hypotheses().all(|run| run.complete.contains(unit));
        let complete = members.iter().copied().filter(is_complete).collect();
        self.doubtful.push(Run { members, complete, before: self.newest_known() });
        self.present.iter().for_each(|&unit| self.units[unit].is_doubtful = true);
    }

    /// The last run without some of its drives.
    fn without(&self, units: &BTreeSet<usize>) -> Run {
        let last = self.last();
        Run {
            members: &last.members - units,
            complete: &last.complete - units,
            before: self.runs.len() - 1,
        }
    }

    /// The last run without the drive of one of its tiers.
    fn without_tier(&self, tier: usize) -> Run {
        self.without(&BTreeSet::from([self.present[tier]]))
    }

    /// A tier was removed: the others go on as another run.
    pub(crate) fn remove(&mut self, tier: usize) {
        self.runs.push(self.without_tier(tier));
        let run = self.runs.len() - 1;
        let Self { units, runs, .. } = self;
        runs[run].members.iter().for_each(|&unit| units[unit].run = run);
    }

    /// Whether a machine can have one more drive.
    pub(crate) fn have_room(&self) -> bool {
        self.present.len() < 6 && self.units.len() < DRIVES_MAX
    }

    /// The unit of the next new drive.
    pub(crate) fn next(&self) -> usize {
        self.units.len()
    }

    /// A new drive is in the machine, as its last tier. It is no member yet.
    pub(crate) fn plug_in(&mut self) {
        self.present.push(self.units.len());
        self.units.push(Unit { device: None, run: 0, is_doubtful: true });
    }

    /// The last tier was added: all go on as another run.
    pub(crate) fn join(&mut self, unit: usize) {
        self.runs.push(self.with(unit));
        let run = self.runs.len() - 1;
        let Self { units, runs, .. } = self;
        runs[run].complete.insert(unit);
        runs[run].members.iter().for_each(|&unit| units[unit].run = run);
        units[unit].is_doubtful = false;
    }

    /// The run ended while a tier was added.
    pub(crate) fn die_in_a_join(&mut self, unit: usize) {
        self.doubtful.push(self.with(unit));
    }

    /// The last run with one more drive.
    fn with(&self, unit: usize) -> Run {
        let last = self.last();
        let members = &last.members | &BTreeSet::from([unit]);
        Run { members, complete: last.complete.clone(), before: self.runs.len() - 1 }
    }

    /// The run ended while a tier was removed.
    pub(crate) fn die_in_a_removal(&mut self, tier: usize) {
        self.doubtful.push(self.without_tier(tier));
    }

    /// Some of these tiers may have failed in the run that ended: it may have gone on without them.
    pub(crate) fn doubt(&mut self, tiers: &[TierStats]) {
        let failed = self.present.iter().zip(tiers).filter(|(_, tier)| tier.failed);
        let failed: BTreeSet<usize> = failed.map(|(&unit, _)| unit).collect();
        if !failed.is_empty() {
            self.doubtful.push(self.without(&failed));
        }
    }

    /// Whether all members of the last run are there, whichever that was.
    pub(crate) fn are_all_there(&self) -> bool {
        let present = self.present_set();
        self.hypotheses().all(|run| run.members.is_subset(&present))
    }

    /// Whether a drive was a member of the last run for certain, and what it holds is complete.
    pub(crate) fn is_member(&self, unit: usize) -> bool {
        self.hypotheses().all(|run| run.complete.contains(&unit))
    }

    /// The newest run that is known to what is there.
    fn newest_known(&self) -> usize {
        match self.has_witness {
            true => self.runs.len() - 1,
            false => self.present.iter().map(|&unit| self.units[unit].run).max().unwrap_or(0),
        }
    }

    /// Whether a drive is there whose last run the last one did not know of: it can't be told which came first.
    fn is_beside_another(&self) -> bool {
        let mut ancestors = BTreeSet::from([0, self.runs.len() - 1]);
        let mut run = self.runs.len() - 1;
        while run > 0 {
            run = self.runs[run].before;
            ancestors.insert(run);
        }
        let is_unknown = |unit: usize| {
            let is_doubtful = self.units[unit].is_doubtful && !self.has_witness;
            let may_count = is_doubtful && !self.last().members.contains(&unit);
            may_count || !ancestors.contains(&self.units[unit].run)
        };
        self.present.iter().any(|&unit| is_unknown(unit))
    }

    /// What the last run may have been.
    fn hypotheses(&self) -> impl Iterator<Item = &Run> {
        self.doubtful.iter().chain([self.last()])
    }

    pub(crate) fn expected(&self) -> Expected {
        if self.is_beside_another() {
            return Expected::Any;
        }
        let present = self.present_set();
        let mut all = self.hypotheses().map(|run| {
            let there = run.members.intersection(&present).count();
            let is_believed = there > 0 && (self.has_witness || there * 2 > run.members.len());
            match (is_believed, run.complete.is_disjoint(&present)) {
                (false, _) => Expected::Cold,
                (true, true) => Expected::Any,
                (true, false) => Expected::Warm,
            }
        });
        let first = all.next().expect("there is one at least");
        if all.all(|expected| expected == first) { first } else { Expected::Any }
    }

    /// Draws which drives are there at the next start, in which order. `devices` are those that were there.
    pub(crate) fn change(
        &mut self,
        devices: Vec<Arc<SimDevice>>,
        scenario: &Scenario,
        random: &mut Random,
    ) -> Vec<Arc<SimDevice>> {
        for (&unit, device) in self.present.iter().zip(devices) {
            self.units[unit].device = Arc::into_inner(device);
        }
        let before = self.present.clone();
        if random.percent(70) {
            let is_there = |_: &usize| random.percent(65);
            self.present = (0..self.units.len()).filter(is_there).collect();
            self.present.truncate(4);
            if self.present.is_empty() || (self.units.len() < DRIVES_MAX && random.one_in(4)) {
                self.units.push(Unit { device: None, run: 0, is_doubtful: false });
                self.present.push(self.units.len() - 1);
            }
        }
        if self.is_undetectable() {
            self.present = before;
        }
        for at in (1..self.present.len()).rev() {
            self.present.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut take = |&unit: &usize| {
            let device = self.units[unit].device.take();
            Arc::new(device.unwrap_or_else(|| new_drive(scenario, unit, random)))
        };
        self.present.iter().map(&mut take).collect()
    }

    /// Without a witness, new drives know of no run, and drives of which more than half of an earlier run are there, and none of the last one, can't
    /// know that there was a later one.
    fn is_undetectable(&self) -> bool {
        let present = self.present_set();
        let knows = |run: &Run| !run.members.is_disjoint(&present);
        if self.has_witness || self.hypotheses().all(knows) {
            return false;
        }
        // A cache on new drives alone is another set.
        if self.present.iter().all(|&unit| self.units[unit].run == 0) {
            return true;
        }
        // What a start left that died is not known in detail.
        if !self.doubtful.is_empty() {
            return true;
        }
        let newest = self.newest_known();
        let members = &self.runs[newest].members;
        newest > 0 && members.intersection(&present).count() * 2 > members.len()
    }
}

/// A drive as it comes from the shop.
pub(crate) fn new_drive(scenario: &Scenario, unit: usize, random: &mut Random) -> SimDevice {
    let segments = scenario.tiers[unit % scenario.tiers.len()];
    let bytes = SEGMENTS_AT + u64::from(segments) * u64::from(scenario.segment_bytes);
    let cache = scenario.drive_cache_bytes;
    SimDevice::with_blocks(bytes, scenario.block_bytes, cache, random.next())
}

//! A machine with a cache on it: who does what next, and what becomes of it all over crashes.

use crate::connection::Connection;
use crate::context::Context;
use crate::crash::{Blow, CrashPlan, Kept, Remains};
use crate::drains::{join, manage};
use crate::fault;
use crate::look::{held_by, peek};
use crate::members::{Expected, Members, WitnessFile, new_drive};
use crate::operation::flush;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::rest::{answer_all, rest};
use crate::scenario::Scenario;
use crate::thrift::Thrift;
use crate::trace::Trace;
use crate::value::Values;
use crate::{Failure, Options, Tally};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace_cache::{Cache, Config, OpenError, StateFile, Tier, Witness, set_crash_hook};
use terrace_device::Drive;
use terrace_device::sim::{Crash, SimDevice};

/// The running cache, and who uses it.
pub(crate) struct Life {
    pub(crate) cache: Arc<Cache>,
    pub(crate) connections: Vec<Connection>,
    /// When a `flush_all` is due; 0 if none is.
    pub(crate) flush_due: u32,
}

pub(crate) struct World {
    cx: Context,
    kept: Kept,
    members: Members,
    boot: u8,
    crashes_left: u64,
    /// Another opening is made of the same things.
    life: Option<Life>,
    /// Drives as they were at an earlier start.
    old: Option<Vec<SimDevice>>,
    thrift: Thrift,
    /// No start came to its end so far.
    is_unused: bool,
    /// The run ended while a tier was added or removed.
    died_in_a_change: bool,
}

/// Keys whose records a cache held when it ended.
#[derive(Default)]
struct Held {
    keys: Vec<u32>,
    /// The most of them that may be gone with a drive.
    may_be_gone: u64,
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> std::io::Result<Self> {
        let mut random = Random::new(seed);
        let mut scenario = Scenario::draw(&mut random, options.is_ladder, options.moves_drives);
        // Strict mode waits for drives.
        scenario.trouble.silence = options.falls_silent && !scenario.is_strict();
        scenario.trouble.reboots = scenario.trouble.silence && random.one_in(2);
        if scenario.trouble.reboots {
            scenario.drive_cache_bytes = 0;
        }
        if options.prints {
            println!("{scenario:#?}");
        }
        let drives = 0..scenario.tiers.len();
        let devices = drives.map(|unit| Arc::new(new_drive(&scenario, unit, &mut random)));
        let devices = devices.collect();
        let members = Members::new(&scenario);
        let oracle = Oracle::new(scenario.keys, scenario.is_strict());
        let cx = Context {
            oracle,
            values: Values::new(),
            trace: Trace::new(options.prints),
            tally: Tally::default(),
            failure: None,
            now: 1_000_000,
            latest: 1_000_000,
            step: 0,
            inline_bytes_max: 0,
            item_bytes_max: 0,
            cache: Weak::new(),
            is_recovering: false,
            was_broken: false,
            was_hurt: false,
            lost_power: false,
            has_lost: false,
            devices,
            crash: Rc::new(CrashPlan::none()),
            random,
            scenario,
        };
        let crashes_left = cx.scenario.trouble.crashes;
        let thrift = Thrift::new(&cx.scenario, cx.now);
        let kept = Kept {
            state: Arc::new(StateFile::volatile()?),
            witness: Arc::new(WitnessFile::default()),
        };
        Ok(Self {
            cx,
            kept,
            members,
            boot: 1,
            crashes_left,
            life: None,
            old: None,
            thrift,
            is_unused: true,
            died_in_a_change: false,
        })
    }

    /// Runs to the end, or to the first thing that is wrong.
    pub(crate) fn run(mut self) -> (Tally, u64, Option<Failure>) {
        self.start(false);
        while self.cx.failure.is_none() && self.cx.step < self.cx.scenario.steps {
            self.cx.step += 1;
            self.step();
            if self.cx.crash.has_struck() {
                self.restart();
            }
        }
        if self.cx.failure.is_none() {
            set_crash_hook(None);
            self.finish();
        }
        set_crash_hook(None);
        if let (Some(life), true, true) =
            (&self.life, self.cx.failure.is_some(), self.cx.trace.prints)
        {
            println!("{:#?}", life.cache.stats());
        }
        self.cx.tally.steps = self.cx.step;
        (self.cx.tally, self.cx.trace.digest, self.cx.failure)
    }

    fn config(&self) -> Config {
        let mut config = self.cx.scenario.config();
        config.memory_bytes = self.cx.scenario.memory_bytes_at(self.cx.step);
        let is_below = self.cx.scenario.is_ladder;
        for (at, device) in self.cx.devices.iter().enumerate() {
            device.claim_pace(self.cx.scenario.pace_at(self.cx.step, at));
        }
        let tier = |device: &Arc<SimDevice>| Tier {
            device: Arc::clone(device) as Arc<dyn Drive>,
            is_below,
        };
        config.tiers = self.cx.devices.iter().map(tier).collect();
        config.state = Some(Arc::clone(&self.kept.state));
        config.boot = [self.boot; 16];
        if self.members.has_witness {
            config.witness = Some(Arc::clone(&self.kept.witness) as Arc<dyn Witness>);
        }
        config
    }

    /// Opens the cache. `is_warm`: it must find what it left.
    fn start(&mut self, is_warm: bool) {
        self.plan_crash();
        self.cx.devices.iter().for_each(|device| device.fall_silent(Duration::ZERO));
        let refuses = fault::refuse_writes(&self.cx);
        let cache = match Cache::open(self.config()) {
            Ok(cache) => cache,
            Err(OpenError::Device { .. }) if self.cx.is_hurt() => {
                // The operator looks after the drive and starts it again.
                self.cx.devices.iter().for_each(|device| device.clear_faults());
                return self.start(is_warm);
            }
            Err(why) => return self.cx.fail(0, format!("the cache does not open: {why}")),
        };
        if refuses {
            self.cx.devices.iter().for_each(|device| device.clear_faults());
        }
        let is_first = self.is_unused;
        let expected = self.members.expected();
        if self.cx.crash.has_struck() {
            self.members.die_in_a_start();
            if cache.is_cold() {
                // The state was erased, which alone knew of what was not acknowledged.
                self.cx.oracle.after_power_loss();
            }
        } else {
            self.members.serve();
            self.is_unused = false;
            // Opening leaves nothing that a power loss could undo.
            self.cx.oracle.all_is_durable();
        }
        let is_cold = cache.is_cold() && !is_first;
        let moves = self.cx.scenario.trouble.moves;
        // A drive that failed may have been put out of the roster.
        let is_certain = moves && !is_first && !self.cx.is_hurt();
        if is_certain && expected == Expected::Cold && !is_cold {
            self.cx.fail(0, "drives that may be out of date are believed".to_owned());
        }
        let is_warm = is_warm && (!moves || expected == Expected::Warm);
        if is_cold {
            self.cx.tally.cold_starts += 1;
            // What was stopped cleanly before the set was made anew can't be told from a drive of another machine.
            self.old = None;
            self.cx.oracle.forget_cas();
            self.cx.note("starts cold", 0, 0);
            if is_warm && !self.cx.is_hurt() {
                let notes: Vec<_> = cache.notes().iter().map(|note| note.text()).collect();
                let notes = notes.join("; ");
                self.cx.fail(0, format!("a cold start that was not called for: {notes}"));
            }
        }
        self.cx.now = self.cx.now.max(cache.clock_floor());
        cache.note_time(self.cx.now);
        if is_cold || !is_warm {
            // Nothing tells what time it was, nor is there anything that it matters to.
            self.cx.oracle.forget_time();
            self.thrift.set_back(self.cx.latest.saturating_sub(self.cx.now));
            self.cx.latest = self.cx.now;
        }
        self.cx.latest = self.cx.latest.max(self.cx.now);
        self.cx.inline_bytes_max = cache.inline_bytes_max();
        self.cx.item_bytes_max = (cache.item_bytes_max() as usize).min(64 << 10);
        self.cx.cache = Arc::downgrade(&cache);
        self.cx.is_recovering = cache.recovering() > 0;
        let connections = 0..self.cx.scenario.connections;
        let connections = connections.map(|_| Connection::open(&cache, &mut self.cx));
        match connections.collect() {
            Ok(connections) => {
                let flush_due = cache.flush_due();
                self.life = Some(Life { cache, connections, flush_due });
            }
            Err(error) => self.cx.fail(0, format!("no queue: {error}")),
        }
    }

    /// Draws how and when this run of the cache ends.
    fn plan_crash(&mut self) {
        let cx = &mut self.cx;
        if self.crashes_left == 0 {
            cx.crash.plan(Blow::Process { state_is_lost: false }, 0, &mut cx.random);
            return set_crash_hook(None);
        }
        self.crashes_left -= 1;
        let trouble = cx.scenario.trouble;
        let state_is_lost = trouble.state_loss && cx.random.percent(50);
        let drives = cx.random.pick(&[Crash::Scramble, Crash::Scramble, Crash::LoseAll]);
        let blow = match cx.random.below(8) {
            0 => Blow::Stop { reboots: cx.random.one_in(2), state_is_lost },
            1..4 if trouble.power => Blow::Power { drives, state_is_lost },
            _ => Blow::Process { state_is_lost },
        };
        let bits = cx.random.within(3, 15);
        let countdown = 1 + cx.random.below(1 << bits);
        cx.crash.plan(blow, countdown, &mut cx.random);
        let (plan, devices) = (Rc::clone(&cx.crash), cx.devices.clone());
        let kept = self.kept.clone();
        if matches!(blow, Blow::Stop { .. }) {
            return set_crash_hook(None);
        }
        set_crash_hook(Some(Box::new(move |moment| plan.pass(moment, &devices, &kept))));
    }

    /// Somebody's turn.
    fn step(&mut self) {
        let Some(life) = &mut self.life else { return };
        let cx = &mut self.cx;
        if cx.random.one_in(cx.scenario.tick) {
            cx.now += 1;
        }
        cx.latest = cx.latest.max(cx.now);
        fault::maybe(cx);
        fault::silence(cx);
        if life.flush_due != 0 && cx.now >= life.flush_due {
            return flush(life, cx);
        }
        if cx.is_recovering && cx.random.one_in(12) {
            life.cache.recover();
            let left = life.cache.recovering();
            cx.is_recovering = left > 0;
            cx.note("recovers; shards left:", left as u64, 0);
            return;
        }
        if cx.random.percent(cx.scenario.maintain_percent) {
            let slices = cx.random.within(1, 8);
            (0..slices).any(|_| !life.cache.maintain(cx.now) || cx.crash.has_struck());
            // A drive that was hurt may have made the cache start cold, with a clock set back.
            if let (false, Err(why)) = (cx.is_hurt(), self.thrift.check(&life.cache, cx.latest)) {
                return cx.fail(0, why);
            }
            if !cx.crash.has_struck() {
                cx.oracle.expire(cx.now);
            }
            return;
        }
        if cx.scenario.trouble.moves && cx.random.one_in(300) {
            match cx.random.one_in(4) {
                true => join(&life.cache, &mut life.connections, cx, &mut self.members),
                false => manage(&life.cache, cx, &mut self.members),
            }
            self.died_in_a_change = cx.crash.has_struck();
            return;
        }
        if cx.random.one_in(cx.scenario.flush) {
            match cx.random.one_in(2) {
                true => flush(life, cx),
                false => {
                    life.flush_due = cx.now + cx.random.within(1, 20) as u32;
                    cx.note("plans a flush", life.flush_due.into(), 0);
                    let _ = life.cache.plan_flush(life.flush_due);
                }
            }
            return;
        }
        if matches!(cx.crash.blow(), Blow::Stop { .. }) && cx.random.one_in(800) {
            return self.stop();
        }
        let at = cx.random.below(life.connections.len() as u64) as usize;
        let begin = cx.random.within(1, cx.scenario.depth as u64) as usize;
        life.connections[at].turn(cx, begin);
        if cx.random.one_in(3) {
            life.connections[at].park();
        }
    }

    /// The server is asked to stop.
    fn stop(&mut self) {
        let Some(life) = &mut self.life else { return };
        let cx = &mut self.cx;
        // Everybody is answered before.
        if !answer_all(life, cx) {
            if cx.trace.prints {
                println!("{:#?}", life.cache.stats());
            }
            return;
        }
        life.connections.iter_mut().for_each(Connection::park);
        let patience = cx.random.pick(&[3u64, 1 << 40, 1 << 40]);
        let patience = std::cell::Cell::new(patience);
        let goes_on = || {
            patience.set(patience.get().saturating_sub(1));
            patience.get() > 0
        };
        let all = self.thrift.excuse(&life.cache, || life.cache.close(cx.now, &goes_on));
        cx.note("stops", all.into(), 0);
        // Where nothing may go to make room, there may be none.
        let may_be_full = !cx.scenario.ample && !cx.scenario.evict || cx.scenario.has_few_names();
        let may_fail = cx.devices.is_empty() || may_be_full || cx.is_recovering;
        if !all && !may_fail && patience.get() > 0 && !cx.is_hurt() {
            let memory = life.cache.stats().memory;
            cx.fail(0, format!("a clean stop does not come to its end: {memory:?}"));
        }
        cx.tally.clean_stops += u64::from(all);
        if !all {
            // The next start is as after a crash. The end of a strict log that drives lied about is in the state only.
            let Blow::Stop { reboots, state_is_lost } = cx.crash.blow() else { return };
            let needs_state = cx.scenario.trouble.lies && cx.scenario.is_strict();
            let blow = match reboots && !needs_state {
                true => Blow::Power { drives: Crash::KeepAll, state_is_lost },
                false => Blow::Process { state_is_lost },
            };
            cx.crash.plan(blow, 0, &mut cx.random);
        }
        cx.crash.strike("after a stop", &cx.devices, &self.kept);
    }

    /// What is left becomes the next run of the cache.
    fn restart(&mut self) {
        let blow = self.cx.crash.blow();
        set_crash_hook(None);
        let Some(Remains { devices, state, witness, moment }) = self.cx.crash.take() else {
            return;
        };
        let zombie = self.life.take();
        if let Some(life) = &zombie {
            self.thrift.end_run(&life.cache);
        }
        let cx = &mut self.cx;
        cx.has_lost |= cx.has_lost_some() || blow.loses_what_is_in_dram();
        cx.note(blow.name(), 0, 0);
        if cx.trace.prints {
            println!("         at {moment:?}");
        }
        cx.tally.crashes += 1;
        cx.is_hurt();
        let is_strict = cx.scenario.is_strict();
        let has_tiers = !cx.devices.is_empty();
        // A start that died before its roster was in force: had it found nothing, there is nothing yet.
        let is_in_start = moment.starts_with("roster: ") || moment.starts_with("state: ");
        let is_half_started = is_in_start && !self.died_in_a_change;
        self.died_in_a_change = false;
        let found_nothing = cx.tally.crashes == 1
            || self.is_unused
            || zombie.as_ref().is_none_or(|life| life.cache.is_cold());
        // Whether all of it is back; whether it may not start cold.
        let (all, is_warm) = match blow {
            Blow::Process { state_is_lost: false } => (true, true),
            Blow::Process { .. } => (false, is_strict && has_tiers),
            Blow::Power { .. } => (false, is_strict && has_tiers),
            Blow::Stop { reboots: false, state_is_lost: false } => (true, true),
            Blow::Stop { .. } => (has_tiers, has_tiers),
        };
        let mut held = Held::default();
        let mut on_tiers = Vec::new();
        if let (Some(life), true) = (&zombie, all) {
            held.keys = held_by(&life.cache, cx);
            on_tiers = life.cache.stats().tiers.iter().map(|tier| tier.records).collect();
        }
        if let Some(life) = &zombie {
            self.members.doubt(&life.cache.stats().tiers);
        }
        drop(zombie);
        if !all {
            cx.oracle.after_power_loss();
            // Superblocks tell the time of the last start only.
            cx.oracle.forget_time();
        }
        if !all && !has_tiers {
            cx.oracle.forget_cas();
        }
        if cx.tally.removals > 0 {
            // Copies in DRAM of what was removed with its tier were served until now.
            cx.oracle.after_a_lost_drive();
        }
        cx.devices = devices.into_iter().map(Arc::new).collect();
        self.kept = Kept { state, witness };
        let rebooted = matches!(blow, Blow::Power { .. } | Blow::Stop { reboots: true, .. });
        cx.lost_power |= rebooted;
        self.boot = self.boot.wrapping_add(rebooted.into());
        // What a clock was set back from is known to the state alone.
        let keeps_clock = matches!(
            blow,
            Blow::Process { state_is_lost: false }
                | Blow::Stop { reboots: false, state_is_lost: false }
        );
        if !is_half_started {
            self.change_drives(blow);
        }
        let is_warm = is_warm && !(is_half_started && found_nothing);
        if self.cx.scenario.trouble.moves {
            self.move_drives(&mut held, &on_tiers);
        }
        let cx = &mut self.cx;
        // The clock was set meanwhile.
        match cx.random.below(4) {
            0 if keeps_clock => cx.now -= cx.random.below(20) as u32,
            1 => cx.now += cx.random.below(5) as u32,
            _ => {}
        }
        self.start(is_warm);
        if self.cx.failure.is_none() && self.cx.random.one_in(2) && !self.cx.crash.has_struck() {
            self.recover_at_once(&held);
        }
        if self.cx.crash.has_struck() {
            self.restart();
        }
    }

    /// A drive comes back with what it held at an earlier start.
    fn change_drives(&mut self, blow: Blow) {
        let cx = &mut self.cx;
        if !cx.scenario.trouble.old_drives {
            return;
        }
        let keeps_epoch = matches!(
            blow,
            Blow::Process { state_is_lost: false }
                | Blow::Stop { reboots: false, state_is_lost: false }
        );
        let is_certain = keeps_epoch || cx.devices.len() > 1;
        if let (Some(old), true, true) = (self.old.take(), is_certain, cx.random.percent(50)) {
            let at = cx.random.below(old.len() as u64) as usize;
            if let Some(old) = old.into_iter().nth(at) {
                cx.note("an old drive comes back", at as u64, 0);
                cx.devices[at] = Arc::new(old);
                (cx.was_broken, cx.was_hurt) = (true, true);
            }
        }
        if self.old.is_none() || cx.random.one_in(3) {
            let copy = |device: &Arc<SimDevice>| device.crashed_copy(Crash::KeepAll, 7);
            self.old = Some(cx.devices.iter().map(copy).collect());
        }
    }

    /// Drives come and go. `on_tiers`: records on each that was there.
    fn move_drives(&mut self, held: &mut Held, on_tiers: &[u64]) {
        let cx = &mut self.cx;
        let before = self.members.present.clone();
        let devices = std::mem::take(&mut cx.devices);
        cx.devices = self.members.change(devices, &cx.scenario, &mut cx.random);
        let present = &self.members.present;
        let units = present.iter().fold(0, |units, unit| units * 10 + *unit as u64 + 1);
        cx.note("drives are", units, 0);
        let expected = self.members.expected();
        if expected == Expected::Warm && self.members.are_all_there() {
            return;
        }
        cx.oracle.after_a_lost_drive();
        cx.has_lost = true;
        let is_there = |unit: &usize| present.contains(unit) && self.members.is_member(*unit);
        let kept = before.iter().zip(on_tiers).filter(|(unit, _)| is_there(unit));
        let kept: u64 = kept.map(|(_, records)| records).sum();
        // So is what lay in DRAM only: it may have been on the way to a drive that is gone.
        held.may_be_gone = match expected {
            Expected::Warm => (held.keys.len() as u64).saturating_sub(kept),
            _ => u64::MAX,
        };
    }

    /// Recovers without a request in between, and compares everything with what there was.
    fn recover_at_once(&mut self, held: &Held) {
        let Some(life) = &mut self.life else { return };
        let cx = &mut self.cx;
        while life.cache.recover() && !cx.crash.has_struck() {}
        cx.note("recovers at once", 0, 0);
        cx.is_recovering = life.cache.recovering() > 0;
        if cx.crash.has_struck() {
            return;
        }
        let session = life.cache.session();
        let mut back = 0;
        for &key in &held.keys {
            match peek(&session, cx, key) {
                Some(true) => back += 1,
                Some(false) => {
                    if cx.oracle.live(cx.latest).any(|live| live == key) {
                        cx.note_key(key, "is not back", 0, 0);
                    } else {
                        back += 1;
                    }
                }
                None => return,
            }
        }
        if !cx.is_hurt() {
            let all = (held.keys.len() as u64).saturating_sub(held.may_be_gone);
            cx.tally.held += all;
            cx.tally.back += back;
            // When full, keys of equal name push each other out of the index, and a copy in DRAM may be
            // all that is left of a record that reclaim had no room for: such a one is not on a tier.
            // So is a copy of a record whose tier was removed.
            let needed = match cx.scenario.fingerprint_bits {
                _ if cx.scenario.ample && cx.tally.removals == 0 => 999,
                12.. => 950,
                _ => 0,
            };
            if back * 1000 < all * needed {
                let lost =
                    held.keys.iter().copied().find(|&key| peek(&session, cx, key) == Some(false));
                let key = lost.unwrap_or(0);
                cx.fail(key, format!("{back} of {all} records are back; key {key} is not"));
            }
        }
    }

    /// The last look at everything.
    fn finish(&mut self) {
        let Some(life) = &mut self.life else { return };
        let cx = &mut self.cx;
        while life.cache.recover() {}
        cx.is_recovering = life.cache.recovering() > 0;
        cx.devices.iter().for_each(|device| device.fall_silent(Duration::ZERO));
        rest(life, cx);
        if cx.failure.is_some() {
            return;
        }
        let session = life.cache.session();
        let mut records = 0;
        for key in 0..cx.oracle.keys() {
            let is_found = peek(&session, cx, key) == Some(true);
            if cx.failure.is_some() {
                return;
            }
            if !is_found {
                cx.miss(key, "the last look");
            }
            records += cx.oracle.most_records_of(key, is_found, cx.latest);
        }
        let stats = life.cache.stats();
        cx.is_hurt();
        if stats.records > records && !cx.was_broken {
            // Such as chunks of an item that is gone.
            let all = stats.records;
            cx.fail(0, format!("{all} records are there, and what was found has {records}"));
        }
        cx.tally.evictions = stats.evictions;
        if cx.scenario.ample && !cx.is_hurt() && stats.evictions > 0 {
            cx.fail(0, format!("{} evictions, and there is room", stats.evictions));
        }
        let damaged: u64 = stats.tiers.iter().map(|tier| tier.corrupt_pages).sum();
        // What a power loss left of a segment that was not flushed is damaged, where its footer is there.
        if !cx.is_hurt() && !cx.lost_power && damaged > 0 {
            cx.fail(0, format!("{damaged} pages count as damaged, and no drive failed"));
        }
    }
}

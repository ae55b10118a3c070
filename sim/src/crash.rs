//! Crashes: at a moment drawn beforehand, inside an operation or background work, what would be left
//! is copied. The run goes on to the end of the call that it is in, and is then abandoned.

use crate::members::WitnessFile;
use crate::random::Random;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use terrace_cache::StateFile;
use terrace_device::sim::{Crash, SimDevice};

/// What goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The process; what was mapped stays unless `state_is_lost`.
    Process { state_is_lost: bool },
    /// The power.
    Power { drives: Crash, state_is_lost: bool },
    /// Nothing: the cache is stopped cleanly, and perhaps the machine restarted.
    Stop { reboots: bool, state_is_lost: bool },
}

/// What a machine has besides its drives.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) state: Arc<StateFile>,
    pub(crate) witness: Arc<WitnessFile>,
}

/// What is left.
pub(crate) struct Remains {
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) state: Arc<StateFile>,
    pub(crate) witness: Arc<WitnessFile>,
    /// The crash point.
    pub(crate) moment: &'static str,
}

/// When the next crash comes.
pub(crate) struct CrashPlan {
    /// Crash points until then; 0 for none.
    countdown: Cell<u64>,
    blow: Cell<Blow>,
    seed: Cell<u64>,
    remains: RefCell<Option<Remains>>,
    /// Drives that came since the plan was made.
    joined: RefCell<Vec<Arc<SimDevice>>>,
    has_struck: Cell<bool>,
}

impl CrashPlan {
    pub(crate) fn none() -> Self {
        Self {
            countdown: Cell::new(0),
            blow: Cell::new(Blow::Process { state_is_lost: false }),
            seed: Cell::new(0),
            remains: RefCell::new(None),
            joined: RefCell::default(),
            has_struck: Cell::new(false),
        }
    }

    /// Strikes after `countdown` crash points.
    pub(crate) fn plan(&self, blow: Blow, countdown: u64, random: &mut Random) {
        self.blow.set(blow);
        self.countdown.set(countdown);
        self.seed.set(random.next());
        self.has_struck.set(false);
        *self.remains.borrow_mut() = None;
        self.joined.borrow_mut().clear();
    }

    /// The drive is there, too, when the crash comes.
    pub(crate) fn join(&self, device: Arc<SimDevice>) {
        self.joined.borrow_mut().push(device);
    }

    pub(crate) fn has_struck(&self) -> bool {
        self.has_struck.get()
    }

    pub(crate) fn blow(&self) -> Blow {
        self.blow.get()
    }

    /// Passes a crash point.
    pub(crate) fn pass(&self, moment: &'static str, devices: &[Arc<SimDevice>], kept: &Kept) {
        let left = self.countdown.get();
        self.countdown.set(left.saturating_sub(1));
        if left == 1 {
            let all = [devices, self.joined.borrow().as_slice()].concat();
            self.strike(moment, &all, kept);
        }
    }

    /// Takes a copy of what a crash at this moment leaves.
    pub(crate) fn strike(
        &self,
        moment: &'static str,
        devices: &[Arc<SimDevice>],
        Kept { state, witness }: &Kept,
    ) {
        let (power, state_is_lost) = match self.blow.get() {
            Blow::Process { state_is_lost } | Blow::Stop { state_is_lost, reboots: false } => {
                (None, state_is_lost)
            }
            Blow::Stop { state_is_lost, .. } => (Some(Crash::KeepAll), state_is_lost),
            Blow::Power { drives, state_is_lost } => (Some(drives), state_is_lost),
        };
        // A stop that came to its end leaves a page of it, or is killed before it has removed the rest.
        let is_stopped = matches!(self.blow.get(), Blow::Stop { .. }) && !devices.is_empty();
        let seeds = (0u64..).map(|at| self.seed.get() ^ at << 32);
        let copy = |(device, seed): (&Arc<SimDevice>, u64)| match power {
            Some(how) => device.crashed_copy(how, seed),
            None => device.process_copy(seed),
        };
        let devices: Vec<_> = devices.iter().zip(seeds).map(copy).collect();
        let state = match state_is_lost {
            true => StateFile::volatile(),
            false if is_stopped && !self.seed.get().is_multiple_of(4) => state.retired(),
            false => state.snapshot(),
        };
        let Ok(state) = state else { return };
        let (state, witness) = (Arc::new(state), witness.copy());
        *self.remains.borrow_mut() = Some(Remains { devices, state, witness, moment });
        self.has_struck.set(true);
    }

    pub(crate) fn take(&self) -> Option<Remains> {
        self.has_struck.set(false);
        self.countdown.set(0);
        self.remains.borrow_mut().take()
    }
}

impl Blow {
    /// Whether what is not on a drive goes, and not that alone.
    pub(crate) fn loses_what_is_in_dram(self) -> bool {
        match self {
            Blow::Process { state_is_lost } => state_is_lost,
            Blow::Power { .. } => true,
            Blow::Stop { .. } => false,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Blow::Process { state_is_lost: false } => "the process is killed",
            Blow::Process { state_is_lost: true } => "the process is killed and its state lost",
            Blow::Power { .. } => "the power is lost",
            Blow::Stop { reboots: false, .. } => "a clean stop",
            Blow::Stop { reboots: true, .. } => "a clean stop and a reboot",
        }
    }
}

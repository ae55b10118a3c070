//! A drive in memory on which anything can go wrong, and does so again from the same seed.
//!
//! A [`SimDevice`] keeps apart what is durable and what was written since the last flush, so that a
//! [`SimDevice::crash`] can lose, tear and reorder writes as a power loss does. [`Fault`]s make
//! operations fail, lie, or damage data. A [`SimQueue`] completes reads in an order drawn from its
//! seed. Neither has threads or a clock: driven by one thread, a run depends on nothing but the
//! seeds and the operations.
//!
//! ```
//! use terrace_device::sim::{Crash, Effect, Fault, Operation, SimDevice};
//! use terrace_device::{AlignedBuf, Drive};
//!
//! let drive = SimDevice::new(1 << 20, 7);
//! drive.write_at(0, &AlignedBuf::zeroed(4096))?;
//! drive.flush()?;
//! drive.inject(Fault::next(Operation::Read, Effect::Flip).within(0..4096).after(3));
//! drive.inject(Fault::always(Operation::Write, Effect::PowerOff).after(100));
//! // ... run the code under test, then:
//! drive.crash(Crash::Scramble);
//! # Ok::<(), std::io::Error>(())
//! ```

mod fault;
mod image;
mod queue;
mod random;

pub use fault::{Effect, Fault, Operation};
pub use image::Crash;
pub use queue::SimQueue;

use crate::buffer::AlignedBuf;
use crate::drive::{Drive, Geometry, Reads};
use crate::failure::unanswered;
use crate::health::{Direction, Monitor};
use fault::Faults;
use image::Image;
use random::Random;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// What a simulated drive can hold back from a flush, in bytes, unless told otherwise.
const CACHE_BYTES: usize = 64 << 20;
const BLOCK_BYTES: u32 = 4096;

/// An operation that a device is about to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What it is.
    pub operation: Operation,
    /// Where it begins, in bytes; 0 for a flush.
    pub offset: u64,
    /// How long it is; 0 for a flush.
    pub bytes: usize,
}

/// What a device did so far, failed operations included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes that reads asked for.
    pub bytes_read: u64,
    /// Bytes that writes brought.
    pub bytes_written: u64,
    /// Operations that a fault befell.
    pub faults: u64,
    /// Operations that were not answered, since the drive was silent.
    pub unanswered: u64,
}

type Hook = Arc<dyn Fn(Transfer) + Send + Sync>;

/// A simulated drive. All its methods may be called from any thread at any time.
pub struct SimDevice {
    label: String,
    geometry: Geometry,
    state: Mutex<State>,
    hook: RwLock<Option<Hook>>,
    is_synchronous: bool,
    monitor: Monitor,
}

struct State {
    image: Image,
    faults: Faults,
    random: Random,
    counts: Counts,
    powered: bool,
    silence: Silence,
}

/// How a drive behaves while it answers nothing.
#[derive(Clone, Default)]
struct Silence {
    /// For how long it has, as it says; zero while it answers.
    lasts: Duration,
    /// Whether a transfer met it meanwhile, so that its caller knows.
    was_noticed: bool,
    /// What it was asked to write first, and may write yet.
    late: Option<(u64, Vec<u8>)>,
}

impl SimDevice {
    /// A drive of `bytes` zeros in blocks of 4096 bytes (a rest is left unused), on which chance
    /// follows `seed`.
    pub fn new(bytes: u64, seed: u64) -> Self {
        Self::with_blocks(bytes, BLOCK_BYTES, CACHE_BYTES, seed)
    }

    /// A drive whose blocks, which never tear, have `block_bytes` (a power of two, at most 4096),
    /// and of which at most `cache_bytes` are written and not durable: what exceeds that becomes
    /// durable without a flush, oldest first.
    ///
    /// # Panics
    /// If `block_bytes` is no such size.
    pub fn with_blocks(bytes: u64, block_bytes: u32, cache_bytes: usize, seed: u64) -> Self {
        assert!(block_bytes.is_power_of_two() && block_bytes <= BLOCK_BYTES, "{block_bytes}");
        let bytes = bytes - bytes % u64::from(block_bytes);
        let state = State {
            image: Image::zeroed(bytes as usize, block_bytes as usize, cache_bytes),
            faults: Faults::default(),
            random: Random::new(seed),
            counts: Counts::default(),
            powered: true,
            silence: Silence::default(),
        };
        Self {
            label: format!("sim:{seed}"),
            geometry: Geometry { bytes, block_bytes },
            state: Mutex::new(state),
            hook: RwLock::new(None),
            is_synchronous: false,
            monitor: Monitor::default(),
        }
    }

    /// The same drive, which workers read by [`Reads::Synchronous`] in place of [`Reads::Threads`].
    pub fn synchronous(self) -> Self {
        Self { is_synchronous: true, ..self }
    }

    /// Says from here on that large writes take `pace` per MiB, see [`Drive::write_pace`].
    pub fn claim_pace(&self, pace: Duration) {
        self.monitor.set_pace(pace);
    }

    /// Adds a fault behind those that were added before.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.add(fault);
    }

    /// Takes back all faults that have not come yet.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// From the next operation on nothing is answered, as [`crate::DeadlineDrive`] would tell, and the device says
    /// that this `lasts` so long. Zero ends it: a write that was waited for is carried out then, late.
    pub fn fall_silent(&self, lasts: Duration) {
        let State { image, silence, .. } = &mut *self.lock();
        silence.lasts = lasts;
        if lasts.is_zero()
            && let Some((offset, bytes)) = std::mem::take(silence).late
        {
            image.write(offset, &bytes);
        }
    }

    /// Ends a silence as a remote drive does whose target lost its power meanwhile: what was not durable may be lost, and
    /// of a write that was waited for each block is there or not.
    pub fn reboot(&self) {
        let State { image, silence, random, .. } = &mut *self.lock();
        image.crash(Crash::Scramble, random);
        if let Some((offset, bytes)) = std::mem::take(silence).late {
            image.write_some(offset, &bytes, random);
        }
    }

    /// Loses the power, then has it again: unflushed writes meet the fate that `how` says. Faults
    /// and counts stay.
    pub fn crash(&self, how: Crash) {
        let mut state = self.lock();
        let State { image, random, powered, .. } = &mut *state;
        image.crash(how, random);
        *powered = true;
    }

    /// A drive with what this one would hold after a crash; this one goes on as if nothing had
    /// happened. With other seeds, one moment yields many crash images. The new drive has no
    /// faults.
    pub fn crashed_copy(&self, how: Crash, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let image = self.lock().image_to_come(random.coin()).crashed(how, &mut random);
        self.copy(image, random, format!("{}/crash:{seed}", self.label))
    }

    /// A drive as the next process finds it when this one is gone and the power is not: nothing is
    /// lost, and what was not flushed still is not. It has no faults.
    pub fn process_copy(&self, seed: u64) -> Self {
        let image = self.lock().image_to_come(true);
        self.copy(image, Random::new(seed), format!("{}/process:{seed}", self.label))
    }

    fn copy(&self, image: Image, random: Random, label: String) -> Self {
        let state = State {
            image,
            faults: Faults::default(),
            random,
            counts: Counts::default(),
            powered: true,
            silence: Silence::default(),
        };
        Self {
            label,
            geometry: self.geometry,
            state: Mutex::new(state),
            hook: RwLock::new(None),
            is_synchronous: self.is_synchronous,
            monitor: Monitor::default(),
        }
    }

    /// Whether no [`Effect::PowerOff`] struck since the last crash.
    pub fn is_powered(&self) -> bool {
        self.lock().powered
    }

    /// Changes what is stored, durably and unnoticed. Whatever was unflushed becomes durable.
    pub fn tamper(&self, change: impl FnOnce(&mut [u8])) {
        self.lock().image.tamper(change);
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Calls `hook` before each operation, on the thread that wants it and with no lock held: it
    /// may sleep to be slow, count, wait for another thread, or inject a fault.
    pub fn before_each(&self, hook: impl Fn(Transfer) + Send + Sync + 'static) {
        *self.hook.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
    }

    /// Where a misdirected transfer goes.
    fn elsewhere(&self, wanted: u64, len: usize) -> u64 {
        let block = u64::from(self.geometry.block_bytes);
        let last = self.geometry.bytes - len as u64;
        wanted.min(last) / block * block
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A `tamper` that panicked left bytes that the test wanted to be wrong anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While it is silent: the first transfer is under way, and no other is.
    fn note_silence(&self, write: Option<(u64, &[u8])>) {
        let State { silence, .. } = &mut *self.lock();
        if !silence.lasts.is_zero() && !std::mem::replace(&mut silence.was_noticed, true) {
            silence.late = write.map(|(offset, bytes)| (offset, bytes.to_vec()));
        }
    }

    /// Announces an operation, counts it, and draws what befalls it.
    fn begin(
        &self,
        operation: Operation,
        offset: u64,
        bytes: usize,
    ) -> io::Result<(MutexGuard<'_, State>, Option<Effect>)> {
        self.geometry.check(offset, bytes)?;
        let hook = self.hook.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(hook) = hook {
            hook(Transfer { operation, offset, bytes });
        }
        let mut state = self.lock();
        state.counts.count(operation, bytes);
        if !state.powered {
            return Err(power_is_off());
        }
        if !state.silence.lasts.is_zero() {
            state.counts.unanswered += 1;
            return Err(unanswered());
        }
        let effect = state.faults.strike(operation, offset..offset + bytes as u64);
        state.counts.faults += u64::from(effect.is_some());
        Ok((state, effect))
    }
}

impl Counts {
    fn count(&mut self, operation: Operation, bytes: usize) {
        match operation {
            Operation::Read => {
                self.reads += 1;
                self.bytes_read += bytes as u64;
            }
            Operation::Write => {
                self.writes += 1;
                self.bytes_written += bytes as u64;
            }
            Operation::Flush => self.flushes += 1,
        }
    }
}

impl Drive for SimDevice {
    fn label(&self) -> &str {
        &self.label
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.monitor.record(Direction::Read, self.read(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.monitor.record(Direction::Write, self.write(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        self.monitor.record(Direction::Write, self.flush_all())
    }

    fn reads(&self) -> Reads<'_> {
        if self.is_synchronous { Reads::Synchronous } else { Reads::Threads }
    }

    fn fence(&self) -> io::Result<()> {
        if self.lock().silence.late.is_some() { Err(unanswered()) } else { Ok(()) }
    }

    fn monitor(&self) -> Option<&Monitor> {
        Some(&self.monitor)
    }

    fn unresponsive_for(&self) -> Duration {
        let silence = &self.lock().silence;
        if silence.was_noticed { silence.lasts } else { Duration::ZERO }
    }
}

impl SimDevice {
    fn read(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.note_silence(None);
        let (mut state, effect) = self.begin(Operation::Read, offset, buf.len())?;
        match effect {
            Some(Effect::Error(kind) | Effect::Partial(kind)) => return Err(kind.into()),
            Some(Effect::Fail(class)) => return Err(class.example()),
            Some(Effect::PowerOff) => return Err(state.power_off()),
            None | Some(Effect::Flip | Effect::Tear | Effect::Lose | Effect::Misdirect(_)) => {}
        }
        let offset = match effect {
            Some(Effect::Misdirect(other)) => self.elsewhere(other, buf.len()),
            _ => offset,
        };
        state.image.read(offset, buf);
        if effect == Some(Effect::Flip) {
            flip(buf, &mut state.random);
        }
        Ok(())
    }

    fn write(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.note_silence(Some((offset, buf)));
        let (mut state, effect) = self.begin(Operation::Write, offset, buf.len())?;
        let State { image, random, .. } = &mut *state;
        match effect {
            None => image.write(offset, buf),
            Some(Effect::Error(kind)) => return Err(kind.into()),
            Some(Effect::Fail(class)) => return Err(class.example()),
            Some(Effect::Partial(kind)) => {
                image.write_some(offset, buf, random);
                return Err(kind.into());
            }
            Some(Effect::Flip) => {
                let mut damaged = buf.to_vec();
                flip(&mut damaged, random);
                image.write(offset, &damaged);
            }
            Some(Effect::Tear) => image.write_some(offset, buf, random),
            Some(Effect::Lose) => {}
            Some(Effect::Misdirect(other)) => image.write(self.elsewhere(other, buf.len()), buf),
            Some(Effect::PowerOff) => {
                image.write_some(offset, buf, random);
                return Err(state.power_off());
            }
        }
        Ok(())
    }

    fn flush_all(&self) -> io::Result<()> {
        let (mut state, effect) = self.begin(Operation::Flush, 0, 0)?;
        match effect {
            None | Some(Effect::Flip | Effect::Tear | Effect::Misdirect(_)) => state.image.flush(),
            Some(Effect::Lose) => {}
            Some(Effect::Error(kind) | Effect::Partial(kind)) => return Err(kind.into()),
            Some(Effect::Fail(class)) => return Err(class.example()),
            Some(Effect::PowerOff) => return Err(state.power_off()),
        }
        Ok(())
    }
}

impl State {
    /// With the write that is late, if it `arrives`.
    fn image_to_come(&self, arrives: bool) -> Image {
        let mut image = self.image.clone();
        if let Some((offset, bytes)) = self.silence.late.as_ref().filter(|_| arrives) {
            image.write(*offset, bytes);
        }
        image
    }

    fn power_off(&mut self) -> io::Error {
        self.powered = false;
        power_is_off()
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDevice").field("label", &self.label).finish_non_exhaustive()
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the simulated drive has no power")
}

fn flip(bytes: &mut [u8], random: &mut Random) {
    if !bytes.is_empty() {
        bytes[random.below(bytes.len())] ^= 1 << random.below(8);
    }
}

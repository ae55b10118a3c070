//! Buffers of commands, from one pool for all connections that is bounded in bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_device::{AlignedBuf, Event};

/// Bytes of the smallest buffer.
const SMALLEST: usize = 4096;
/// Sizes of buffers: each is twice the one before.
const CLASSES: usize = 7;
/// Bytes of the largest buffer, and so of the largest transfer.
pub(crate) const LARGEST: usize = SMALLEST << (CLASSES - 1);
/// One part of the pool in this number is for data in capsules alone.
const RESERVED: usize = 8;
/// A connection that has a buffer gets another one while it has at most one part in this number of what is left. So
/// connections that keep their buffers leave something to every other one, however many they are.
const SHARE: usize = 16;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Data that follow at once: until they have a buffer, nothing else of their connection is received. A part of the
    /// pool is for them alone, so that they do not wait for data that stand behind them on the same connection.
    Capsule,
    /// Data that are asked for, or read, once there is a buffer, for a connection that has buffers of `held` bytes.
    Other {
        /// Bytes.
        held: usize,
    },
}

/// The pool. Buffers that are free stay in it, as long as no other size needs their memory.
pub(crate) struct Pool {
    bytes_max: usize,
    state: Mutex<State>,
    /// Event loops that wait for a buffer, one bit each.
    hungry: AtomicU64,
    /// Of each event loop.
    events: Vec<Arc<Event>>,
}

#[derive(Default)]
struct State {
    free: [Vec<AlignedBuf>; CLASSES],
    /// Bytes of buffers that are out. 0 <= out <= held <= bytes_max
    out: usize,
    /// Bytes of all buffers.
    held: usize,
}

/// A buffer; dropping it gives it back to the pool.
pub(crate) struct Buffer {
    /// `None` while a drive has it.
    memory: Option<AlignedBuf>,
    class: usize,
    pool: Arc<Pool>,
}

impl Pool {
    /// A pool of at most `bytes_max` bytes, and at least four buffers of the largest size. `events` are of the event
    /// loops, which are woken when a buffer is back that they wait for.
    pub(crate) fn new(bytes_max: usize, events: Vec<Arc<Event>>) -> Arc<Self> {
        let bytes_max = bytes_max.max(4 * LARGEST);
        let (state, hungry) = Default::default();
        Arc::new(Self { bytes_max, state, hungry, events })
    }

    /// A buffer of `bytes` bytes that holds anything. Without one, event loop `number` is woken when there may be one.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize, what: Use, number: usize) -> Option<Buffer> {
        if let Some(buffer) = self.try_take(bytes, what) {
            return Some(buffer);
        }
        self.hungry.fetch_or(1 << number, Ordering::SeqCst);
        // One that came back before the bit was set woke no loop.
        self.try_take(bytes, what)
    }

    fn try_take(self: &Arc<Self>, bytes: usize, what: Use) -> Option<Buffer> {
        let class = class_of(bytes)?;
        let size = SMALLEST << class;
        let (reserved, held) = match what {
            Use::Capsule => (0, 0),
            Use::Other { held } => (self.bytes_max / RESERVED, held),
        };
        let mut state = self.lock();
        let left = (self.bytes_max - reserved).saturating_sub(state.out);
        if size > left || held > 0 && held + size > left / SHARE {
            return None;
        }
        let mut memory = match state.free[class].pop() {
            Some(memory) => memory,
            None => {
                state.make_room(self.bytes_max - size);
                state.held += size;
                AlignedBuf::zeroed(size)
            }
        };
        state.out += size;
        drop(state);
        memory.set_len(bytes);
        Some(Buffer { memory: Some(memory), class, pool: Arc::clone(self) })
    }

    /// Bytes of buffers that are out, of all buffers, and the limit of these.
    pub(crate) fn usage(&self) -> (usize, usize, usize) {
        let state = self.lock();
        (state.out, state.held, self.bytes_max)
    }

    /// Whether an event loop waits for a buffer.
    pub(crate) fn is_short(&self) -> bool {
        self.hungry.load(Ordering::Relaxed) != 0
    }

    /// Frees a part of the memory that is not used. Called now and then, this follows what is needed.
    pub(crate) fn trim(&self) {
        let mut state = self.lock();
        for class in 0..CLASSES {
            let few = state.free[class].len().div_ceil(8);
            let left = state.free[class].len() - few;
            state.free[class].truncate(left);
            state.held -= few * (SMALLEST << class);
        }
    }

    fn give(&self, memory: Option<AlignedBuf>, class: usize) {
        let size = SMALLEST << class;
        let mut state = self.lock();
        state.out -= size;
        match memory {
            Some(memory) => state.free[class].push(memory),
            // A drive that does not answer has kept it.
            None => state.held -= size,
        }
        drop(state);
        if self.hungry.load(Ordering::SeqCst) != 0 {
            let hungry = self.hungry.swap(0, Ordering::SeqCst);
            let woken =
                self.events.iter().enumerate().filter(|(number, _)| hungry >> number & 1 == 1);
            woken.for_each(|(_, event)| event.signal());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Frees buffers until all of them have at most `bytes` bytes, or none is left to free.
    fn make_room(&mut self, bytes: usize) {
        for class in (0..CLASSES).rev() {
            while self.held > bytes && self.free[class].pop().is_some() {
                self.held -= SMALLEST << class;
            }
        }
    }
}

fn class_of(bytes: usize) -> Option<usize> {
    let class = bytes.div_ceil(SMALLEST).next_power_of_two().trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl Buffer {
    /// Its bytes; none while a drive has it.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }

    /// Bytes that it takes of the pool.
    pub(crate) fn size(&self) -> usize {
        SMALLEST << self.class
    }

    /// Its memory, for the call of a drive.
    pub(crate) fn memory(&mut self) -> Option<&mut AlignedBuf> {
        self.memory.as_mut()
    }

    /// Takes its memory out, for a drive that gives it back with [`Self::put_back`].
    pub(crate) fn lend(&mut self) -> Option<AlignedBuf> {
        self.memory.take()
    }

    /// Takes memory back from a drive.
    pub(crate) fn put_back(&mut self, memory: AlignedBuf) {
        // A drive that has kept the buffer returns another one, which is not of this size.
        if memory.capacity() == self.size() {
            self.memory = Some(memory);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give(self.memory.take(), self.class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a connection that has none yet.
    const OTHER: Use = Use::Other { held: 0 };

    fn pool() -> Arc<Pool> {
        Pool::new(1 << 20, vec![Arc::new(Event::new().expect("an eventfd"))])
    }

    fn fill(pool: &Arc<Pool>, bytes: usize, what: Use) -> Vec<Buffer> {
        std::iter::from_fn(|| pool.take(bytes, what, 0)).collect()
    }

    #[test]
    fn memory_stays_within_the_limit_whatever_sizes_are_asked_for() {
        let pool = pool();
        for bytes in [512, 4096, 5000, 65_536, LARGEST, 4096] {
            let all = fill(&pool, bytes, OTHER);
            assert!(!all.is_empty() && all.iter().all(|one| one.bytes().len() == bytes));
            let (out, held, limit) = pool.usage();
            assert!(out <= held && held <= limit, "{bytes}: {out} {held} {limit}");
        }
        assert!(pool.take(LARGEST + 1, Use::Capsule, 0).is_none());
    }

    #[test]
    fn capsules_have_a_share_that_nothing_else_takes() {
        let pool = pool();
        let others = fill(&pool, 4096, OTHER);
        let capsules = fill(&pool, 4096, Use::Capsule);
        assert_eq!(others.len(), 7 * capsules.len());
        assert!(pool.is_short());
    }

    #[test]
    fn connections_that_keep_their_buffers_leave_some_to_others() {
        let pool = pool();
        let mut kept = Vec::new();
        for number in 0..20 {
            let (before, mut held) = (kept.len(), 0);
            while let Some(buffer) = pool.take(4096, Use::Other { held }, 0) {
                held += buffer.size();
                kept.push(buffer);
            }
            assert!(kept.len() > before, "connection {number} got none");
        }
        assert!(pool.take(4096, OTHER, 0).is_some());
    }

    #[test]
    fn loop_that_got_no_buffer_is_woken_by_the_next_that_comes_back() {
        let pool = pool();
        let mut all = fill(&pool, LARGEST, Use::Capsule);
        pool.events[0].clear();
        drop(all.pop());
        assert!(pool.events[0].clear());
        assert!(!pool.is_short());
        assert!(pool.take(LARGEST, Use::Capsule, 0).is_some());
    }

    #[test]
    fn trimming_frees_what_is_not_used() {
        let pool = pool();
        drop(fill(&pool, 4096, OTHER));
        let before = pool.usage().1;
        (0..100).for_each(|_| pool.trim());
        assert!(before > 0 && pool.usage().1 == 0, "{before}");
    }
}

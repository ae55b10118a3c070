//! The drives that requests read from: some are added and some leave while workers have queues over them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use terrace_device::{AbsentDrive, Drive, ReadQueue};

/// The drives of all tiers, by the numbers of the tiers. A number is not used again.
pub struct Drives {
    all: RwLock<Vec<Place>>,
    changes: AtomicU64,
}

#[derive(Clone)]
struct Place {
    drive: Arc<dyn Drive>,
    has_left: bool,
}

impl Drives {
    /// These, in the order of their tiers.
    pub fn new(drives: Vec<Arc<dyn Drive>>) -> Arc<Self> {
        let place = |drive| Place { drive, has_left: false };
        let all = RwLock::new(drives.into_iter().map(place).collect());
        Arc::new(Self { all, changes: AtomicU64::new(0) })
    }

    /// Adds the drive of the next tier. Must come before the cache has it, see [`terrace_cache::Cache::join`].
    pub fn append(&self, drive: Arc<dyn Drive>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.push(Place { drive, has_left: false });
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Has all queues detach a drive, which is closed by whatever removes it.
    pub fn leave(&self, number: usize) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = all.get_mut(number) else { return };
        let label = place.drive.label().to_owned();
        // Queues that come later have something in its place.
        let drive = Arc::new(AbsentDrive::new(label, "the tier was removed".to_owned()));
        *place = Place { drive, has_left: true };
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// All of them; in the place of one that has left there is one that fails.
    pub fn all(&self) -> Vec<Arc<dyn Drive>> {
        self.places().map(|place| place.drive).collect()
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone().into_iter()
    }
}

/// What a queue has of the drives.
pub(crate) struct Kept {
    drives: Arc<Drives>,
    /// [`Drives::changes`] as of the last look.
    changes: u64,
    /// By number, whether the drive was detached.
    detached: Vec<bool>,
}

impl Kept {
    /// Of a queue that was opened with `opened` of them.
    pub(crate) fn new(drives: &Arc<Drives>, opened: usize, changes: u64) -> Self {
        Self { drives: Arc::clone(drives), changes, detached: vec![false; opened] }
    }

    /// Whether [`Kept::keep_up`] has something to do.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.drives.changes() != self.changes
    }

    /// Attaches the drives that came since the last call, and detaches those that left.
    ///
    /// # Errors
    /// The queue lacks what it needs for another drive; the next call tries again.
    #[cold]
    pub(crate) fn keep_up(&mut self, queue: &mut dyn ReadQueue) -> io::Result<()> {
        let changes = self.drives.changes();
        for (number, place) in self.drives.places().enumerate() {
            if number == self.detached.len() {
                queue.attach(place.drive)?;
                self.detached.push(false);
            }
            if place.has_left && !self.detached[number] {
                queue.detach(number);
                self.detached[number] = true;
            }
        }
        self.changes = changes;
        Ok(())
    }

    pub(crate) fn drives(&self) -> &Arc<Drives> {
        &self.drives
    }

    /// Drives that the queue has or had.
    pub(crate) fn len(&self) -> usize {
        self.detached.len()
    }
}

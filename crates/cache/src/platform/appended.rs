//! A list that grows while it is read: what was appended stays where it is, and readers take no lock.

use crate::platform::lock::lock;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Values that are read as a slice and never removed; a fixed number at most.
pub(crate) struct Appended<T> {
    /// The first [`Appended::len`] are values.
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    len: AtomicUsize,
    /// Held while one is appended. No other lock is taken under it.
    appending: Mutex<()>,
}

// SAFETY: a place is written once, by the thread that has the lock, before `len` shows it; from then on it is only read.
unsafe impl<T: Send + Sync> Sync for Appended<T> {}
// SAFETY: the values go with the list.
unsafe impl<T: Send> Send for Appended<T> {}

impl<T> Appended<T> {
    /// These values, and room for more up to `most`; at least for these.
    pub(crate) fn new(values: impl IntoIterator<Item = T>, most: usize) -> Self {
        let values: Vec<T> = values.into_iter().collect();
        let empty = || UnsafeCell::new(MaybeUninit::uninit());
        let list = Self {
            places: (0..most.max(values.len())).map(|_| empty()).collect(),
            len: AtomicUsize::new(0),
            appending: Mutex::default(),
        };
        for value in values {
            let _ = list.append(value);
        }
        list
    }

    /// Appends a value and returns its number.
    ///
    /// # Errors
    /// There is no room; the value comes back.
    pub(crate) fn append(&self, value: T) -> Result<usize, T> {
        let _one = lock(&self.appending);
        let at = self.len.load(Ordering::Relaxed);
        let Some(place) = self.places.get(at) else { return Err(value) };
        // SAFETY: no reader looks at places from `len` on, and no other thread appends.
        unsafe { (*place.get()).write(value) };
        self.len.store(at + 1, Ordering::Release);
        Ok(at)
    }
}

impl<T> Default for Appended<T> {
    /// An empty list without room.
    fn default() -> Self {
        Self::new([], 0)
    }
}

impl<T> Deref for Appended<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        let len = self.len.load(Ordering::Acquire);
        // SAFETY: the first `len` were written before `len` was stored, and nothing writes to them again; a cell of a maybe
        // uninitialized value has the layout of the value.
        unsafe { slice::from_raw_parts(self.places.as_ptr().cast(), len) }
    }
}

impl<T> Drop for Appended<T> {
    fn drop(&mut self) {
        let len = *self.len.get_mut();
        for place in &mut self.places[..len] {
            // SAFETY: it was written, and is dropped once.
            unsafe { place.get_mut().assume_init_drop() };
        }
    }
}

impl<'l, T> IntoIterator for &'l Appended<T> {
    type Item = &'l T;
    type IntoIter = slice::Iter<'l, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn values_stay_where_they_are_and_are_dropped_once() {
        let value = Arc::new(7);
        let list = Appended::new([Arc::clone(&value)], 3);
        let first: *const Arc<i32> = &list[0];
        assert_eq!(
            [list.append(Arc::clone(&value)), list.append(Arc::clone(&value))],
            [Ok(1), Ok(2)]
        );
        assert!(list.append(Arc::clone(&value)).is_err(), "no room");
        assert_eq!((list.len(), &list[0] as *const _), (3, first));
        assert_eq!(Arc::strong_count(&value), 4);
        drop(list);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn readers_see_whole_values_while_others_are_appended() {
        let list = Appended::new([], 200);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200).for_each(|at| _ = list.append(vec![at; 3])));
            while list.len() < 200 {
                for (at, value) in list.iter().enumerate() {
                    assert_eq!(*value, [at; 3]);
                }
            }
        });
    }
}

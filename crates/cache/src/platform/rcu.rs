//! A value that readers see without a lock and that its owner replaces as a whole (read, copy, update).

use crate::platform::quiesce::Guard;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Holds one `T`. Readers need a [`Guard`]. The caller of [`Rcu::replace`] gets the old value and must keep it until
/// every reader has passed a quiescent point ([`crate::platform::quiesce::Quiesce::retire`]).
pub(crate) struct Rcu<T>(AtomicPtr<T>);

impl<T> Rcu<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(value))))
    }

    pub(crate) fn load<'g>(&'g self, _guard: Guard<'g>) -> &'g T {
        // SAFETY: the pointer came from a `Box`. Only the holder of the `Box` that `replace` returned frees it, after
        // the end of every guard that could have seen it.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// The value, which no other thread can see.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: the pointer came from a `Box`; `&mut self`: there is no reader.
        unsafe { &mut **self.0.get_mut() }
    }

    /// Puts `value` in place and returns the old one, which readers may still hold.
    pub(crate) fn replace(&self, value: T) -> Box<T> {
        let old = self.0.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: every pointer in the cell came from `Box::into_raw`, and each leaves it once.
        unsafe { Box::from_raw(old) }
    }
}

impl<T> Drop for Rcu<T> {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no reader is left.
        drop(unsafe { Box::from_raw(*self.0.get_mut()) });
    }
}

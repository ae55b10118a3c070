//! Crash points: a simulator examines what a crash there would leave. Without the feature `crash-points` they are
//! empty.

#[cfg(feature = "crash-points")]
mod hook {
    use std::cell::RefCell;

    type Hook = Box<dyn FnMut(&'static str)>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// Calls `hook` with the name of every crash point that this thread passes; `None` ends that. The hook must not
    /// call the cache.
    pub fn set_crash_hook(hook: Option<Hook>) {
        HOOK.with(|cell| *cell.borrow_mut() = hook);
    }

    pub(crate) fn crash_point(name: &'static str) {
        HOOK.with(|cell| {
            if let Some(hook) = cell.borrow_mut().as_mut() {
                hook(name);
            }
        });
    }
}

#[cfg(feature = "crash-points")]
pub(crate) use hook::crash_point;
#[cfg(feature = "crash-points")]
pub use hook::set_crash_hook;

/// A point at which a crash is worth simulating.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn crash_point(_name: &'static str) {}

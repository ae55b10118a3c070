//! What workers count. One table names every counter; `stats` and its documentation come from it.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread counts up and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Only the owning worker calls this, which is why no locked instruction is needed.
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($name:ident)*) => {
        /// The counters of one worker, named as `stats` shows them; on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        /// The counters of all workers, added up.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Totals { $(pub(crate) $name: u64,)* }

        impl Totals {
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.get();)*
            }

            pub(crate) fn subtract(&mut self, earlier: &Self) {
                $(self.$name -= earlier.$name.min(self.$name);)*
            }
        }
    };
}

counters! {
    cmd_get cmd_set cmd_flush cmd_touch cmd_meta
    get_hits get_misses get_extstore miss_from_extstore
    delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits
    cas_misses cas_hits cas_badval touch_hits touch_misses
    store_too_large store_no_memory read_buf_oom idle_kicks conn_yields auth_cmds auth_errors
    bytes_read bytes_written recovery_refused
}

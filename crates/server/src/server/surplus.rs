//! Memory that is only kept for later: workers keep buffers, and the allocator what they freed. It goes back once the
//! process has more than it may.

use super::shared::{Shared, resident_bytes};
use crate::settings::BESIDES_BYTES_MAX;
use std::time::{Duration, Instant};
use terrace_device::give_heap_back;

/// How often the process is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For so long after that: what could not be given back is in use.
const REST: Duration = Duration::from_secs(5);
/// What there may be besides the cache and the connections: less than what is promised, by what comes between two
/// looks.
const BESIDES_BYTES: u64 = BESIDES_BYTES_MAX / 4 * 3;
/// How often workers are asked: the first time they only note what they have not used.
const ROUNDS: u32 = 2;

/// What is under way.
#[derive(Default)]
pub(super) struct Surplus {
    /// When to look again.
    next: Option<Instant>,
    /// How often workers were asked.
    asked: u32,
}

impl Surplus {
    /// To be called every so often.
    pub(super) fn look(&mut self, shared: &Shared) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + LOOK_EVERY);
        if shared.memory.is_tight() {
            shared.inboxes.iter().for_each(|inbox| inbox.ask_for_memory());
        } else if self.asked == ROUNDS {
            give_heap_back();
            self.asked = 0;
            self.next = Some(now + REST);
        } else if self.asked > 0 || is_there(shared) {
            shared.inboxes.iter().for_each(|inbox| inbox.ask_for_memory());
            self.asked += 1;
        }
    }
}

fn is_there(shared: &Shared) -> bool {
    let connections = shared.memory.held();
    resident_bytes() > shared.cache.memory_limit() + connections + BESIDES_BYTES
}

//! Tiers that are drained, drained no more, and removed while the cache runs.

use crate::context::Context;
use crate::members::Members;
use std::sync::Arc;
use terrace_cache::{Cache, DrainMode, Remove};

/// Drains a tier, cancels that, or removes a tier.
pub(crate) fn manage(cache: &Arc<Cache>, cx: &mut Context, members: &mut Members) {
    let tier = cx.random.below(cx.devices.len() as u64) as usize;
    match cx.random.below(8) {
        0..4 => {
            let mode = cx.random.pick(&[DrainMode::KeepAll, DrainMode::DropOldest]);
            let begun = cache.drain(tier, mode, cx.now).is_ok();
            cx.note("drains a tier", tier as u64, begun.into());
        }
        4 => {
            let cancelled = cache.cancel_drain(tier);
            cx.note("cancels a drain", tier as u64, cancelled.into());
        }
        how => {
            let how = if how == 5 { Remove::WithRecords } else { Remove::IfEmpty };
            let removed = cache.remove(tier, how).is_ok();
            cx.note("removes a tier", tier as u64, removed.into());
            if !removed {
                return;
            }
            if how == Remove::WithRecords {
                cx.oracle.after_a_lost_drive();
                cx.has_lost = true;
            }
            cx.tally.removals += 1;
            match cx.crash.has_struck() {
                true => members.die_in_a_removal(tier),
                false => members.remove(tier),
            }
        }
    }
}

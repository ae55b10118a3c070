//! Tiers that are added, drained, drained no more, and removed while the cache runs.

use crate::connection::Connection;
use crate::context::Context;
use crate::members::{Members, new_drive};
use std::sync::Arc;
use terrace_cache::{Cache, DrainMode, NewTier, Remove, WriteRate};
use terrace_device::Drive;

/// Adds a new drive.
pub(crate) fn join(
    cache: &Arc<Cache>,
    connections: &mut [Connection],
    cx: &mut Context,
    members: &mut Members,
) {
    if !members.have_room() {
        return;
    }
    let unit = members.next();
    let device = Arc::new(new_drive(&cx.scenario, unit, &mut cx.random));
    let drive = Arc::clone(&device) as Arc<dyn Drive>;
    let tier = NewTier {
        device: Arc::clone(&drive),
        write_rate: WriteRate::Unlimited,
        may_overwrite: false,
    };
    let mut has_number = false;
    let joined = cache.join(&tier, |_| {
        members.plug_in();
        cx.crash.join(Arc::clone(&device));
        cx.devices.push(Arc::clone(&device));
        connections.iter_mut().for_each(|connection| connection.attach(Arc::clone(&drive)));
        has_number = true;
    });
    cx.note("adds a tier", unit as u64, joined.is_ok().into());
    match joined {
        _ if cx.crash.has_struck() && has_number => members.die_in_a_join(unit),
        _ if cx.crash.has_struck() => {}
        Ok(_) => {
            cx.tally.joins += 1;
            members.join(unit);
        }
        Err(_) => {}
    }
}

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

//! Brings a server to where it will stay: full, and reclaiming as much as it is given.

use crate::drives::Drives;
use crate::{End, LoadError, Plan, Popularity, Process, Workload, run};
use std::collections::VecDeque;
use std::time::Duration;

/// Parts that the records are overwritten in, between looks at the server's counters.
const PARTS: u64 = 10;
/// As many parts must have the same write amplification, apart by at most this share of it.
const ALIKE: usize = 4;
const APART: f64 = 0.1;
/// All records are overwritten at most so often.
const PASSES_MAX: u64 = 8;

/// Stores every record of `plan`, and overwrites them until the drives were written once over and the
/// bytes written per byte stored stay the same; a server without drives is only filled. Gives back
/// the write amplification in the end, if it became steady.
///
/// # Errors
/// As [`run`].
pub(crate) fn precondition(
    plan: &Plan,
    server: Option<&Process>,
) -> Result<Option<f64>, LoadError> {
    let fill = filling(plan);
    run(&fill, server)?;
    let Some(mut before) = Drives::of(plan)? else { return Ok(None) };
    let part = (plan.records / PARTS).max(1);
    let workload = Workload::Overwrite(Popularity::Uniform);
    let overwrite = Plan { workload, end: End::Requests(part), ..fill };
    let mut recent = VecDeque::new();
    for round in 0..PASSES_MAX * PARTS {
        run(&Plan { seed: plan.seed.wrapping_add(round + 1), ..overwrite.clone() }, server)?;
        let Some(now) = Drives::of(plan)? else { return Ok(None) };
        recent.push_back((now.written - before.written) as f64);
        before = now;
        if recent.len() > ALIKE {
            recent.pop_front();
        }
        if now.written > now.capacity && recent.len() == ALIKE && are_alike(&recent) {
            let stored = part as f64 * plan.sizes.mean();
            return Ok(Some(recent.iter().sum::<f64>() / recent.len() as f64 / stored));
        }
    }
    Ok(None)
}

/// Stores each record of `plan` once.
pub(crate) fn filling(plan: &Plan) -> Plan {
    Plan {
        workload: Workload::Fill,
        end: End::Requests(plan.records),
        rate: None,
        back_end: None,
        keys_per_get: 1,
        warm_up: Duration::ZERO,
        window: None,
        ..plan.clone()
    }
}

fn are_alike(values: &VecDeque<f64>) -> bool {
    let (least, most) = values.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), &value| {
        (least.min(value), most.max(value))
    });
    most > 0.0 && most - least <= APART * most
}

//! How much of a drive becomes a tier. A larger tier takes more DRAM for buffers, a smaller one writes more.

use crate::show::bytes as scaled;
use crate::{Data, Layout, LeastMemory, Node, PlanError, TierSize};

const MIB: f64 = (1_u64 << 20) as f64;
const GIB: f64 = (1_u64 << 30) as f64;
/// From so many bytes on, tiers are whole GiB; smaller ones are whole MiB.
const WHOLE_GIB: f64 = 16.0 * GIB;
/// The smallest tier that is proposed.
const LEAST: f64 = 64.0 * MIB;
/// An item takes no more of a tier than this.
const ITEM_SHARE: f64 = 1.0 / 16.0;
/// Room beside what the records take: the model is that exact.
const MARGIN: f64 = 1.05;
/// A tier that leaves so little of its drive is all of it.
const ALMOST: f64 = 0.95;
/// Steps in which a tier grows until its drive bears what is written.
const STEP: f64 = 1.25;

/// Refuses memory that is too little for any tier, and for the one that is asked for.
pub(crate) fn check(node: &Node) -> Result<(), PlanError> {
    let bytes = match node.tier {
        TierSize::Bytes(bytes) => bytes,
        TierSize::Needed | TierSize::Whole => LEAST.min(node.drive.capacity_bytes),
    };
    let (memory, drives) = ((node.memory_bytes / MIB) as u64, node.drives);
    let LeastMemory { starts, .. } = LeastMemory::of(bytes, node)?;
    if starts <= memory {
        return Ok(());
    }
    Err(PlanError::Input(format!(
        "{memory} MiB of DRAM are too little for {drives:.0} x {} of flash; give at least -m {starts}",
        scaled(bytes)
    )))
}

/// Bytes of a drive that can be a tier, with the memory that there is.
pub(crate) fn largest(node: &Node) -> f64 {
    let drive = node.drive.capacity_bytes;
    let usable = LeastMemory::usable(node);
    if usable < drive { round(usable, f64::floor) } else { drive }
}

/// Bytes of each drive for so many records on a node.
pub(crate) fn needed(
    data: &Data,
    node: &Node,
    records: f64,
    largest: f64,
) -> Result<f64, PlanError> {
    let least = LEAST.max(data.payload_bytes() / ITEM_SHARE / node.drives).min(largest);
    let mut bytes = largest;
    // Segments, and so what pages and footers take, follow from the size.
    for _ in 0..3 {
        let layout = Layout::new(data, bytes * node.drives, node.memory_bytes)?;
        let all = layout.flash_for(records, node.tier_full) * MARGIN;
        bytes = (all / node.drives).clamp(least, largest);
    }
    Ok(whole(bytes, largest))
}

/// The next larger tier.
pub(crate) fn next(bytes: f64, largest: f64) -> f64 {
    whole(bytes * STEP, largest)
}

fn whole(bytes: f64, largest: f64) -> f64 {
    let bytes = round(bytes, f64::ceil);
    if bytes >= largest * ALMOST { largest } else { bytes }
}

fn round(bytes: f64, to: fn(f64) -> f64) -> f64 {
    let unit = if bytes < WHOLE_GIB { MIB } else { GIB };
    to(bytes / unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_have_whole_units_and_leave_no_scraps() {
        assert_eq!(whole(100.5 * MIB, GIB), 101.0 * MIB);
        assert_eq!(whole(100.5 * GIB, 1e12), 101.0 * GIB);
        assert_eq!(whole(960e9, 1e12), 1e12);
        assert_eq!(next(100.0 * GIB, 1e12), 125.0 * GIB);
        assert_eq!(next(900e9, 1e12), 1e12);
    }
}

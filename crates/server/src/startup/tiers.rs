//! The drives (`--tier`), and how they are read.

use super::Failure;
use std::sync::Arc;
use terrace::settings::{IoEngine, Settings, display_bytes};
use terrace_device::{Device, FileDevice, Opened, open_queue};

/// The opened drives and what the operator should know of each.
pub(crate) struct Tiers {
    pub(crate) devices: Vec<Arc<dyn Device>>,
    pub(crate) lines: Vec<String>,
}

/// Opens and locks every drive.
pub(crate) fn open(settings: &Settings) -> Result<Tiers, Failure> {
    let mut tiers = Tiers { devices: Vec::new(), lines: Vec::new() };
    for spec in &settings.tiers {
        let device = FileDevice::open_unless(&spec.path, spec.bytes, &terrace_cache::is_foreign)
            .map_err(Failure::system)?;
        let size = display_bytes(device.geometry().bytes);
        let below = if spec.is_below && !tiers.devices.is_empty() { ", below" } else { "" };
        tiers.lines.push(format!("tier ssd: {}, {size}{below}", device.label()));
        tiers.lines.extend(device.notes().iter().map(|note| format!("  note: {note}")));
        if let Some(depth) = spec.read_depth {
            tiers.lines.push(format!("  profile: {depth} reads in flight to begin with"));
        }
        tiers.devices.push(Arc::new(device));
    }
    if !tiers.devices.is_empty() {
        tiers.lines.push(engine(settings.io_engine, &tiers.devices)?);
    }
    Ok(tiers)
}

/// Tries the engine that the workers are going to use, and says which it is.
fn engine(wanted: IoEngine, devices: &[Arc<dyn Device>]) -> Result<String, Failure> {
    match open_queue(devices, wanted, 1) {
        Ok(Opened { engine, fallback: None, .. }) => Ok(format!("I/O engine: {engine}")),
        Ok(Opened { engine, fallback: Some(error), .. }) => {
            Ok(format!("I/O engine: {engine}, because io_uring is not to be had: {error}"))
        }
        Err(error) => Err(Failure::system(format!(
            "--io-engine {wanted}: {error}; write pool, or auto for whatever works"
        ))),
    }
}

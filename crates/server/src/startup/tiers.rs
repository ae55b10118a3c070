//! The drives (`--tier`), and how they are read.

use super::Failure;
use std::fs;
use std::io::Read;
use std::sync::Arc;
use terrace::log;
use terrace::settings::{IoEngine, OnMismatch, Settings, TierSpec, display_bytes};
use terrace_cache::{FIRST_PAGE, Note, is_member};
use terrace_device::{Drive, FileDevice, WorkerQueue};
use terrace_runtime::created::Created;
use terrace_runtime::in_background;
use tracing::info;

/// The opened drives and what the operator should know of each.
pub(crate) struct Tiers {
    pub(crate) devices: Vec<Arc<dyn Drive>>,
    /// The same for the cache's own work, which waits for its transfers.
    pub(crate) in_background: Vec<Arc<dyn Drive>>,
    pub(crate) lines: Vec<Note>,
}

/// Opens and locks every drive; so many threads are to work with each in the background.
pub(crate) fn open(
    settings: &Settings,
    background_threads: usize,
    created: &mut Created,
) -> Result<Tiers, Failure> {
    let mut tiers = Tiers { devices: Vec::new(), in_background: Vec::new(), lines: Vec::new() };
    for spec in &settings.tiers {
        let had = file_bytes(spec);
        match settings.on_mismatch {
            OnMismatch::Refuse => refuse_growth(spec, had)?,
            OnMismatch::Cold => log::notes(&cost_of_growth(spec, had)),
        }
        if let Some(bytes) = spec.bytes.filter(|&bytes| bytes > had) {
            let (path, bytes) = (spec.path.display(), display_bytes(bytes));
            info!("tier {path}: reserving {bytes} of its file system");
        }
        let is_foreign = &terrace_cache::is_foreign;
        let open = || FileDevice::open_unless(&spec.path, spec.bytes, is_foreign);
        let device = created.by(&spec.path, open).map_err(Failure::system)?;
        let label = device.label().to_owned();
        let size = display_bytes(device.geometry().bytes);
        let below = if spec.is_below && !tiers.devices.is_empty() { ", below" } else { "" };
        let mut note = |text: String| tiers.lines.push(Note::Info(format!("tier {label}: {text}")));
        note(format!("ssd, {size}{below}"));
        device.notes().iter().for_each(|text| note(text.clone()));
        if let Some(bytes) = spec.bytes.filter(|&bytes| bytes < had) {
            let (had, unused) = (display_bytes(had), display_bytes(had - bytes));
            note(format!("the file takes {had}, of which {unused} are not used"));
        }
        if let Some(depth) = spec.read_depth {
            note(format!("profile: {depth} reads in flight to begin with"));
        }
        let device: Arc<dyn Drive> = Arc::new(device);
        let timed =
            in_background(&device, settings.durability, background_threads, settings.io_engine)
                .map_err(|error| Failure::system(format!("a thread for the drive: {error}")))?;
        tiers.in_background.push(timed);
        tiers.devices.push(device);
    }
    if !tiers.devices.is_empty() {
        tiers.lines.push(engine(settings.io_engine, &tiers.devices)?);
    }
    Ok(tiers)
}

/// Bytes of the file before it is opened; 0 for a new one, and for a block device.
fn file_bytes(spec: &TierSpec) -> u64 {
    fs::metadata(&spec.path).ok().filter(fs::Metadata::is_file).map_or(0, |file| file.len())
}

/// A longer file is no longer what it was when it was written, and could not be recovered.
fn refuse_growth(spec: &TierSpec, had: u64) -> Result<(), Failure> {
    match spec.bytes {
        Some(bytes) if had > 0 && bytes > had => Err(Failure::system(format!(
            "{}: has {}, {} are asked for, and --on-mismatch refuse leaves it as it is; leave the size out",
            spec.path.display(),
            display_bytes(had),
            display_bytes(bytes)
        ))),
        _ => Ok(()),
    }
}

/// The same as a warning, where what the file holds may go.
fn cost_of_growth(spec: &TierSpec, had: u64) -> Option<Note> {
    let bytes = spec.bytes.filter(|&bytes| bytes > had)?;
    let mut page = [0; FIRST_PAGE];
    fs::File::open(&spec.path).ok()?.read_exact(&mut page).ok()?;
    is_member(&page).then(|| {
        Note::Warning(format!(
            "tier {}: grows from {} to {}; this start erases what the tiers hold; to keep that, leave the size out",
            spec.path.display(),
            display_bytes(had),
            display_bytes(bytes)
        ))
    })
}

/// The flags that give the tiers in the order of their set: each with its size, and as far below as it was given, or its
/// place was where else the first one would be below another.
pub(crate) fn in_order(tiers: &[TierSpec], order: &[usize]) -> String {
    let is_first_below = order.first().is_some_and(|&at| tiers[at].is_below);
    let flag = |(place, &at): (usize, &usize)| {
        let TierSpec { path, bytes, is_below, .. } = &tiers[at];
        let size = bytes.map(|bytes| format!(":{}", size_flag(bytes))).unwrap_or_default();
        let is_below = if is_first_below { tiers[place].is_below } else { *is_below };
        let below = if is_below { ",below" } else { "" };
        format!("--tier ssd:{}{size}{below}", path.display())
    };
    order.iter().enumerate().map(flag).collect::<Vec<_>>().join(" ")
}

/// A size as `--tier` takes it.
fn size_flag(bytes: u64) -> String {
    let units = [(30, "g"), (20, "m"), (10, "k")];
    let unit = units.iter().find(|(bits, _)| bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| bytes.to_string(), |(bits, name)| format!("{}{name}", bytes >> bits))
}

/// Tries the engine that the workers are going to use, and says which it is.
fn engine(wanted: IoEngine, devices: &[Arc<dyn Drive>]) -> Result<Note, Failure> {
    match WorkerQueue::open(devices, wanted, 1) {
        Ok(queue) => {
            let engine = if queue.uses_io_uring() { IoEngine::IoUring } else { IoEngine::Pool };
            Ok(match queue.fallback() {
                None => Note::Info(format!("I/O engine: {engine}")),
                Some(error) => Note::Warning(format!(
                    "I/O engine: {engine}, since io_uring can't be had: {error}"
                )),
            })
        }
        Err(error) => Err(Failure::system(format!(
            "--io-engine {wanted}: {error}; write pool, or auto for whatever works"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_another_order_can_be_copied() {
        let tier = |path: &str, bytes, is_below| TierSpec {
            path: path.into(),
            bytes,
            read_depth: None,
            is_below,
        };
        let [a, b] = [tier("/a", Some(400 << 30), false), tier("/b", Some(1000), false)];
        assert_eq!(in_order(&[a.clone(), b], &[1, 0]), "--tier ssd:/b:1000 --tier ssd:/a:400g");
        let below = |path| tier(path, None, true);
        assert_eq!(
            in_order(&[a.clone(), below("/b")], &[1, 0]),
            "--tier ssd:/b --tier ssd:/a:400g,below"
        );
        assert_eq!(in_order(&[below("/b"), a], &[1, 0]), "--tier ssd:/a:400g --tier ssd:/b,below");
    }
}

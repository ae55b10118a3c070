//! The drives (`--tier`), and how they are read.

use super::Failure;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use terrace::settings::{IoEngine, Settings, TierSpec, display_bytes};
use terrace_cache::Note;
use terrace_device::{AbsentDrive, Drive, Reads, WorkerQueue};
use terrace_runtime::created::Created;
use terrace_runtime::in_background;
use terrace_runtime::place::{DriveError, OpenDrive, Place, open_drive};
use tracing::{info, warn};

/// The pause between two looks for a drive that is not there.
const TIER_NAP: Duration = Duration::from_millis(100);

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
    let had: Vec<_> = settings.tiers.iter().map(file_bytes).collect();
    for ((spec, device), had) in settings.tiers.iter().zip(open_all(settings, created)?).zip(had) {
        let is_below = spec.is_below && !tiers.devices.is_empty();
        let device: Arc<dyn Drive> = match device {
            Ok(device) => {
                let notes = describe(spec, &device, had, is_below);
                tiers.lines.extend(notes.into_iter().map(Note::Info));
                device.drive
            }
            Err(absence) => Arc::new(absence),
        };
        let timed =
            in_background(&device, settings.durability, background_threads, settings.io_engine)
                .map_err(|error| Failure::system(format!("a thread for the drive: {error}")))?;
        tiers.in_background.push(timed);
        tiers.devices.push(device);
    }
    if !tiers.devices.is_empty() {
        tiers.lines.extend(engine(settings.io_engine, &tiers.devices)?);
    }
    Ok(tiers)
}

/// Opens every drive. One that is not there is waited for, where others are of a set that it may be a member of; if it
/// does not come, the start goes on without it.
fn open_all(
    settings: &Settings,
    created: &mut Created,
) -> Result<Vec<Result<OpenDrive, AbsentDrive>>, Failure> {
    let specs = &settings.tiers;
    let open_first = |spec: &TierSpec| {
        if let Some(bytes) = spec.bytes.filter(|&bytes| bytes > file_bytes(spec))
            && spec.place.path().is_some()
        {
            let (path, bytes) = (&spec.place, display_bytes(bytes));
            info!("tier {path}: reserving {bytes} of its file system");
        }
        Some(open_one(spec, created))
    };
    let mut opened: Vec<_> = specs.iter().map(open_first).collect();
    let is_absent = |opened: &Option<Result<_, DriveError>>| matches!(opened, Some(Err(error)) if error.is_absence());
    let has_set = opened.iter().flatten().flatten().any(is_of_a_set);
    let end = Instant::now() + Duration::from_secs(settings.tier_wait_s.into());
    if has_set && let Some(at) = opened.iter().position(is_absent) {
        if let (Some(Err(error)), path) = (&opened[at], &specs[at].place) {
            let seconds = settings.tier_wait_s;
            warn!("tier {path}: waiting up to {seconds} s for it (--tier-wait): {error}");
        }
        while opened.iter().any(is_absent) && Instant::now() < end {
            thread::sleep(TIER_NAP);
            for (opened, spec) in
                opened.iter_mut().zip(specs).filter(|(opened, _)| is_absent(opened))
            {
                *opened = Some(open_one(spec, created));
            }
        }
    }
    let taken = |(opened, spec): (Option<Result<OpenDrive, DriveError>>, &TierSpec)| match opened {
        Some(Ok(device)) => Ok(Ok(device)),
        Some(Err(error)) if has_set && error.is_absence() => {
            let (path, error) = (spec.place.to_string(), error.to_string());
            let reason = error.strip_prefix(&path).unwrap_or(&error);
            Ok(Err(AbsentDrive::new(path, reason.trim_start_matches([':', ' ']).to_owned())))
        }
        Some(Err(error)) => Err(Failure::system(error)),
        None => Err(Failure::system("a tier is missing")),
    };
    opened.into_iter().zip(specs).map(taken).collect()
}

fn open_one(spec: &TierSpec, created: &mut Created) -> Result<OpenDrive, DriveError> {
    open_drive(&spec.place, spec.bytes, created)
}

/// Whether a cache has used the drive.
fn is_of_a_set(device: &OpenDrive) -> bool {
    terrace_cache::is_member(device.drive.as_ref())
}

/// What the operator should know of a drive; `had` are the bytes of its file before.
fn describe(spec: &TierSpec, device: &OpenDrive, had: u64, is_below: bool) -> Vec<String> {
    let label = device.drive.label();
    let below = if is_below { ", below" } else { "" };
    let size = display_bytes(device.drive.geometry().bytes);
    let kind = match spec.place {
        Place::Local(_) => "ssd",
        Place::Remote(_) => "nvme-tcp",
    };
    let mut notes = vec![format!("{kind}, {size}{below}")];
    notes.extend(device.notes.iter().cloned());
    if let Some(bytes) = spec.bytes.filter(|&bytes| bytes < had) {
        let (had, unused) = (display_bytes(had), display_bytes(had - bytes));
        notes.push(format!("the file takes {had}, of which {unused} are not used"));
    }
    if let Some(depth) = spec.read_depth {
        notes.push(format!("profile: {depth} reads in flight to begin with"));
    }
    notes.into_iter().map(|note| format!("tier {label}: {note}")).collect()
}

/// Bytes of the file before it is opened; 0 for a new one, and for a block device.
fn file_bytes(spec: &TierSpec) -> u64 {
    let metadata = spec.place.path().and_then(|path| fs::metadata(path).ok());
    metadata.filter(fs::Metadata::is_file).map_or(0, |file| file.len())
}

/// Tries the engine that the workers are going to use, and says which it is; remote drives need none.
fn engine(wanted: IoEngine, devices: &[Arc<dyn Drive>]) -> Result<Option<Note>, Failure> {
    if !devices.iter().any(|device| matches!(device.reads(), Reads::Ring(_) | Reads::Threads)) {
        return Ok(None);
    }
    match WorkerQueue::open(devices, wanted, 1) {
        Ok(queue) => {
            let engine = if queue.uses_io_uring() { IoEngine::IoUring } else { IoEngine::Pool };
            Ok(Some(match queue.fallback() {
                None => Note::Info(format!("I/O engine: {engine}")),
                Some(error) => Note::Warning(format!(
                    "I/O engine: {engine}, since io_uring can't be had: {error}"
                )),
            }))
        }
        Err(error) => Err(Failure::system(format!(
            "--io-engine {wanted}: {error}; write pool, or auto for whatever works"
        ))),
    }
}

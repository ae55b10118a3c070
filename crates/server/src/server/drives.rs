//! Asks NVMe drives now and then how much they write for what they are sent, so that write budgets and
//! the years that a drive will live count that too.

use crate::settings::TierSpec;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use terrace_cache::Cache;
use terrace_device::Wear;
use tracing::info;

const ASK_EVERY: Duration = Duration::from_secs(600);
/// What a drive did of late counts once it was sent so much since; before that, its whole life does.
const ENOUGH_BYTES: u128 = 16 << 30;

/// The drives of all tiers, and what each said last; nothing of those that say nothing.
pub(super) struct Drives {
    drives: Arc<[(PathBuf, Mutex<Option<Wear>>)]>,
    asked: Option<Instant>,
    asking: Option<JoinHandle<()>>,
}

impl Drives {
    pub(super) fn new(tiers: &[TierSpec]) -> Self {
        let drives = tiers.iter().map(|tier| (tier.path.clone(), Mutex::new(None))).collect();
        Self { drives, asked: None, asking: None }
    }

    /// To be called every so often. A drive may take long to answer, so that a thread waits for it.
    pub(super) fn ask(&mut self, cache: &Arc<Cache>) {
        let is_due = self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        let is_asking = self.asking.as_ref().is_some_and(|thread| !thread.is_finished());
        if self.drives.is_empty() || !is_due || is_asking {
            return;
        }
        self.asked = Some(Instant::now());
        let (drives, cache) = (Arc::clone(&self.drives), Arc::clone(cache));
        let ask = move || {
            for (tier, (path, known)) in drives.iter().enumerate() {
                // Without the rights to ask, the drive says nothing.
                let Ok(Some(wear)) = Wear::of(path) else { continue };
                note(&cache, tier, wear, &mut known.lock().unwrap_or_else(PoisonError::into_inner));
            }
        };
        self.asking = thread::Builder::new().name("drives".into()).spawn(ask).ok();
    }
}

fn note(cache: &Cache, tier: usize, wear: Wear, known: &mut Option<Wear>) {
    let factor = match known {
        None => wear.amplification(),
        Some(earlier) => wear.amplification_since(earlier, ENOUGH_BYTES),
    };
    if known.is_none() {
        let writes = match factor {
            Some(factor) => format!("writes {factor:.2} bytes per byte that it is sent"),
            None => "does not say how much it writes for what it is sent".to_owned(),
        };
        let used = wear.used_percent;
        info!("tier {tier}: the drive has used {used} % of its endurance and {writes}");
    }
    if let Some(factor) = factor {
        cache.set_amplification(tier, factor);
    }
    if known.is_none() || factor.is_some() {
        *known = Some(wear);
    }
}

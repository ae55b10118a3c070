//! Asks NVMe drives now and then how much they write for what they are sent, so that write budgets and
//! the years that a drive will live count that too.

use super::shared::Shared;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use terrace_cache::Cache;
use terrace_device::Wear;
use tracing::info;

const ASK_EVERY: Duration = Duration::from_secs(600);
/// What a drive did of late counts once it was sent so much since; before that, its whole life does.
const ENOUGH_BYTES: u128 = 16 << 30;

/// What the drive of each tier said last; nothing of those that say nothing.
#[derive(Default)]
pub(super) struct Drives {
    known: Arc<Mutex<Vec<Option<Wear>>>>,
    asked: Option<Instant>,
    asking: Option<JoinHandle<()>>,
}

impl Drives {
    /// To be called every so often. A drive may take long to answer, so that a thread waits for it.
    pub(super) fn ask(&mut self, shared: &Shared) {
        let is_due = self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        let is_asking = self.asking.as_ref().is_some_and(|thread| !thread.is_finished());
        if shared.settings.tiers.is_empty() || !is_due || is_asking {
            return;
        }
        self.asked = Some(Instant::now());
        let (known, cache) = (Arc::clone(&self.known), Arc::clone(&shared.cache));
        let tiers = shared.tier_specs();
        let ask = move || {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.resize(tiers.len(), None);
            for (tier, (spec, known)) in tiers.iter().zip(known.iter_mut()).enumerate() {
                // Without the rights to ask, the drive says nothing.
                let wear = spec.place.path().map(Wear::of);
                let Some(Ok(Some(wear))) = wear else { continue };
                note(&cache, tier, wear, known);
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

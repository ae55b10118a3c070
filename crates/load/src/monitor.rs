//! Watches a run: what the server and the generator have used at the start of each window, and how
//! far it is.

use crate::plan::{End, Plan};
use crate::process::{OwnTime, Process, Usage};
use crate::progress::Progress;
use crate::slots::{Slots, nanos};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(20);

/// What was used until a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) server: Option<Usage>,
    pub(crate) own: OwnTime,
    /// From the run's start.
    pub(crate) at: Duration,
}

impl Sample {
    pub(crate) fn take(server: Option<&Process>, start: Instant) -> Self {
        Self { server: server.map(Process::usage), own: OwnTime::now(), at: start.elapsed() }
    }
}

/// What threads and the monitor share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Requests answered.
    pub(crate) answered: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

/// The samples before a run: one, if its first window begins at once.
pub(crate) fn first(plan: &Plan, server: Option<&Process>, start: Instant) -> Vec<Sample> {
    let begins = Slots::of(plan).start(1) == 0;
    begins.then(|| Sample::take(server, start)).into_iter().collect()
}

/// Adds a sample at the start of each window, until the run is over.
pub(crate) fn watch(
    plan: &Plan,
    server: Option<&Process>,
    start: Instant,
    shared: &Shared,
    mut samples: Vec<Sample>,
) -> Vec<Sample> {
    let slots = Slots::of(plan);
    let mut progress = plan.progress.then(|| Progress::new(&plan.point()));
    loop {
        let is_over = shared.is_over.load(Ordering::Relaxed);
        let due = slots.start(samples.len() + 1);
        let now = nanos(start.elapsed());
        if now >= due && due < u64::MAX {
            samples.push(Sample::take(server, start));
        } else if is_over {
            return samples;
        } else {
            std::thread::sleep(NAP.min(Duration::from_nanos(due - now)));
        }
        if let Some(progress) = &mut progress {
            let answered = shared.answered.load(Ordering::Relaxed);
            let share = match plan.end {
                End::Requests(requests) => answered as f64 / requests.max(1) as f64,
                End::Time(time) => start.elapsed().as_secs_f64() / time.as_secs_f64(),
            };
            progress.show(share, answered);
        }
    }
}

//! The threads of a store, for background work of the cache.

use crate::error::OpenError;
use crate::opening::now;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use terrace_cache::Cache;

/// The shortest and the longest pause of a thread that found nothing to do.
const IDLE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

/// Running threads; they end when it is dropped.
pub(crate) struct Background {
    is_ending: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts as many threads as find something to do.
    pub(crate) fn start(cache: &Arc<Cache>) -> Result<Self, OpenError> {
        let mut background = Self { is_ending: Arc::default(), threads: Vec::new() };
        for number in 0..cache.background_threads() {
            let (cache, is_ending) = (Arc::clone(cache), Arc::clone(&background.is_ending));
            let thread = thread::Builder::new().name(format!("terrace-work-{number}"));
            let thread = thread.spawn(move || work(&cache, &is_ending));
            let system = |source| OpenError::System { what: "a thread", source };
            background.threads.push(thread.map_err(system)?);
        }
        Ok(background)
    }
}

fn work(cache: &Cache, is_ending: &AtomicBool) {
    let mut pause = IDLE.0;
    while !is_ending.load(Ordering::Relaxed) {
        match cache.maintain(now()) {
            true => pause = IDLE.0,
            false => {
                thread::park_timeout(pause);
                pause = (pause * 2).min(IDLE.1);
            }
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A panic there was reported where it happened, and the cache is as consistent as after any other.
            let _ = thread.join();
        }
    }
}

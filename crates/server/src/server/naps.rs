//! When background threads look for work: soon after they had some, every so often while there may be more, and
//! hardly ever else. There may be some for the first of them while there are requests, and for the others while the
//! first finds any.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// After work.
const NAP: Duration = Duration::from_millis(1);
/// Naps become longer and longer up to this, while there may be work; the write buffers outlast it.
const NAP_MAX: Duration = Duration::from_millis(16);
/// While there may be none; the first sign of some ends it.
const DOZE: Duration = Duration::from_millis(250);

/// There was a sign of work since the thread last napped.
const ACTIVE: u8 = 0;
/// There was none.
const QUIET: u8 = 1;
/// The thread is in a [`DOZE`].
const DOZING: u8 = 2;

/// The background threads' sleep, and what ends it.
#[derive(Debug)]
pub(crate) struct Naps(Box<[Bed]>);

/// That of one thread.
#[derive(Debug)]
struct Bed {
    thread: OnceLock<Thread>,
    signs: AtomicU8,
}

impl Naps {
    /// Of so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        let bed = || Bed { thread: OnceLock::new(), signs: AtomicU8::new(ACTIVE) };
        Self((0..threads).map(|_| bed()).collect())
    }

    /// The calling thread is the one of this number.
    pub(crate) fn begin(&self, number: usize) -> Nap<'_> {
        let bed = &self.0[number];
        bed.thread.get_or_init(thread::current);
        Nap { bed, next: NAP }
    }

    /// Ends all naps: there is work.
    pub(crate) fn end(&self) {
        self.0.iter().for_each(Bed::end);
    }

    /// A worker has something to do, so that there may be work before long.
    #[inline]
    pub(crate) fn note_activity(&self) {
        if let Some(first) = self.0.first() {
            first.note_sign();
        }
    }

    /// The thread of this number had work: where there is that much, there may be more.
    #[inline]
    pub(crate) fn note_work(&self, number: usize) {
        if number == 0 {
            self.0.iter().skip(1).for_each(Bed::note_sign);
        }
    }
}

impl Bed {
    fn end(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    #[inline]
    fn note_sign(&self) {
        // Written to only after a nap, since all workers share the line.
        if self.signs.load(Ordering::Relaxed) != ACTIVE
            && self.signs.swap(ACTIVE, Ordering::Relaxed) == DOZING
        {
            self.end();
        }
    }
}

/// How long the thread sleeps next.
pub(crate) struct Nap<'n> {
    bed: &'n Bed,
    next: Duration,
}

impl Nap<'_> {
    /// There was work.
    pub(crate) fn shorten(&mut self) {
        self.next = NAP;
    }

    /// There was none: sleeps until somebody ends it, or it is time to look again.
    pub(crate) fn take(&mut self) {
        let nap = self.choose();
        let signs = &self.bed.signs;
        let exchange =
            |from, to| signs.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        if nap < DOZE {
            thread::park_timeout(nap);
        } else if exchange(QUIET, DOZING).is_ok() {
            thread::park_timeout(nap);
            let _ = exchange(DOZING, QUIET);
        }
    }

    fn choose(&mut self) -> Duration {
        let nap = self.next;
        self.next = (nap * 2).min(NAP_MAX);
        let is_doze = nap == NAP_MAX && self.bed.signs.swap(QUIET, Ordering::Relaxed) != ACTIVE;
        if is_doze { DOZE } else { nap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn naps_become_longer_and_end_in_dozes_only_where_nothing_tells_of_work() {
        let naps = Naps::new(2);
        let mut nap = naps.begin(0);
        let mut chosen =
            |many: usize| -> Vec<u128> { (0..many).map(|_| nap.choose().as_millis()).collect() };
        assert_eq!(chosen(8), [1, 2, 4, 8, 16, 250, 250, 250], "there were signs at first");
        naps.note_activity();
        assert_eq!(chosen(2), [16, 250]);
        nap.shorten();
        let chosen: Vec<_> = (0..7)
            .map(|_| {
                naps.note_activity();
                nap.choose().as_millis()
            })
            .collect();
        assert_eq!(chosen, [1, 2, 4, 8, 16, 16, 16]);
    }

    #[test]
    fn the_others_doze_while_the_first_has_no_work() {
        let naps = Naps::new(2);
        let mut nap = naps.begin(1);
        let mut chosen = || {
            naps.note_activity();
            naps.note_work(1);
            nap.choose().as_millis()
        };
        assert_eq!([(); 7].map(|()| chosen()), [1, 2, 4, 8, 16, 250, 250]);
        naps.note_work(0);
        assert_eq!([(); 2].map(|()| chosen()), [16, 250]);
    }

    /// How long a doze of the thread of this number takes that `end` ends.
    fn doze(number: usize, end: fn(&Naps)) -> Duration {
        let naps = Arc::new(Naps::new(2));
        let shared = Arc::clone(&naps);
        let sleeper = thread::spawn(move || {
            let mut nap = shared.begin(number);
            while shared.0[number].signs.load(Ordering::Relaxed) != QUIET {
                nap.choose();
            }
            let start = Instant::now();
            nap.take();
            start.elapsed()
        });
        while naps.0[number].signs.load(Ordering::Relaxed) != DOZING {
            thread::yield_now();
        }
        end(&naps);
        sleeper.join().expect("no panic")
    }

    #[test]
    fn whoever_has_something_to_do_ends_a_doze() {
        // On a busy machine threads may sleep longer than they want to, but not each time.
        let ends = |number, end| assert!((0..20).any(|_| doze(number, end) < DOZE));
        ends(0, Naps::note_activity);
        ends(0, Naps::end);
        ends(1, |naps| naps.note_work(0));
        ends(1, Naps::end);
    }
}

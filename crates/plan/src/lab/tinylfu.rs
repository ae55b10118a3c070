//! W-TinyLFU (Einziger, Friedman and Manes, 2017) with a fixed window.

use super::list::{Links, List};
use super::{Answer, Object, Policy};
use terrace_policy::Sketch;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Window,
    Probation,
    Protected,
}

/// A window of 1 % that is least recently used; what leaves it replaces the oldest of the rest, a
/// segmented list, if it was requested more often.
pub(super) struct TinyLfu {
    window_room: usize,
    main_room: usize,
    protected_room: usize,
    links: Links,
    window: List,
    probation: List,
    protected: List,
    places: Vec<Place>,
    sketch: Sketch,
    requests: usize,
    written: u64,
}

impl TinyLfu {
    pub(super) fn new(room: usize, objects: usize) -> Self {
        let window_room = (room / 100).max(1);
        let main_room = room.saturating_sub(window_room).max(1);
        Self {
            window_room,
            main_room,
            protected_room: main_room * 4 / 5,
            links: Links::new(objects),
            window: List::new(),
            probation: List::new(),
            protected: List::new(),
            places: vec![Place::Nowhere; objects],
            // As Caffeine's: 16 counters per object held.
            sketch: Sketch::new(room * 8),
            requests: 0,
            written: 0,
        }
    }

    fn count(&mut self, object: Object) {
        self.sketch.add(object.into());
        self.requests += 1;
        if self.requests >= 10 * (self.window_room + self.main_room) {
            self.sketch.halve();
            self.requests /= 2;
        }
    }

    fn protect(&mut self, object: Object) {
        self.probation.remove(&mut self.links, object);
        self.protected.push(&mut self.links, object);
        self.places[object as usize] = Place::Protected;
        if self.protected.len > self.protected_room
            && let Some(oldest) = self.protected.pop(&mut self.links)
        {
            self.probation.push(&mut self.links, oldest);
            self.places[oldest as usize] = Place::Probation;
        }
    }

    fn admit(&mut self, candidate: Object) {
        if self.probation.len + self.protected.len >= self.main_room {
            let list =
                if self.probation.len > 0 { &mut self.probation } else { &mut self.protected };
            let Some(victim) = list.oldest() else { return };
            if self.sketch.estimate(candidate.into()) <= self.sketch.estimate(victim.into()) {
                self.places[candidate as usize] = Place::Nowhere;
                return;
            }
            list.remove(&mut self.links, victim);
            self.places[victim as usize] = Place::Nowhere;
        }
        self.probation.push(&mut self.links, candidate);
        self.places[candidate as usize] = Place::Probation;
        self.written += 1;
    }
}

impl Policy for TinyLfu {
    fn get(&mut self, object: Object) -> Answer {
        self.count(object);
        match self.places[object as usize] {
            Place::Window => {
                self.window.remove(&mut self.links, object);
                self.window.push(&mut self.links, object);
                return Answer::Dram;
            }
            Place::Probation => self.protect(object),
            Place::Protected => {
                self.protected.remove(&mut self.links, object);
                self.protected.push(&mut self.links, object);
            }
            Place::Nowhere => {
                self.window.push(&mut self.links, object);
                self.places[object as usize] = Place::Window;
                if self.window.len > self.window_room
                    && let Some(oldest) = self.window.pop(&mut self.links)
                {
                    self.admit(oldest);
                }
                return Answer::Miss;
            }
        }
        Answer::Flash
    }

    fn written(&self) -> u64 {
        self.written
    }
}

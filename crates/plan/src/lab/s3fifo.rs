//! S3-FIFO (Yang et al., SOSP 2023).

use super::{Answer, Object, Policy};
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Small,
    Main,
    /// Its value is gone.
    Ghost,
}

/// A small queue for what is new, a main queue for what was used there, and the names of what was not.
pub(super) struct S3Fifo {
    small_room: usize,
    main_room: usize,
    small: VecDeque<Object>,
    main: VecDeque<Object>,
    ghost: VecDeque<Object>,
    places: Vec<Place>,
    uses: Vec<u8>,
    written: u64,
}

impl S3Fifo {
    /// With this share of the room, in percent, for the small queue, which is taken to lie in DRAM.
    pub(super) fn new(room: usize, small_percent: usize, objects: usize) -> Self {
        let small_room = (room * small_percent / 100).max(1);
        Self {
            small_room,
            main_room: room.saturating_sub(small_room).max(1),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            places: vec![Place::Nowhere; objects],
            uses: vec![0; objects],
            written: 0,
        }
    }

    fn enter_main(&mut self, object: Object) {
        while self.main.len() >= self.main_room {
            let Some(oldest) = self.main.pop_front() else { break };
            let uses = &mut self.uses[oldest as usize];
            if *uses > 0 {
                *uses -= 1;
                self.main.push_back(oldest);
                self.written += 1;
            } else {
                self.places[oldest as usize] = Place::Nowhere;
            }
        }
        self.places[object as usize] = Place::Main;
        self.main.push_back(object);
        self.written += 1;
    }

    fn enter_small(&mut self, object: Object) {
        if self.small.len() >= self.small_room
            && let Some(oldest) = self.small.pop_front()
        {
            if self.uses[oldest as usize] > 1 {
                self.uses[oldest as usize] = 0;
                self.enter_main(oldest);
            } else {
                self.enter_ghost(oldest);
            }
        }
        self.places[object as usize] = Place::Small;
        self.small.push_back(object);
    }

    fn enter_ghost(&mut self, object: Object) {
        self.places[object as usize] = Place::Ghost;
        self.ghost.push_back(object);
        while self.ghost.len() > self.main_room {
            let Some(oldest) = self.ghost.pop_front() else { break };
            if self.places[oldest as usize] == Place::Ghost {
                self.places[oldest as usize] = Place::Nowhere;
            }
        }
    }
}

impl Policy for S3Fifo {
    fn get(&mut self, object: Object) -> Answer {
        let at = object as usize;
        match self.places[at] {
            place @ (Place::Small | Place::Main) => {
                self.uses[at] = (self.uses[at] + 1).min(3);
                return if place == Place::Small { Answer::Dram } else { Answer::Flash };
            }
            Place::Ghost => {
                self.uses[at] = 0;
                self.enter_main(object);
            }
            Place::Nowhere => {
                self.uses[at] = 0;
                self.enter_small(object);
            }
        }
        Answer::Miss
    }

    fn written(&self) -> u64 {
        self.written
    }
}

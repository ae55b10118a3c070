//! First in, first out; and least recently used.

use super::list::{Links, List};
use super::{Answer, Object, Policy};
use std::collections::VecDeque;

/// First in, first out.
pub(super) struct Fifo {
    room: usize,
    queue: VecDeque<Object>,
    held: Vec<bool>,
    written: u64,
}

impl Fifo {
    pub(super) fn new(room: usize, objects: usize) -> Self {
        Self { room, queue: VecDeque::new(), held: vec![false; objects], written: 0 }
    }
}

impl Policy for Fifo {
    fn get(&mut self, object: Object) -> Answer {
        if self.held[object as usize] {
            return Answer::Flash;
        }
        if self.queue.len() == self.room
            && let Some(oldest) = self.queue.pop_front()
        {
            self.held[oldest as usize] = false;
        }
        self.queue.push_back(object);
        self.held[object as usize] = true;
        self.written += 1;
        Answer::Miss
    }

    fn written(&self) -> u64 {
        self.written
    }
}

/// Least recently used.
pub(super) struct Lru {
    room: usize,
    links: Links,
    list: List,
    held: Vec<bool>,
    written: u64,
}

impl Lru {
    pub(super) fn new(room: usize, objects: usize) -> Self {
        let (links, list) = (Links::new(objects), List::new());
        Self { room, links, list, held: vec![false; objects], written: 0 }
    }
}

impl Policy for Lru {
    fn get(&mut self, object: Object) -> Answer {
        if self.held[object as usize] {
            self.list.remove(&mut self.links, object);
            self.list.push(&mut self.links, object);
            return Answer::Flash;
        }
        if self.list.len == self.room
            && let Some(oldest) = self.list.pop(&mut self.links)
        {
            self.held[oldest as usize] = false;
        }
        self.list.push(&mut self.links, object);
        self.held[object as usize] = true;
        self.written += 1;
        Answer::Miss
    }

    fn written(&self) -> u64 {
        self.written
    }
}

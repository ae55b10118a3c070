//! SIEVE (Zhang et al., NSDI 2024).

use super::list::{Links, List};
use super::{Answer, Object, Policy};

/// A queue in order of arrival and a hand that walks from old to new, takes the first object that was
/// not visited since it last came by, and goes on from there.
pub(super) struct Sieve {
    room: usize,
    links: Links,
    list: List,
    held: Vec<bool>,
    visited: Vec<bool>,
    hand: Option<Object>,
    written: u64,
}

impl Sieve {
    pub(super) fn new(room: usize, objects: usize) -> Self {
        Self {
            room,
            links: Links::new(objects),
            list: List::new(),
            held: vec![false; objects],
            visited: vec![false; objects],
            hand: None,
            written: 0,
        }
    }

    fn evict(&mut self) {
        let Some(mut at) = self.hand.or(self.list.oldest()) else { return };
        while std::mem::take(&mut self.visited[at as usize]) {
            let Some(next) = self.links.newer(at).or(self.list.oldest()) else { return };
            at = next;
        }
        self.hand = self.links.newer(at);
        self.list.remove(&mut self.links, at);
        self.held[at as usize] = false;
    }
}

impl Policy for Sieve {
    fn get(&mut self, object: Object) -> Answer {
        if self.held[object as usize] {
            self.visited[object as usize] = true;
            return Answer::Flash;
        }
        if self.list.len == self.room {
            self.evict();
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

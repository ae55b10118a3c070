//! The optimum for one cache that knows the future (Belady, 1966).

use super::{Answer, Object, Policy};
use std::collections::BinaryHeap;

const NEVER: u32 = u32::MAX;

/// Lets that go which is needed last; takes nothing in that is needed later than all it has.
pub(super) struct Optimum {
    room: usize,
    /// Per request, when its object is requested next.
    next: Vec<u32>,
    now: usize,
    /// Next use and object; stale where it is not the object's latest.
    queue: BinaryHeap<(u32, Object)>,
    /// Next use of objects that are held.
    held: Vec<Option<u32>>,
    count: usize,
    written: u64,
}

impl Optimum {
    /// For these requests, in this order.
    pub(super) fn new(room: usize, requests: impl Iterator<Item = Object>, objects: usize) -> Self {
        let mut next: Vec<u32> = requests.collect();
        let mut seen = vec![NEVER; objects];
        for (at, slot) in next.iter_mut().enumerate().rev() {
            *slot = std::mem::replace(&mut seen[*slot as usize], at as u32);
        }
        let (queue, held) = (BinaryHeap::new(), vec![None; objects]);
        Self { room, next, now: 0, queue, held, count: 0, written: 0 }
    }
}

impl Policy for Optimum {
    fn get(&mut self, object: Object) -> Answer {
        let next = self.next[self.now];
        self.now += 1;
        let before = self.held[object as usize].replace(next);
        self.queue.push((next, object));
        if before.is_some() {
            return Answer::Flash;
        }
        self.count += 1;
        self.written += 1;
        while self.count > self.room {
            let Some((use_at, last)) = self.queue.pop() else { break };
            if self.held[last as usize] == Some(use_at) {
                self.held[last as usize] = None;
                self.count -= 1;
                self.written -= u64::from(last == object);
            }
        }
        Answer::Miss
    }

    fn written(&self) -> u64 {
        self.written
    }
}

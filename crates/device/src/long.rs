//! Buffers for long reads. They are used again and again, since to have new memory cleared takes longer than
//! some reads; and they lie in huge pages: the kernel looks up one page where else it would dozens, and asks the
//! drive for one piece of memory.

use crate::buffer::AlignedBuf;
use crate::memory::HUGE_PAGE_BYTES;
use crate::slab::Slab;
use std::sync::Arc;

/// The length of buffers is a multiple of this, so that most can be used again for most.
const STEP: usize = 16 << 10;

/// Memory for long reads of one worker. What it gives out comes back by being dropped.
pub struct LongBuffers {
    slabs: Vec<Kept>,
    slabs_max: usize,
    slab_bytes: usize,
}

struct Kept {
    slab: Arc<Slab>,
    /// Since [`LongBuffers::give_back`] looked.
    is_used: bool,
}

impl LongBuffers {
    /// Keeps about so many bytes once they were needed; less than a huge page is no huge page.
    pub fn new(bytes_max: usize) -> Self {
        let slab_bytes = (bytes_max / STEP * STEP).clamp(STEP, HUGE_PAGE_BYTES);
        Self { slabs: Vec::new(), slabs_max: (bytes_max / slab_bytes).max(1), slab_bytes }
    }

    /// A buffer of `len` bytes, holding anything. Beyond what is kept, memory is asked of the system.
    pub fn take(&mut self, len: usize) -> AlignedBuf {
        if let Some(buffer) = self.slabs.iter_mut().find_map(|kept| kept.take(len)) {
            return buffer;
        }
        let step = len.next_multiple_of(STEP);
        if step <= self.slab_bytes && self.has_place() {
            let mut kept = Kept { slab: Slab::within(self.slab_bytes, step), is_used: false };
            let buffer = kept.take(len);
            self.slabs.push(kept);
            // Those that waste least are asked first.
            self.slabs.sort_by_key(|kept| kept.slab.piece_bytes());
            if let Some(buffer) = buffer {
                return buffer;
            }
        }
        AlignedBuf::zeroed(len)
    }

    /// Makes a place for another slab, if need be of one whose buffers were too short.
    fn has_place(&mut self) -> bool {
        if self.slabs.len() < self.slabs_max {
            return true;
        }
        let unused = self.slabs.iter().position(|kept| kept.slab.is_whole());
        unused.map(|at| self.slabs.remove(at)).is_some()
    }

    /// Keeps no more than was used since the last time.
    pub fn give_back(&mut self) {
        self.slabs.retain_mut(|kept| std::mem::take(&mut kept.is_used) || !kept.slab.is_whole());
    }
}

impl Kept {
    fn take(&mut self, len: usize) -> Option<AlignedBuf> {
        let buffer = AlignedBuf::of_slab(&self.slab, len);
        self.is_used |= buffer.is_some();
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_others_take_the_place_of_those_too_short() {
        let mut long = LongBuffers::new(2 * HUGE_PAGE_BYTES);
        let first = long.take(100_000);
        assert_eq!((first.len(), first.capacity()), (100_000, 112 << 10));
        let address = first.as_ptr();
        drop(first);
        assert_eq!(long.take(60_000).as_ptr(), address);
        let short: Vec<_> = (0..18).map(|_| long.take(100_000)).collect();
        assert_eq!(long.slabs.len(), 1);
        let more: Vec<_> = (0..40).map(|_| long.take(100_000)).collect();
        assert_eq!(long.slabs.len(), 2);
        assert_eq!(more[39].capacity(), 102_400, "from the system");
        drop(short);
        let longer = long.take(500_000);
        assert_eq!((long.slabs.len(), longer.capacity()), (2, 496 << 10));
        assert_eq!(more.iter().map(|buffer| buffer.len()).sum::<usize>(), 40 * 100_000);
        assert_eq!(long.take(3 << 20).len(), 3 << 20);
    }

    #[test]
    fn less_than_a_huge_page_is_kept_where_no_more_may_be() {
        let mut long = LongBuffers::new(256 << 10);
        let first = long.take(100_000);
        let second = long.take(100_000);
        assert_eq!((first.capacity(), second.capacity()), (112 << 10, 112 << 10));
        assert_eq!(long.slabs[0].slab.region().1, 256 << 10);
        assert_eq!(long.take(100_000).capacity(), 102_400, "from the system");
        assert_eq!(long.take(300_000).len(), 300_000);
    }

    #[test]
    fn what_is_not_used_any_more_is_given_back() {
        let mut long = LongBuffers::new(4 * HUGE_PAGE_BYTES);
        let (held, done) = (long.take(HUGE_PAGE_BYTES), long.take(HUGE_PAGE_BYTES));
        drop(done);
        long.give_back();
        assert_eq!(long.slabs.len(), 2, "both were used a moment ago");
        long.give_back();
        assert_eq!(long.slabs.len(), 1, "one is still held");
        drop(held);
        long.give_back();
        assert!(long.slabs.is_empty());
    }
}

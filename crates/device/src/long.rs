//! Buffers for long reads. They are used again and again, since to have new memory cleared takes longer than
//! some reads; and they lie in huge pages: the kernel looks up one page where else it would dozens, and asks the
//! drive for one piece of memory.

use crate::AlignedBuf;
use crate::buffer::HUGE_PAGE_BYTES;
use crate::slab::Slab;
use std::sync::Arc;

/// The length of buffers is a multiple of this, so that most can be used again for most.
const STEP: usize = 16 << 10;

/// Memory for long reads of one worker. What it gives out comes back by being dropped.
pub struct LongBuffers {
    slabs: Vec<Arc<Slab>>,
    slabs_max: usize,
}

impl LongBuffers {
    /// Keeps about so many bytes once they were needed, one huge page at least.
    pub fn new(bytes_max: usize) -> Self {
        Self { slabs: Vec::new(), slabs_max: (bytes_max / HUGE_PAGE_BYTES).max(1) }
    }

    /// A buffer of `len` bytes, holding anything. Beyond what is kept, memory is asked of the system.
    pub fn take(&mut self, len: usize) -> AlignedBuf {
        if let Some(buffer) = self.slabs.iter().find_map(|slab| slab.take(len)) {
            return buffer;
        }
        let step = len.next_multiple_of(STEP);
        if step <= HUGE_PAGE_BYTES && self.has_place() {
            let slab = Slab::in_huge_page(step);
            let buffer = slab.take(len);
            self.slabs.push(slab);
            // Those that waste least are asked first.
            self.slabs.sort_by_key(|slab| slab.buffer_bytes());
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
        let unused = self.slabs.iter().position(|slab| slab.is_whole());
        unused.map(|at| self.slabs.remove(at)).is_some()
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
}

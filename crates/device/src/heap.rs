//! What the allocator keeps of memory that was freed.

/// Gives it back to the system. Threads that allocate meanwhile may wait for some milliseconds where there is much.
/// Does nothing where the allocator has no way to say so.
pub fn give_heap_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks, and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

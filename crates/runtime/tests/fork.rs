//! A process that forks while a store is open. The only test of its binary: forking is sound in a process of one thread
//! that calls nothing which another thread may have locked, and the threads of the store allocate rarely.

use terrace_runtime::{Error, Options, Set, Store};

#[test]
fn child_of_a_fork_is_refused_and_the_parent_goes_on() {
    let store = Store::open(Options::new().memory(16 << 20)).expect("opens");
    store.set(b"key", b"value", Set::default()).expect("stored");
    // SAFETY: the child calls the store, which refuses before it takes a lock or allocates, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child");
    if child == 0 {
        let is_refused = matches!(store.get(b"key"), Err(Error::Forked))
            && matches!(store.set(b"key", b"other", Set::default()), Err(Error::Forked))
            && matches!(store.lane().err(), Some(Error::Forked))
            && matches!(store.sync(), Err(Error::Forked));
        // It joins no thread, and closes nothing.
        drop(store);
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child was not refused, or hung");
    assert_eq!(store.get(b"key").expect("read").as_deref(), Some(&b"value"[..]));
}

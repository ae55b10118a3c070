//! SIGBUS in the state, which other processes can truncate while it is mapped: the cache goes on without it. Anywhere
//! else the signal does what it did before.

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use std::io;
use std::sync::OnceLock;

/// What happened to the signal before.
static BEFORE: OnceLock<SigAction> = OnceLock::new();

/// Has the cache put zeros in the place of what is gone of its state. To be called before it is opened.
///
/// # Errors
/// The system refuses the handler.
pub fn survive_lost_state() -> io::Result<()> {
    let handler = SigHandler::SigAction(on_fault);
    // On a stack of its own, as the standard library has it for stacks that overflow.
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
    let action = SigAction::new(handler, flags, SigSet::empty());
    // SAFETY: the handler takes no lock and no memory: it reads and writes atomics, maps memory, and sets an action.
    let before = unsafe { sigaction(Signal::SIGBUS, &action) }?;
    // A second call finds the handler itself in place, and what was before that noted.
    BEFORE.get_or_init(|| before);
    Ok(())
}

extern "C" fn on_fault(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands a valid one to a handler with SA_SIGINFO. A fault has an address, a signal that a process
    // sends has none, and that is told apart before it is looked at.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    if is_fault && terrace_cache::replace_lost(address) {
        return;
    }
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: an action that was in place before, or the system's own.
    let _ = unsafe { sigaction(Signal::SIGBUS, BEFORE.get().unwrap_or(&default)) };
    // A fault comes again when its instruction runs again.
    if !is_fault {
        let _ = raise(Signal::SIGBUS);
    }
}

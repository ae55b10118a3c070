//! The thread that takes connections in and deals them out to the workers in turn.

use super::listener::{Arrival, Listener, OUT_OF_DESCRIPTORS_NAP};
use super::shared::Shared;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::warn;

/// What memcached says when `-c` is reached.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// Between two tries where a listener accepts nothing for a reason that may last.
const BROKEN_NAP: Duration = Duration::from_secs(1);

/// Accepts until the server stops.
pub(crate) fn run(shared: &Shared, listeners: &[Listener]) {
    let mut next_worker = 0;
    let mut full_since = None;
    while !shared.is_stopping() {
        note_full(shared, &mut full_since);
        wait(shared, listeners);
        // Somebody may have gone, whose place is taken below.
        note_full(shared, &mut full_since);
        shared.acceptor_waker.clear();
        for listener in listeners {
            while let Some(arrival) = accept(shared, listener) {
                shared.inboxes[next_worker].send(arrival);
                next_worker = (next_worker + 1) % shared.inboxes.len();
            }
        }
    }
}

/// Counts how often and for how long connections were left in the backlog because of `-c`.
fn note_full(shared: &Shared, since: &mut Option<Instant>) {
    let connections = &shared.connections;
    match (shared.must_leave_in_backlog(), &since) {
        (true, None) => {
            connections.listen_disabled.fetch_add(1, Ordering::Relaxed);
            *since = Some(Instant::now());
        }
        (false, Some(begin)) => {
            connections.add_listen_disabled(begin.elapsed());
            *since = None;
        }
        _ => {}
    }
}

/// Until somebody wants to connect and may, or the waker is used.
fn wait(shared: &Shared, listeners: &[Listener]) {
    let waker = shared.acceptor_waker.fd();
    let mut fds = vec![PollFd::new(&waker, PollFlags::IN)];
    if !shared.must_leave_in_backlog() {
        fds.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
    }
    // An interrupted wait is followed by a look at all listeners, which does no harm.
    let _ = poll(&mut fds, None);
}

/// The next connection of a listener that can be served; the ones too many are told so.
fn accept(shared: &Shared, listener: &Listener) -> Option<Arrival> {
    while !shared.is_stopping() && !shared.must_leave_in_backlog() {
        match listener.accept() {
            Ok(arrival) if shared.connections.try_open() => return Some(arrival),
            Ok(arrival) => refuse(shared, &arrival.socket),
            Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => return None,
            Err(error) if is_of_connection(&error) => {}
            // Whatever is wrong with this listener, the others have their turn.
            Err(error) => {
                recover(shared, &error);
                return None;
            }
        }
    }
    None
}

/// Errors of the connection that was to be accepted (accept(2)): the next one may be well.
fn is_of_connection(error: &std::io::Error) -> bool {
    let all = [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::PERM,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::NONET,
        Errno::TIMEDOUT,
    ];
    all.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn refuse(shared: &Shared, socket: &impl AsFd) {
    shared.connections.rejected.fetch_add(1, Ordering::Relaxed);
    // The send buffer of a new connection is empty: this never waits, and if it fails the client
    // sees the connection closed, which says the same.
    let _ = rustix::net::send(socket, TOO_MANY, rustix::net::SendFlags::NOSIGNAL);
}

/// No descriptors are left, or the listener itself is broken; neither ends the server, and neither may keep this
/// thread busy.
fn recover(shared: &Shared, error: &std::io::Error) {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    if exhausted.iter().any(|e| error.raw_os_error() == Some(e.raw_os_error())) {
        shared.connections.listen_disabled.fetch_add(1, Ordering::Relaxed);
        shared.log(1, || format!("accept: {error}"));
        std::thread::sleep(OUT_OF_DESCRIPTORS_NAP);
        shared.connections.add_listen_disabled(OUT_OF_DESCRIPTORS_NAP);
    } else {
        warn!("accept: {error}; tried again each second");
        std::thread::sleep(BROKEN_NAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn errors_of_a_connection_are_not_those_of_its_listener() {
        let is_of_connection =
            |errno: Errno| is_of_connection(&Error::from_raw_os_error(errno.raw_os_error()));
        assert!(is_of_connection(Errno::CONNABORTED) && is_of_connection(Errno::PROTO));
        assert!(!is_of_connection(Errno::INVAL) && !is_of_connection(Errno::MFILE));
    }
}

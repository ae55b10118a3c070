//! What the status of a command means for the drive.

use std::io;
use terrace_nvme::command::Status;

/// How a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This command; the drive goes on. With the error that a local drive would have.
    Command(io::Error),
    /// The controller or the way to it: another connection may work.
    Session(Status),
    /// The namespace is not this server's any more, or not there: nothing helps.
    Namespace(Status),
}

/// Of `status`, of a write if `is_write`; `None` if it is a success.
pub(crate) fn failure(status: Status, is_write: bool) -> Option<Failure> {
    use rustix::io::Errno;
    if status.is_success() {
        return None;
    }
    let is_any = |all: &[Status]| all.iter().any(|&one| status.is(one));
    let errno = |errno: Errno| Some(Failure::Command(errno.into()));
    if is_any(&[Status::RESERVATION_CONFLICT, Status::INVALID_NAMESPACE, Status::LBA_OUT_OF_RANGE])
    {
        return Some(Failure::Namespace(status));
    }
    // What was written is not known then: it must not be written again before this is surely over.
    let is_damaged = status.is(Status::TRANSIENT_TRANSPORT_ERROR);
    // Path Related Status: the way to the namespace.
    if is_damaged && is_write
        || is_any(&[Status::ABORT_REQUESTED, Status::PREEMPTED, Status::NAMESPACE_NOT_READY])
        || status.type_and_code().0 == 3
    {
        return Some(Failure::Session(status));
    }
    if status.is(Status::CAPACITY_EXCEEDED) {
        return errno(Errno::NOSPC);
    }
    if is_any(&[Status::WRITE_PROTECTED, Status::ACCESS_DENIED]) {
        return errno(Errno::ROFS);
    }
    if is_damaged || status.type_and_code().0 == 2 {
        return errno(Errno::IO);
    }
    Some(Failure::Command(io::Error::other(status.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_device::ErrorClass;

    #[test]
    fn errors_have_the_class_that_a_local_drive_would_give_them() {
        for (status, class) in [
            (Status::UNRECOVERED_READ_ERROR, ErrorClass::Medium),
            (Status::WRITE_FAULT, ErrorClass::Medium),
            (Status::CAPACITY_EXCEEDED, ErrorClass::NoSpace),
            (Status::WRITE_PROTECTED, ErrorClass::ReadOnly),
            (Status::INTERNAL_ERROR, ErrorClass::Other),
        ] {
            let Some(Failure::Command(error)) = failure(status, true) else {
                panic!("{status}: not of the command");
            };
            assert_eq!(ErrorClass::of(&error), class, "{status}");
        }
        assert!(failure(Status::SUCCESS, true).is_none());
    }

    #[test]
    fn damaged_writes_end_the_session_and_damaged_reads_do_not() {
        let status = Status::TRANSIENT_TRANSPORT_ERROR;
        assert!(matches!(failure(status, true), Some(Failure::Session(_))));
        assert!(matches!(failure(status, false), Some(Failure::Command(_))));
        let conflict = failure(Status::RESERVATION_CONFLICT, true);
        assert!(matches!(conflict, Some(Failure::Namespace(_))));
    }
}

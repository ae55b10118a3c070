//! How a drive fails: classes of errors, in words that an operator acts on.

use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

/// What an error of a drive means to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The drive, its file system, a thin pool, a quota or a limit of the process has no space left.
    NoSpace,
    /// The drive or its file system takes no writes.
    ReadOnly,
    /// The drive could not read or write some of its blocks, or its file is too short.
    Medium,
    /// The drive is no longer there, or the path to it is.
    Gone,
    /// The drive did not answer within its deadline.
    Unresponsive,
    /// Anything else.
    Other,
}

impl ErrorClass {
    /// How many classes there are.
    pub const COUNT: usize = 6;
    /// All classes; the number of each is its place here.
    pub const ALL: [Self; Self::COUNT] =
        [Self::NoSpace, Self::ReadOnly, Self::Medium, Self::Gone, Self::Unresponsive, Self::Other];

    /// The class of an error of a transfer.
    pub fn of(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        if let Some(errno) = error.raw_os_error().map(Errno::from_raw_os_error) {
            return Self::of_errno(errno);
        }
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge | Kind::WriteZero => {
                Self::NoSpace
            }
            Kind::ReadOnlyFilesystem | Kind::PermissionDenied => Self::ReadOnly,
            Kind::UnexpectedEof | Kind::InvalidData => Self::Medium,
            Kind::NotConnected | Kind::StaleNetworkFileHandle => Self::Gone,
            Kind::TimedOut => Self::Unresponsive,
            _ => Self::Other,
        }
    }

    /// A block device has more errors than EIO; the kernel's blk_errors has which is for what.
    fn of_errno(errno: Errno) -> Self {
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace,
            // A device that was made read-only refuses writes with EPERM.
            Errno::ROFS | Errno::PERM => Self::ReadOnly,
            Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO | Errno::UCLEAN => {
                Self::Medium
            }
            Errno::NODEV | Errno::NXIO | Errno::NOLINK | Errno::STALE | Errno::NOTCONN => {
                Self::Gone
            }
            Errno::TIMEDOUT => Self::Unresponsive,
            _ => Self::Other,
        }
    }

    /// Its name in statistics and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSpace => "no_space",
            Self::ReadOnly => "read_only",
            Self::Medium => "medium_error",
            Self::Gone => "gone",
            Self::Unresponsive => "unresponsive",
            Self::Other => "other",
        }
    }

    /// An error of this class, as the kernel reports it.
    pub(crate) fn example(self) -> io::Error {
        let errno = match self {
            Self::NoSpace => Errno::NOSPC,
            Self::ReadOnly => Errno::ROFS,
            Self::Medium => Errno::IO,
            Self::Gone => Errno::NODEV,
            Self::Unresponsive => return unanswered(),
            Self::Other => Errno::INVAL,
        };
        errno.into()
    }
}

/// The name in a sentence.
impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSpace => "no space",
            Self::ReadOnly => "read-only",
            Self::Medium => "medium error",
            Self::Gone => "gone",
            Self::Unresponsive => "unresponsive",
            Self::Other => "other error",
        })
    }
}

/// How many errors of each class there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts(pub(crate) [u64; ErrorClass::COUNT]);

impl ErrorCounts {
    /// Errors of a class.
    pub fn of(&self, class: ErrorClass) -> u64 {
        self.0[class as usize]
    }

    /// Adds `count` errors of a class.
    pub fn add(&mut self, class: ErrorClass, count: u64) {
        self.0[class as usize] += count;
    }

    /// The errors that came after `earlier`, which must have been counted before.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut new = *self;
        new.0.iter_mut().zip(earlier.0).for_each(|(count, before)| *count -= before);
        new
    }
}

/// Inside of the errors of [`unanswered`].
#[derive(Debug)]
struct Unanswered;

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the drive does not answer")
    }
}

impl Error for Unanswered {}

/// The error of a transfer that its drive has not answered yet, and may still: see [`is_unanswered`].
pub fn unanswered() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Unanswered)
}

/// Whether a transfer failed only because its drive has not answered yet, and may still.
pub fn is_unanswered(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Unanswered>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_of_an_example_is_its_own_by_number_and_by_kind() {
        for (number, class) in ErrorClass::ALL.into_iter().enumerate() {
            assert_eq!((ErrorClass::of(&class.example()), class as usize), (class, number));
        }
        for (kind, class) in [
            (io::ErrorKind::StorageFull, ErrorClass::NoSpace),
            (io::ErrorKind::ReadOnlyFilesystem, ErrorClass::ReadOnly),
            (io::ErrorKind::UnexpectedEof, ErrorClass::Medium),
            (io::ErrorKind::NotConnected, ErrorClass::Gone),
            (io::ErrorKind::TimedOut, ErrorClass::Unresponsive),
            (io::ErrorKind::OutOfMemory, ErrorClass::Other),
        ] {
            assert_eq!(ErrorClass::of(&kind.into()), class);
        }
    }

    #[test]
    fn counts_since_are_what_came_after() {
        let mut counts = ErrorCounts::default();
        counts.add(ErrorClass::Medium, 2);
        let before = counts;
        counts.add(ErrorClass::Gone, 1);
        counts.add(ErrorClass::Medium, 3);
        let new = counts.since(&before);
        let all = ErrorClass::ALL.map(|class| new.of(class));
        assert_eq!(all, [0, 0, 3, 1, 0, 0]);
    }
}

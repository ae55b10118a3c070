//! How a value is stored.

use crate::operation::{Want, When};
use std::borrow::Cow;
use std::time::Duration;

/// How a value is stored; the default is: whatever there is is replaced, and the record does not expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Set {
    expires_in: Option<Duration>,
    is_absent: bool,
}

impl Set {
    /// The record is gone after this time, rounded up to whole seconds.
    ///
    /// ```
    /// # use terrace_runtime::{Options, Set, Store};
    /// # let store = Store::open(Options::new().memory(16 << 20))?;
    /// let minute = std::time::Duration::from_secs(60);
    /// store.set(b"session", b"token", Set::default().expires_in(minute))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expires_in(self, time: Duration) -> Self {
        Self { expires_in: Some(time), ..self }
    }

    /// Stores nothing where there is a record of the key.
    ///
    /// ```
    /// # use terrace_runtime::{Options, Set, Store};
    /// # let store = Store::open(Options::new().memory(16 << 20))?;
    /// assert!(store.set(b"lock", b"mine", Set::default().if_absent())?);
    /// assert!(!store.set(b"lock", b"yours", Set::default().if_absent())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn if_absent(self) -> Self {
        Self { is_absent: true, ..self }
    }

    pub(crate) fn want(self, value: Cow<'_, [u8]>, now: u32) -> Want<'_> {
        let seconds = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let end = |time| u32::try_from(u64::from(now) + seconds(time).max(1)).unwrap_or(u32::MAX);
        let when = if self.is_absent { When::Absent } else { When::Always };
        Want::Set { value, expires: self.expires_in.map_or(0, end), when }
    }
}

//! Replies, matched with the requests in flight and checked.

mod binary;
mod text;

use crate::LoadError;
use crate::plan::{Plan, Protocol};
use crate::records::Records;
use crate::tally::Tally;
use crate::window::{Expected, Request, Value, Window};

/// Reads replies of one connection.
pub(crate) enum Replies {
    Text(text::Text),
    Binary(binary::Binary),
}

/// What the front of the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// More must come first.
    Partial,
    /// So many bytes are dealt with; the request at the front waits for more.
    Part(usize),
    /// So many bytes are dealt with, and with them the request at the front.
    Whole(usize),
}

impl Replies {
    pub(crate) fn new(plan: &Plan, records: &Records) -> Self {
        match plan.protocol {
            Protocol::Ascii | Protocol::Meta => Self::Text(text::Text::new(plan, records)),
            Protocol::Binary => Self::Binary(binary::Binary::new(plan, records)),
        }
    }

    /// Takes every whole reply at the front of `input`; gives back how many bytes they were.
    #[inline]
    pub(crate) fn take(
        &mut self,
        input: &[u8],
        now: u64,
        window: &mut Window,
        tally: &mut Tally,
    ) -> Result<usize, LoadError> {
        let mut taken = 0;
        while taken < input.len() {
            let rest = &input[taken..];
            let Some((request, sent)) = window.requests.front().copied() else {
                return Err(LoadError::Reply(shown(rest)));
            };
            let front = match self {
                Self::Text(text) => text.take(rest, request, window, tally)?,
                Self::Binary(binary) => binary.take(rest, request, window, tally)?,
            };
            match front {
                Front::Partial => break,
                Front::Part(bytes) => taken += bytes,
                Front::Whole(bytes) => {
                    taken += bytes;
                    window.requests.pop_front();
                    tally.answered(now.saturating_sub(sent));
                    tally.missed_stores += u64::from(request == Request::Store { missed: true });
                }
            }
        }
        Ok(taken)
    }
}

/// Tells right values from wrong ones.
struct Judge {
    records: Records,
    check: bool,
}

impl Judge {
    fn new(plan: &Plan, records: &Records) -> Self {
        Self { records: records.clone(), check: plan.check }
    }

    /// Counts a value of the right length; `is_whole` says that all around it is right too.
    #[inline]
    fn count(&self, expected: Expected, value: &[u8], is_whole: bool, tally: &mut Tally) {
        let fits = |version| self.records.fits(expected.number, version, value);
        let is_right = match (self.check, expected.value) {
            (false, _) => true,
            (true, Value::Absent) => false,
            (true, Value::Any) => fits(None),
            (true, Value::Version(version) | Value::Planned(version)) => fits(Some(version)),
        };
        if is_right && is_whole {
            tally.hits += 1;
        } else {
            tally.wrong += 1;
            let is_planned = matches!(expected.value, Value::Planned(_));
            tally.other_versions += u64::from(is_planned && is_whole && fits(None));
            tally.example(|| format!("{expected:?}: {}", shown(value)));
        }
    }
}

/// As much of it as a message can hold.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(100)].trim_ascii_end().escape_ascii().to_string()
}

#[cfg(test)]
mod tests;

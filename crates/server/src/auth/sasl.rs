//! SASL with its mechanism PLAIN (RFC 4616), of which memcached's clients know no other.

use super::Passwords;
use terrace_protocol::BinaryRequest;
use terrace_protocol::binary::Sasl;

/// The mechanisms that there are.
pub(crate) const MECHANISMS: &str = "PLAIN";

/// Where one connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaslLogin {
    /// Nobody asks.
    NotNeeded,
    /// The client has not said who it is.
    Needed,
    /// It has named the mechanism, and owes the message.
    Begun,
    /// It is known.
    Done,
}

/// What becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is no SASL here.
    Unknown,
    /// Go on.
    Continue,
    Admitted,
    Failed,
}

impl SaslLogin {
    pub(crate) fn new(is_needed: bool) -> Self {
        if is_needed { Self::Needed } else { Self::NotNeeded }
    }

    /// Whether the client has yet to say who it is.
    pub(crate) fn is_needed(self) -> bool {
        !matches!(self, Self::NotNeeded | Self::Done)
    }

    /// Whether a request may be carried out.
    pub(crate) fn admits(self, request: &BinaryRequest<'_>) -> bool {
        !self.is_needed() || request.may_precede_login()
    }

    /// Takes a step. Who begins anew is unknown until the end of it.
    pub(crate) fn step(&mut self, sasl: &Sasl<'_>, passwords: Option<&Passwords>) -> Step {
        let Some(passwords) = passwords else { return Step::Unknown };
        let has_begun = *self == Self::Begun;
        *self = Self::Needed;
        if !sasl.mechanism.eq_ignore_ascii_case(MECHANISMS.as_bytes()) {
            return Step::Failed;
        }
        match (sasl.begins, sasl.data) {
            (true, []) => {
                *self = Self::Begun;
                Step::Continue
            }
            (false, _) if !has_begun => Step::Failed,
            (_, message) => match plain(message) {
                Some((user, password)) if passwords.admit(user, password) => {
                    *self = Self::Done;
                    Step::Admitted
                }
                _ => Step::Failed,
            },
        }
    }
}

/// The user and the password of a PLAIN message: `[identity] NUL user NUL password`. To act for
/// somebody else is allowed to nobody.
fn plain(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.split(|&byte| byte == 0);
    let (identity, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && !user.is_empty();
    (is_whole && (identity.is_empty() || identity == user)).then_some((user, password))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_plain_message_has_three_parts() {
        assert_eq!(plain(b"\0user\0pass"), Some((&b"user"[..], &b"pass"[..])));
        assert_eq!(plain(b"user\0user\0pass"), Some((&b"user"[..], &b"pass"[..])));
        for wrong in [&b""[..], b"user", b"\0user", b"\0\0pass", b"other\0user\0pass", b"\0u\0p\0"]
        {
            assert_eq!(plain(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}

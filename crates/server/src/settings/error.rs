//! What is said when the command line or the configuration can't be used.

use std::fmt;

/// Wrong usage: one line that says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError {
    text: String,
    code: u8,
}

impl UsageError {
    /// `EX_USAGE` of sysexits.h.
    pub const EX_USAGE: u8 = 64;

    /// Says where the `reason` was found: a flag, an option, a place in a file. The process ends with
    /// 1, as memcached does where a flag or its value is written wrong.
    pub(crate) fn at(place: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self { text: format!("{place}: {reason}"), code: 1 }
    }

    /// The same of settings that can't be had, or not together: memcached ends with `EX_USAGE`.
    pub(crate) fn conflict(place: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self { code: Self::EX_USAGE, ..Self::at(place, reason) }
    }

    /// What the process ends with.
    pub fn exit_code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for UsageError {}

/// The name that `wrong` was probably meant to be, if one is near enough to it as a whole or in its
/// first word.
pub(crate) fn nearest<'n>(wrong: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let near = |name: &str| {
        let distance = strsim::damerau_levenshtein(wrong, name);
        (distance <= name.len().max(wrong.len()) / 3).then_some(distance)
    };
    let first_word = |name: &'n str| name.split_once('-').and_then(|(word, _)| near(word));
    names
        .filter_map(|name| Some((near(name).or_else(|| first_word(name))?, name)))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn suggests_only_what_is_near() {
        let names = ["port", "threads", "memory-limit"];
        assert_eq!(nearest("thread", names.into_iter()), Some("threads"));
        assert_eq!(nearest("prot", names.into_iter()), Some("port"));
        assert_eq!(nearest("memorylimit", names.into_iter()), Some("memory-limit"));
        assert_eq!(nearest("memry", names.into_iter()), Some("memory-limit"));
        assert_eq!(nearest("bogus", names.into_iter()), None);
    }
}

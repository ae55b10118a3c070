//! Old names of flags, and of their values. They work for one version beside the new ones, on the command line and as
//! keys of a settings file, and the log says so.

use terrace_cache::Note;

/// A flag that has another name now.
pub(crate) struct Renamed {
    old: &'static str,
    new: &'static str,
    /// Old values and the values that replace them; a value that is not listed is read as a new one.
    values: &'static [(&'static str, &'static str)],
}

const RENAMED: &[Renamed] = &[Renamed {
    old: "gear",
    new: "write-policy",
    values: &[("a", "all-once"), ("b", "all-twice"), ("c", "reused-once"), ("d", "reused-none")],
}];

/// The flag whose old long name is `name`.
pub(crate) fn find(name: &str) -> Option<&'static Renamed> {
    RENAMED.iter().find(|renamed| renamed.old == name)
}

impl Renamed {
    /// The flag's long name today.
    pub(crate) fn name(&self) -> &'static str {
        self.new
    }

    /// The value today of what was given as `value`, in upper or lower case.
    pub(crate) fn value<'a>(&self, value: &'a str) -> &'a str {
        let known = self.values.iter().find(|(old, _)| value.eq_ignore_ascii_case(old));
        known.map_or(value, |(_, new)| new)
    }

    /// Adds a warning for the log, once however often the old name is used.
    pub(crate) fn warn(&self, notes: &mut Vec<Note>) {
        let (old, new) = (self.old, self.new);
        let text = format!("{old} is called {new} now; the next version does not know {old}");
        if !notes.iter().any(|note| note.text() == text) {
            notes.push(Note::Warning(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::super::{WritePolicy, config_file, table};
    use super::{Note, RENAMED};

    #[test]
    fn old_name_and_value_work_and_are_reported_once() {
        let settings = settings("--tier ssd:/a:1g --gear B --gear c");
        assert_eq!(settings.write_policy, WritePolicy::ReusedOnce);
        let notes: Vec<_> = settings.notes.iter().map(Note::text).collect();
        assert_eq!(notes, ["gear is called write-policy now; the next version does not know gear"]);
        let [assignment] = &config_file::parse("t.toml", "gear = 'd'").expect("a key")[..] else {
            panic!("one assignment");
        };
        assert_eq!((assignment.value.as_str(), assignment.key()), ("reused-none", "write-policy"));
    }

    #[test]
    fn new_names_are_flags_and_old_ones_are_not() {
        for renamed in RENAMED {
            let exists = |name| table::FLAGS.iter().any(|flag| flag.long == name);
            assert!(exists(renamed.new) && !exists(renamed.old), "{}", renamed.old);
        }
    }
}

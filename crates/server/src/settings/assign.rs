//! From arguments and files to assignments, and from assignments to settings.

use super::error::nearest;
use super::extended::{Effect, Extended, OPTIONS};
use super::renamed::{self, Renamed};
use super::table::{Action, FLAGS, Flag};
use super::{Print, Settings, UsageError};
use super::{noted, size};
use terrace_cache::Note;

/// A row of one of the two tables.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Flag(&'static Flag),
    Option(&'static Extended, &'static str),
}

/// One thing that was asked for.
pub(crate) struct Assignment {
    pub(crate) target: Target,
    pub(crate) value: String,
    /// How it was written, for messages.
    pub(crate) written: String,
    /// It was written under a name that the flag had before.
    pub(crate) renamed: Option<&'static Renamed>,
}

impl Assignment {
    /// Assignments of equal key replace each other; `ext_path` and `--tier` are one thing.
    pub(crate) fn key(&self) -> &'static str {
        match self.target {
            Target::Flag(flag) => flag.long,
            Target::Option(_, "ext_path") => "tier",
            Target::Option(_, "no_maxconns_fast") => "maxconns_fast",
            Target::Option(_, name) => name,
        }
    }

    fn error(&self, reason: impl std::fmt::Display) -> UsageError {
        match self.key() {
            // The flags whose values memcached calls wrong usage, not malformed.
            "port" | "udp-port" | "memory-limit" | "max-item-size" | "protocol" => {
                UsageError::conflict(&self.written, reason)
            }
            _ => UsageError::at(&self.written, reason),
        }
    }

    /// Carries the assignment out; what it asks to print comes back.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<Option<Print>, UsageError> {
        if let Some(renamed) = self.renamed {
            renamed.warn(&mut settings.notes);
        }
        let mut note =
            |reason| settings.notes.push(Note::Info(format!("{}: {reason}", self.written)));
        match self.target {
            Target::Flag(flag) => match flag.action {
                Action::Set(set) => {
                    set(settings, &self.value).map_err(|e| self.error(e))?;
                    settings.notes.extend(self.unread(flag.argument));
                }
                Action::Print(print) => return Ok(Some(print)),
                Action::Note(reason) => note(reason),
                // Resolved into other assignments before.
                Action::Config | Action::Extended => {}
            },
            Target::Option(option, name) => match option.effect {
                Effect::Set(set) => {
                    set(settings, &self.value).map_err(|e| self.error(e))?;
                    settings.notes.extend(self.unread(option.argument));
                }
                Effect::Switch(switch) => {
                    switch(settings);
                    if !self.value.is_empty() {
                        // memcached takes it and looks no further, whatever it says.
                        let note = format!("{}: takes no value; it is on", self.written);
                        settings.notes.push(Note::Warning(note));
                    }
                }
                Effect::Note(reason) => {
                    note(reason);
                    let shown = noted::read(name, &self.value).map_err(|e| self.error(e))?;
                    settings.shown.extend(shown);
                }
                Effect::Refuse(reason) => return Err(self.error(reason)),
            },
        }
        Ok(None)
    }
}

impl Assignment {
    /// A line where something stands behind the number of this flag or option: memcached does not look at it.
    fn unread(&self, argument: Option<&str>) -> Option<Note> {
        let is_size = match argument? {
            "SIZE" | "MEGABYTES" => true,
            "NUM" | "SECONDS" => false,
            _ => return None,
        };
        let rest = size::unread(&self.value, is_size)?;
        Some(Note::Warning(format!("{}: `{rest}` is not looked at", self.written.trim_end())))
    }
}

/// The `NAME[=VALUE],...` of one `-o`.
pub(crate) fn options(text: &str) -> Result<Vec<Assignment>, UsageError> {
    text.split(',').filter(|part| !part.trim().is_empty()).map(option).collect()
}

fn option(text: &str) -> Result<Assignment, UsageError> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    self::named_option(name.trim(), value, format!("-o {text}"))
}

/// The option called `name`, from wherever it was written.
pub(crate) fn named_option(
    name: &str,
    value: Option<&str>,
    written: String,
) -> Result<Assignment, UsageError> {
    let all = || OPTIONS.iter().flat_map(|o| o.names.iter().map(move |&name| (o, name)));
    let Some((row, name)) = all().find(|(_, known)| *known == name) else {
        return Err(UsageError::at(
            written,
            match nearest(name, all().map(|(_, name)| name)) {
                Some(near) => format!("no such option; did you mean {near}?"),
                None => "no such option; `terrace --help` lists them".to_string(),
            },
        ));
    };
    let value = match (&row.effect, value) {
        (Effect::Set(_), None) => {
            let argument = row.argument.unwrap_or("VALUE");
            return Err(UsageError::at(written, format!("write {name}={argument}")));
        }
        (_, value) => value.unwrap_or_default().to_string(),
    };
    Ok(Assignment { target: Target::Option(row, name), value, written, renamed: None })
}

/// The flag with the long name `name` and no other: a file is written once and read by many versions,
/// where a beginning that is clear today may not stay so.
pub(crate) fn key(name: &str, written: &str) -> Result<&'static Flag, UsageError> {
    exact(name).ok_or_else(|| {
        UsageError::at(
            written,
            match nearest(name, FLAGS.iter().map(|flag| flag.long)) {
                Some(near) => format!("no such key; did you mean {near}?"),
                None => "no such key; the long names of flags are, see `terrace --help`".into(),
            },
        )
    })
}

fn exact(name: &str) -> Option<&'static Flag> {
    let name = renamed::find(name).map_or(name, |renamed| renamed.name());
    FLAGS.iter().find(|flag| flag.long == name || flag.long == name.replace('_', "-"))
}

/// The flag with the long name `name`, or with a beginning of it that fits no other.
pub(crate) fn long_flag(name: &str, written: &str) -> Result<&'static Flag, UsageError> {
    if let Some(flag) = exact(name) {
        return Ok(flag);
    }
    let begins: Vec<_> = FLAGS.iter().filter(|flag| flag.long.starts_with(name)).collect();
    // What is clear among memcached's own, which all have a letter, stays clear.
    let memcacheds: Vec<_> = begins.iter().filter(|flag| flag.short.is_some()).collect();
    match begins[..] {
        [only] if !name.is_empty() => Ok(only),
        _ if !name.is_empty() && memcacheds.len() == 1 => Ok(memcacheds[0]),
        [one, other, ..] if !name.is_empty() => Err(UsageError::at(
            written,
            format!("could be --{} or --{}; write it out", one.long, other.long),
        )),
        _ => Err(UsageError::at(
            written,
            match nearest(name, FLAGS.iter().map(|flag| flag.long)) {
                Some(near) => format!("no such flag; did you mean --{near}?"),
                None => "no such flag; `terrace --help` lists them".to_string(),
            },
        )),
    }
}

/// The flag with the letter `letter`.
pub(crate) fn short_flag(letter: char) -> Result<&'static Flag, UsageError> {
    let find = |wanted: char| FLAGS.iter().find(|flag| flag.short == Some(wanted));
    let other_case =
        |c: char| if c.is_uppercase() { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() };
    find(letter).ok_or_else(|| {
        UsageError::at(
            format!("-{letter}"),
            match find(other_case(letter)) {
                Some(flag) => {
                    format!("no such flag; did you mean -{} (--{})?", other_case(letter), flag.long)
                }
                None => "no such flag; `terrace --help` lists them".to_string(),
            },
        )
    })
}

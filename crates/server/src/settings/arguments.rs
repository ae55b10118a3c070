//! The command line, read the way memcached's getopt does.

use super::UsageError;
use super::assign::{self, Assignment, Target};
use super::error::nearest;
use super::renamed::{self, Renamed};
use super::table::{Action, Flag};

/// What stands on a command line.
#[derive(Default)]
pub(crate) struct CommandLine {
    /// The settings, in order; `-o` taken apart.
    pub(crate) assignments: Vec<Assignment>,
    /// The files of `--config`, in order.
    pub(crate) config_files: Vec<String>,
    /// Words behind the first flag that belong to none: memcached does not look at them.
    pub(crate) unread: Vec<String>,
}

impl CommandLine {
    /// Takes `arguments` (without the program's name) apart: `-p 1`, `-p1`, `-vvd`, `--port 1`,
    /// `--port=1`, `--mem 64` where the rest is clear; an optional `serve` in front. Charts write flag and value as
    /// one argument, with blanks between them and behind.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, UsageError> {
        let mut line = Self::default();
        let mut rest = arguments.iter().map(String::as_str).peekable();
        rest.next_if_eq(&"serve");
        if arguments.first().is_some_and(|word| word == "help") {
            rest.next();
            line.long("help", &mut rest)?;
        }
        while let Some(argument) = rest.next() {
            match argument.strip_prefix("--") {
                Some("") => {
                    for argument in rest.by_ref() {
                        line.stray(argument)?;
                    }
                }
                Some(long) => line.long(long, &mut rest)?,
                None => match argument.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                    Some(letters) => line.short(letters, &mut rest)?,
                    None => line.stray(argument)?,
                },
            }
        }
        Ok(line)
    }

    /// A word that is no flag and no value. The first of a line was meant as something else than this server.
    fn stray(&mut self, argument: &str) -> Result<(), UsageError> {
        if argument.trim().is_empty() {
            return Ok(());
        }
        if self.assignments.is_empty() && self.config_files.is_empty() {
            let meant =
                nearest(argument, ["serve", "plan", "probe", "bench", "convert"].into_iter());
            let meant = meant.map_or(String::new(), |word| format!("; did you mean {word}?"));
            let reason = format!(
                "every setting is a flag, a first word may be serve, plan, probe, bench or convert; `terrace \
                 --help` lists them{meant}"
            );
            return Err(UsageError::at(argument, reason));
        }
        self.unread.push(argument.to_string());
        Ok(())
    }

    fn long<'a>(
        &mut self,
        text: &str,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), UsageError> {
        let text = text.trim_end();
        let (name, attached) = match text.split_once(|c: char| c == '=' || c.is_whitespace()) {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let flag = assign::long_flag(name, &format!("--{name}"))?;
        let renamed = renamed::find(name);
        let spelled = match renamed {
            Some(_) => format!("--{name}"),
            None => format!("--{}", flag.long),
        };
        match (flag.argument, attached) {
            // The one flag of memcached's that may have a value, and it does not look at it.
            (None, Some(_)) if flag.long == "verbose" => self.add(flag, renamed, spelled, ""),
            (None, Some(_)) => Err(UsageError::at(&spelled, "takes no value; write it alone")),
            (None, None) => self.add(flag, renamed, spelled, ""),
            (Some(argument), attached) => match attached.or_else(|| rest.next()) {
                Some(value) => self.add(flag, renamed, spelled, value),
                None => Err(UsageError::at(&spelled, format!("write --{} {argument}", flag.long))),
            },
        }
    }

    /// A cluster of letters; the first that takes an argument takes the rest as it.
    fn short<'a>(
        &mut self,
        letters: &str,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), UsageError> {
        for (at, letter) in letters.trim_end().char_indices() {
            let flag = assign::short_flag(letter)?;
            let spelled = format!("-{letter}");
            let Some(argument) = flag.argument else {
                self.add(flag, None, spelled, "")?;
                continue;
            };
            let attached = &letters[at + letter.len_utf8()..];
            let attached = (!attached.trim().is_empty()).then_some(attached);
            return match attached.or_else(|| rest.next()) {
                Some(value) => self.add(flag, None, spelled, value),
                None => Err(UsageError::at(&spelled, format!("write -{letter} {argument}"))),
            };
        }
        Ok(())
    }

    fn add(
        &mut self,
        flag: &'static Flag,
        renamed: Option<&'static Renamed>,
        mut written: String,
        value: &str,
    ) -> Result<(), UsageError> {
        // As memcached does before it looks at any value.
        let value = if flag.short.is_some() { value.trim_start() } else { value };
        match flag.action {
            Action::Config => self.config_files.push(value.to_string()),
            Action::Extended => self.assignments.extend(assign::options(value)?),
            _ => {
                if flag.argument.is_some() {
                    written = format!("{written} {value}");
                }
                let target = Target::Flag(flag);
                let value = renamed.map_or(value, |renamed| renamed.value(value)).to_string();
                self.assignments.push(Assignment { target, value, written, renamed });
            }
        }
        Ok(())
    }
}

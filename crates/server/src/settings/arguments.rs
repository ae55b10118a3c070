//! The command line, read the way memcached's getopt does.

use super::UsageError;
use super::assign::{self, Assignment, Target};
use super::table::{Action, Flag};

/// What stands on a command line.
#[derive(Default)]
pub(crate) struct CommandLine {
    /// The settings, in order; `-o` taken apart.
    pub(crate) assignments: Vec<Assignment>,
    /// The files of `--config`, in order.
    pub(crate) config_files: Vec<String>,
}

impl CommandLine {
    /// Takes `arguments` (without the program's name) apart: `-p 1`, `-p1`, `-vvd`, `--port 1`,
    /// `--port=1`, `--mem 64` where the rest is clear; an optional `serve` in front.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, UsageError> {
        let mut line = Self::default();
        let mut rest = arguments.iter().map(String::as_str).peekable();
        rest.next_if_eq(&"serve");
        if arguments.first().is_some_and(|word| word == "help") {
            rest.next();
            line.long("help", &mut rest)?;
        }
        while let Some(argument) = rest.next() {
            if let Some(long) = argument.strip_prefix("--") {
                line.long(long, &mut rest)?;
            } else if let Some(letters) = argument.strip_prefix('-').filter(|l| !l.is_empty()) {
                line.short(letters, &mut rest)?;
            } else {
                return Err(unexpected(argument));
            }
        }
        Ok(line)
    }

    fn long<'a>(
        &mut self,
        text: &str,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), UsageError> {
        if text.is_empty() {
            return rest.next().map_or(Ok(()), |argument| Err(unexpected(argument)));
        }
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let flag = assign::long_flag(name, &format!("--{name}"))?;
        let spelled = format!("--{}", flag.long);
        match (flag.argument, attached) {
            (None, Some(_)) => Err(UsageError::at(&spelled, "takes no value; write it alone")),
            (None, None) => self.add(flag, spelled, ""),
            (Some(argument), attached) => match attached.or_else(|| rest.next()) {
                Some(value) => self.add(flag, spelled, value),
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
        for (at, letter) in letters.char_indices() {
            let flag = assign::short_flag(letter)?;
            let spelled = format!("-{letter}");
            let Some(argument) = flag.argument else {
                self.add(flag, spelled, "")?;
                continue;
            };
            let attached = &letters[at + letter.len_utf8()..];
            let attached = (!attached.is_empty()).then_some(attached);
            return match attached.or_else(|| rest.next()) {
                Some(value) => self.add(flag, spelled, value),
                None => Err(UsageError::at(&spelled, format!("write -{letter} {argument}"))),
            };
        }
        Ok(())
    }

    fn add(
        &mut self,
        flag: &'static Flag,
        mut written: String,
        value: &str,
    ) -> Result<(), UsageError> {
        match flag.action {
            Action::Config => self.config_files.push(value.to_string()),
            Action::Extended => self.assignments.extend(assign::options(value)?),
            _ => {
                if flag.argument.is_some() {
                    written = format!("{written} {value}");
                }
                let target = Target::Flag(flag);
                self.assignments.push(Assignment { target, value: value.to_string(), written });
            }
        }
        Ok(())
    }
}

fn unexpected(argument: &str) -> UsageError {
    let reason = "every setting is a flag, a first word may be serve, plan, probe or bench; `terrace \
                  --help` lists them";
    UsageError::at(argument, reason)
}

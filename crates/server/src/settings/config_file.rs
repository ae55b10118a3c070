//! The TOML file of `--config`: the flags' long names as keys, `-o` options under `[extended]`.

use super::assign::{self, Assignment, Target};
use super::renamed;
use super::table::Action;
use super::{Settings, UsageError};
use toml::{Table, Value};

/// Reads `file`; `text` is its content.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Assignment>, UsageError> {
    let table: Table = text.parse().map_err(|error| syntax(file, text, &error))?;
    let mut assignments = Vec::new();
    for (key, value) in &table {
        let written = format!("{file}: {key}");
        match value {
            Value::Table(options) if key == "extended" => {
                for (name, value) in options {
                    let written = format!("{file}: extended.{name}");
                    for value in values(value, &written)? {
                        assignments.extend(extended(name, value, &written)?);
                    }
                }
            }
            value => {
                for value in values(value, &written)? {
                    assignments.extend(flag(key, value, &written)?);
                }
            }
        }
    }
    Ok(assignments)
}

/// Of the settings in `file`, those that say where the admin page is served and which token it asks for. The others
/// need not fit this machine or user, and have their defaults.
pub(crate) fn admin(file: &str, text: &str) -> Result<Settings, UsageError> {
    let mut settings = Settings::default();
    for assignment in parse(file, text)? {
        if ["admin", "admin-token-file"].contains(&assignment.key()) {
            assignment.apply(&mut settings)?;
        }
    }
    Ok(settings)
}

fn syntax(file: &str, text: &str, error: &toml::de::Error) -> UsageError {
    let line = error.span().map_or(1, |span| {
        1 + text.as_bytes().iter().take(span.start).filter(|&&byte| byte == b'\n').count()
    });
    let reason = error.message().lines().next().unwrap_or("not TOML");
    UsageError::at(format!("{file}, line {line}"), reason)
}

/// A value of a key: text to be read as on the command line, or a switch.
enum Given {
    Text(String),
    Switch(bool),
    Count(usize),
}

fn values(value: &Value, written: &str) -> Result<Vec<Given>, UsageError> {
    Ok(match value {
        Value::String(text) => vec![Given::Text(text.clone())],
        Value::Float(number) => vec![Given::Text(number.to_string())],
        Value::Boolean(on) => vec![Given::Switch(*on)],
        Value::Integer(number) => match usize::try_from(*number) {
            Ok(count) => vec![Given::Count(count)],
            Err(_) => vec![Given::Text(number.to_string())],
        },
        Value::Array(several) => {
            let mut all = Vec::new();
            for one in several {
                all.extend(values(one, written)?);
            }
            all
        }
        Value::Table(_) | Value::Datetime(_) => {
            return Err(UsageError::at(written, "write a number, a text in quotes, true or false"));
        }
    })
}

fn flag(key: &str, value: Given, written: &str) -> Result<Vec<Assignment>, UsageError> {
    let flag = assign::key(key, written)?;
    if matches!(flag.action, Action::Config | Action::Print(_)) {
        return Err(UsageError::at(written, "works on the command line only"));
    }
    let renamed = renamed::find(key);
    let assignment = |value: String| Assignment {
        target: Target::Flag(flag),
        written: if value.is_empty() { written.into() } else { format!("{written} = {value}") },
        value: renamed.map_or(value.as_str(), |renamed| renamed.value(&value)).to_string(),
        renamed,
    };
    match (flag.argument, value) {
        (Some(_), Given::Text(text)) if matches!(flag.action, Action::Extended) => {
            assign::options(&text)
        }
        (Some(_), Given::Text(text)) => Ok(vec![assignment(text)]),
        (Some(_), Given::Count(number)) => Ok(vec![assignment(number.to_string())]),
        (Some(argument), Given::Switch(_)) => {
            Err(UsageError::at(written, format!("write a value: {argument}")))
        }
        (None, Given::Switch(on)) => Ok(repeat(usize::from(on), assignment)),
        (None, Given::Count(count)) if count <= 3 => Ok(repeat(count, assignment)),
        (None, _) => Err(UsageError::at(written, "write true or false")),
    }
}

/// A switch given `count` times, as in `-vv`.
fn repeat(count: usize, assignment: impl Fn(String) -> Assignment) -> Vec<Assignment> {
    (0..count).map(|_| assignment(String::new())).collect()
}

fn extended(name: &str, value: Given, written: &str) -> Result<Option<Assignment>, UsageError> {
    let written = written.to_string();
    match value {
        Given::Text(text) => assign::named_option(name, Some(&text), written).map(Some),
        Given::Count(number) => {
            assign::named_option(name, Some(&number.to_string()), written).map(Some)
        }
        Given::Switch(true) => assign::named_option(name, None, written).map(Some),
        Given::Switch(false) => {
            // Looked up all the same, so that a misspelt name is told.
            assign::named_option(name, None, written.clone())?;
            let opposite = opposite(name);
            Ok(assign::named_option(&opposite, None, format!("{written} = false")).ok())
        }
    }
}

/// The option that turns off what this one turns on, if there is one.
fn opposite(name: &str) -> String {
    name.strip_prefix("no_").map_or_else(|| format!("no_{name}"), str::to_owned)
}

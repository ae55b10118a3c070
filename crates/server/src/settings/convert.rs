//! `terrace convert`: the settings file of memcached's service as one of ours.

use super::arguments::CommandLine;
use super::assign::{Assignment, Target};
use super::extended::Effect;
use super::table::Action;
use super::{Invocation, UsageError};
use std::fmt::Write;
use toml::Value;

/// Keys of `/etc/sysconfig/memcached` (Fedora, RHEL) and the flags that their unit makes of them.
const SYSCONFIG: [(&str, &str); 4] =
    [("PORT", "-p"), ("USER", "-u"), ("MAXCONN", "-c"), ("CACHESIZE", "-m")];

/// Flags that belong to the process, not to the cache, and why the service does without.
const OF_THE_PROCESS: [(&str, &str); 3] = [
    ("user", "the unit of the service runs it as the user `terrace`"),
    ("daemon", "the service manager runs it in the foreground"),
    ("pidfile", "the service manager knows the process"),
];

/// Translates `text`, the content of `file`: Debian's `/etc/memcached.conf`, whose lines are flags, or
/// `/etc/sysconfig/memcached`, whose lines are variables. The result is a file for `--config` that means the same;
/// what has no effect there stands in comments.
///
/// # Errors
///
/// Fails on a line that is neither, and on flags that `terrace` would not start with.
pub fn convert(file: &str, text: &str) -> Result<String, UsageError> {
    let mut arguments = Vec::new();
    let mut comments = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = || format!("{file}, line {}", number + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words = |text| {
            shlex::split(text).ok_or_else(|| UsageError::at(place(), "a quote is not closed"))
        };
        match line.split_once('=').filter(|(name, _)| is_variable(name)) {
            Some(("OPTIONS", value)) => {
                let value = words(value)?.join(" ");
                arguments.extend(value.split_whitespace().map(str::to_owned));
            }
            Some((name, value)) => {
                let Some((_, flag)) = SYSCONFIG.iter().find(|(known, _)| *known == name) else {
                    return Err(UsageError::at(
                        place(),
                        format!("{name} is no variable of memcached's service"),
                    ));
                };
                arguments.extend([(*flag).to_owned(), words(value)?.concat()]);
            }
            None if line.starts_with('-') => arguments.extend(words(line)?),
            None if line.starts_with("logfile") => {
                comments.push(format!(
                    "{line}: the log goes to the journal, see `journalctl -u terrace`"
                ));
            }
            None => {
                return Err(UsageError::at(
                    place(),
                    "write flags (-m 64), or variables (CACHESIZE=\"64\")",
                ));
            }
        }
    }
    // Found here rather than at the first start.
    Invocation::parse(&arguments)?;
    let line = CommandLine::parse(&arguments)?;
    comments
        .extend(line.unread.iter().map(|word| format!("{word}: memcached does not look at it")));
    Ok(written(file, &line.assignments, comments))
}

fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// The file: keys, then options of `-o`, then what was left out.
fn written(file: &str, assignments: &[Assignment], mut comments: Vec<String>) -> String {
    let mut keys: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut options: Vec<(&str, Vec<Value>)> = Vec::new();
    for Assignment { target, value, written, .. } in assignments {
        let (all, name, value) = match target {
            Target::Flag(flag) => {
                if let Some((_, why)) = OF_THE_PROCESS.iter().find(|(name, _)| *name == flag.long) {
                    comments.push(format!("{written}: {why}"));
                    continue;
                }
                match (&flag.action, flag.argument) {
                    (Action::Note(why), _) => {
                        comments.push(format!("{written}: {why}"));
                        continue;
                    }
                    (_, Some(_)) => (&mut keys, flag.long, text_or_number(value)),
                    (_, None) => (&mut keys, flag.long, Value::Boolean(true)),
                }
            }
            Target::Option(option, name) => match option.effect {
                Effect::Note(why) => {
                    comments.push(format!("{written}: {why}"));
                    continue;
                }
                _ if value.is_empty() => (&mut options, *name, Value::Boolean(true)),
                _ => (&mut options, *name, text_or_number(value)),
            },
        };
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => all.push((name, vec![value])),
        }
    }
    let mut text =
        format!("# Settings of terrace (--config), from {file} by `terrace convert`.\n\n");
    let mut rows = |rows: Vec<(&str, Vec<Value>)>| {
        for (name, values) in rows {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{name} = {}", one(name, values));
        }
    };
    let has_tier = keys.iter().any(|(name, _)| *name == "tier")
        || options.iter().any(|(name, _)| *name == "ext_path");
    rows(keys);
    if !has_tier {
        text.push_str(
            "\n# A drive below DRAM; docs/guide/size.md says how much memory-limit it needs.\n",
        );
        text.push_str(
            "# tier = [\"ssd:/var/lib/terrace/cache:32g\"]\n# state = \"/run/terrace\"\n",
        );
    }
    if !options.is_empty() {
        text.push_str("\n[extended]\n");
        for (name, values) in options {
            let _ = writeln!(text, "{name} = {}", one(name, values));
        }
    }
    if !comments.is_empty() {
        text.push_str("\n# Left out:\n");
        for comment in comments {
            let _ = writeln!(text, "# {comment}");
        }
    }
    text
}

/// The values of a key as one: a list where it may be repeated, how often for a switch, else the last.
fn one(name: &str, mut values: Vec<Value>) -> Value {
    match name {
        "tier" | "listen" | "ext_path" | "admin-host" => Value::Array(values),
        "verbose" => Value::Integer(values.len().min(3) as i64),
        _ => values.pop().unwrap_or(Value::Boolean(true)),
    }
}

/// A number where the whole text is one that TOML writes alike.
fn text_or_number(text: &str) -> Value {
    let text = text.trim();
    match text.parse::<u32>() {
        Ok(number) if number.to_string() == text => Value::Integer(number.into()),
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, config_file};
    use super::*;

    /// What a file of settings means.
    fn meaning(toml: &str) -> Settings {
        let mut settings = Settings::default();
        for assignment in config_file::parse("t.toml", toml).expect("it was just written") {
            assignment.apply(&mut settings).expect("it was accepted as flags");
        }
        settings
    }

    fn flags(text: &str) -> Settings {
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        match Invocation::parse(&words) {
            Ok(Invocation::Serve(settings)) => Settings { notes: Vec::new(), ..*settings },
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn debian_file_means_what_its_flags_mean() {
        let file = "# memcached default config file\n\n-d\nlogfile /var/log/memcached.log\n# -v\n# -vv\n-m 64\n-p 11211\n\
                    -u memcache\n-l 127.0.0.1\n-l ::1\n# -c 1024\n-P /var/run/memcached/memcached.pid\n\
                    -o ext_path=/data/e:1G,idle_timeout=60,modern -vv\n";
        let toml = convert("/etc/memcached.conf", file).expect("it is one");
        let same = "-m 64 -p 11211 -l 127.0.0.1 -l ::1 -o ext_path=/data/e:1G,idle_timeout=60 -vv";
        assert_eq!(Settings { notes: Vec::new(), ..meaning(&toml) }, flags(same), "{toml}");
        for left_out in [
            "logfile /var/log/memcached.log: ",
            "-d: ",
            "-u memcache: ",
            "-P /var/run",
            "-o modern: ",
        ] {
            assert!(toml.contains(&format!("\n# {left_out}")), "{left_out}\n{toml}");
        }
        assert!(!toml.contains("# tier"), "{toml}");
    }

    #[test]
    fn sysconfig_file_means_what_its_unit_starts() {
        let file = "PORT=\"11222\"\nUSER=\"memcached\"\nMAXCONN=\"2048\"\nCACHESIZE=\"1024\"\n\
                    OPTIONS=\"-l 127.0.0.1,::1 -t 8 -R 40\"\n";
        let toml = convert("/etc/sysconfig/memcached", file).expect("it is one");
        let same = "-p 11222 -c 2048 -m 1024 -l 127.0.0.1,::1 -t 8 -R 40";
        assert_eq!(Settings { notes: Vec::new(), ..meaning(&toml) }, flags(same), "{toml}");
        assert!(toml.contains("# tier = "), "{toml}");
    }

    #[test]
    fn line_that_is_neither_is_named() {
        for (text, says) in [
            ("-m 64\nmemory 64\n", "f, line 2: write flags"),
            ("-m abc\n", "-m abc"),
            ("-l 'a\n", "f, line 1: a quote is not closed"),
            ("LISTEN=1\n", "f, line 1: LISTEN is no variable"),
        ] {
            let error = convert("f", text).expect_err(text).to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}

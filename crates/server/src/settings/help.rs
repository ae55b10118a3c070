//! `--help` and docs/flags.md, both from the tables.

use super::extended::{Effect, Extended, OPTIONS};
use super::table::{FLAGS, Flag, Section};
use std::fmt::Write;

const COLUMN: usize = 34;

/// What `terrace` is besides a server, by its first word; the rest of their command lines is their own.
const PROGRAMS: [(&str, &str); 6] = [
    ("serve", "the server; may be left out"),
    ("plan", "how much DRAM, drives and nodes a cache needs, and how it will do"),
    ("probe", "measures a drive, and writes the profile that plan and --tier take"),
    ("bench", "loads a server and measures what it answers"),
    ("export", "shares files and block devices with other machines over NVMe/TCP"),
    ("convert", "writes the settings file of memcached's service as one of ours"),
];

fn of(section: Section) -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().filter(move |flag| flag.section == section)
}

fn spelled(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_string(), |letter| format!("-{letter}, "));
    let argument = flag.argument.map_or(String::new(), |argument| format!(" {argument}"));
    format!("{short}--{}{argument}", flag.long)
}

pub(super) fn with_default(help: &str, default: &str) -> String {
    match default {
        "" => help.to_string(),
        default => format!("{help} [{default}]"),
    }
}

fn row(text: &mut String, left: &str, right: &str) {
    let left = format!("  {left}");
    // Writing to a String can't fail.
    let _ = match left.len() < COLUMN {
        true => writeln!(text, "{left:COLUMN$}{right}"),
        false => writeln!(text, "{left}\n{:COLUMN$}{right}", ""),
    };
}

pub(super) fn option_name(option: &Extended) -> String {
    let argument = option.argument.map_or(String::new(), |argument| format!("={argument}"));
    format!("{}{argument}", option.names.join(", "))
}

/// What `--help` prints.
pub fn help() -> String {
    let mut text = format!(
        "terrace {}: a memcached server whose cache is as large as its drives\n\n\
         usage: terrace [serve] [FLAGS]\n       \
         terrace PROGRAM [FLAGS]\n\n\
         Sizes take k, m, g, t or p (powers of 1024). Defaults stand in [brackets].\n",
        env!("CARGO_PKG_VERSION")
    );
    text.push_str("\nPrograms (`terrace PROGRAM --help` says more):\n");
    for (name, what) in PROGRAMS {
        row(&mut text, name, what);
    }
    for section in Section::ALL {
        let _ = writeln!(text, "\n{}:", section.title());
        for flag in of(section) {
            row(&mut text, &spelled(flag), &with_default(flag.help, flag.default));
        }
    }
    text.push_str("\nOptions for -o:\n");
    for option in OPTIONS.iter().filter(|o| matches!(o.effect, Effect::Set(_) | Effect::Switch(_)))
    {
        row(&mut text, &option_name(option), &with_default(option.help, option.default));
    }
    text.push_str(
        "\nmemcached's other -o options are accepted without effect, those for the proxy\n",
    );
    text.push_str("refused; docs/flags.md lists them.\n");
    text
}

/// The content of docs/flags.md.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Flags\n\n\
         Written from the tables in `crates/server/src/settings` by\n\
         `TERRACE_UPDATE_DOCS=1 cargo test -p terrace --lib settings`; a test fails when it is out of date.\n\n\
         Sizes take k, m, g, t or p (powers of 1024); `5m`, `5M`, `5Mi`, `5MB` and `5MiB` mean the same.\n\
         memcached's flags are read as memcached reads them: flag and value may be one argument (`\"-m 1024\"`),\n\
         with blanks around the value; what stands behind a number (`-t 2x`, `-m 64.5`) is not looked at, which a\n\
         line in the log says, and no more are words that belong to no flag. In the TOML file of `--config` the long names are the\n\
         keys (`memory-limit = \"4g\"`, `disable-cas = true`, `tier = [\"ssd:/data/a:512g\"]`), the options of\n\
         `-o` stand under `[extended]`, and what the command line says wins.\n",
    );
    for section in Section::ALL {
        let _ = writeln!(
            text,
            "\n## {}\n\n| flag | default | meaning |\n|---|---|---|",
            section.title()
        );
        for flag in of(section) {
            let spelled = spelled(flag).trim_start().replace('|', "\\|");
            let _ = writeln!(text, "| `{spelled}` | {} | {} |", flag.default, flag.help);
        }
    }
    text.push_str("\n## Options for -o\n\n| option | default | meaning |\n|---|---|---|\n");
    for option in OPTIONS {
        let fate = match option.effect {
            Effect::Set(_) | Effect::Switch(_) => "",
            Effect::Note(_) => "no effect: ",
            Effect::Refuse(_) => "refused: ",
        };
        let names = option_name(option).replace(", ", "`, `");
        let _ = writeln!(text, "| `{names}` | {} | {fate}{} |", option.default, option.help);
    }
    text
}

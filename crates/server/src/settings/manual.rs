//! The manual pages and the completions of shells that packages install, written from the tables like docs/flags.md.

use super::Invocation;
use super::extended::{Effect, OPTIONS};
use super::help::{option_name, with_default};
use super::table::{FLAGS, Flag};
use clap::builder::{PossibleValuesParser, Resettable};
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::path::Path;

/// Where packages take them from.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/package");

/// The values of flags that take one of a few words.
const CHOICES: [(&str, &[&str]); 6] = [
    ("protocol", &["auto", "ascii", "binary"]),
    ("durability", &["process", "strict"]),
    ("on-mismatch", &["cold", "refuse"]),
    ("write-policy", &["all-once", "all-twice", "reused-once", "reused-none"]),
    ("io-engine", &["auto", "io_uring", "pool"]),
    ("log-format", &["text", "json"]),
];

const DESCRIPTION: &str = "A memcached server whose cache is as large as its drives. Hot records are kept in DRAM, all \
others on local drives. Any client of memcached works with it, and so do memcached's flags. The plan says how much DRAM \
and drives a cache needs, the probe measures a drive, and the bench loads a server; tiers shows the tiers of a running \
server and takes them out; export shares drives with other machines. Sizes take k, m, g, t or p (powers \
of 1024).";

/// What stands in terrace(1) behind the flags.
const SECTIONS: [(&str, &[&str]); 4] = [
    (
        "EXAMPLES",
        &[
            "terrace -m 1024",
            "terrace -u terrace -m 6144 --tier ssd:/data/cache:512g --state /run/terrace",
            "terrace --config /etc/terrace.toml",
        ],
    ),
    (
        "FILES",
        &[
            "/etc/terrace.toml: the settings of the service. A key is the long name of a flag.",
            "/var/lib/terrace: the tier of the service, unless the settings name another path.",
            "/run/terrace: the state of the service, with which a crash comes back warm.",
        ],
    ),
    (
        "SIGNALS",
        &[
            "SIGTERM, SIGINT, SIGUSR1: write out what is in DRAM (for --stop-timeout at most), and end. A second one ends \
             the server at once.",
            "SIGHUP: read passwords and certificates again.",
        ],
    ),
    (
        "EXIT STATUS",
        &[
            "0 after a stop, 1 for a flag or value that can't be read, 64 for settings that exclude each other, 67 if \
             the user of -u does not exist, 71 if the system refused something.",
        ],
    ),
];

fn hint(placeholder: &str) -> ValueHint {
    match placeholder {
        "FILE" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        _ => ValueHint::Unknown,
    }
}

/// Whether an option of `-o` has an effect.
fn changes(effect: &Effect) -> bool {
    matches!(effect, Effect::Set(_) | Effect::Switch(_))
}

/// The names behind `-o` that change something, as they are completed: with a `=` where a value follows.
fn extended_names() -> Vec<String> {
    let with_sign = |name: &str, has_value| format!("{name}{}", if has_value { "=" } else { "" });
    OPTIONS
        .iter()
        .filter(|option| changes(&option.effect))
        .flat_map(|option| {
            option.names.iter().map(|name| with_sign(name, option.argument.is_some()))
        })
        .collect()
}

fn argument(flag: &'static Flag) -> Arg {
    let mut arg = Arg::new(flag.long).long(flag.long);
    arg = arg.help(with_default(flag.help, flag.default)).help_heading(flag.section.title());
    if let Some(letter) = flag.short {
        arg = arg.short(letter);
    }
    let Some(placeholder) = flag.argument else { return arg.action(ArgAction::SetTrue) };
    arg = arg.value_name(placeholder).value_hint(hint(placeholder)).action(ArgAction::Append);
    match CHOICES.iter().find(|(long, _)| *long == flag.long) {
        // Their help names them.
        Some((_, words)) => {
            arg.value_parser(PossibleValuesParser::new(*words)).hide_possible_values(true)
        }
        None if flag.long == "user" => arg.value_hint(ValueHint::Username),
        None => arg,
    }
}

/// The program a user types, with its flags.
fn terrace() -> Command {
    Command::new("terrace")
        .about("A memcached server whose cache is as large as its drives")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(FLAGS.iter().map(argument))
}

/// `terrace PROGRAM`, for each that has a command line of its own.
fn programs() -> [Command; 6] {
    let program = |name: &'static str, command: Command| {
        command.name(name).version(Resettable::Reset).disable_version_flag(true)
    };
    [
        program("plan", terrace_plan::command()),
        program("probe", terrace_probe::command()),
        program("bench", terrace_load::command()),
        program("tiers", crate::tiers::command()),
        program("export", crate::export::command()),
        program("convert", convert()),
    ]
}

fn convert() -> Command {
    let file = Arg::new("file").value_name("FILE").required(true).value_hint(ValueHint::FilePath);
    let help = "/etc/memcached.conf, or /etc/sysconfig/memcached";
    Command::new("convert")
        .about("Writes the settings of memcached's service as settings of terrace")
        .arg(file.help(help))
}

/// What a shell completes: the server's flags with and without `serve` in front, and the programs with theirs.
fn completed() -> Command {
    let names = extended_names();
    let with_names = |command: Command| {
        let words = PossibleValuesParser::new(names.clone());
        command.mut_arg("extended", |arg| arg.value_parser(words))
    };
    let serve = terrace().name("serve").about("The server; may be left out");
    with_names(terrace())
        .disable_help_subcommand(true)
        .subcommand(with_names(serve))
        .subcommands(programs())
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut completed(), "terrace", &mut text);
    text
}

/// terrace(1): the server.
fn page_of_the_server() -> Vec<u8> {
    let command = terrace().override_usage(
        "terrace [serve] [FLAGS]\nterrace plan [FLAGS]\nterrace probe [FLAGS]\nterrace bench [FLAGS]\n\
         terrace tiers status|drain|cancel|remove [FLAGS]\nterrace export [FLAGS] PATH...\nterrace convert FILE",
    );
    let page = Man::new(command.long_about(DESCRIPTION)).source("Terrace").manual("Terrace");
    let mut text = Vec::new();
    for part in [
        Man::render_title,
        Man::render_name_section,
        Man::render_synopsis_section,
        Man::render_description_section,
        Man::render_options_section,
    ] {
        part(&page, &mut text).expect("memory takes all");
    }
    let mut rest = Roff::new();
    rest.control("SH", ["OPTIONS FOR -o"]);
    for option in OPTIONS.iter().filter(|option| changes(&option.effect)) {
        rest.control("TP", []).text([bold(option_name(option))]);
        rest.text([roman(with_default(option.help, option.default))]);
    }
    for (title, paragraphs) in SECTIONS {
        rest.control("SH", [title]);
        for paragraph in paragraphs {
            rest.control("PP", []).text([roman(*paragraph)]);
        }
    }
    text.extend(rest.render().into_bytes());
    text
}

/// `terrace-plan(1)` and the like, and `terrace-tiers-drain(1)` and the like.
fn pages_of(mut program: Command) -> Vec<(String, Vec<u8>)> {
    program.build();
    let called = format!("terrace {}", program.get_name());
    let actions = program.get_subcommands().map(|action| {
        let called = format!("{called} {}", action.get_name());
        page_of(action.clone(), called)
    });
    let actions: Vec<_> = actions.collect();
    [page_of(program, called)].into_iter().chain(actions).collect()
}

fn page_of(program: Command, called: String) -> (String, Vec<u8>) {
    let name = called.replace(' ', "-");
    let page = Man::new(program.name(name.clone()).bin_name(called).display_name(name.clone()))
        .source("Terrace")
        .manual("Terrace");
    let mut text = Vec::new();
    page.render(&mut text).expect("memory takes all");
    (format!("man/{name}.1"), text)
}

/// Every file, by its path in the folder.
fn files() -> Vec<(String, Vec<u8>)> {
    let shells =
        [("terrace.bash", Shell::Bash), ("_terrace", Shell::Zsh), ("terrace.fish", Shell::Fish)];
    let mut files = vec![("man/terrace.1".to_string(), page_of_the_server())];
    files.extend(programs().into_iter().flat_map(pages_of));
    files.extend(shells.map(|(name, shell)| (format!("completions/{name}"), completions(shell))));
    files
}

#[test]
fn manual_pages_and_completions_are_up_to_date() {
    for (name, text) in files() {
        let path = format!("{FOLDER}/{name}");
        if std::env::var_os("TERRACE_UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let written = std::fs::read(&path).unwrap_or_default();
        assert!(
            written == text,
            "{path}: run TERRACE_UPDATE_DOCS=1 cargo test -p terrace --lib settings"
        );
    }
}

#[test]
fn completed_words_are_understood() {
    for (long, words) in CHOICES {
        for word in words {
            let line = [format!("--{long}={word}")];
            assert!(Invocation::parse(&line).is_ok(), "{line:?} is completed and refused");
        }
    }
}

#[test]
fn choices_are_of_flags() {
    for (name, _) in CHOICES {
        assert!(FLAGS.iter().any(|flag| flag.long == name), "--{name}");
    }
}

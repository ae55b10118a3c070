//! Flags that do nothing without another one: each is noted, since whoever wrote it meant something.

use super::assign::{Assignment, Target};
use super::extended::Effect;
use super::{AdminAddress, Port, Settings};
use terrace_cache::Note;

/// Flags and what they need, in words and as a question to the settings.
type Needs = (&'static [&'static str], &'static str, fn(&Settings) -> bool);

const NO_TIER: &str = "there is no --tier";

const NEEDS: &[Needs] = &[
    (
        &[
            "write-budget",
            "tier-full",
            "write-policy",
            "background-threads",
            "io-engine",
            "roster",
            "tier-wait",
        ],
        NO_TIER,
        |s| !s.tiers.is_empty(),
    ),
    // The state alone is recovered too.
    (&["durability", "on-mismatch"], NO_TIER, |s| !s.tiers.is_empty() || s.state_dir.is_some()),
    (&["admin-token-file"], "there is no --admin", |s| s.admin.is_some()),
    (&["admin-host"], "no --admin on a TCP port without a token", |s| {
        matches!(s.admin, Some(AdminAddress::Tcp(_))) && s.admin_token_file.is_none()
    }),
    (&["public-udp"], "there is no -U", |s| s.udp_port != Port::Off),
    (&["unix-mask"], "there is no -s", |s| s.unix_socket.is_some()),
];

/// What was given, by name.
pub(super) struct Given {
    flags: Vec<(&'static str, String)>,
    tls_options: Vec<&'static str>,
}

impl Given {
    pub(super) fn new(assignments: &[Assignment]) -> Self {
        let mut given = Self { flags: Vec::new(), tls_options: Vec::new() };
        for assignment in assignments {
            match assignment.target {
                Target::Flag(flag) => given.flags.push((flag.long, assignment.written.clone())),
                // Options that never have an effect are noted as such.
                Target::Option(option, _) if matches!(option.effect, Effect::Note(_)) => {}
                Target::Option(_, name) if name.starts_with("ssl_") => given.tls_options.push(name),
                Target::Option(..) => {}
            }
        }
        given
    }

    /// A line for each that has no effect with these settings.
    pub(super) fn notes(&self, settings: &Settings) -> Vec<Note> {
        let mut notes = Vec::new();
        for (names, reason, is_met) in NEEDS {
            let all = self.flags.iter().filter(|(name, _)| names.contains(name));
            if !is_met(settings) {
                notes.extend(
                    all.map(|(_, written)| Note::Info(format!("{written}: no effect, {reason}"))),
                );
            }
        }
        if !settings.tls.enabled && !self.tls_options.is_empty() {
            let names = self.tls_options.join(", ");
            let note = format!("-o {names}: without -Z connections are not encrypted");
            notes.push(Note::Warning(note));
        }
        notes
    }
}

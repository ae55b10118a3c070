//! Asks the drives of tiers for their health, as they count it themselves: by `smartctl`, or by `nvme` where that is
//! missing, every five minutes.
//!
//! A thread that lives for one round waits for the programs, so that neither requests nor background work do. A drive
//! that does not answer the server is not asked either. What an operator has to know is logged.

mod findings;
mod program;
pub(crate) mod report;

use super::shared::Shared;
use program::{Answer, NoAnswer};
use report::Report;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use terrace_cache::TierState;
use terrace_device::{Health, drive_of};
use tracing::{info, warn};

const ASK_EVERY: Duration = Duration::from_secs(300);
/// What a program has for an answer. Most drives take less than 100 ms.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// What a round has for its end when the server stops.
const STOP_TIME: Duration = Duration::from_secs(2);
/// What remains unknown of a drive that can't be asked.
const UNKNOWN: &str = "its wear, spare blocks and media errors are unknown";

/// The latest report of each tier's drive. Guards nothing else, and no other lock is taken while it is held.
#[derive(Default)]
pub(crate) struct DriveHealth(Mutex<Vec<Option<Report>>>);

impl DriveHealth {
    /// The latest report of the drive that a tier lies on, if it ever gave one.
    pub(crate) fn report(&self, tier: usize) -> Option<Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tier).cloned().flatten()
    }

    fn set(&self, tier: usize, report: Option<Report>) {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() <= tier {
            reports.resize(tier + 1, None);
        }
        reports[tier] = report;
    }
}

/// When drives are asked.
pub(super) struct Schedule {
    /// When the latest round began.
    asked: Option<Instant>,
    round: Round,
}

enum Round {
    Over(Drives),
    Running(JoinHandle<Drives>),
    /// There is no thread to be had for it, or one has panicked.
    Impossible,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self { asked: None, round: Round::Over(Drives::default()) }
    }

    /// Begins a round if one is due. Must be called several times a minute; never blocks.
    pub(super) fn ask_if_due(&mut self, shared: &Arc<Shared>) {
        let is_due = self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if shared.settings.tiers.is_empty() || !is_due {
            return;
        }
        self.round = match std::mem::replace(&mut self.round, Round::Impossible) {
            Round::Running(thread) if !thread.is_finished() => Round::Running(thread),
            Round::Running(thread) => thread.join().map_or(Round::Impossible, Round::Over),
            round => round,
        };
        if let Round::Over(drives) = &mut self.round {
            self.asked = Some(Instant::now());
            let (mut drives, shared) = (std::mem::take(drives), Arc::clone(shared));
            let thread = thread::Builder::new().name("drive-health".into()).spawn(move || {
                drives.ask_all(&shared);
                drives
            });
            self.round = thread.map_or(Round::Impossible, Round::Running);
        }
    }
}

impl Drop for Schedule {
    /// Waits until a program that runs is ended, which takes moments unless a drive is amiss.
    fn drop(&mut self) {
        let Round::Running(thread) = &self.round else { return };
        let end = Instant::now() + STOP_TIME;
        while !thread.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What is known of asking each drive.
#[derive(Default)]
struct Drives {
    drives: BTreeMap<String, Asked>,
    has_logged_missing: bool,
}

/// How asking one drive went so far.
#[derive(Default)]
struct Asked {
    has_answered: bool,
    is_given_up: bool,
    /// Failures are logged when they begin.
    is_failing: bool,
    /// A program that was killed and did not end.
    stuck: Option<Child>,
}

impl Drives {
    /// One round.
    fn ask_all(&mut self, shared: &Shared) {
        for (drive, tiers) in drives_of_tiers(shared) {
            if shared.is_stopping() {
                return;
            }
            let is_left_alone = self.drives.entry(drive.clone()).or_default().is_left_alone();
            if is_left_alone
                || !is_answering(shared.cache.drive_health().map(|(_, health)| health), &tiers)
            {
                continue;
            }
            let answer = match Path::new(&drive).exists() {
                true => ask(&Programs::default(), &drive, &|| shared.is_stopping()),
                false => {
                    Err(Failure::Denied("smartctl", "its device is hidden from the server".into()))
                }
            };
            // A program that was ended for a stop says nothing of its drive.
            if shared.is_stopping() {
                return;
            }
            match answer {
                Ok(report) => self.note_report(shared, &tiers, report),
                Err(failure) => self.note_failure(&drive, &names(&tiers), failure),
            }
        }
    }

    fn note_report(&mut self, shared: &Shared, tiers: &[Tier], report: Report) {
        if let Some(asked) = self.drives.get_mut(&report.drive) {
            (asked.has_answered, asked.is_failing) = (true, false);
        }
        let before = tiers.first().and_then(|tier| shared.drive_health.report(tier.number));
        let names = names(tiers);
        for finding in findings::findings(before.as_ref(), &report) {
            finding.log(&names);
        }
        for tier in tiers {
            shared.drive_health.set(tier.number, Some(report.clone()));
        }
    }

    fn note_failure(&mut self, drive: &str, tiers: &str, failure: Failure) {
        let asked = self.drives.entry(drive.to_owned()).or_default();
        let is_new = !std::mem::replace(&mut asked.is_failing, true);
        match failure {
            Failure::NoProgram(wanted) => {
                asked.is_given_up = true;
                if !std::mem::replace(&mut self.has_logged_missing, true) {
                    info!(
                        "tier {tiers}: drive {drive}: {UNKNOWN}, since {wanted} installed; to have them in metrics and \
                         log, install smartmontools (7.0 or later) and restart"
                    );
                }
            }
            Failure::Denied(program, why) => {
                asked.is_given_up = true;
                warn!(
                    "tier {tiers}: drive {drive}: {UNKNOWN}, since {program} may not ask it ({why}); to have them in \
                     metrics and log, give the server the rights that docs/guide/operate.md names and restart"
                );
            }
            // It is none that has a health, such as a virtual one.
            Failure::Refused(program, why) if !asked.has_answered => {
                asked.is_given_up = true;
                info!(
                    "tier {tiers}: drive {drive}: {UNKNOWN}, since {program} has none of it ({why}); it is not asked \
                     again before a restart"
                );
            }
            Failure::Refused(program, why) if is_new => warn!(
                "tier {tiers}: drive {drive}: {program} has no answer any more ({why}); what it said last is kept, it \
                 is asked again; check the drive and the kernel's log"
            ),
            Failure::Late(program, stuck) => {
                asked.stuck = stuck;
                if is_new {
                    let seconds = ANSWER_TIME.as_secs();
                    warn!(
                        "tier {tiers}: drive {drive}: {program} had no answer within {seconds} s and was ended; it is \
                         asked again; check the drive and the kernel's log"
                    );
                }
            }
            Failure::Refused(..) => {}
        }
    }
}

impl Asked {
    fn is_left_alone(&mut self) -> bool {
        let is_stuck = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        self.stuck.take_if(|child| !is_stuck(child));
        self.is_given_up || self.stuck.is_some()
    }
}

struct Tier {
    number: usize,
    label: String,
}

fn names(tiers: &[Tier]) -> String {
    tiers.iter().map(|tier| tier.label.as_str()).collect::<Vec<_>>().join(", ")
}

/// The devices of the drives that can be asked, with the tiers on each.
fn drives_of_tiers(shared: &Shared) -> BTreeMap<String, Vec<Tier>> {
    let mut drives: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let tiers = shared.cache.stats().tiers;
    for (number, (stats, spec)) in tiers.into_iter().zip(&shared.tier_specs()).enumerate() {
        if stats.state == TierState::Removed {
            shared.drive_health.set(number, None);
            continue;
        }
        // One that can't be looked at is of no use to a program.
        let Some(Ok(Some(name))) = spec.place.path().map(drive_of) else { continue };
        // In /sys an exclamation mark stands for the slash of a folder in /dev.
        let device = format!("/dev/{}", name.replace('!', "/"));
        drives.entry(device).or_default().push(Tier { number, label: stats.label });
    }
    drives
}

/// Whether the server itself has answers of the drive, by each of the tiers on it.
fn is_answering(health: impl Iterator<Item = Health>, tiers: &[Tier]) -> bool {
    let has_none = |health: &Health| matches!(health, Health::Unresponsive(_) | Health::Gone(_));
    let silent = health.enumerate().filter(|(_, health)| has_none(health));
    !silent.into_iter().any(|(number, _)| tiers.iter().any(|tier| tier.number == number))
}

/// Why a drive has no report. With the name of the program.
#[derive(Debug)]
enum Failure {
    /// With what is not there.
    NoProgram(&'static str),
    Denied(&'static str, String),
    Refused(&'static str, String),
    /// With the process, if it can't be ended.
    Late(&'static str, Option<Child>),
}

/// Names or paths of the programs that ask.
struct Programs {
    smartctl: PathBuf,
    nvme: PathBuf,
}

impl Default for Programs {
    fn default() -> Self {
        Self { smartctl: "smartctl".into(), nvme: "nvme".into() }
    }
}

fn ask(
    programs: &Programs,
    drive: &str,
    is_stopping: &dyn Fn() -> bool,
) -> Result<Report, Failure> {
    let answer = run("smartctl", &programs.smartctl, &["--json", "-a", drive], is_stopping);
    if !matches!(answer, Err(Failure::NoProgram(_))) || !drive.starts_with("/dev/nvme") {
        return read("smartctl", &answer?, |answer| Report::of_smartctl(drive, answer));
    }
    let arguments = ["smart-log", "--output-format=json", drive];
    let answer = run("nvme", &programs.nvme, &arguments, is_stopping);
    let answer = answer.map_err(|failure| match failure {
        Failure::NoProgram(_) => Failure::NoProgram("neither smartctl nor nvme is"),
        failure => failure,
    });
    read("nvme", &answer?, |answer| Report::of_nvme(drive, answer))
}

fn run(
    name: &'static str,
    program: &Path,
    arguments: &[&str],
    is_stopping: &dyn Fn() -> bool,
) -> Result<Answer, Failure> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    program::ask(&mut command, ANSWER_TIME, is_stopping).map_err(|no_answer| match no_answer {
        NoAnswer::Missing => Failure::NoProgram("smartctl is not"),
        NoAnswer::Failed(error) => Failure::Denied(name, error.to_string()),
        NoAnswer::Ended(stuck) => Failure::Late(name, stuck),
    })
}

fn read(
    program: &'static str,
    answer: &Answer,
    report: impl FnOnce(&Value) -> Option<Report>,
) -> Result<Report, Failure> {
    // Whatever the exit code: smartctl's has a bit for each thing that is amiss with a drive.
    let parsed = serde_json::from_slice::<Value>(&answer.output);
    if let Some(report) = parsed.as_ref().ok().and_then(report) {
        return Ok(report);
    }
    let why = match &parsed {
        Ok(value) => message(value).or_else(|| first_line(&answer.errors)),
        Err(_) => first_line(&answer.errors).or_else(|| Some("its answer is no JSON".to_owned())),
    };
    let why = why.unwrap_or_else(|| "its answer has no figures".to_owned());
    let denials = ["Permission denied", "Operation not permitted"];
    Err(match denials.iter().any(|denial| why.contains(denial)) {
        true => Failure::Denied(program, why),
        false => Failure::Refused(program, why),
    })
}

/// What smartctl says of an error.
fn message(answer: &Value) -> Option<String> {
    let messages = answer.pointer("/smartctl/messages")?.as_array()?;
    let text = messages.iter().find_map(|message| message.get("string")?.as_str())?;
    first_line(text.as_bytes())
}

fn first_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(output: &str, errors: &str) -> Failure {
        let answer = Answer { output: output.into(), errors: errors.into() };
        let report = |answer: &Value| Report::of_smartctl("/dev/sda", answer);
        read("smartctl", &answer, report).expect_err("there is no report")
    }

    #[test]
    fn recorded_denial_is_one_and_a_drive_without_health_is_refused() {
        let denied = failure(include_str!("drive_health/recorded/smartctl-denied.json"), "");
        let why = "Smartctl open device: /dev/vda failed: Operation not permitted";
        assert!(matches!(&denied, Failure::Denied("smartctl", said) if said == why), "{denied:?}");
        let refused = failure(include_str!("drive_health/recorded/smartctl-no-smart.json"), "");
        let why = "/dev/vda: Unable to detect device type";
        assert!(matches!(&refused, Failure::Refused(_, said) if said == why), "{refused:?}");
        // As `nvme` says it.
        let denied = failure("", "/dev/vda: Permission denied\nUsage: nvme smart-log\n");
        assert!(matches!(&denied, Failure::Denied(..)), "{denied:?}");
    }

    #[test]
    fn drive_that_does_not_answer_is_not_asked() {
        let unresponsive = Health::Unresponsive(Duration::from_secs(1));
        let health = [
            Health::Working,
            unresponsive,
            Health::Gone("out".into()),
            Health::ReadOnly("old".into()),
        ];
        let is_answering = |numbers: &[usize]| {
            let tier = |number: &usize| Tier { number: *number, label: String::new() };
            is_answering(health.iter().cloned(), &numbers.iter().map(tier).collect::<Vec<_>>())
        };
        assert_eq!([0, 1, 2, 3].map(|number| is_answering(&[number])), [true, false, false, true]);
        assert!(!is_answering(&[0, 1]), "by one of its tiers");
        assert!(is_answering(&[0, 3]));
    }

    #[test]
    fn nvme_is_asked_of_nvme_drives_where_smartctl_is_missing() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = |name: &str, answer: &str| {
            let path = dir.path().join(name);
            // By way of a file that is never open for writing while it is started.
            let script =
                format!("#!/bin/sh\necho \"$@\" > '{}.asked'\necho '{answer}'\n", path.display());
            let made = Command::new("sh")
                .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
                .arg(&path)
                .arg(script)
                .status();
            assert!(made.expect("a shell").success());
            path
        };
        let none = dir.path().join("none");
        let nvme = program("nvme", r#"{"percent_used":3}"#);
        let smartctl = program("smartctl", r#"{"endurance_used":{"current_percent":5}}"#);
        let ask = |smartctl: &PathBuf, nvme: &PathBuf, drive: &str| {
            let programs = Programs { smartctl: smartctl.clone(), nvme: nvme.clone() };
            ask(&programs, drive, &|| false)
                .map(|report| report.get(report::Figure::UsedPercent))
                .map_err(|failure| matches!(failure, Failure::NoProgram(_)))
        };
        assert_eq!(ask(&smartctl, &nvme, "/dev/nvme0n1"), Ok(Some(5)));
        assert_eq!(ask(&none, &nvme, "/dev/nvme0n1"), Ok(Some(3)));
        let asked =
            std::fs::read_to_string(dir.path().join("nvme.asked")).expect("what it was asked");
        assert_eq!(asked, "smart-log --output-format=json /dev/nvme0n1\n");
        assert_eq!(ask(&none, &nvme, "/dev/sda"), Err(true), "nvme knows nothing of it");
        assert_eq!(ask(&none, &none, "/dev/nvme0n1"), Err(true));
    }

    #[test]
    fn answer_that_is_no_report_is_refused_in_one_line() {
        for (output, errors, why) in [
            ("", "", "its answer is no JSON"),
            ("=======> UNRECOGNIZED OPTION: json", "", "its answer is no JSON"),
            ("{}", "", "its answer has no figures"),
            ("{}", "\n  \u{1b}[1mbroken\nmore", "[1mbroken"),
            (r#"{"smartctl":{"messages":[{"string":"a\nb"}]}}"#, "", "a"),
        ] {
            let refused = failure(output, errors);
            assert!(matches!(&refused, Failure::Refused(_, said) if said == why), "{refused:?}");
        }
        // A serial of braces is deeper than anything that a program prints.
        let deep = failure(&"[".repeat(1 << 20), "");
        assert!(matches!(deep, Failure::Refused(..)), "{deep:?}");
    }
}

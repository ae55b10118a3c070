//! What in a report of a drive an operator has to know, as lines of the log.

use super::report::{Figure, Report};
use tracing::{error, info, warn};

/// Percent of its rated life from which on a drive's replacement is to be planned.
const WORN_PERCENT: u64 = 80;
const WORN_OUT_PERCENT: u64 = 100;

/// Bits of the critical warning, from the lowest.
const WARNINGS: [&str; 6] = [
    "its spare blocks are below their threshold",
    "its temperature is outside its limits",
    "it is less reliable, after errors of its media or its own",
    "it is read-only",
    "its backup of volatile memory failed",
    "its persistent memory region is read-only or unreliable",
];
const TEMPERATURE_BIT: u64 = 1 << 1;

/// A line of the log, without the names of the tiers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Error(String),
    Warning(String),
    Info(String),
}

impl Finding {
    pub(super) fn log(&self, tiers: &str) {
        match self {
            Self::Error(line) => error!("tier {tiers}: {line}"),
            Self::Warning(line) => warn!("tier {tiers}: {line}"),
            Self::Info(line) => info!("tier {tiers}: {line}"),
        }
    }
}

/// What has changed since the report `before`; all that is to be known if there is none.
pub(super) fn findings(before: Option<&Report>, now: &Report) -> Vec<Finding> {
    let drive = &now.drive;
    let mut findings = Vec::new();
    // Another drive begins anew.
    let before = before.filter(|before| (&before.drive, &before.model) == (drive, &now.model));
    if before.is_none() {
        findings.push(Finding::Info(format!("drive {drive}{}", summary(now))));
    }
    let was = |figure| before.and_then(|before| before.get(figure)).unwrap_or(0);
    let is = |figure| now.get(figure).unwrap_or(0);
    findings.extend(warning_change(drive, &was, &is));
    let (errors, more) =
        (is(Figure::MediaErrors), is(Figure::MediaErrors).saturating_sub(was(Figure::MediaErrors)));
    if more > 0 {
        let since = if more == errors { String::new() } else { format!(", {more} of them new") };
        findings.push(Finding::Warning(format!(
            "drive {drive}: media errors: {errors}{since}; what can't be read is a miss; replace the drive if there \
             are more"
        )));
    }
    let (used_before, used) = (was(Figure::UsedPercent), is(Figure::UsedPercent));
    let has_passed = |percent| used >= percent && used_before < percent;
    if has_passed(WORN_OUT_PERCENT) {
        findings.push(Finding::Error(format!(
            "drive {drive}: {used} % of its rated life is used; it may fail or refuse writes; replace the drive"
        )));
    } else if has_passed(WORN_PERCENT) {
        findings.push(Finding::Warning(format!(
            "drive {drive}: {used} % of its rated life is used; plan its replacement, or have it written less \
             (--write-budget)"
        )));
    }
    findings
}

/// A warning of the drive itself that came or went.
fn warning_change(
    drive: &str,
    was: &dyn Fn(Figure) -> u64,
    is: &dyn Fn(Figure) -> u64,
) -> Option<Finding> {
    let warning = |of: &dyn Fn(Figure) -> u64| (of(Figure::CriticalWarning), of(Figure::Failing));
    if warning(was) == warning(is) {
        return None;
    }
    Some(match warning(is) {
        (0, 0) => Finding::Info(format!("drive {drive}: its critical warning is over")),
        (0, _) => Finding::Error(format!(
            "drive {drive}: it says that it is failing (its SMART status); serving continues; replace the drive"
        )),
        (bits, _) => {
            let named = WARNINGS.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0);
            let mut what: Vec<_> = named.map(|(_, name)| (*name).to_owned()).collect();
            if what.is_empty() {
                what.push("for a reason that is not specified".to_owned());
            }
            let action = if bits == TEMPERATURE_BIT { "cool it" } else { "replace the drive" };
            Finding::Error(format!(
                "drive {drive}: critical warning {bits:#04x}: {}; serving continues; {action}",
                what.join(", ")
            ))
        }
    })
}

/// What is known of a drive, for the first line on it.
fn summary(report: &Report) -> String {
    let model =
        if report.model.is_empty() { String::new() } else { format!(" ({})", report.model) };
    let mut known = Vec::new();
    let mut add = |figure, text: &dyn Fn(u64) -> String| {
        known.extend(report.get(figure).map(text));
    };
    add(Figure::UsedPercent, &|used| format!("{used} % of its rated life used"));
    add(Figure::SparePercent, &|spare| format!("{spare} % of its spare blocks left"));
    add(Figure::MediaErrors, &|errors| format!("media errors: {errors}"));
    add(Figure::ReallocatedSectors, &|sectors| format!("reallocated sectors: {sectors}"));
    add(Figure::PowerOnHours, &|hours| format!("{hours} hours of use"));
    if known.is_empty() {
        known.push("its wear is not known".to_owned());
    }
    format!("{model}: {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(change: impl Fn(&mut serde_json::Value)) -> Report {
        let recorded = include_str!("recorded/smartctl-nvme.json");
        let mut answer = serde_json::from_str(recorded).expect("JSON");
        change(&mut answer);
        Report::of_smartctl("/dev/nvme2", &answer).expect("a report")
    }

    fn with(name: &str, value: u64) -> Report {
        report(|answer| answer["nvme_smart_health_information_log"][name] = value.into())
    }

    fn one(before: &Report, now: &Report) -> Finding {
        let mut found = findings(Some(before), now);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn first_report_of_a_sound_drive_is_one_line() {
        let line = "drive /dev/nvme2 (INTEL SSDPE2KX020T8): 22 % of its rated life used, 100 % of its spare blocks \
                    left, media errors: 0, 36959 hours of use";
        let now = report(|_| {});
        assert_eq!(findings(None, &now), [Finding::Info(line.to_owned())]);
        assert_eq!(findings(Some(&now), &now), []);
    }

    #[test]
    fn life_is_told_once_at_80_and_at_100_percent() {
        let used = |percent| with("percentage_used", percent);
        let is_told = |before, now| !findings(Some(&used(before)), &used(now)).is_empty();
        assert_eq!([is_told(22, 79), is_told(80, 99), is_told(100, 255)], [false; 3]);
        let at_80 = one(&used(79), &used(80));
        assert!(
            matches!(&at_80, Finding::Warning(line) if line.contains(": 80 % of its")),
            "{at_80:?}"
        );
        let at_100 = one(&used(80), &used(103));
        assert!(
            matches!(&at_100, Finding::Error(line) if line.contains(": 103 % of its")),
            "{at_100:?}"
        );
        assert_eq!(findings(None, &used(85)).len(), 2, "at a start, too");
    }

    #[test]
    fn media_errors_are_told_when_there_are_more() {
        let errors = |count| with("media_errors", count);
        let Finding::Warning(line) = one(&errors(0), &errors(3)) else { panic!("no warning") };
        assert!(line.starts_with("drive /dev/nvme2: media errors: 3; "), "{line}");
        let Finding::Warning(line) = one(&errors(3), &errors(5)) else { panic!("no warning") };
        assert!(line.starts_with("drive /dev/nvme2: media errors: 5, 2 of them new; "), "{line}");
        assert_eq!(findings(Some(&errors(5)), &errors(5)), []);
    }

    #[test]
    fn critical_warning_is_told_when_it_comes_changes_and_goes() {
        let (none, spare) = (with("critical_warning", 0), with("critical_warning", 1));
        let line = "drive /dev/nvme2: critical warning 0x01: its spare blocks are below their threshold; serving \
                    continues; replace the drive";
        assert_eq!(one(&none, &spare), Finding::Error(line.to_owned()));
        assert_eq!(findings(Some(&spare), &spare), []);
        let hot = "drive /dev/nvme2: critical warning 0x02: its temperature is outside its limits; serving continues; \
                   cool it";
        assert_eq!(one(&spare, &with("critical_warning", 2)), Finding::Error(hot.to_owned()));
        let over = "drive /dev/nvme2: its critical warning is over";
        assert_eq!(one(&spare, &none), Finding::Info(over.to_owned()));
        let Finding::Error(line) = one(&none, &with("critical_warning", 0x8c)) else {
            panic!("no error")
        };
        assert!(
            line.contains(
                "0x8c: it is less reliable, after errors of its media or its own, it is read-only;"
            ),
            "{line}"
        );
    }

    #[test]
    fn drive_that_says_that_it_fails_is_told_of_without_a_critical_warning() {
        let failing = report(|answer| answer["smart_status"]["passed"] = false.into());
        let line = one(&report(|_| {}), &failing);
        assert!(
            matches!(&line, Finding::Error(line) if line.contains("it is failing")),
            "{line:?}"
        );
    }

    #[test]
    fn another_drive_in_its_place_is_told_of_anew() {
        let other = report(|answer| answer["model_name"] = "OTHER".into());
        let worn = with("percentage_used", 100);
        assert_eq!(findings(Some(&worn), &other).len(), 1);
    }
}

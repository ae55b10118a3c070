//! A tier as the server describes it.

use super::error::Error;
use crate::stats::tier_state;
use serde::Deserialize;
use std::fs;
use terrace_cache::{display_bytes, display_count};

/// A member of `GET /tiers`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Tier {
    #[serde(rename = "tier")]
    pub(super) number: usize,
    pub(super) label: String,
    level: u16,
    pub(super) state: String,
    health: String,
    pub(super) records: u64,
    live_bytes: u64,
    capacity_bytes: u64,
    drain_bytes_total: Option<u64>,
    drain_bytes_left: Option<u64>,
    drain_seconds_left: Option<u64>,
}

impl Tier {
    /// Its number and path.
    pub(super) fn name(&self) -> String {
        format!("tier {} ({})", self.number, self.label)
    }

    /// What it holds.
    pub(super) fn held(&self) -> String {
        tier_state::held(self.records, self.live_bytes)
    }

    /// What it is doing, with how far its drain is and how its drive is.
    fn doing(&self) -> String {
        let mut text = self.state.clone();
        if let (Some(total), Some(left)) = (self.drain_bytes_total, self.drain_bytes_left)
            && self.state != "drained"
        {
            let moved = total.saturating_sub(left) as u128 * 100 / u128::from(total.max(1));
            text += &format!(", {moved} % moved");
            if let Some(seconds) = self.drain_seconds_left.filter(|_| self.state == "draining") {
                text += &format!(", {} left", duration(seconds));
            }
        }
        let is_told = ["failed", "absent", "removed"].contains(&&self.state[..]);
        if self.health != "working" && !is_told {
            text += &format!(", drive {}", self.health.replace('_', "-"));
        }
        text
    }

    /// All of that in one line.
    pub(super) fn line(&self) -> String {
        format!("{}: {}; {}", self.name(), self.doing(), self.held())
    }
}

/// The tier that `named` is the number or the path of; of several with that path, the one that was not removed.
pub(super) fn find<'t>(tiers: &'t [Tier], named: &str) -> Result<&'t Tier, Error> {
    let found = match named.parse::<usize>() {
        Ok(number) => tiers.get(number),
        Err(_) => {
            let of_path = |tier: &&Tier| is_same_file(&tier.label, named);
            let in_use = tiers.iter().find(|tier| of_path(tier) && tier.state != "removed");
            in_use.or_else(|| tiers.iter().find(of_path))
        }
    };
    found.ok_or_else(|| {
        let all = tiers.iter().map(|tier| format!("{} ({})", tier.number, tier.label));
        let all: Vec<_> = all.collect();
        let has = if all.is_empty() { "no tiers".to_owned() } else { all.join(", ") };
        Error::Usage(format!("no tier {named}: the server has {has}"))
    })
}

fn is_same_file(label: &str, named: &str) -> bool {
    let real = |path: &str| fs::canonicalize(path).ok();
    label == named || real(label).is_some_and(|path| Some(path) == real(named))
}

/// One line for each tier, below a line of titles.
pub(super) fn table(tiers: &[Tier]) -> String {
    if tiers.is_empty() {
        return "the server has no tiers".to_owned();
    }
    let titles = ["tier", "state", "level", "records", "live", "capacity", "path"];
    let row = |tier: &Tier| {
        [
            tier.number.to_string(),
            tier.doing(),
            tier.level.to_string(),
            display_count(tier.records),
            display_bytes(tier.live_bytes),
            display_bytes(tier.capacity_bytes),
            tier.label.clone(),
        ]
    };
    let rows: Vec<_> =
        [titles.map(str::to_owned)].into_iter().chain(tiers.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            text += &match column {
                0 | 1 => format!("{cell:width$}  "),
                6 => format!("{cell}\n"),
                _ => format!("{cell:>width$}  "),
            };
        }
    }
    text
}

/// Roughly: in its two largest units at most.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(number: usize, state: &str, label: &str) -> Tier {
        Tier {
            number,
            label: label.to_owned(),
            level: 0,
            state: state.to_owned(),
            health: "working".to_owned(),
            records: 12_345,
            live_bytes: 3 << 20,
            capacity_bytes: 64 << 20,
            drain_bytes_total: None,
            drain_bytes_left: None,
            drain_seconds_left: None,
        }
    }

    fn draining(state: &str) -> Tier {
        Tier {
            drain_bytes_total: Some(4 << 20),
            drain_bytes_left: Some(3 << 20),
            drain_seconds_left: Some(95),
            ..tier(1, state, "/b")
        }
    }

    #[test]
    fn table_has_a_line_for_each_tier() {
        let lines = [
            "tier  state                                  level  records   live  capacity  path",
            "0     working                                    0   12,345  3 MiB    64 MiB  /a",
            "1     draining, 25 % moved, 1 min 35 s left      0   12,345  3 MiB    64 MiB  /b",
        ];
        let tiers = [tier(0, "working", "/a"), draining("draining")];
        assert_eq!(table(&tiers).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn line_tells_how_far_a_drain_is_and_how_the_drive_is() {
        let doing = |tier: &Tier| tier.doing();
        assert_eq!(doing(&draining("no-room")), "no-room, 25 % moved");
        assert_eq!(doing(&draining("drained")), "drained");
        let sick = Tier { health: "read_only".to_owned(), ..tier(0, "working", "/a") };
        assert_eq!(doing(&sick), "working, drive read-only");
        assert_eq!(sick.line(), "tier 0 (/a): working, drive read-only; 12,345 records (3 MiB)");
        let gone = Tier { health: "gone".to_owned(), ..tier(0, "absent", "/a") };
        assert_eq!(doing(&gone), "absent");
    }

    #[test]
    fn tier_is_found_by_number_and_path_and_in_use_first() {
        let tiers = [tier(0, "removed", "/a"), tier(1, "working", "/b"), tier(2, "working", "/a")];
        let number = |named: &str| find(&tiers, named).map(|tier| tier.number);
        assert_eq!(number("1").ok(), Some(1));
        assert_eq!(number("0").ok(), Some(0));
        assert_eq!(number("/a").ok(), Some(2));
        assert_eq!(number("/b").ok(), Some(1));
        let error = number("3").unwrap_err().to_string();
        assert_eq!(error, "no tier 3: the server has 0 (/a), 1 (/b), 2 (/a)");
    }

    #[test]
    fn duration_has_two_units_at_most() {
        let cases = [(59, "59 s"), (61, "1 min 1 s"), (7300, "2 h 1 min"), (90_000, "1 d 1 h")];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }
}

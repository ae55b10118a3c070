//! The sets that the given tiers are members of: their right order, and what a start would erase.

use crate::config::Config;
use crate::config::note::{Note, display_bytes};
use crate::segments::layout::{FirstPage, Superblock, VERSION, VERSION_MIN};

/// Positions of the given tiers in the order of their set, if they are all members of one set, each once, and are given
/// in another order.
pub(super) fn right_order(pages: &[FirstPage]) -> Option<Vec<usize>> {
    let order = complete_sets(pages).pop().filter(|order| order.len() == pages.len())?;
    (!order.is_sorted()).then_some(order)
}

/// A warning of what a start with tiers that do not fit erases; `None` if they hold nothing.
pub(super) fn cost(config: &Config, pages: &[FirstPage], why: &str) -> Option<Note> {
    let held: Vec<_> = pages.iter().filter_map(ours).collect();
    if held.is_empty() {
        return None;
    }
    let bytes = held.iter().map(|page| u64::from(page.segments) * u64::from(page.segment_bytes));
    let whose = match held.len() {
        1 => "1 tier holds".to_owned(),
        count => format!("{count} tiers hold"),
    };
    let label = |&at: &usize| config.tiers[at].device.label();
    let kept = match &complete_sets(pages)[..] {
        [set] if set.len() < pages.len() => {
            let labels: Vec<_> = set.iter().map(label).collect();
            format!("; to keep that, give no other tiers than {}, in this order", labels.join(", "))
        }
        _ => String::new(),
    };
    let bytes = display_bytes(bytes.sum());
    Some(Note::Warning(format!("{why}; this start erases what {whose}, up to {bytes}{kept}")))
}

/// The complete sets among the given tiers, each member given once: positions of the tiers in the order of the set.
fn complete_sets(pages: &[FirstPage]) -> Vec<Vec<usize>> {
    let members = |set| {
        let members = pages.iter().enumerate().filter_map(|(at, page)| Some((ours(page)?, at)));
        members.filter(move |(page, _)| page.set == set)
    };
    let mut sets: Vec<u64> = pages.iter().filter_map(ours).map(|page| page.set).collect();
    sets.sort_unstable();
    sets.dedup();
    let in_order = |set| {
        let mut members: Vec<_> = members(set).collect();
        members.sort_by_key(|(page, _)| page.tier);
        let is_next = |(at, (page, _)): (usize, &(&Superblock, usize))| {
            usize::from(page.tier) == at && usize::from(page.tiers) == members.len()
        };
        let is_complete = members.iter().enumerate().all(is_next);
        is_complete.then(|| members.iter().map(|(_, at)| *at).collect())
    };
    sets.into_iter().filter_map(in_order).collect()
}

/// The superblock, if this program can read it.
fn ours(page: &FirstPage) -> Option<&Superblock> {
    match page {
        FirstPage::Ours(page) if (VERSION_MIN..=VERSION).contains(&page.version) => Some(page),
        _ => None,
    }
}

//! What an operator turned that has no effect here: shown by `stats settings` as it was set, so that
//! scripts which look whether they were heard go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The values that were set, by their names in `stats settings`.
#[derive(Debug, Default)]
pub(crate) struct Knobs(Mutex<Turned>);

#[derive(Debug, Default)]
struct Turned {
    values: BTreeMap<&'static str, String>,
    /// Commands whose lack of effect the log was told.
    noted: BTreeSet<&'static str>,
}

impl Knobs {
    pub(crate) fn new(values: BTreeMap<&'static str, String>) -> Self {
        Self(Mutex::new(Turned { values, noted: BTreeSet::new() }))
    }

    /// What was set; `None` for what was not.
    pub(crate) fn shown(&self, name: &str) -> Option<String> {
        self.turned().values.get(name).cloned()
    }

    /// Whether a switch that is on by default was not turned off.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.shown(name).as_deref() != Some("no")
    }

    pub(crate) fn set(&self, name: &'static str, value: impl ToString) {
        self.turned().values.insert(name, value.to_string());
    }

    /// Whether nobody was told of this command yet: `true` once.
    pub(crate) fn is_news(&self, command: &'static str) -> bool {
        self.turned().noted.insert(command)
    }

    fn turned(&self) -> std::sync::MutexGuard<'_, Turned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

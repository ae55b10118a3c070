//! Tiers that are added to a running server, by the admin port or by SIGHUP.

use super::shared::Shared;
use crate::settings::TierSpec;
use std::sync::{Arc, PoisonError};
use terrace_cache::{NewTier, WriteRate};
use terrace_runtime::created::Created;
use terrace_runtime::in_background;
use terrace_runtime::place::{Place, open_drive};
use tracing::{info, warn};

/// Opens a drive and adds it as a tier; returns the tier's number. Takes a drive that was a tier before only if
/// `may_overwrite`. The error says why it was not added.
pub(crate) fn join(shared: &Shared, spec: &TierSpec, may_overwrite: bool) -> Result<usize, String> {
    if spec.is_below {
        return Err(
            "a tier below the others needs a restart: set it there, or leave ,below out".to_owned()
        );
    }
    let mut tiers = shared.tiers.lock().unwrap_or_else(PoisonError::into_inner);
    let mut created = Created::default();
    let opened = open_drive(&spec.place, spec.bytes, &mut created);
    let drive = opened.map_err(|error| error.to_string())?.drive;
    let settings = &shared.settings;
    let threads = shared.cache.background_threads();
    let timed = in_background(&drive, settings.durability, threads, settings.io_engine);
    let device = timed.map_err(|error| format!("a thread for the drive: {error}"))?;
    // One rate is meant for each tier.
    let write_rate = match settings.write_rates[..] {
        [rate] => rate,
        _ => WriteRate::Unlimited,
    };
    let mut number = None;
    let joined = shared.cache.join(&NewTier { device, write_rate, may_overwrite }, |of_tier| {
        shared.drives.append(Arc::clone(&drive));
        tiers.push(spec.clone());
        number = Some(of_tier);
    });
    match joined {
        Ok(number) => {
            created.keep();
            Ok(number)
        }
        Err(error) => {
            // The cache has given the drive up.
            number.into_iter().for_each(|number| shared.drives.leave(number));
            Err(error.to_string())
        }
    }
}

/// Has all workers give up the drive of a tier that was removed.
pub(crate) fn leave(shared: &Shared, tier: usize) {
    shared.drives.leave(tier);
    shared.inboxes.iter().for_each(super::inbox::Inbox::wake);
}

/// Adds the tiers that the settings file names and the server does not have, and tells what else differs: nothing is
/// drained or removed by an edited file. Returns whether there is such a file.
pub(super) fn join_new(shared: &Shared) -> bool {
    let named = match shared.settings.tiers_of_files() {
        Ok(Some(named)) => named,
        Ok(None) => return false,
        Err(error) => {
            warn!("SIGHUP: the tiers stay as they are: {error}");
            return true;
        }
    };
    let removed: Vec<_> = shared.cache.removed_tiers().collect();
    let had = shared.tiers.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let of = |place: &Place| {
        let is_it = |(number, spec): &(usize, &TierSpec)| {
            spec.place.is_same(place) && !removed.contains(number)
        };
        had.iter().enumerate().find(is_it).map(|(_, spec)| spec)
    };
    let mut changes = 0;
    for spec in &named {
        let path = &spec.place;
        match of(&spec.place) {
            None => match join(shared, spec, false) {
                Ok(number) => {
                    changes += 1;
                    info!("SIGHUP: tier {path}: added as tier {number}");
                }
                Err(error) => warn!("SIGHUP: tier {path}: not added: {error}"),
            },
            Some(had) if had != spec => {
                warn!(
                    "SIGHUP: tier {path}: its settings have changed, and take effect at a restart"
                )
            }
            Some(_) => {}
        }
    }
    for (number, spec) in had.iter().enumerate() {
        let is_named = named.iter().any(|named| named.place.is_same(&spec.place));
        if !is_named && !removed.contains(&number) {
            let path = &spec.place;
            warn!(
                "SIGHUP: tier {path}: no longer in the settings, and stays; terrace tiers drain {number} --wait and \
                 terrace tiers remove {number} take it out"
            );
        }
    }
    if changes == 0 {
        info!("SIGHUP: no tier was added");
    }
    true
}

//! The tiers as JSON, and changes of their set.

use super::status;
use crate::server::shared::Shared;
use crate::stats::tier_state;
use crate::stats::view::View;
use hyper::StatusCode;
use hyper::http::request::Parts;
use terrace_cache::{DrainError, DrainMode, DrainStats, Remove, RemoveError, TierStats};
use tracing::info;

/// An array with an object for each tier.
pub(super) fn json(view: &View<'_>) -> String {
    let tiers = view.cache.tiers.iter().enumerate();
    let tiers: Vec<_> = tiers.map(|(number, tier)| object(number, tier, view.now)).collect();
    format!("[{}]\n", tiers.join(","))
}

fn object(number: usize, tier: &TierStats, now: u32) -> String {
    let left = |left: fn(&DrainStats) -> u64| {
        tier.drain.as_ref().map_or("null".to_owned(), |drain| left(drain).to_string())
    };
    let seconds = tier_state::drain_seconds_left(tier, now);
    format!(
        "{{\"tier\":{number},\"label\":{},\"level\":{},\"state\":\"{}\",\"health\":\"{}\",\"records\":{},\
         \"live_bytes\":{},\"capacity_bytes\":{},\"segments_used\":{},\"drain_segments_left\":{},\
         \"drain_bytes_total\":{},\"drain_bytes_left\":{},\"drain_seconds_left\":{}}}",
        status::text(&tier.label),
        tier.level,
        tier_state::name(tier),
        tier.health.name(),
        tier.records,
        tier.live_bytes,
        tier.capacity_bytes,
        tier.segments_used,
        left(|drain| drain.segments_left),
        left(|drain| drain.began_with),
        left(|drain| drain.bytes_left),
        seconds.map_or("null".to_owned(), |seconds| seconds.to_string()),
    )
}

/// A change of the set of tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Drain(usize, DrainMode),
    Cancel(usize),
    Remove(usize, Remove),
}

impl Change {
    /// The change that a path asks for; `None` if it asks for none.
    pub(super) fn of(request: &Parts) -> Option<Self> {
        let (tier, what) = request.uri.path().strip_prefix("/tiers/")?.split_once('/')?;
        let tier = tier.parse().ok()?;
        match (what, request.uri.query()) {
            ("drain", None) => Some(Self::Drain(tier, DrainMode::KeepAll)),
            ("drain", Some("records=drop")) => Some(Self::Drain(tier, DrainMode::DropOldest)),
            ("cancel", None) => Some(Self::Cancel(tier)),
            ("remove", None) => Some(Self::Remove(tier, Remove::IfEmpty)),
            ("remove", Some("records=drop")) => Some(Self::Remove(tier, Remove::WithRecords)),
            _ => None,
        }
    }

    /// Makes it. An error is the status of the answer, and why it was not made.
    pub(super) fn make(self, shared: &Shared) -> Result<(), (StatusCode, String)> {
        let cache = &shared.cache;
        let refused = |is_unknown: bool, why: String| {
            let status = if is_unknown { StatusCode::NOT_FOUND } else { StatusCode::CONFLICT };
            (status, format!("{why}\n"))
        };
        let before = cache.stats().tiers;
        let (Self::Drain(number, _) | Self::Cancel(number) | Self::Remove(number, _)) = self;
        let Some(tier) = before.get(number) else {
            return Err(refused(true, RemoveError::NoSuchTier.to_string()));
        };
        let held = tier_state::held(tier.records, tier.live_bytes);
        let done = match self {
            Self::Drain(_, mode) => {
                let drained = cache.drain(number, mode, shared.clock.now());
                drained.map_err(|why| refused(why == DrainError::NoSuchTier, why.to_string()))?;
                format!("a drain begins, with {held} to move")
            }
            Self::Cancel(_) if cache.cancel_drain(number) => "its drain is cancelled".to_owned(),
            Self::Cancel(_) => {
                return Err(refused(false, "the tier is not being drained".to_owned()));
            }
            Self::Remove(_, remove) => {
                cache.remove(number, remove).map_err(|why| {
                    refused(matches!(why, RemoveError::NoSuchTier), why.to_string())
                })?;
                let lost = match tier.records {
                    0 => String::new(),
                    _ => format!(" with {held}, which are lost"),
                };
                format!("removed from the set{lost}; a later start takes it as empty")
            }
        };
        info!("tier {}: {done}, as asked for through the admin port", tier.label);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_read_from_the_path() {
        let of = |path: &str| {
            let request = hyper::Request::builder().uri(path).body(()).unwrap();
            Change::of(&request.into_parts().0)
        };
        assert_eq!(of("/tiers/1/drain"), Some(Change::Drain(1, DrainMode::KeepAll)));
        let forced = Change::Drain(0, DrainMode::DropOldest);
        assert_eq!(of("/tiers/0/drain?records=drop"), Some(forced));
        assert_eq!(of("/tiers/2/cancel"), Some(Change::Cancel(2)));
        assert_eq!(of("/tiers/2/remove"), Some(Change::Remove(2, Remove::IfEmpty)));
        let all = Change::Remove(2, Remove::WithRecords);
        assert_eq!(of("/tiers/2/remove?records=drop"), Some(all));
        for other in ["/tiers", "/tiers/", "/tiers/1", "/tiers/x/drain", "/tiers/1/drain?a=b"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

//! The tiers as JSON, and changes of their set.

use super::status;
use crate::server::joining;
use crate::server::shared::Shared;
use crate::settings::TierSpec;
use crate::stats::tier_state;
use crate::stats::view::View;
use hyper::StatusCode;
use hyper::http::request::Parts;
use terrace_cache::{DrainError, DrainMode, DrainStats, Remove, RemoveError, TierStats};
use tracing::info;

/// An array with an object for each tier.
pub(super) fn json(view: &View<'_>) -> String {
    let tiers = view.cache.tiers.iter().enumerate();
    let tiers: Vec<_> = tiers.map(|(number, tier)| object(number, tier)).collect();
    format!("[{}]\n", tiers.join(","))
}

fn object(number: usize, tier: &TierStats) -> String {
    let left = |left: fn(&DrainStats) -> u64| {
        tier.drain.as_ref().map_or("null".to_owned(), |drain| left(drain).to_string())
    };
    let seconds = tier_state::drain_seconds_left(tier);
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A tier to add, as `--tier` names it, or why it is none; and whether its drive may have been one before.
    Join(Result<TierSpec, String>, bool),
    /// A change of the tier of this number.
    Of(usize, Wish),
}

/// What is to become of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Drain(DrainMode),
    Cancel,
    Remove(Remove),
}

/// The status of an answer, and why a change was not made.
type Refusal = (StatusCode, String);

impl Change {
    /// The change that a path asks for; `None` if it asks for none.
    pub(super) fn of(request: &Parts) -> Option<Self> {
        if request.uri.path() == "/tiers" {
            return Self::join(request.uri.query()?);
        }
        let (tier, what) = request.uri.path().strip_prefix("/tiers/")?.split_once('/')?;
        let wish = match (what, request.uri.query()) {
            ("drain", None) => Wish::Drain(DrainMode::KeepAll),
            ("drain", Some("records=drop")) => Wish::Drain(DrainMode::DropOldest),
            ("cancel", None) => Wish::Cancel,
            ("remove", None) => Wish::Remove(Remove::IfEmpty),
            ("remove", Some("records=drop")) => Wish::Remove(Remove::WithRecords),
            _ => return None,
        };
        Some(Self::Of(tier.parse().ok()?, wish))
    }

    fn join(query: &str) -> Option<Self> {
        let (mut tier, mut may_overwrite) = (None, false);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*key, &*value) {
                ("tier", text) if tier.is_none() => tier = Some(TierSpec::parse(text)),
                ("records", "drop") => may_overwrite = true,
                _ => return None,
            }
        }
        tier.map(|tier| Self::Join(tier, may_overwrite))
    }

    /// Makes it.
    pub(super) fn make(self, shared: &Shared) -> Result<(), Refusal> {
        let (label, done) = match self {
            Self::Join(tier, may_overwrite) => {
                let refused = |status, why| (status, format!("{why}\n"));
                let tier = tier.map_err(|why| refused(StatusCode::BAD_REQUEST, why))?;
                let number = joining::join(shared, &tier, may_overwrite)
                    .map_err(|why| refused(StatusCode::CONFLICT, why))?;
                (tier.place.to_string(), format!("added as tier {number}"))
            }
            Self::Of(number, wish) => wish.grant(shared, number)?,
        };
        info!("tier {label}: {done}, as asked for through the admin port");
        Ok(())
    }
}

impl Wish {
    /// Changes a tier; returns its name, and what was done.
    fn grant(self, shared: &Shared, number: usize) -> Result<(String, String), Refusal> {
        let cache = &shared.cache;
        let refused = |is_unknown: bool, why: String| {
            let status = if is_unknown { StatusCode::NOT_FOUND } else { StatusCode::CONFLICT };
            (status, format!("{why}\n"))
        };
        let Some(tier) = cache.stats().tiers.into_iter().nth(number) else {
            return Err(refused(true, RemoveError::NoSuchTier.to_string()));
        };
        let held = tier_state::held(tier.records, tier.live_bytes);
        let done = match self {
            Self::Drain(mode) => {
                let drained = cache.drain(number, mode, shared.clock.now());
                drained.map_err(|why| refused(why == DrainError::NoSuchTier, why.to_string()))?;
                format!("a drain begins, with {held} to move")
            }
            Self::Cancel if cache.cancel_drain(number) => "its drain is cancelled".to_owned(),
            Self::Cancel => {
                return Err(refused(false, "the tier is not being drained".to_owned()));
            }
            Self::Remove(remove) => {
                cache.remove(number, remove).map_err(|why| {
                    refused(matches!(why, RemoveError::NoSuchTier), why.to_string())
                })?;
                joining::leave(shared, number);
                let lost = match tier.records {
                    0 => String::new(),
                    _ => format!(" with {held}, which are lost"),
                };
                format!("removed from the set{lost}; a later start takes it as empty")
            }
        };
        Ok((tier.label, done))
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
        assert_eq!(of("/tiers/1/drain"), Some(Change::Of(1, Wish::Drain(DrainMode::KeepAll))));
        let forced = Change::Of(0, Wish::Drain(DrainMode::DropOldest));
        assert_eq!(of("/tiers/0/drain?records=drop"), Some(forced));
        assert_eq!(of("/tiers/2/cancel"), Some(Change::Of(2, Wish::Cancel)));
        assert_eq!(of("/tiers/2/remove"), Some(Change::Of(2, Wish::Remove(Remove::IfEmpty))));
        let all = Change::Of(2, Wish::Remove(Remove::WithRecords));
        assert_eq!(of("/tiers/2/remove?records=drop"), Some(all));
        let Some(Change::Join(Ok(spec), false)) = of("/tiers?tier=ssd%3A%2Fa%20b%3A1g") else {
            panic!("a tier to add")
        };
        assert_eq!((spec.place.to_string().as_str(), spec.bytes), ("/a b", Some(1 << 30)));
        let over = of("/tiers?tier=ssd:/a:1g&records=drop");
        assert!(matches!(over, Some(Change::Join(Ok(_), true))), "{over:?}");
        let wrong = of("/tiers?tier=tape:/a:1g");
        assert!(matches!(wrong, Some(Change::Join(Err(_), false))), "{wrong:?}");
        for other in [
            "/tiers?records=drop",
            "/tiers?tier=ssd:/a:1g&x=y",
            "/tiers",
            "/tiers/",
            "/tiers/1",
            "/tiers/x/drain",
            "/tiers/1/drain?a=b",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

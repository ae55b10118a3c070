//! The values of memcached's options that have no effect here: read as memcached reads them, since a
//! wrong one shall be told, and kept for `stats settings` to show.

use super::size;

/// What stands behind the option.
enum Value {
    /// Nothing, or anything.
    Switch(&'static str),
    /// A whole number within bounds, shown so many times as large.
    Number(u32, u32, u64),
    /// As [`Value::Number`], whatever stands behind it.
    Leading(u32, u32),
    /// As [`Value::Leading`]; without a value it means this.
    Optional(u32, u32, &'static str),
    /// A number greater than 0 and less than that, shown with so many digits.
    Share(f64, usize),
    /// One of these words.
    Word(&'static [&'static str]),
}

use Value::{Leading, Number, Optional, Share, Switch, Word};

const MIB: u64 = 1 << 20;
const MAX: u32 = u32::MAX;

/// Option, value, and what `stats settings` calls it (empty: it does not show it).
const VALUES: &[(&str, Value, &str)] = &[
    ("hashpower", Leading(12, 32), "hashpower_init"),
    ("hash_algorithm", Word(&["jenkins", "murmur3", "xxh3"]), ""),
    ("tail_repair_time", Leading(10, i32::MAX as u32), "tail_repair_time"),
    ("slab_reassign", Switch("yes"), "slab_reassign"),
    ("no_slab_reassign", Switch("no"), "slab_reassign"),
    ("slab_automove", Optional(0, 2, "1"), "slab_automove"),
    ("no_slab_automove", Switch("0"), "slab_automove"),
    ("slab_automove_ratio", Share(1.0, 2), "slab_automove_ratio"),
    ("slab_automove_window", Leading(3, 1800), "slab_automove_window"),
    ("slab_automove_freeratio", Share(1.0, 3), "slab_automove_freeratio"),
    ("slab_chunk_max", Number(1, 1024, 1024), "slab_chunk_max"),
    ("lru_crawler", Switch("yes"), "lru_crawler"),
    ("no_lru_crawler", Switch("no"), "lru_crawler"),
    ("lru_crawler_sleep", Leading(0, 1_000_000), "lru_crawler_sleep"),
    ("lru_crawler_tocrawl", Number(0, MAX, 1), "lru_crawler_tocrawl"),
    ("lru_maintainer", Switch("yes"), "lru_maintainer_thread"),
    ("no_lru_maintainer", Switch("no"), "lru_maintainer_thread"),
    ("hot_lru_pct", Leading(1, 79), "hot_lru_pct"),
    ("warm_lru_pct", Leading(1, 79), "warm_lru_pct"),
    ("hot_max_factor", Share(f64::MAX, 2), "hot_max_factor"),
    ("warm_max_factor", Share(f64::MAX, 2), "warm_max_factor"),
    ("temporary_ttl", Leading(0, MAX), "temporary_ttl"),
    ("watcher_logbuf_size", Number(0, MAX, 1024), "watcher_logbuf_size"),
    ("worker_logbuf_size", Number(0, MAX, 1024), "worker_logbuf_size"),
    ("sock_cookie_id", Number(0, MAX, 1), ""),
    ("ext_page_size", Number(0, MAX, 1), ""),
    ("ext_wbuf_size", Number(0, MAX, MIB), "ext_wbuf_size"),
    ("ext_threads", Number(0, MAX, 1), ""),
    ("ext_io_depth", Number(0, MAX, 1), ""),
    ("ext_item_size", Number(0, MAX, 1), "ext_item_size"),
    ("ext_item_age", Number(0, MAX, 1), "ext_item_age"),
    ("ext_low_ttl", Number(0, MAX, 1), "ext_low_ttl"),
    ("ext_recache_rate", Number(0, MAX, 1), "ext_recache_rate"),
    ("ext_compact_under", Number(0, MAX, 1), "ext_compact_under"),
    ("ext_drop_under", Number(0, MAX, 1), "ext_drop_under"),
    ("ext_max_sleep", Number(0, MAX, 1), "ext_max_sleep"),
    ("ext_max_frag", Share(f64::MAX, 2), "ext_max_frag"),
    ("ext_drop_unread", Switch("yes"), "ext_drop_unread"),
    ("ssl_wbuf_size", Number(0, MAX, 1024), "ssl_wbuf_size"),
];

/// What `stats settings` shows, under which name, of an option that was given with `text`; `None` of
/// one that it does not show.
pub(crate) fn read(option: &str, text: &str) -> Result<Option<(&'static str, String)>, String> {
    let Some((_, value, shown)) = VALUES.iter().find(|(name, ..)| *name == option) else {
        return Ok(None);
    };
    let value = value.read(text).map_err(|why| match text {
        "" => format!("write {option}=VALUE: {why}"),
        _ => why,
    })?;
    Ok((!shown.is_empty()).then_some((*shown, value)))
}

impl Value {
    fn read(&self, text: &str) -> Result<String, String> {
        match *self {
            Switch(value) => Ok(value.into()),
            Optional(_, _, default) if text.is_empty() => Ok(default.into()),
            Number(least, most, factor) => {
                let number = size::number(text, least..=most, "the value")?;
                Ok((u64::from(number) * factor).to_string())
            }
            Leading(least, most) | Optional(least, most, _) => {
                Ok(size::leading_number(text, least..=most, "the value")?.to_string())
            }
            Share(below, digits) => match size::leading_float(text) {
                Some(share) if share > 0.0 && share < below => Ok(format!("{share:.digits$}")),
                _ if below > 1.0 => Err("the value is a number greater than 0".into()),
                _ => Err("the value is a number between 0 and 1".into()),
            },
            Word(words) if words.contains(&text) => Ok(text.into()),
            Word(words) => Err(format!("write one of {}", words.join(", "))),
        }
    }
}

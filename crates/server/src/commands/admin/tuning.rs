//! Commands that tune parts of memcached which have no counterpart here. A script that sends them is
//! told what it expects to hear as long as what it asks for makes sense, `stats settings` shows what it
//! set, and the log says once that it has no effect.

use crate::commands::executor::Executor;
use crate::commands::listing::Listing;
use crate::commands::listing::keys::{self, Style};
use crate::server::shared::Shared;
use std::sync::atomic::Ordering;
use terrace_protocol::{AdminKind, number_i32, number_u32, reply};
use tracing::info;

const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
const BAD_CLASS: &[u8] = b"BADCLASS invalid src or dst class id\r\n";
/// memcached's slab classes, by number.
const CLASSES: std::ops::RangeInclusive<i32> = 0..=63;

pub(super) fn execute(
    executor: &Executor<'_>,
    kind: AdminKind,
    arguments: Vec<&[u8]>,
) -> &'static [u8] {
    let shared = executor.shared;
    let (answer, command, reason) = match kind {
        AdminKind::Slabs => (slabs(shared, &arguments), "slabs", "there are no slab classes"),
        AdminKind::Lru => {
            (lru(shared, &arguments), "lru", "records are not kept in memcached's LRU queues")
        }
        AdminKind::LruCrawler => {
            let reason = "expired records go by themselves, without a crawler";
            (lru_crawler(shared, &arguments), "lru_crawler", reason)
        }
        AdminKind::Extstore => {
            let reason = "every record goes to the tiers when DRAM needs its place";
            (extstore(shared, &arguments), "extstore", reason)
        }
        AdminKind::FreeMemchunks if arguments.len() == 2 => {
            (reply::OK, "free_memchunks", "there are no slab classes")
        }
        _ => return reply::ERROR,
    };
    if answer == reply::OK && shared.knobs.is_news(command) {
        info!("{command}: accepted without effect: {reason}");
    }
    answer
}

fn slabs(shared: &Shared, arguments: &[&[u8]]) -> &'static [u8] {
    match arguments {
        [b"reassign", from, to] => match (number_i32(from), number_i32(to)) {
            (Some(from), Some(to)) if from == to => b"SAME src and dst class are identical\r\n",
            (Some(from), Some(to)) if CLASSES.contains(&from) && CLASSES.contains(&to) => {
                b"NOSPARE source class has no spare pages\r\n"
            }
            (Some(_), Some(_)) => BAD_CLASS,
            _ => BAD_LINE,
        },
        [b"automove", b"ratio", ratio, ..] => {
            turn(shared, "slab_automove_ratio", float(ratio).map(|ratio| format!("{ratio:.2}")))
        }
        [b"automove", b"freeratio", ratio, ..] => {
            turn(shared, "slab_automove_freeratio", float(ratio).map(|ratio| format!("{ratio:.3}")))
        }
        [b"automove", b"window", window, ..] => match number_u32(window) {
            Some(window @ 3..=1800) => turn(shared, "slab_automove_window", Some(window)),
            Some(_) => b"CLIENT_ERROR automove window too low or too high\r\n",
            None => BAD_LINE,
        },
        [b"automove", b"ratio" | b"freeratio", ..] => reply::ERROR,
        [b"automove", level, ..] => match number_u32(level) {
            None => BAD_LINE,
            Some(level @ 0..=2) => turn(shared, "slab_automove", Some(level)),
            Some(_) => reply::ERROR,
        },
        _ => reply::ERROR,
    }
}

fn lru(shared: &Shared, arguments: &[&[u8]]) -> &'static [u8] {
    match arguments {
        [b"mode", mode @ (b"flat" | b"segmented"), ..] => {
            turn(shared, "lru_segmented", Some(if mode == b"flat" { "no" } else { "yes" }))
        }
        [b"temp_ttl", seconds, ..] => match number_i32(seconds) {
            Some(seconds) => {
                shared.knobs.set("temp_lru", if seconds < 0 { "no" } else { "yes" });
                turn(shared, "temporary_ttl", (seconds >= 0).then_some(seconds).or(Some(61)))
            }
            None => reply::ERROR,
        },
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => {
            let shares = number_u32(hot).zip(number_u32(warm));
            let factors = float(hot_factor).zip(float(warm_factor));
            let Some(((hot, warm), (hot_factor, warm_factor))) = shares.zip(factors) else {
                return reply::ERROR;
            };
            if hot.saturating_add(warm) > 80 {
                return b"ERROR hot and warm pcts must not exceed 80\r\n";
            }
            if hot_factor <= 0.0 || warm_factor <= 0.0 {
                return b"ERROR hot/warm age factors must be greater than 0\r\n";
            }
            shared.knobs.set("hot_lru_pct", hot);
            shared.knobs.set("warm_lru_pct", warm);
            shared.knobs.set("hot_max_factor", format!("{hot_factor:.2}"));
            turn(shared, "warm_max_factor", Some(format!("{warm_factor:.2}")))
        }
        _ => reply::ERROR,
    }
}

fn lru_crawler(shared: &Shared, arguments: &[&[u8]]) -> &'static [u8] {
    match arguments {
        [b"enable"] => turn(shared, "lru_crawler", Some("yes")),
        [b"disable"] => turn(shared, "lru_crawler", Some("no")),
        [b"sleep", micros] => match number_u32(micros) {
            Some(micros @ 0..=1_000_000) => turn(shared, "lru_crawler_sleep", Some(micros)),
            Some(_) => b"CLIENT_ERROR sleep must be one second or less\r\n",
            None => BAD_LINE,
        },
        [b"tocrawl", items] => match number_u32(items) {
            Some(items) => turn(shared, "lru_crawler_tocrawl", Some(items)),
            None => BAD_LINE,
        },
        [b"crawl", classes] if names_classes(classes) => {
            shared.walks.begun.fetch_add(1, Ordering::Relaxed);
            reply::OK
        }
        [b"crawl", _] => b"BADCLASS invalid class id\r\n",
        _ => reply::ERROR,
    }
}

fn extstore(shared: &Shared, arguments: &[&[u8]]) -> &'static [u8] {
    let number = |word| number_u32(word);
    match arguments {
        [b"free_memchunks", class, chunks] if number(class).zip(number(chunks)).is_some() => {
            reply::OK
        }
        [b"max_frag", share] => {
            turn(shared, "ext_max_frag", float(share).map(|share| format!("{share:.2}")))
        }
        [b"item_size", value] => turn(shared, "ext_item_size", number(value)),
        [b"item_age", value] => turn(shared, "ext_item_age", number(value)),
        [b"low_ttl", value] => turn(shared, "ext_low_ttl", number(value)),
        [b"recache_rate", value] => turn(shared, "ext_recache_rate", number(value)),
        [b"compact_under", value] => turn(shared, "ext_compact_under", number(value)),
        [b"drop_under", value] => turn(shared, "ext_drop_under", number(value)),
        [b"max_sleep", value] => turn(shared, "ext_max_sleep", number(value)),
        [b"drop_unread", value] => {
            let is_on = number(value).map(|value| if value > 0 { "yes" } else { "no" });
            turn(shared, "ext_drop_unread", is_on)
        }
        _ => reply::ERROR,
    }
}

/// Has `stats settings` show a value, if it is one.
fn turn(shared: &Shared, name: &'static str, value: Option<impl ToString>) -> &'static [u8] {
    match value {
        Some(value) => {
            shared.knobs.set(name, value);
            reply::OK
        }
        None => reply::ERROR,
    }
}

fn float(word: &[u8]) -> Option<f64> {
    let number = std::str::from_utf8(word).ok()?.parse::<f64>().ok()?;
    number.is_finite().then_some(number)
}

/// The listing that is asked for, or why there is none; `None` if it is not asked for one.
pub(super) fn listing(
    executor: &Executor<'_>,
    arguments: &[&[u8]],
) -> Option<Result<Listing, &'static [u8]>> {
    let (style, not_allowed): (_, &'static [u8]) = match arguments {
        [b"metadump", _] => (Style::Meta, b"ERROR metadump not allowed\r\n"),
        [b"mgdump", _] => (Style::Mg, b"ERROR key dump not allowed\r\n"),
        _ => return None,
    };
    let shared = executor.shared;
    if !shared.settings.dump_commands {
        return Some(Err(not_allowed));
    }
    if !names_classes(arguments[1]) {
        return Some(Err(b"BADCLASS invalid class id\r\n"));
    }
    let listing = keys::begin(&shared.cache, &shared.walks, style, executor.now);
    Some(listing.ok_or(b"BUSY currently processing crawler request\r\n"))
}

/// All records are of one class, whichever are asked for.
fn names_classes(word: &[u8]) -> bool {
    let is_class = |id: &[u8]| number_u32(id).is_some_and(|id| (1..=63).contains(&id));
    matches!(word, b"all" | b"hash") || word.split(|&byte| byte == b',').all(is_class)
}

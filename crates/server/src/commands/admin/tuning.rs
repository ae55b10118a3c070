//! Commands that tune parts of memcached which have no counterpart here. A script that sends them is
//! told what it expects to hear as long as what it asks for makes sense.

use crate::commands::executor::Executor;
use crate::commands::listing::{Listing, Style};
use terrace_protocol::{AdminKind, number_i32, number_u32, number_u64, reply};

const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line format\r\n";

pub(super) fn execute(
    executor: &Executor<'_>,
    kind: AdminKind,
    arguments: Vec<&[u8]>,
) -> &'static [u8] {
    match kind {
        AdminKind::CacheMemlimit => cache_memlimit(executor, &arguments),
        AdminKind::Slabs => slabs(&arguments),
        AdminKind::Lru => lru(&arguments),
        AdminKind::LruCrawler => lru_crawler(&arguments),
        AdminKind::Extstore => extstore(&arguments),
        AdminKind::FreeMemchunks if arguments.len() == 2 => reply::OK,
        _ => reply::ERROR,
    }
}

/// The cap of a running cache is fixed; asking for what it is succeeds.
fn cache_memlimit(executor: &Executor<'_>, arguments: &[&[u8]]) -> &'static [u8] {
    let Some(megabytes) = arguments.first().and_then(|word| number_u32(word)) else {
        return reply::ERROR;
    };
    match u64::from(megabytes) << 20 {
        bytes if bytes == executor.shared.settings.memory_bytes => reply::OK,
        0..0x80_0000 => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        _ => b"MEMLIMIT_ADJUST_FAILED input value too large or out of bounds\r\n",
    }
}

fn slabs(arguments: &[&[u8]]) -> &'static [u8] {
    match arguments {
        [b"reassign", from, to] => match (number_i32(from), number_i32(to)) {
            (Some(_), Some(_)) => b"BADCLASS invalid src or dst class id\r\n",
            _ => BAD_LINE,
        },
        [b"automove", b"0" | b"1" | b"2"] => reply::OK,
        [b"automove", b"ratio" | b"freeratio", ratio] if is_fraction(ratio) => reply::OK,
        [b"automove", b"window", window] => match number_u32(window) {
            Some(3..=1800) => reply::OK,
            Some(_) => b"CLIENT_ERROR automove window too low or too high\r\n",
            None => reply::ERROR,
        },
        _ => reply::ERROR,
    }
}

fn lru(arguments: &[&[u8]]) -> &'static [u8] {
    match arguments {
        [b"mode", b"flat" | b"segmented"] => reply::OK,
        [b"temp_ttl", seconds] if number_i32(seconds).is_some() => reply::OK,
        [b"tune", hot, warm, hot_factor, warm_factor] => {
            let shares = number_u32(hot).zip(number_u32(warm));
            let are_factors = is_fraction(hot_factor) && is_fraction(warm_factor);
            match shares {
                Some((hot, warm)) if are_factors && hot > 0 && warm > 0 && hot + warm <= 80 => {
                    reply::OK
                }
                Some(_) => b"ERROR hot and warm pcts must not exceed 80\r\n",
                None => reply::ERROR,
            }
        }
        _ => reply::ERROR,
    }
}

fn lru_crawler(arguments: &[&[u8]]) -> &'static [u8] {
    match arguments {
        [b"enable" | b"disable"] => reply::OK,
        [b"sleep", micros] => match number_u32(micros) {
            Some(0..=1_000_000) => reply::OK,
            _ => b"CLIENT_ERROR sleep must be one second or less\r\n",
        },
        [b"tocrawl", items] if number_u32(items).is_some() => reply::OK,
        [b"crawl", _] => reply::OK,
        _ => reply::ERROR,
    }
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
    let listing = Listing::begin(&shared.cache, &shared.listing, style, executor.now);
    Some(listing.ok_or(b"BUSY currently processing crawler request\r\n"))
}

/// All records are of one class, whichever are asked for.
fn names_classes(word: &[u8]) -> bool {
    let is_class = |id: &[u8]| number_u32(id).is_some_and(|id| (1..=63).contains(&id));
    matches!(word, b"all" | b"hash") || word.split(|&byte| byte == b',').all(is_class)
}

fn extstore(arguments: &[&[u8]]) -> &'static [u8] {
    match arguments {
        [b"max_frag", share] if is_fraction(share) => reply::OK,
        [b"item_size" | b"item_age" | b"low_ttl" | b"recache_rate" | b"compact_under", number]
        | [b"drop_under" | b"max_sleep" | b"drop_unread", number]
            if number_u64(number).is_some() =>
        {
            reply::OK
        }
        _ => reply::ERROR,
    }
}

fn is_fraction(word: &[u8]) -> bool {
    std::str::from_utf8(word).is_ok_and(|text| text.parse::<f64>().is_ok_and(f64::is_finite))
}

//! `stats`.

use crate::commands::executor::Executor;
use crate::commands::listing::{Listing, items as listed_items, segments, sizes};
use crate::stats::view::{self, View};
use crate::stats::{conns, general, items, settings, tiers};
use std::sync::atomic::Ordering;
use terrace_protocol::{number_u32, reply};

/// What is told piece by piece; `None` where the answer stands at once.
pub(super) fn listing(executor: &Executor<'_>, arguments: &[&[u8]]) -> Option<Listing> {
    match arguments {
        [b"extstore", ..] => Some(segments::begin(&executor.shared.cache)),
        [b"sizes", ..] => {
            let put = |out: &mut Vec<u8>, size: u64, count| {
                view::write(out, &size.to_string(), count);
            };
            sizes::begin(executor, put, reply::END.to_vec())
        }
        [b"cachedump", class, limit, ..] if executor.shared.settings.dump_commands => {
            let (class, limit) = number_u32(class).zip(number_u32(limit))?;
            listed_items::begin(executor, class, limit, reply::END.to_vec())
        }
        _ => None,
    }
}

pub(in crate::commands) fn execute(
    executor: &Executor<'_>,
    arguments: Vec<&[u8]>,
    out: &mut Vec<u8>,
) {
    let shared = executor.shared;
    let view = || View::new(shared, executor.now);
    let text = match arguments[..] {
        [] => {
            general::write(out, &view());
            reply::END
        }
        [b"settings", ..] => {
            settings::write(out, &view());
            reply::END
        }
        [b"items", ..] => {
            items::write_items(out, &view());
            reply::END
        }
        [b"slabs", ..] => {
            items::write_slabs(out, &view());
            reply::END
        }
        [b"tiers", ..] => {
            tiers::write_tiers(out, &view());
            reply::END
        }
        [b"sizes", ..] => {
            write_no_sizes(out, shared.track_sizes.load(Ordering::Relaxed));
            reply::END
        }
        [b"sizes_enable", ..] => track_sizes(executor, true, out),
        [b"sizes_disable", ..] => track_sizes(executor, false, out),
        [b"conns", ..] => {
            conns::write_conns(out, &view());
            reply::END
        }
        [b"cachedump", ..] | [b"detail", ..] if !shared.settings.dump_commands => {
            b"CLIENT_ERROR stats cachedump not allowed\r\n"
        }
        [b"detail", b"dump", ..] => {
            shared.prefixes.write(out);
            reply::END
        }
        [b"detail", b"on", ..] => {
            shared.prefixes.turn(true);
            reply::OK
        }
        [b"detail", b"off", ..] => {
            shared.prefixes.turn(false);
            reply::OK
        }
        // Of a class without records, or beside another walk over all of them.
        [b"cachedump", class, count, ..] => match (number_u32(class), number_u32(count)) {
            (Some(1), Some(_)) => b"SERVER_ERROR busy with another listing\r\n",
            (Some(0..=63), Some(_)) => reply::END,
            (Some(_), Some(_)) => b"CLIENT_ERROR Illegal slab id\r\n",
            _ => reply::BAD_FORMAT,
        },
        [b"detail", ..] => b"CLIENT_ERROR usage: stats detail on|off|dump\r\n",
        [b"cachedump", ..] => b"CLIENT_ERROR bad command line\r\n",
        [b"reset", ..] => {
            view::reset(shared);
            reply::RESET
        }
        _ => reply::ERROR,
    };
    out.extend_from_slice(text);
}

fn track_sizes(executor: &Executor<'_>, on: bool, out: &mut Vec<u8>) -> &'static [u8] {
    executor.shared.track_sizes.store(on, Ordering::Relaxed);
    view::write(out, "sizes_status", if on { "enabled" } else { "disabled" });
    reply::END
}

/// Why there are no sizes: they are not asked for, or another walk over all records is under way.
fn write_no_sizes(out: &mut Vec<u8>, are_tracked: bool) {
    view::write(out, "sizes_status", if are_tracked { "error" } else { "disabled" });
    if are_tracked {
        view::write(out, "sizes_error", "busy");
    }
}

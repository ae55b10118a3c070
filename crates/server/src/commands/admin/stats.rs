//! `stats`.

use crate::commands::executor::Executor;
use crate::stats::view::{self, View};
use crate::stats::{conns, general, items, settings, tiers};
use terrace_protocol::{number_u32, reply};

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
            view::write(out, "sizes_status", "disabled");
            reply::END
        }
        [b"conns", ..] => {
            conns::write_conns(out, &view());
            reply::END
        }
        // Nothing is collected by class, and segments are no business of memcached's tools.
        [b"extstore", ..] => reply::END,
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
        [b"cachedump", class, count, ..] => match (number_u32(class), number_u32(count)) {
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

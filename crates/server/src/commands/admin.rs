//! Commands that concern the server, not one key.

use super::executor::Executor;
use super::expiry::Expiry;
use super::listing::Listing;
use crate::server::watch::Watcher;
use crate::stats::general::VERSION;
use std::io;
use std::sync::Arc;
use terrace_protocol::{Admin, AdminKind, Tokens, number_i32, number_u32, reply};

mod certificates;
mod memlimit;
pub(super) mod stats;
mod tuning;
mod watch;

/// What becomes of the connection.
#[derive(Debug)]
pub(crate) enum After {
    GoOn,
    Close,
    /// A listing follows.
    List(Box<Listing>),
    /// Events follow, until the client goes.
    Watch(Arc<Watcher>),
}

/// Executes a command that names no key.
pub(crate) fn execute(executor: &Executor<'_>, admin: &Admin<'_>, out: &mut Vec<u8>) -> After {
    if admin.kind == AdminKind::Quit {
        return After::Close;
    }
    let mut unsaid = Vec::new();
    let (arguments, is_silent) = words(admin);
    let out = if is_silent { &mut unsaid } else { out };
    match admin.kind {
        AdminKind::Version => out.extend_from_slice(format!("VERSION {VERSION}\r\n").as_bytes()),
        AdminKind::Stats => match stats::listing(executor, &arguments) {
            Some(listing) => return After::List(Box::new(listing)),
            None => stats::execute(executor, arguments, out),
        },
        AdminKind::FlushAll => out.extend_from_slice(flush_all(executor, arguments)),
        AdminKind::Verbosity => out.extend_from_slice(verbosity(executor, arguments)),
        AdminKind::Watch => return watch::execute(executor, &arguments, out),
        AdminKind::Shutdown => return shutdown(executor, arguments, out),
        AdminKind::RefreshCerts => certificates::refresh(executor, out),
        AdminKind::CacheMemlimit => out.extend_from_slice(memlimit::execute(executor, &arguments)),
        AdminKind::LruCrawler => match tuning::listing(executor, &arguments) {
            Some(Ok(listing)) => return After::List(Box::new(listing)),
            Some(Err(why)) => out.extend_from_slice(why),
            None => out.extend_from_slice(tuning::execute(executor, admin.kind, arguments)),
        },
        kind => out.extend_from_slice(tuning::execute(executor, kind, arguments)),
    }
    After::GoOn
}

/// The words of a command, without a `noreply` at the end of those that know it, and whether there was one.
fn words<'a>(admin: &Admin<'a>) -> (Vec<&'a [u8]>, bool) {
    let mut words: Vec<_> = Tokens::collect(admin.arguments);
    let answers = matches!(
        admin.kind,
        AdminKind::Stats | AdminKind::Version | AdminKind::Watch | AdminKind::RefreshCerts
    );
    let is_silent = admin.noreply && !answers;
    if is_silent {
        words.pop();
    }
    (words, is_silent)
}

fn flush_all(executor: &Executor<'_>, arguments: Vec<&[u8]>) -> &'static [u8] {
    if !executor.shared.settings.flush_all_command {
        return reply::FLUSH_NOT_ALLOWED;
    }
    let delay = match arguments[..] {
        [] => 0,
        // As in memcached, words behind it are ignored here and below.
        [word, ..] => match number_i32(word) {
            Some(delay) => delay,
            None => return reply::INVALID_EXPTIME,
        },
    };
    match flush(executor, Expiry::new(delay, executor.now)) {
        Ok(()) => reply::OK,
        Err(_) => {
            b"SERVER_ERROR a drive refuses writes: the flush may not outlive a power loss\r\n"
        }
    }
}

/// Removes everything, now or when `due` says. Fails in strict mode, if that can't be made durable.
pub(super) fn flush(executor: &Executor<'_>, due: Expiry) -> io::Result<()> {
    let shared = executor.shared;
    executor.counters.cmd_flush.add(1);
    match due {
        Expiry::At(due) if due > 0 => shared.flush.plan(&shared.cache, due),
        _ => shared.flush.run_now(&shared.cache),
    }
}

fn verbosity(executor: &Executor<'_>, arguments: Vec<&[u8]>) -> &'static [u8] {
    let [word, ..] = arguments[..] else { return reply::BAD_FORMAT };
    let Some(level) = number_u32(word) else { return reply::BAD_FORMAT };
    executor.shared.set_verbosity(level.min(2) as u8);
    reply::OK
}

fn shutdown(executor: &Executor<'_>, arguments: Vec<&[u8]>, out: &mut Vec<u8>) -> After {
    if !executor.shared.settings.shutdown_command {
        out.extend_from_slice(b"SERVER_ERROR: shutdown not enabled\r\n");
        return After::GoOn;
    }
    match arguments[..] {
        [] | [b"graceful"] => {
            executor.shared.stop();
            After::Close
        }
        _ => {
            out.extend_from_slice(b"CLIENT_ERROR invalid shutdown mode\r\n");
            After::GoOn
        }
    }
}

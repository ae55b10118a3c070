//! `watch`.

use super::After;
use crate::commands::executor::Executor;
use crate::server::watch::Stream;
use std::sync::Arc;
use terrace_protocol::reply;

/// Lets the connection hear of what it names.
pub(super) fn execute(executor: &Executor<'_>, arguments: &[&[u8]], out: &mut Vec<u8>) -> After {
    if !executor.shared.settings.watch_command {
        out.extend_from_slice(b"CLIENT_ERROR watch commands not allowed\r\n");
        return After::GoOn;
    }
    let mut streams = 0;
    let default: [&[u8]; 1] = [b"fetchers"];
    for name in if arguments.is_empty() { &default } else { arguments } {
        match Stream::named(name) {
            Some(stream) => streams |= stream as u32,
            None => {
                out.extend_from_slice(reply::ERROR);
                return After::GoOn;
            }
        }
    }
    let waker = Arc::clone(executor.shared.inboxes[executor.worker].waker());
    match executor.shared.watchers.add(streams, waker) {
        Some(watcher) => {
            out.extend_from_slice(reply::OK);
            After::Watch(watcher)
        }
        None => {
            out.extend_from_slice(b"WATCHER_TOO_MANY log watcher limit reached\r\n");
            After::GoOn
        }
    }
}

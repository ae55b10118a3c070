//! What concerns the server, not one key: VERSION, FLUSH, STAT, QUIT.

use crate::commands::admin::{self, After};
use crate::commands::executor::Executor;
use crate::commands::expiry::Expiry;
use crate::commands::listing::{self, Listing};
use crate::stats::general::VERSION;
use terrace_protocol::binary::{Echo, Response, Status};
use terrace_protocol::{BinaryCommand, BinaryRequest};

/// Executes a request that names no record.
pub(crate) fn execute(
    executor: &Executor<'_>,
    request: &BinaryRequest<'_>,
    out: &mut Vec<u8>,
) -> After {
    let mut done = |value| {
        if !request.quiet {
            request.echo.put(out, &Response { value, ..Response::default() });
        }
    };
    match request.command {
        BinaryCommand::Version => done(VERSION.as_bytes()),
        BinaryCommand::Quit => {
            done(b"");
            return After::Close;
        }
        BinaryCommand::Flush { .. } if !executor.shared.settings.flush_all_command => {
            request.echo.put_error(out, Status::AuthError);
        }
        BinaryCommand::Flush { exptime } => {
            match admin::flush(executor, Expiry::unsigned(exptime, executor.now)) {
                Ok(()) => done(b""),
                Err(_) => request.echo.put_error(out, Status::OutOfMemory),
            }
        }
        BinaryCommand::Stat { name } => return stat(executor, request.echo, name, out),
        _ => {}
    }
    After::GoOn
}

/// The lines of the `stats` command as responses, one for each, and an empty one at their end.
fn stat(executor: &Executor<'_>, echo: Echo, name: &[u8], out: &mut Vec<u8>) -> After {
    if name == b"sizes"
        && let Some(listing) = sizes(executor, echo)
    {
        return After::List(Box::new(listing));
    }
    let words: Vec<_> = name.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    let mut text = Vec::new();
    if is_known(&words) {
        admin::stats::execute(executor, words.clone(), &mut text);
    }
    let Some(lines) = without_end(&text) else {
        echo.put_error(out, Status::NotFound);
        return After::GoOn;
    };
    if words == [b"detail", &b"dump"[..]] {
        echo.put(out, &Response { key: b"detailed", value: &text, ..Response::default() });
    } else {
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            put_line(line.strip_suffix(b"\r").unwrap_or(line), echo, out);
        }
    }
    echo.put(out, &Response::default());
    After::GoOn
}

/// `stats sizes`, where sizes are counted.
fn sizes(executor: &Executor<'_>, echo: Echo) -> Option<Listing> {
    let put = move |out: &mut Vec<u8>, size: u64, count: u64| {
        let (key, value) = (size.to_string(), count.to_string());
        let (key, value) = (key.as_bytes(), value.as_bytes());
        echo.put(out, &Response { key, value, ..Response::default() });
    };
    let mut end = Vec::new();
    echo.put(&mut end, &Response::default());
    listing::sizes::begin(executor, put, end)
}

/// What memcached answers over this protocol, and our own.
fn is_known(words: &[&[u8]]) -> bool {
    match words {
        [] => true,
        [b"detail", ..] => true,
        [name] => {
            [&b"reset"[..], b"settings", b"items", b"slabs", b"sizes", b"tiers"].contains(name)
        }
        _ => false,
    }
}

/// The lines before the one that says that all is well; `None` if it says something else.
fn without_end(text: &[u8]) -> Option<&[u8]> {
    let ends = [&b"END\r\n"[..], b"OK\r\n", b"RESET\r\n"];
    ends.into_iter().find_map(|end| text.strip_suffix(end))
}

/// `STAT <name> <value>`.
fn put_line(line: &[u8], echo: Echo, out: &mut Vec<u8>) {
    let mut words = line.splitn(3, |&byte| byte == b' ').skip(1);
    let key = words.next().unwrap_or_default();
    let value = words.next().unwrap_or_default();
    echo.put(out, &Response { key, value, ..Response::default() });
}

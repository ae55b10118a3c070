//! `lru_crawler metadump` and `mgdump`: every key of every tier, listed by a thread of its own while
//! requests go on. It stops where the client does not take what there is, and ends with the client.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use terrace_cache::{Cache, Dump, Listed};

/// Pieces that wait for the client, at most; each is of one segment or of a shard's DRAM.
const PIECES_AHEAD: usize = 2;
/// A longer piece is handed over in parts of about so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// How keys are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `key=… exp=…`, ended by `END`.
    Meta,
    /// Lines that read all the records again, ended by `EN`.
    Mg,
}

/// What comes next of a listing.
#[derive(Debug)]
pub(crate) enum Next {
    Bytes(Vec<u8>),
    /// Nothing yet.
    Wait,
    End,
}

/// A listing under way.
#[derive(Debug)]
pub(crate) struct Listing {
    pieces: Receiver<Vec<u8>>,
    terminator: Option<&'static [u8]>,
}

impl Listing {
    /// Begins a listing; `None` while another one is under way, which `busy` tells.
    pub(crate) fn begin(
        cache: &Arc<Cache>,
        busy: &Arc<AtomicBool>,
        style: Style,
        now: u32,
    ) -> Option<Self> {
        let turn = Turn::take(busy)?;
        let dump = Dump::begin(cache)?;
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let list = move || {
            let _turn = turn;
            list_all(dump, &sender, style, now);
        };
        thread::Builder::new().name("listing".into()).spawn(list).ok()?;
        let terminator: &'static [u8] = match style {
            Style::Meta => b"END\r\n",
            Style::Mg => b"EN\r\n",
        };
        Some(Self { pieces, terminator: Some(terminator) })
    }

    /// What comes next; never blocks.
    pub(crate) fn next(&mut self) -> Next {
        match self.pieces.try_recv() {
            Ok(bytes) => Next::Bytes(bytes),
            Err(TryRecvError::Empty) => Next::Wait,
            Err(TryRecvError::Disconnected) => match self.terminator.take() {
                Some(terminator) => Next::Bytes(terminator.to_vec()),
                None => Next::End,
            },
        }
    }
}

/// One listing at a time; the next may begin when this is dropped.
struct Turn(Arc<AtomicBool>);

impl Turn {
    fn take(busy: &Arc<AtomicBool>) -> Option<Self> {
        (!busy.swap(true, Ordering::AcqRel)).then(|| Self(Arc::clone(busy)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn list_all(mut dump: Dump, pieces: &SyncSender<Vec<u8>>, style: Style, now: u32) {
    let mut text = String::new();
    loop {
        let more = dump.step(now, |listed| write_line(&mut text, &listed, style, now));
        for part in text.as_bytes().chunks(PIECE_BYTES) {
            if pieces.send(part.to_vec()).is_err() {
                // The client is gone.
                return;
            }
        }
        text.clear();
        if !more {
            return;
        }
    }
}

fn write_line(text: &mut String, listed: &Listed<'_>, style: Style, now: u32) {
    let record = &listed.record;
    // Writing to a string does not fail.
    let _ = match style {
        Style::Mg if record.key.iter().all(u8::is_ascii_graphic) => {
            write!(text, "mg {}\r\n", String::from_utf8_lossy(record.key))
        }
        Style::Mg => write!(text, "mg {} b\r\n", STANDARD.encode(record.key)),
        Style::Meta => {
            text.push_str("key=");
            record.key.iter().for_each(|&byte| push_uri(text, byte));
            let expires = if record.expires == 0 { -1 } else { i64::from(record.expires) };
            let fetched = if listed.fetched { "yes" } else { "no" };
            let bytes = record.key.len() as u64 + record.value_bytes();
            let accessed = if listed.accessed == 0 { now } else { listed.accessed };
            writeln!(
                text,
                " exp={expires} la={accessed} cas={} fetch={fetched} cls=1 size={bytes} flags={}",
                record.cas, record.client_flags
            )
        }
    };
}

/// As memcached does: letters, digits and four marks stand for themselves.
fn push_uri(text: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        text.push(byte as char);
    } else {
        let _ = write!(text, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spelled_as_memcached_does() {
        let uri = |key: &[u8]| {
            let mut text = String::new();
            key.iter().for_each(|&byte| push_uri(&mut text, byte));
            text
        };
        assert_eq!(uri(b"a-b_c.d~e%25"), "a-b_c.d~e%2525");
        assert_eq!(uri(&[0, 255, b'/']), "%00%FF%2F");
    }
}

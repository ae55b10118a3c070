//! `lru_crawler metadump` and `mgdump`: every key of every tier.

use super::{Gone, Listing, Pieces, Walks};
use crate::key_text::{is_plain, put_uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io::Write;
use std::sync::Arc;
use terrace_cache::{Cache, Dump, Listed};

/// How keys are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `key=… exp=…`, ended by `END`.
    Meta,
    /// Lines that read all the records again, ended by `EN`.
    Mg,
}

/// Begins a list; `None` while another walk is under way.
pub(crate) fn begin(
    cache: &Arc<Cache>,
    walks: &Arc<Walks>,
    style: Style,
    now: u32,
) -> Option<Listing> {
    let terminator: &[u8] = match style {
        Style::Meta => b"END\r\n",
        Style::Mg => b"EN\r\n",
    };
    Listing::walk(cache, walks, terminator.to_vec(), move |dump, pieces| {
        list_all(dump, pieces, style, now)
    })
}

fn list_all(mut dump: Dump, pieces: &Pieces, style: Style, now: u32) -> Result<(), Gone> {
    let mut text = Vec::new();
    loop {
        let more = dump.step(now, |listed| {
            pieces.note_record();
            write_line(&mut text, &listed, style, now);
        });
        pieces.send(&text)?;
        text.clear();
        if !more {
            return Ok(());
        }
    }
}

fn write_line(text: &mut Vec<u8>, listed: &Listed<'_>, style: Style, now: u32) {
    let record = &listed.record;
    // Writing to memory does not fail.
    let _ = match style {
        Style::Mg if is_plain(record.key) => {
            text.extend_from_slice(b"mg ");
            text.extend_from_slice(record.key);
            text.write_all(b"\r\n")
        }
        Style::Mg => write!(text, "mg {} b\r\n", STANDARD.encode(record.key)),
        Style::Meta => {
            text.extend_from_slice(b"key=");
            put_uri(text, record.key);
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

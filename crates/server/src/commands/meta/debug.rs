//! `me`.

use crate::commands::executor::{Keyed, Unfinished};
use crate::commands::keyed::Executed;
use crate::commands::lookup;
use std::io::Write;
use terrace_cache::Access;
use terrace_protocol::{MetaRequest, reply};

pub(super) fn execute(
    on: &Keyed<'_>,
    request: &MetaRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let Some(hit) = lookup::read(on, Access::Peek)? else {
        out.extend_from_slice(reply::META_MISS);
        return Ok(Executed::Replied);
    };
    let record = hit.record;
    let left = match record.expires {
        0 => -1,
        expires => i64::from(expires) - i64::from(on.now),
    };
    let fetched = if hit.fetched { "yes" } else { "no" };
    let size = record.key.len() as u64 + record.value_bytes();
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(request.key.raw);
    // Writing to a `Vec` never fails.
    let _ = write!(
        out,
        " exp={left} la={} cas={} fetch={fetched} cls=1 size={size}\r\n",
        hit.idle_seconds, record.cas
    );
    Ok(Executed::Replied)
}

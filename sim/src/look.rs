//! Looks at what a cache holds.

use crate::connection::key_bytes;
use crate::context::Context;
use std::sync::Arc;
use terrace_cache::{Access, Cache, Lookup, Session};
use terrace_device::Drive;
use terrace_runtime::flash_lookup::FlashLookup;

/// The keys whose records a cache holds, out of those that it should.
pub(crate) fn held_by(cache: &Arc<Cache>, cx: &mut Context) -> Vec<u32> {
    if cx.is_hurt() || cx.is_recovering {
        return Vec::new();
    }
    let session = cache.session();
    let live: Vec<_> = cx.oracle.live(cx.latest).collect();
    // What the crash left in doubt was decided by what went on; it is not asked for.
    let certain: Vec<_> =
        live.into_iter().filter(|&key| cx.oracle.certain(key).is_some()).collect();
    certain.into_iter().filter(|&key| peek(&session, cx, key) == Some(true)).collect()
}

/// Whether a key's record is there, and right; `None` if it is wrong.
pub(crate) fn peek(session: &Session, cx: &mut Context, key: u32) -> Option<bool> {
    let bytes = key_bytes(key);
    let mut lookup = FlashLookup::default();
    for _ in 0..1000 {
        let name = session.key(&bytes);
        let search = match session.get(name, cx.now, Access::Peek, lookup.evidence()) {
            Lookup::Miss => return Some(false),
            Lookup::Read(search) => search,
            Lookup::Hit(hit) => {
                cx.note_key(key, "is seen", hit.record.expires.into(), hit.from_dram.into());
                return match cx.oracle.hit(key, &hit.record, cx.now) {
                    Ok(_) => Some(true),
                    Err(why) => {
                        cx.fail(key, format!("a look: key {key}: {why}"));
                        None
                    }
                };
            }
        };
        lookup.read_with(session, name, search, |plan, buffer| {
            cx.devices[plan.tier].read_at(plan.offset, buffer)
        });
    }
    cx.fail(key, format!("a look at key {key} never ends"));
    None
}

//! Handles the loss of the state under a running cache: another process truncates its file, or its file system has no
//! page left. Lost pages read as zeros then ([`replace_lost`]); which pages are lost is unknown.
//!
//! 1. The handler records the loss before any thread can read a zero. From then on the logs count as failed: no change
//!    is acknowledged as durable, and the rest of the logs is not written anywhere.
//! 2. A thread that has read a record checks for a loss before it acts on it ([`crate::Session::is_intact`]): a reply
//!    is a miss, a change waits, a seal is given up.
//! 3. The first request or slice of background work that finds the loss reconciles it, here: no start will use the
//!    file, its blocks become memory of the process, and every record in DRAM is dropped.
//!
//! Records on the tiers stay in use: when a record in DRAM replaced an older one, the entry of that was removed from
//! the index, so that a dropped record never exposes an older one.
//!
//! [`replace_lost`]: crate::replace_lost

use crate::engine::Engine;
use crate::platform::mapped::stage;
use crate::platform::quiesce::Guard;

/// Drops all records in DRAM if a part of the state is lost. The caller must not hold a shard's lock.
pub(crate) fn handle(engine: &Engine, guard: Guard<'_>) {
    let Some(state) = engine.shared.state() else { return };
    let _one_thread = state.begin_handling_loss();
    if state.loss().stage() != stage::FOUND {
        return;
    }
    state.forget();
    engine.shared.arena().detach();
    for shard in &engine.shards {
        shard.lock(&engine.shared, guard).drop_residents();
    }
    state.loss().mark_handled();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::config::{Config, Tier, Tuning};
    use crate::facade::cache::Cache;
    use crate::records::access::Access;
    use crate::records::record::{Body, NewRecord, NewValue};
    use crate::request::session::{Lookup, Session};
    use crate::request::update::{Change, Update};
    use crate::state::StateFile;

    use std::sync::Arc;
    use terrace_device::sim::SimDevice;

    const NOW: u32 = 1;
    const KEYS: usize = 3000;
    /// At most this many pairs of keys share all bits that the index keeps of them.
    const SAME_BITS: usize = 3;

    fn open(tiers: Vec<Tier>, state: &Arc<StateFile>) -> Arc<Cache> {
        let tuning = Tuning { segment_bytes: Some(64 << 10), ..Tuning::default() };
        let (tiers, state) = (tiers, Some(Arc::clone(state)));
        Cache::open(Config { tuning, tiers, state, ..Config::new(4 << 20) }).expect("opens")
    }

    fn set(session: &Session, n: usize, version: &str) -> Update {
        let (key, value) = (format!("key{n}"), format!("{version} of {n}"));
        let value = NewValue::Inline(value.as_bytes(), &[]);
        let (client_flags, expires, cas, stale, win_sent) = (0, 0, None, false, false);
        let new = NewRecord { value, client_flags, expires, cas, stale, win_sent };
        session.update(session.key(key.as_bytes()), NOW, None, true, |_| Change::Store(new))
    }

    fn set_all(cache: &Cache, session: &mut Session, version: &str) {
        for n in 0..KEYS {
            while !matches!(set(session, n, version), Update::Done { .. }) {
                cache.maintain(NOW);
                session.quiesce();
            }
        }
    }

    /// Counts the keys that are in DRAM; each must have this version.
    fn found(session: &Session, version: &str) -> usize {
        let is_there = |&n: &usize| {
            let key = format!("key{n}");
            match session.get(session.key(key.as_bytes()), NOW, Access::Peek, None) {
                Lookup::Hit(hit) => {
                    let Body::Inline(value) = hit.record.body() else { panic!("it is short") };
                    assert_eq!(value, format!("{version} of {n}").as_bytes());
                    true
                }
                _ => false,
            }
        };
        (0..KEYS).filter(is_there).count()
    }

    /// Loses the blocks of the state from this key's record on, as the handler would replace them.
    fn lose(session: &Session, n: usize) {
        let key = format!("key{n}");
        let Lookup::Hit(hit) = session.get(session.key(key.as_bytes()), NOW, Access::Peek, None)
        else {
            panic!("it is in DRAM")
        };
        assert!(session.is_intact());
        assert!(crate::replace_lost(hit.record.key.as_ptr().addr()));
        assert!(!session.is_intact(), "a reader that has copied it learns of the loss");
    }

    #[test]
    fn lookups_after_a_lost_state_miss_old_records_and_find_new_ones() {
        let state = Arc::new(StateFile::volatile().expect("memory"));
        let cache = open(Vec::new(), &state);
        let mut session = cache.session();
        set_all(&cache, &mut session, "first");
        assert_eq!(found(&session, "first"), KEYS);
        lose(&session, KEYS / 2);
        assert!(cache.has_lost_state());
        assert_eq!(found(&session, "first"), 0);
        for version in ["second", "third"] {
            set_all(&cache, &mut session, version);
            assert_eq!(found(&session, version), KEYS);
            cache.maintain(NOW);
            session.quiesce();
        }
        drop(session);
        drop(cache);
        let cache = open(Vec::new(), &state);
        assert_eq!(found(&cache.session(), "third"), 0, "it is not believed");
    }

    #[test]
    fn update_decided_by_a_lost_record_waits_and_changes_nothing() {
        let state = Arc::new(StateFile::volatile().expect("memory"));
        let cache = open(Vec::new(), &state);
        let mut session = cache.session();
        set_all(&cache, &mut session, "first");
        let update = session.update(session.key(b"key7"), NOW, None, false, |hit| {
            let address = hit.expect("it is there").record.key.as_ptr().addr();
            assert!(crate::replace_lost(address));
            Change::Remove
        });
        assert!(matches!(update, Update::Wait));
        let again = session.update(session.key(b"key7"), NOW, None, false, |hit| {
            assert!(hit.is_none(), "it is lost");
            Change::Keep
        });
        assert!(matches!(again, Update::Done { .. }));
    }

    /// A dropped record exposes no older one, and no later start uses the tiers.
    #[test]
    fn sealed_records_after_a_lost_state_are_unchanged() {
        let drive = Arc::new(SimDevice::new(8 << 20, 1));
        let state = Arc::new(StateFile::volatile().expect("memory"));
        let tiers = || vec![Tier::new(Arc::clone(&drive) as Arc<_>)];
        let cache = open(tiers(), &state);
        let mut session = cache.session();
        set_all(&cache, &mut session, "first");
        drop(session);
        assert!(cache.close(NOW, &|| true), "all go to the drive");
        drop(cache);
        let cache = open(tiers(), &state);
        while cache.recover() {}
        let session = cache.session();
        let sealed = cache.stats().tiers[0].records;
        assert!(sealed > 0);
        for n in 0..100 {
            assert!(matches!(set(&session, n, "second"), Update::Done { .. }));
        }
        lose(&session, 50);
        let old = |&n: &usize| {
            let key = format!("key{n}");
            let lookup = session.get(session.key(key.as_bytes()), NOW, Access::Use, None);
            assert!(!matches!(lookup, Lookup::Hit(_)), "{n}: it is lost");
            matches!(lookup, Lookup::Read(_))
        };
        // Records of other keys with the same bits in the index are read, or were replaced unread. One run in
        // twenty-five has such a pair among 100 of 3,000.
        assert!((0..100).filter(old).count() <= SAME_BITS, "older records came out");
        assert!(
            cache.stats().tiers[0].records >= sealed - 100 - SAME_BITS as u64,
            "the others stay"
        );
        drop(session);
        assert!(!cache.close(NOW, &|| true), "a clean stop is not to be believed");
        drop(cache);
        let cache = open(tiers(), &state);
        assert!(cache.notes().iter().any(|note| note.text().contains("COLD START")));
        assert_eq!(cache.stats().records, 0);
    }
}

//! The end of a run: what a cache holds when nothing is under way any more.

use crate::connection::Connection;
use crate::context::Context;
use crate::world::Life;

/// Slices of background work after which there must be none left.
pub(crate) const SETTLED: u64 = 200_000;
/// Seconds without requests until a cache is at rest: with a slice in each at least, all that is suspended is settled.
const REST_S: u32 = 120;

/// What is under way goes on.
pub(crate) fn answer(life: &mut Life, cx: &mut Context) {
    life.connections.iter_mut().for_each(|connection| connection.turn(cx, 0));
    life.cache.maintain(cx.now);
    life.cache.recover();
    cx.is_recovering = life.cache.recovering() > 0;
}

/// Answers everybody; `false` if that fails.
pub(crate) fn answer_all(life: &mut Life, cx: &mut Context) -> bool {
    let mut turns = 0;
    while !life.connections.iter().all(Connection::is_idle) && cx.failure.is_none() {
        answer(life, cx);
        cx.step += 1;
        turns += 1;
        if turns > SETTLED {
            cx.fail(0, "operations never end".to_owned());
            return false;
        }
    }
    cx.failure.is_none()
}

/// Everything comes to rest: from then on the cache holds the records that it should, and no others.
pub(crate) fn rest(life: &mut Life, cx: &mut Context) {
    if !answer_all(life, cx) {
        return;
    }
    life.connections.iter_mut().for_each(Connection::park);
    for _ in 0..REST_S {
        if !(0..SETTLED).any(|_| !life.cache.maintain(cx.now)) && !cx.is_hurt() {
            return cx.fail(0, "background work never ends".to_owned());
        }
        cx.now += 1;
    }
    cx.latest = cx.latest.max(cx.now);
    cx.oracle.expire(cx.now);
    let (records, should) = (life.cache.stats().records, cx.oracle.records(cx.latest));
    cx.note("rests with", records, *should.end());
    cx.is_hurt();
    if cx.was_broken {
        return;
    }
    if records > *should.end() {
        return cx.fail(0, format!("{records} records are there, and {} should be", should.end()));
    }
    // Where many records share a name, one may go with another.
    let are_names_rare = cx.scenario.fingerprint_bits >= 12;
    if records < *should.start() && are_names_rare && !cx.has_lost_some() {
        cx.fail(0, format!("{records} records are there, of {}", should.start()));
    }
}

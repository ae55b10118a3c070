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

/// Everything comes to rest: the cache holds the records that it should.
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
    let (records, least) = (life.cache.stats().records, cx.oracle.least_records(cx.latest));
    cx.note("rests with", records, least);
    // Where many records share a name, one may go with another; so it may where a drive did not tell whose one was.
    let are_names_rare = cx.scenario.fingerprint_bits >= 12;
    if records < least && are_names_rare && !cx.is_hurt() && !cx.has_lost_some() {
        cx.fail(0, format!("{records} records are there, of {least}"));
    }
}

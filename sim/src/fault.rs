//! Trouble with drives, drawn as the run goes.

use crate::context::Context;
use crate::random::Random;
use crate::scenario::SEGMENTS_AT;
use std::io::ErrorKind;
use std::time::Duration;
use terrace_device::Drive;
use terrace_device::sim::{Effect, Fault, Operation};

/// One in so many steps brings a fault, where a run has any.
const RARITY: u64 = 60;

/// One in so many steps has a drive fall silent, where drives do.
const SILENCE_RARITY: u64 = 200;
/// One in so many has it answer again.
const SILENCE_ENDS: u64 = 60;

/// One start in four meets drives that refuse writes, where a run has such trouble.
const REFUSALS: u64 = 4;

/// Has a drive answer nothing, or again, now and then. Recovery waits for drives.
pub(crate) fn silence(cx: &mut Context) {
    if cx.devices.is_empty() || !cx.scenario.trouble.silence || cx.is_recovering {
        return;
    }
    let at = cx.random.below(cx.devices.len() as u64) as usize;
    if cx.random.one_in(SILENCE_RARITY) {
        cx.note("silence of drive", at as u64, 1);
        cx.devices[at].fall_silent(Duration::from_secs(10));
    } else if cx.random.one_in(SILENCE_ENDS) {
        let reboots = cx.scenario.trouble.reboots && cx.random.one_in(2);
        cx.note("silence of drive", at as u64, if reboots { 2 } else { 0 });
        if reboots {
            cx.devices[at].reboot();
        } else {
            cx.devices[at].fall_silent(Duration::ZERO);
        }
    }
}

/// Has some drives refuse writes during the start that follows, now and then, so that the set may go on without most of
/// its members. A set with a witness would know of it.
pub(crate) fn refuse_writes(cx: &Context) -> bool {
    let trouble = cx.scenario.trouble;
    // Numbers of their own, so that whatever else a seed decides stays as it is.
    let faults: u64 = cx.devices.iter().map(|device| device.counts().faults).sum();
    let mut own = Random::new(cx.scenario.hash_seed.rotate_left(29) ^ faults << 32 ^ cx.step);
    let is_one = trouble.errors && trouble.moves && !trouble.has_witness && own.one_in(REFUSALS);
    for device in cx.devices.iter().filter(|_| is_one) {
        if own.percent(60) {
            device.inject(Fault::always(Operation::Write, Effect::Error(ErrorKind::Other)));
        }
    }
    is_one
}

/// Injects a fault now and then.
pub(crate) fn maybe(cx: &mut Context) {
    let trouble = cx.scenario.trouble;
    if !(trouble.errors || trouble.lies) || !cx.random.one_in(RARITY) {
        return;
    }
    let at = cx.random.below(cx.devices.len() as u64) as usize;
    let bytes = cx.devices[at].geometry().bytes;
    let segments = SEGMENTS_AT..bytes;
    let is_lie = trouble.lies && (!trouble.errors || cx.random.one_in(2));
    let fault = if is_lie { lie(cx, bytes).within(segments) } else { error(cx) };
    let fault = fault.after(cx.random.below(6));
    cx.note("a fault on drive", at as u64, is_lie.into());
    if cx.trace.prints {
        println!("         {fault:?}");
    }
    cx.devices[at].inject(fault);
}

/// A drive that says no.
fn error(cx: &mut Context) -> Fault {
    let random = &mut cx.random;
    match random.below(12) {
        0..4 => Fault::next(Operation::Read, Effect::Error(ErrorKind::Other)),
        4 => Fault::next(Operation::Read, Effect::Error(ErrorKind::TimedOut)),
        5..8 => Fault::next(Operation::Write, Effect::Error(ErrorKind::Other)),
        8 => Fault::next(Operation::Write, Effect::Partial(ErrorKind::Other)),
        9 => Fault::next(Operation::Flush, Effect::Error(ErrorKind::Other)),
        10 => Fault {
            times: random.within(2, 6),
            ..Fault::next(Operation::Write, Effect::Error(ErrorKind::Other))
        },
        _ if random.one_in(3) => {
            Fault::always(Operation::Write, Effect::Error(ErrorKind::StorageFull))
        }
        _ => Fault::next(Operation::Write, Effect::Error(ErrorKind::StorageFull)),
    }
}

/// A drive that says yes and does something else.
fn lie(cx: &mut Context, bytes: u64) -> Fault {
    let segment = u64::from(cx.scenario.segment_bytes);
    let random = &mut cx.random;
    let places = (bytes - SEGMENTS_AT) / segment;
    let place = SEGMENTS_AT + random.below(places) * segment;
    let block = place + random.below(segment / 4096) * 4096;
    match random.below(8) {
        0 => Fault::next(Operation::Read, Effect::Flip),
        1 => Fault::next(Operation::Write, Effect::Flip),
        2 => Fault::next(Operation::Write, Effect::Tear),
        3 => Fault::next(Operation::Write, Effect::Lose),
        4 => Fault::next(Operation::Write, Effect::Misdirect(place)),
        5 => Fault::next(Operation::Write, Effect::Misdirect(block)),
        6 => Fault::next(Operation::Read, Effect::Misdirect(place)),
        _ => Fault::next(Operation::Read, Effect::Misdirect(block)),
    }
}

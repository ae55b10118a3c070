//! What clients ask for, and what becomes of a record by it: the same as in the server's commands.

use crate::context::Context;
use crate::oracle::{Content, State, Version};
use crate::trace::Event;
use crate::world::Life;
use std::rc::Rc;
use terrace_cache::{Body, Change, Hit, Manifest, NewRecord, NewValue, Record};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    /// A read that leaves no trace.
    Peek,
    Set,
    Add,
    Replace,
    Cas,
    Append,
    Prepend,
    Incr,
    Decr,
    Delete,
    Touch,
    /// A read that touches.
    Gat,
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) key: u32,
    pub(crate) value: Rc<[u8]>,
    pub(crate) client_flags: u32,
    pub(crate) expires: u32,
    /// The CAS number to compare with, or the number to add or subtract.
    pub(crate) number: u64,
}

/// Items are appended to so many times.
const RUNS_MAX: usize = 12;

impl Kind {
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Kind::Get | Kind::Peek)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Peek => "peek",
            Kind::Set => "set",
            Kind::Add => "add",
            Kind::Replace => "replace",
            Kind::Cas => "cas",
            Kind::Append => "append",
            Kind::Prepend => "prepend",
            Kind::Incr => "incr",
            Kind::Decr => "decr",
            Kind::Delete => "delete",
            Kind::Touch => "touch",
            Kind::Gat => "gat",
        }
    }
}

impl Operation {
    pub(crate) fn draw(cx: &mut Context) -> Self {
        let keys = u64::from(cx.oracle.keys());
        // A tenth of the keys gets half of the requests.
        let key = if cx.random.percent(50) { keys.div_ceil(10) } else { keys };
        let key = cx.random.below(key) as u32;
        let kind = if cx.random.percent(cx.scenario.read_percent) {
            if cx.random.percent(90) { Kind::Get } else { Kind::Peek }
        } else {
            match cx.random.below(20) {
                0..7 => Kind::Set,
                7 => Kind::Add,
                8 => Kind::Replace,
                9 | 10 => Kind::Cas,
                11 => Kind::Append,
                12 => Kind::Prepend,
                13 => Kind::Incr,
                14 => Kind::Decr,
                15 | 16 => Kind::Delete,
                17 | 18 => Kind::Touch,
                _ => Kind::Gat,
            }
        };
        let number = match kind {
            Kind::Cas => match cx.oracle.certain(key) {
                Some(Some(version)) if cx.random.percent(80) => version.cas,
                _ => cx.random.below(1000),
            },
            _ => cx.random.below(1000),
        };
        let value = match kind {
            Kind::Set | Kind::Add | Kind::Replace | Kind::Cas => Self::new_value(cx, key),
            Kind::Append | Kind::Prepend => {
                let bytes = cx.random.within(1, 100) as usize;
                cx.values.next(key, bytes)
            }
            _ => Rc::default(),
        };
        let expires = match cx.random.below(6) {
            0 => cx.now + cx.random.within(1, 4) as u32,
            1 => cx.now + 1000 + cx.random.below(1000) as u32,
            _ => 0,
        };
        let client_flags = if cx.random.one_in(4) { cx.random.below(1 << 32) as u32 } else { 0 };
        let lives = cx.scenario.lives;
        let expires = if expires == 0 && lives != 0 { cx.now + lives + key % 8 } else { expires };
        Self { kind, key, value, client_flags, expires, number }
    }

    fn new_value(cx: &mut Context, key: u32) -> Rc<[u8]> {
        if cx.random.one_in(8) {
            return cx.values.number();
        }
        let length = cx.random.below(cx.scenario.lengths.len() as u64) as usize;
        let length = cx.scenario.lengths[length];
        let bytes = match cx.random.one_in(3) {
            true => length,
            false => cx.random.below(length as u64 + 1) as usize,
        };
        cx.values.next(key, bytes.min(cx.item_bytes_max))
    }

    /// Whether the value has to be stored as chunks before the operation is executed.
    pub(crate) fn needs_upload(&self, cx: &Context) -> bool {
        let is_chunked = |state: Option<&State>| {
            state.is_some_and(|state| {
                state.as_ref().is_some_and(|v| matches!(v.content, Content::Chunked(..)))
            })
        };
        match self.kind {
            Kind::Append | Kind::Prepend => is_chunked(cx.oracle.certain(self.key)),
            _ => self.value.len() > cx.inline_bytes_max,
        }
    }

    pub(crate) fn event(&self, cx: &Context, b: u64) -> Event {
        let a = match self.kind {
            Kind::Cas | Kind::Incr | Kind::Decr => self.number,
            _ => self.value.len() as u64,
        };
        Event { step: cx.step, key: self.key, what: self.kind.name(), a, b }
    }
}

/// What a decision of the cache's needs to borrow from.
#[derive(Default)]
pub(crate) struct Scratch {
    manifest: Option<Manifest>,
    digits: String,
}

/// What the operation makes of the record that was found, and the state that the key has then
/// (without its CAS number), if it changes.
pub(crate) fn decide<'v>(
    operation: &'v Operation,
    upload: Option<&'v Manifest>,
    found: Option<(&Rc<Version>, Hit<'v>)>,
    scratch: &'v mut Scratch,
    limits: (usize, usize),
) -> (Change<'v>, Option<State>) {
    let Some((version, hit)) = found else {
        return match operation.kind {
            Kind::Set | Kind::Add => put(operation, upload),
            Kind::Delete => (Change::Remove, Some(None)),
            _ => KEEP,
        };
    };
    match operation.kind {
        Kind::Set | Kind::Replace => put(operation, upload),
        Kind::Cas if operation.number == version.cas => put(operation, upload),
        Kind::Append | Kind::Prepend => {
            extend(operation, upload, (version, hit.record), scratch, limits)
        }
        Kind::Incr | Kind::Decr => calculate(operation, (version, hit.record), scratch),
        Kind::Delete => (Change::Remove, Some(None)),
        Kind::Touch | Kind::Gat if operation.expires != version.expires => {
            let value = match hit.record.body() {
                Body::Inline(value) => NewValue::Inline(value, &[]),
                Body::Chunked(manifest) => NewValue::Chunked(scratch.manifest.insert(manifest)),
            };
            let new = NewRecord {
                expires: operation.expires,
                cas: Some(version.cas),
                ..kept(&hit.record, value)
            };
            let after = Version { expires: operation.expires, ..(**version).clone() };
            (Change::Store(new), Some(Some(Rc::new(after))))
        }
        _ => KEEP,
    }
}

const KEEP: (Change<'static>, Option<State>) = (Change::Keep, None);

fn put<'v>(operation: &'v Operation, upload: Option<&'v Manifest>) -> (Change<'v>, Option<State>) {
    let (value, content) = match upload {
        Some(manifest) => (
            NewValue::Chunked(manifest),
            Content::Chunked(manifest.clone(), Rc::clone(&operation.value)),
        ),
        None => {
            (NewValue::Inline(&operation.value, &[]), Content::Inline(Rc::clone(&operation.value)))
        }
    };
    let (client_flags, expires) = (operation.client_flags, operation.expires);
    let new = NewRecord { client_flags, ..NewRecord::new(value, expires) };
    let after = Version { content, client_flags, expires, cas: 0, is_hollow: false };
    (Change::Store(new), Some(Some(Rc::new(after))))
}

fn kept<'v>(old: &Record<'v>, value: NewValue<'v>) -> NewRecord<'v> {
    NewRecord { client_flags: old.client_flags, ..NewRecord::new(value, old.expires) }
}

fn extend<'v>(
    operation: &'v Operation,
    upload: Option<&'v Manifest>,
    (version, record): (&Rc<Version>, Record<'v>),
    scratch: &'v mut Scratch,
    (inline_bytes_max, item_bytes_max): (usize, usize),
) -> (Change<'v>, Option<State>) {
    let (old, added) = (version.bytes(), &operation.value);
    if old.len() + added.len() > item_bytes_max {
        return KEEP;
    }
    let is_append = operation.kind == Kind::Append;
    let bytes: Rc<[u8]> = match is_append {
        true => [&old[..], added].concat().into(),
        false => [&added[..], old].concat().into(),
    };
    let (value, content) = match (record.body(), upload) {
        (Body::Inline(present), None) if bytes.len() <= inline_bytes_max => {
            let (head, tail) =
                if is_append { (present, &added[..]) } else { (&added[..], present) };
            (NewValue::Inline(head, tail), Content::Inline(bytes))
        }
        (Body::Chunked(present), Some(added)) if present.runs.len() < RUNS_MAX => {
            let runs = match is_append {
                true => [&present.runs[..], &added.runs].concat(),
                false => [&added.runs[..], &present.runs].concat(),
            };
            let manifest = scratch.manifest.insert(Manifest { runs });
            (NewValue::Chunked(manifest), Content::Chunked(manifest.clone(), bytes))
        }
        _ => return KEEP,
    };
    let after = Version { content, ..(**version).clone() };
    (Change::Store(kept(&record, value)), Some(Some(Rc::new(after))))
}

fn calculate<'v>(
    operation: &Operation,
    (version, record): (&Rc<Version>, Record<'v>),
    scratch: &'v mut Scratch,
) -> (Change<'v>, Option<State>) {
    let Content::Inline(bytes) = &version.content else { return KEEP };
    let Some(present) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<u64>().ok())
    else {
        return KEEP;
    };
    let number = match operation.kind {
        Kind::Incr => present.wrapping_add(operation.number),
        _ => present.saturating_sub(operation.number),
    };
    scratch.digits = number.to_string();
    let value = NewValue::Inline(scratch.digits.as_bytes(), &[]);
    let content = Content::Inline(scratch.digits.as_bytes().into());
    let after = Version { content, ..(**version).clone() };
    (Change::Store(kept(&record, value)), Some(Some(Rc::new(after))))
}

/// Has everything go that was stored.
pub(crate) fn flush(life: &mut Life, cx: &mut Context) {
    cx.note("flushes all", 0, 0);
    life.flush_due = 0;
    let is_durable = life.cache.flush_all().is_ok();
    match cx.crash.has_struck() {
        true => cx.oracle.flush_in_doubt(),
        false => cx.oracle.flush(is_durable),
    }
}

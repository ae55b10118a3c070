//! What watchers are told of a request besides its key and how it ended.

use super::watch::Seen;
use crate::commands::expiry::Expiry;
use terrace_protocol::{BinaryCommand, MetaCommand, MetaMode, MetaRequest, Request, Verb};

/// What kind of event a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It looks something up.
    #[default]
    Fetch,
    /// It stores a value.
    Store,
    Delete,
    /// It changes what is there: a number, or when it expires.
    Change,
}

/// A request, as far as events speak of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: Kind,
    /// In memcached's words.
    pub(crate) name: &'static str,
    /// Seconds that what it stores lives; 0 for ever.
    pub(crate) ttl: u32,
    /// Bytes of the value that it brings.
    pub(crate) value_bytes: u64,
    /// An empty reply means success, and not that the client wants none.
    pub(crate) is_silent_when_done: bool,
    /// A missing number is created, with that lifetime and that many digits.
    pub(crate) creates: bool,
    /// What there was of the key before.
    pub(crate) seen: Seen,
}

impl About {
    /// What is to be told of `request`; `now` is in unix seconds.
    pub(crate) fn of(request: &Request<'_>, now: u32) -> Self {
        match request {
            Request::Store(store) => Self {
                ttl: ttl(Expiry::new(store.exptime, now), now),
                ..Self::store(store.verb, store.value_bytes)
            },
            Request::Delete(_) => Self::of_kind(Kind::Delete, "delete"),
            Request::Arith(arith) => Self::arith(arith.increments, None, now),
            Request::Touch(touch) => {
                let ttl = ttl(Expiry::new(touch.exptime, now), now);
                Self { ttl, ..Self::change("touch") }
            }
            Request::Meta(meta) => Self { is_silent_when_done: true, ..Self::meta(meta, now) },
            Request::Binary(request) => {
                let is_silent_when_done = request.quiet;
                Self { is_silent_when_done, ..Self::binary(&request.command, now) }
            }
            Request::Keys(_) | Request::MetaNoop | Request::Admin(_) => Self::default(),
        }
    }

    /// Whether it adds to the value that is there.
    pub(crate) fn extends(self) -> bool {
        matches!(self.name, "append" | "prepend")
    }

    fn of_kind(kind: Kind, name: &'static str) -> Self {
        Self { kind, name, ..Self::default() }
    }

    fn change(name: &'static str) -> Self {
        Self::of_kind(Kind::Change, name)
    }

    /// A change of a number, which `initial` creates with that expiry.
    fn arith(increments: bool, initial: Option<(u64, Expiry)>, now: u32) -> Self {
        let change = Self::change(if increments { "incr" } else { "decr" });
        let Some((number, expiry)) = initial else { return change };
        let value_bytes = u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
        Self { creates: true, ttl: ttl(expiry, now), value_bytes, ..change }
    }

    fn store(verb: Verb, value_bytes: u32) -> Self {
        let name = match verb {
            Verb::Set => "set",
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Append => "append",
            Verb::Prepend => "prepend",
            Verb::Cas(_) => "cas",
        };
        Self { value_bytes: value_bytes.into(), ..Self::of_kind(Kind::Store, name) }
    }

    fn meta(request: &MetaRequest<'_>, now: u32) -> Self {
        let flags = &request.flags;
        let ttl = ttl(Expiry::new(flags.exptime, now), now);
        match request.command {
            MetaCommand::Get | MetaCommand::Debug => Self::default(),
            // What is marked as stale is no deletion.
            MetaCommand::Delete if flags.has(b'I') || flags.has(b'x') => Self::change("md"),
            MetaCommand::Delete => Self::of_kind(Kind::Delete, "md"),
            MetaCommand::Arith => {
                let expiry = Expiry::new(flags.vivify, now);
                let initial = flags.has(b'N').then_some((flags.initial, expiry));
                Self::arith(flags.mode != MetaMode::Decrement, initial, now)
            }
            MetaCommand::Set { value_bytes } => {
                let verb = match flags.mode {
                    MetaMode::Add => Verb::Add,
                    MetaMode::Append => Verb::Append,
                    MetaMode::Prepend => Verb::Prepend,
                    MetaMode::Replace => Verb::Replace,
                    _ if flags.has(b'C') => Verb::Cas(flags.compare),
                    _ => Verb::Set,
                };
                Self { ttl, ..Self::store(verb, value_bytes) }
            }
        }
    }

    fn binary(command: &BinaryCommand<'_>, now: u32) -> Self {
        match command {
            BinaryCommand::Store(store) => {
                let verb = match (store.verb, store.compare) {
                    (Verb::Set, Some(cas)) => Verb::Cas(cas),
                    (verb, _) => verb,
                };
                let ttl = ttl(Expiry::unsigned(store.exptime, now), now);
                Self { ttl, ..Self::store(verb, store.value_bytes) }
            }
            BinaryCommand::Delete { .. } => Self::of_kind(Kind::Delete, "delete"),
            BinaryCommand::Arith(arith) => {
                let initial = arith.create;
                let initial =
                    initial.map(|(number, exptime)| (number, Expiry::unsigned(exptime, now)));
                Self::arith(arith.increments, initial, now)
            }
            BinaryCommand::Touch { exptime, .. } => {
                let ttl = ttl(Expiry::unsigned(*exptime, now), now);
                Self { ttl, ..Self::change("touch") }
            }
            _ => Self::default(),
        }
    }
}

fn ttl(expiry: Expiry, now: u32) -> u32 {
    match expiry {
        Expiry::At(0) => 0,
        Expiry::At(expires) => expires.saturating_sub(now),
        // In memcached it is over already, by so much that the number has no sign.
        Expiry::Already => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_protocol::{Parse, Parser};

    #[test]
    fn events_name_commands_as_memcached_does() {
        const NOW: u32 = 1_700_000_000;
        let about = |line: &str| match Parser::default().parse(line.as_bytes()) {
            Parse::Request { request, .. } => {
                let about = About::of(&request, NOW);
                (about.name, about.ttl, about.value_bytes)
            }
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(about("set k 0 100 3\r\n"), ("set", 100, 3));
        assert_eq!(about("add k 0 1700000009 3\r\n"), ("add", 9, 3));
        assert_eq!(about("cas k 0 0 3 7\r\n"), ("cas", 0, 3));
        assert_eq!(about("set k 0 -1 3\r\n"), ("set", u32::MAX, 3));
        assert_eq!(about("ms k 3 T30\r\n"), ("set", 30, 3));
        assert_eq!(about("ms k 3 C1\r\n"), ("cas", 0, 3));
        assert_eq!(about("ms k 3 MA\r\n"), ("append", 0, 3));
        assert_eq!(about("touch k 5\r\n"), ("touch", 5, 0));
        assert_eq!(about("ma k MD\r\n"), ("decr", 0, 0));
        assert_eq!(about("md k\r\n"), ("md", 0, 0));
        assert_eq!(about("mg k v\r\n"), ("", 0, 0));
    }
}

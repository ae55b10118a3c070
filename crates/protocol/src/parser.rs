//! Finds the request at the front of what was received.

use crate::binary::{self, MAGIC_REQUEST};
use crate::classic::{self, Keys, KeysKind};
use crate::meta::{self, MetaRequest};
use crate::token::Tokens;
use crate::{Request, reply};

/// A line may be this long, if it is not a `get` or `gets`.
const LINE_BYTES_MAX: usize = 2048;
/// Keys of a longer line are handed out as they come; this bounds what waits for the line's end.
const KEYS_BYTES_MAX: usize = 2048;

/// What stands at the front of the receive buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse<'a> {
    /// The request is not complete; receive more and look again.
    NeedMore,
    /// A request.
    Request {
        /// The request.
        request: Request<'a>,
        /// Bytes of it in the buffer, without a data block.
        consumed: usize,
    },
    /// Not a request that can be carried out.
    Reject(Reject),
}

/// What to do in place of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The answer, with its line end; empty for none.
    pub reply: &'static [u8],
    /// Bytes to take off the front of the buffer.
    pub consumed: usize,
    /// Bytes that follow and are to be dropped unread: a data block that nobody wants.
    pub swallow: u64,
    /// Close the connection after the answer.
    pub close: bool,
}

impl Reject {
    pub(crate) fn line(reply: &'static [u8]) -> Self {
        Self { reply, consumed: 0, swallow: 0, close: false }
    }

    /// The answer to a store whose length can't be read: what follows may be its value, which is no command.
    pub(crate) fn unknown_length() -> Self {
        Self { close: true, ..Self::line(reply::BAD_FORMAT) }
    }
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Found out from its first byte.
    #[default]
    Auto,
    /// Classic and meta commands.
    Ascii,
    /// The binary protocol.
    Binary,
}

/// A request for one value, as most clients write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainGet {
    /// `get <key>`
    Classic,
    /// `mg <key> v`
    Meta,
    /// GET
    Binary,
}

impl PlainGet {
    /// The one that may begin with this byte.
    pub fn of(first: u8) -> Self {
        match first {
            b'm' => Self::Meta,
            MAGIC_REQUEST => Self::Binary,
            _ => Self::Classic,
        }
    }
}

/// One connection's parser. Its state is what the connection speaks, and whether it is in the midst of
/// a long line of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parser {
    /// [`Protocol::Auto`] before the first byte only.
    protocol: Protocol,
    /// The command of the line whose keys are being handed out.
    keys: Option<KeysKind>,
}

impl Parser {
    /// A parser for what a connection speaks.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, keys: None }
    }

    /// Looks at the front of `buf`. After a [`Parse::Request`] or [`Parse::Reject`] the bytes named
    /// there are to be taken off before the next call.
    ///
    /// All work is linear in the bytes received: a line that is not complete is only looked at again
    /// while it is shorter than 2 KiB; of a longer `get` the complete keys are handed out
    /// ([`Keys::is_last`] is then false), and the next call goes on behind them.
    pub fn parse<'a>(&mut self, buf: &'a [u8]) -> Parse<'a> {
        match (self.protocol, buf.first()) {
            (Protocol::Ascii, _) | (Protocol::Auto, None) => {}
            (Protocol::Auto, Some(&first)) if first != MAGIC_REQUEST => {
                self.protocol = Protocol::Ascii;
            }
            (Protocol::Auto | Protocol::Binary, _) => {
                self.protocol = Protocol::Binary;
                return binary::parse(buf);
            }
        }
        if let Some(kind) = self.keys {
            return self.more_keys(kind, buf, 0);
        }
        if let Some((key, consumed)) = classic::plain_get(buf) {
            let keys = Keys::single(KeysKind::GET, key);
            return Parse::Request { request: Request::Keys(keys), consumed };
        }
        if let Some((key, consumed)) = meta::plain_get(buf) {
            return Parse::Request { request: Request::Meta(MetaRequest::of_value(key)), consumed };
        }
        let Some(end) = memchr::memchr(b'\n', buf) else { return self.without_end(buf) };
        let line = &buf[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match request(line) {
            Ok(request) => Parse::Request { request, consumed: end + 1 },
            Err(reject) => Parse::Reject(Reject { consumed: end + 1, ..reject }),
        }
    }

    /// The key of a request for one value at the front of `buf`, if that is written as most clients do, and how
    /// many bytes it takes: what [`Parser::parse`] would find, sooner. `None` for anything else.
    #[inline]
    pub fn plain_get<'a>(&mut self, buf: &'a [u8], form: PlainGet) -> Option<(&'a [u8], usize)> {
        let protocol = match form {
            PlainGet::Classic | PlainGet::Meta => Protocol::Ascii,
            PlainGet::Binary => Protocol::Binary,
        };
        if self.keys.is_some() || self.protocol != protocol && self.protocol != Protocol::Auto {
            return None;
        }
        let get = match form {
            PlainGet::Classic => classic::plain_get(buf),
            PlainGet::Meta => meta::plain_get(buf),
            PlainGet::Binary => binary::plain_get(buf),
        }?;
        self.protocol = protocol;
        Some(get)
    }

    fn without_end<'a>(&mut self, buf: &'a [u8]) -> Parse<'a> {
        if buf.len() <= LINE_BYTES_MAX {
            return Parse::NeedMore;
        }
        let kind = match buf {
            [b'g', b'e', b't', b' ', ..] => KeysKind::GET,
            [b'g', b'e', b't', b's', b' ', ..] => KeysKind { with_cas: true, touch: None },
            _ => {
                return Parse::Reject(Reject {
                    consumed: buf.len(),
                    close: true,
                    ..Reject::line(b"")
                });
            }
        };
        self.keys = Some(kind);
        self.more_keys(kind, buf, if kind.with_cas { 5 } else { 4 })
    }

    /// Keys of a line whose command was seen earlier; `at` is where they begin.
    fn more_keys<'a>(&mut self, kind: KeysKind, buf: &'a [u8], at: usize) -> Parse<'a> {
        let (text, consumed, is_last) = match memchr::memchr(b'\n', buf) {
            Some(end) => {
                let line = &buf[at.min(end)..end];
                (line.strip_suffix(b"\r").unwrap_or(line), end + 1, true)
            }
            None => match memchr::memrchr(b' ', &buf[at..]) {
                Some(space) if buf.len() > KEYS_BYTES_MAX => {
                    (&buf[at..at + space], at + space + 1, false)
                }
                // A partial key; one longer than a key can be never ends well.
                _ if buf.len() <= KEYS_BYTES_MAX => return Parse::NeedMore,
                _ => {
                    self.keys = None;
                    let reject = Reject { consumed: buf.len(), close: true, ..Reject::line(b"") };
                    return Parse::Reject(reject);
                }
            },
        };
        if is_last {
            self.keys = None;
        }
        match Keys::checked(kind, text, is_last) {
            Ok(keys) => Parse::Request { request: Request::Keys(keys), consumed },
            Err(reject) => {
                // The rest of the line, if there is more to come, is no request of its own.
                let close = !is_last;
                self.keys = None;
                Parse::Reject(Reject { consumed, close, ..reject })
            }
        }
    }
}

fn request(line: &[u8]) -> Result<Request<'_>, Reject> {
    let mut tokens = Tokens::new(line);
    let command = tokens.next().unwrap_or_default();
    match command {
        [b'm', b'n'] => Ok(Request::MetaNoop),
        [b'm', letter] => meta::request(*letter, tokens),
        _ => classic::request(command, tokens, line),
    }
}

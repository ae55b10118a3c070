//! The classic commands.

use crate::parser::Reject;
use crate::token::{
    Tokens, number_i32, number_u64, plain_end, store_exptime, store_flags, value_bytes,
};
use crate::{KEY_BYTES_MAX, Request, reply};

/// Words of a line that are looked at, the command counted; as in memcached, any behind them are ignored.
const WORDS_MAX: usize = 23;

/// Which of the gets it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysKind {
    /// `gets`, `gats`: the reply shows the CAS number.
    pub with_cas: bool,
    /// `gat`, `gats`: the new expiry time.
    pub touch: Option<i32>,
}

impl KeysKind {
    /// `get`.
    pub const GET: Self = Self { with_cas: false, touch: None };
}

/// The key of a whole `get` in its plainest form at the front of `buf`, and how long the request is. Most
/// requests are such: they are told from all others by looking at each byte once.
#[inline]
pub(crate) fn plain_get(buf: &[u8]) -> Option<(&[u8], usize)> {
    let rest = buf.strip_prefix(b"get ")?;
    let (key, end) = rest.split_at(plain_end(rest));
    let is_key = (1..=KEY_BYTES_MAX).contains(&key.len());
    (is_key && end.starts_with(b"\r\n")).then(|| (key, buf.len() - end.len() + 2))
}

/// Keys to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    /// The command.
    pub kind: KeysKind,
    /// The keys; each is 1 to 250 bytes long.
    pub keys: Tokens<'a>,
    /// The first of them.
    pub first: Option<&'a [u8]>,
    /// There is one key, and no more to come.
    pub is_single: bool,
    /// The line ends here: the reply is to be ended. Otherwise more keys follow as the next request.
    pub is_last: bool,
}

impl<'a> Keys<'a> {
    /// One key, in a line that ends.
    pub(crate) fn single(kind: KeysKind, key: &'a [u8]) -> Self {
        Self { kind, keys: Tokens::new(key), first: Some(key), is_single: true, is_last: true }
    }

    pub(crate) fn checked(kind: KeysKind, text: &'a [u8], is_last: bool) -> Result<Self, Reject> {
        let keys = Tokens::new(text);
        // Checked before the first is answered, so that an error comes alone.
        if text.len() > KEY_BYTES_MAX && has_long_word(text) {
            return Err(Reject::line(reply::BAD_FORMAT));
        }
        let mut others = keys;
        let first = others.next();
        let is_single = is_last && first.is_some() && others.is_blank();
        Ok(Self { kind, keys, first, is_single, is_last })
    }
}

/// Whether a word is longer than a key may be.
fn has_long_word(text: &[u8]) -> bool {
    let mut start = 0;
    let ends = memchr::memchr_iter(b' ', text).chain([text.len()]);
    ends.into_iter().any(|end| end - std::mem::replace(&mut start, end + 1) > KEY_BYTES_MAX)
}

/// How to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `set`.
    Set,
    /// `add`: only if absent.
    Add,
    /// `replace`: only if present.
    Replace,
    /// `append`: behind the value that is there.
    Append,
    /// `prepend`: before it.
    Prepend,
    /// `cas`: only if its CAS number is this.
    Cas(u64),
}

/// A storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which.
    pub verb: Verb,
    /// The key.
    pub key: &'a [u8],
    /// Client flags.
    pub client_flags: u32,
    /// As sent; see [`crate::expiry`].
    pub exptime: i32,
    /// Length of the value; two bytes of line end follow it.
    pub value_bytes: u32,
    /// No answer wanted.
    pub noreply: bool,
}

/// `delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// No answer wanted.
    pub noreply: bool,
}

/// `incr` or `decr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arith<'a> {
    /// The key.
    pub key: &'a [u8],
    /// `incr`.
    pub increments: bool,
    /// By how much.
    pub delta: u64,
    /// No answer wanted.
    pub noreply: bool,
}

/// `touch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// As sent; see [`crate::expiry`].
    pub exptime: i32,
    /// No answer wanted.
    pub noreply: bool,
}

/// A command for the server or the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admin<'a> {
    /// Which.
    pub kind: AdminKind,
    /// The words behind it, `noreply` too.
    pub arguments: Tokens<'a>,
    /// The last word is `noreply`.
    pub noreply: bool,
}

/// Which command for the server or the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the commands")]
pub enum AdminKind {
    CacheMemlimit,
    Extstore,
    FlushAll,
    FreeMemchunks,
    Lru,
    LruCrawler,
    Quit,
    RefreshCerts,
    Shutdown,
    Slabs,
    Stats,
    Verbosity,
    Version,
    Watch,
}

pub(crate) fn request<'a>(
    command: &'a [u8],
    tokens: Tokens<'a>,
    line: &'a [u8],
) -> Result<Request<'a>, Reject> {
    let store = |verb| store(verb, tokens);
    match command {
        b"get" => keys(KeysKind::GET, tokens),
        b"gets" => keys(KeysKind { with_cas: true, touch: None }, tokens),
        b"gat" => touching_keys(false, tokens),
        b"gats" => touching_keys(true, tokens),
        b"set" => store(Verb::Set),
        b"add" => store(Verb::Add),
        b"replace" => store(Verb::Replace),
        b"append" => store(Verb::Append),
        b"prepend" => store(Verb::Prepend),
        b"cas" => store(Verb::Cas(0)),
        b"delete" => delete(tokens),
        b"incr" => arith(true, tokens),
        b"decr" => arith(false, tokens),
        b"touch" => touch(tokens),
        _ => admin(command, tokens, line),
    }
}

fn keys(kind: KeysKind, tokens: Tokens<'_>) -> Result<Request<'_>, Reject> {
    if tokens.is_blank() {
        return Err(Reject::line(reply::BAD_FORMAT));
    }
    Ok(Request::Keys(Keys::checked(kind, tokens.rest(), true)?))
}

fn touching_keys(with_cas: bool, mut tokens: Tokens<'_>) -> Result<Request<'_>, Reject> {
    let exptime = tokens.next().filter(|_| !tokens.is_blank());
    let exptime = exptime.ok_or(Reject::line(reply::BAD_FORMAT))?;
    let touch = Some(number_i32(exptime).ok_or(Reject::line(reply::INVALID_EXPTIME))?);
    keys(KeysKind { with_cas, touch }, tokens)
}

/// Whether no answer is wanted to a line of which `before` words come before the `rest`.
fn noreply(rest: Tokens<'_>, before: usize) -> bool {
    rest.take(WORDS_MAX - before).last().is_some_and(|word| word == b"noreply")
}

/// As memcached does, an error under `noreply` is not sent either.
fn refuse(reply: &'static [u8], noreply: bool) -> Reject {
    Reject::line(if noreply { b"" } else { reply })
}

fn key(word: &[u8], noreply: bool) -> Result<&[u8], Reject> {
    if word.len() > KEY_BYTES_MAX { Err(refuse(reply::BAD_FORMAT, noreply)) } else { Ok(word) }
}

/// Two words, and whether no answer is wanted, which the second may say.
fn two_words(mut tokens: Tokens<'_>) -> Result<(&[u8], &[u8], bool), Reject> {
    let first = tokens.next();
    let noreply = noreply(tokens, 2);
    let words = first.zip(tokens.next());
    let (first, second) = words.ok_or(Reject::line(reply::BAD_FORMAT))?;
    Ok((first, second, noreply))
}

/// A store as most clients write it, which most stores are: told by looking at each byte once. `None` for
/// anything else, wrong or not.
#[inline]
fn plain_store(verb: Verb, mut tokens: Tokens<'_>) -> Option<Store<'_>> {
    if matches!(verb, Verb::Cas(_)) {
        return None;
    }
    let key = tokens.next().filter(|key| key.len() <= KEY_BYTES_MAX)?;
    let [client_flags, exptime, value_bytes] =
        [tokens.plain_number()?, tokens.plain_number()?, tokens.plain_number()?];
    let is_all = tokens.rest().is_empty();
    // No more digits are taken than 31 bits hold.
    let exptime = exptime as i32;
    is_all.then_some(Store { verb, key, client_flags, exptime, value_bytes, noreply: false })
}

fn store(verb: Verb, mut tokens: Tokens<'_>) -> Result<Request<'_>, Reject> {
    if let Some(store) = plain_store(verb, tokens) {
        return Ok(Request::Store(store));
    }
    let words = [tokens.next(), tokens.next(), tokens.next(), tokens.next()];
    let [Some(key), Some(client_flags), Some(exptime), Some(bytes)] = words else {
        return Err(Reject::unknown_length());
    };
    let value_bytes = value_bytes(bytes).ok_or(Reject::unknown_length())?;
    let noreply = noreply(tokens, 5);
    let read = || {
        Some(Store {
            verb: match verb {
                Verb::Cas(_) => Verb::Cas(number_u64({ tokens }.next()?)?),
                verb => verb,
            },
            key: Some(key).filter(|key| key.len() <= KEY_BYTES_MAX)?,
            client_flags: store_flags(client_flags)?,
            exptime: store_exptime(exptime)?,
            value_bytes,
            noreply,
        })
    };
    // The value of a refused store is no command.
    let swallow = u64::from(value_bytes) + reply::LINE_END.len() as u64;
    let refused = Reject { swallow, ..refuse(reply::BAD_FORMAT, noreply) };
    read().map(Request::Store).ok_or(refused)
}

fn delete(mut tokens: Tokens<'_>) -> Result<Request<'_>, Reject> {
    let first = tokens.next().ok_or(Reject::line(reply::BAD_FORMAT))?;
    let noreply = noreply(tokens, 2);
    let key = key(first, noreply)?;
    // Words behind the key are ignored: mcrouter and old clients send a time there.
    Ok(Request::Delete(Delete { key, noreply }))
}

fn arith(increments: bool, tokens: Tokens<'_>) -> Result<Request<'_>, Reject> {
    let (first, delta, noreply) = two_words(tokens)?;
    let key = key(first, noreply)?;
    let delta = number_u64(delta).ok_or(refuse(reply::INVALID_DELTA, noreply))?;
    Ok(Request::Arith(Arith { key, increments, delta, noreply }))
}

fn touch(tokens: Tokens<'_>) -> Result<Request<'_>, Reject> {
    let (first, exptime, noreply) = two_words(tokens)?;
    let key = key(first, noreply)?;
    let exptime = number_i32(exptime).ok_or(refuse(reply::INVALID_EXPTIME, noreply))?;
    Ok(Request::Touch(Touch { key, exptime, noreply }))
}

fn admin<'a>(command: &[u8], arguments: Tokens<'a>, line: &[u8]) -> Result<Request<'a>, Reject> {
    let noreply = noreply(Tokens::new(line), 0);
    let kind = match command {
        b"cache_memlimit" => AdminKind::CacheMemlimit,
        b"extstore" => AdminKind::Extstore,
        b"flush_all" => AdminKind::FlushAll,
        b"free_memchunks" => AdminKind::FreeMemchunks,
        b"lru" => AdminKind::Lru,
        b"lru_crawler" => AdminKind::LruCrawler,
        b"quit" => AdminKind::Quit,
        b"refresh_certs" => AdminKind::RefreshCerts,
        b"shutdown" => AdminKind::Shutdown,
        b"slabs" => AdminKind::Slabs,
        b"stats" => AdminKind::Stats,
        b"verbosity" => AdminKind::Verbosity,
        b"version" => AdminKind::Version,
        b"watch" => AdminKind::Watch,
        // A web browser, or somebody who makes one talk to us.
        _ if is_http(line) => return Err(Reject { close: true, ..Reject::line(b"") }),
        _ if line.len() < 2 => return Err(Reject::line(reply::BAD_FORMAT)),
        _ => return Err(refuse(reply::ERROR, noreply)),
    };
    Ok(Request::Admin(Admin { kind, arguments, noreply }))
}

fn is_http(line: &[u8]) -> bool {
    Tokens::new(line).skip(1).last().is_some_and(|word| word.starts_with(b"HTTP/"))
}

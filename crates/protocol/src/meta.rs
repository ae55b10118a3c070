//! The meta commands.

use crate::parser::Reject;
use crate::token::{Tokens, number_i32, number_u32, number_u64, plain_end, value_bytes};
use crate::{KEY_BYTES_MAX, Request, reply};
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Most words of a meta command, key and command counted.
const WORDS_MAX: usize = 20;
/// Words whose first letter is looked at, even where there are more than may be.
const WORDS_SEEN: usize = 23;
/// Longest opaque, its letter counted.
const OPAQUE_BYTES_MAX: usize = 32;

/// Which command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaCommand {
    /// `mg`.
    Get,
    /// `ms`; a data block follows.
    Set {
        /// Length of the value; two bytes of line end follow it.
        value_bytes: u32,
    },
    /// `md`.
    Delete,
    /// `ma`.
    Arith,
    /// `me`.
    Debug,
}

/// A meta command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// Which.
    pub command: MetaCommand,
    /// Its key.
    pub key: MetaKey<'a>,
    /// Its flags.
    pub flags: MetaFlags<'a>,
}

impl<'a> MetaRequest<'a> {
    /// `mg` of this key, for its value and nothing else.
    #[inline]
    pub fn of_value(key: &'a [u8]) -> Self {
        const PRESENT: u64 = letter_bits(b"v");
        let flags = MetaFlags { present: PRESENT, words: b" v", delta: 1, ..MetaFlags::default() };
        Self { command: MetaCommand::Get, key: MetaKey { raw: key, decoded: None }, flags }
    }

    /// The same request with other slices in place of its key and the words behind that.
    pub(crate) fn with_parts<'b>(&self, [raw, words]: [&'b [u8]; 2]) -> MetaRequest<'b> {
        let key = MetaKey { raw, decoded: self.key.decoded.clone() };
        MetaRequest { command: self.command, key, flags: self.flags.with_words(words) }
    }
}

/// A key, as sent and as meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaKey<'a> {
    /// The word of the request, which the reply repeats under flag `k`.
    pub raw: &'a [u8],
    /// What flag `b` makes of it.
    decoded: Option<Vec<u8>>,
}

impl MetaKey<'_> {
    /// The key itself, 1 to 250 bytes.
    pub fn bytes(&self) -> &[u8] {
        self.decoded.as_deref().unwrap_or(self.raw)
    }

    /// Sent in base64.
    pub fn is_base64(&self) -> bool {
        self.decoded.is_some()
    }
}

/// What flag `M` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaMode {
    /// `ms`: set. `ma`: increment.
    #[default]
    Default,
    /// `E`: only if absent.
    Add,
    /// `A`.
    Append,
    /// `P`.
    Prepend,
    /// `R`: only if present.
    Replace,
    /// `D` or `-`.
    Decrement,
}

/// The flags of a meta command: which are there, what their numbers are, and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    /// A bit per letter: `A` to `Z`, then `a` to `z`.
    present: u64,
    /// The flags as sent.
    words: &'a [u8],
    /// `F`: client flags to set.
    pub client_flags: u32,
    /// `T`: expiry time to set.
    pub exptime: i32,
    /// `N`: create on a miss, with this expiry time.
    pub vivify: i32,
    /// `R`: win if it is gone before this expiry time.
    pub recache: i32,
    /// `C`: CAS number to compare.
    pub compare: u64,
    /// `E`: CAS number to assign.
    pub assign: u64,
    /// `D`: delta, 1 unless given.
    pub delta: u64,
    /// `J`: initial value.
    pub initial: u64,
    /// `M`: mode.
    pub mode: MetaMode,
}

impl<'a> MetaFlags<'a> {
    /// Whether a flag was given.
    #[inline]
    pub fn has(&self, letter: u8) -> bool {
        letter_bit(letter).is_some_and(|bit| self.present & bit != 0)
    }

    /// Whether a flag was given that the reply repeats or answers in its line.
    #[inline]
    pub fn ask_to_show(&self) -> bool {
        const SHOWN: u64 = letter_bits(b"Okstcflh");
        self.present & SHOWN != 0
    }

    /// The flags with their operands, in the order of the request.
    pub fn iter(&self) -> Tokens<'a> {
        Tokens::new(self.words)
    }

    /// The same flags; `None` if their order is of no matter any more (no flag is echoed).
    pub fn words(&self) -> &'a [u8] {
        self.words
    }

    /// The same flags, which stand in `words`.
    fn with_words<'b>(&self, words: &'b [u8]) -> MetaFlags<'b> {
        let Self { present, words: _, client_flags, exptime, vivify, recache, .. } = *self;
        let Self { compare, assign, delta, initial, mode, .. } = *self;
        MetaFlags {
            present,
            words,
            client_flags,
            exptime,
            vivify,
            recache,
            compare,
            assign,
            delta,
            initial,
            mode,
        }
    }
}

#[inline]
const fn letter_bit(letter: u8) -> Option<u64> {
    match letter {
        b'A'..=b'Z' => Some(1 << (letter - b'A')),
        b'a'..=b'z' => Some(1 << (26 + letter - b'a')),
        _ => None,
    }
}

const fn letter_bits(letters: &[u8]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < letters.len() {
        if let Some(bit) = letter_bit(letters[at]) {
            bits |= bit;
        }
        at += 1;
    }
    bits
}

/// The key of a whole `mg` of a value and nothing else at the front of `buf`, and how long the request is. As
/// plain as a request can be, and told from all others by looking at each byte once.
#[inline]
pub(crate) fn plain_get(buf: &[u8]) -> Option<(&[u8], usize)> {
    const END: &[u8] = b" v\r\n";
    let rest = buf.strip_prefix(b"mg ")?;
    let (key, end) = rest.split_at(plain_end(rest));
    let is_key = (1..=KEY_BYTES_MAX).contains(&key.len());
    (is_key && end.starts_with(END)).then(|| (key, buf.len() - end.len() + END.len()))
}

/// As memcached decodes it: bits that the last letter has too many are left out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Why flags are no good, in the words of memcached.
type Wrong = &'static [u8];

impl MetaCommand {
    /// Words before its flags.
    fn words(self) -> usize {
        if matches!(self, Self::Set { .. }) { 3 } else { 2 }
    }
}

pub(crate) fn request<'a>(letter: u8, mut tokens: Tokens<'a>) -> Result<Request<'a>, Reject> {
    let raw = tokens.next();
    let command = match letter {
        b'g' => MetaCommand::Get,
        b's' => {
            let bytes = tokens.next().and_then(value_bytes).ok_or(Reject::unknown_length())?;
            MetaCommand::Set { value_bytes: bytes }
        }
        b'd' => MetaCommand::Delete,
        b'a' => MetaCommand::Arith,
        b'e' => MetaCommand::Debug,
        _ => return Err(Reject::line(reply::ERROR)),
    };
    let raw = raw.ok_or(Reject::line(reply::BAD_FORMAT))?;
    let mut flags = MetaFlags { words: tokens.rest(), delta: 1, ..MetaFlags::default() };
    let key = flags.read(command, tokens).and_then(|()| key(raw, flags.has(b'b')));
    match key {
        Some(key) => Ok(Request::Meta(MetaRequest { command, key, flags })),
        None => Err(refuse(command, raw, tokens)),
    }
}

/// Refuses a request, and drops its value: that is no command.
#[cold]
fn refuse(command: MetaCommand, raw: &[u8], words: Tokens<'_>) -> Reject {
    let swallow = match command {
        MetaCommand::Set { value_bytes } => u64::from(value_bytes) + reply::LINE_END.len() as u64,
        _ => 0,
    };
    Reject { swallow, ..Reject::line(why(command, raw, words)) }
}

/// What is wrong with a request: of several mistakes the one that memcached names.
fn why(command: MetaCommand, raw: &[u8], words: Tokens<'_>) -> Wrong {
    if command == MetaCommand::Debug || words.take(WORDS_SEEN - command.words()).any(is_no_flag) {
        return reply::BAD_FORMAT;
    }
    // Found while the flags are read, before any of them is acted on.
    let early = why_not_read(command, raw, words);
    let late = || why_not_acted_on(command, words);
    match early {
        Some(_) if command == MetaCommand::Arith => reply::INVALID_OR_DUPLICATE_FLAG,
        Some(wrong) => wrong,
        None => late().unwrap_or(reply::BAD_FORMAT),
    }
}

/// Whether no flag begins so, known or not.
fn is_no_flag(word: &[u8]) -> bool {
    !matches!(word.first(), Some(b'A'..=b'z' | b'0'..=b'9'))
}

fn why_not_read(command: MetaCommand, raw: &[u8], words: Tokens<'_>) -> Option<Wrong> {
    if raw.len() > KEY_BYTES_MAX {
        return Some(reply::BAD_FORMAT);
    }
    if words.count() + command.words() > WORDS_MAX {
        return Some(reply::OPTIONS_TOO_LONG);
    }
    let (mut flags, mut wrong) = (MetaFlags::default(), None);
    for word in words {
        match flags.add(command, word) {
            Err(fatal @ (reply::DUPLICATE_FLAG | reply::INVALID_FLAG)) => return Some(fatal),
            Err(late) if is_late(late) => {}
            // Bad client flags are told in words that any other mistake's take the place of.
            Err(reply::BAD_FORMAT) => wrong = wrong.or(Some(reply::BAD_FORMAT)),
            Err(early) => wrong = Some(early),
            Ok(()) if word[0] == b'b' && key(raw, true).is_none() => {
                wrong = Some(reply::BAD_BASE64);
            }
            Ok(()) => {}
        }
    }
    wrong
}

fn why_not_acted_on(command: MetaCommand, words: Tokens<'_>) -> Option<Wrong> {
    let mut flags = MetaFlags::default();
    let late =
        words.filter_map(|word| flags.add(command, word).err().filter(|wrong| is_late(wrong)));
    // The mode is looked at before the opaque.
    late.min_by_key(|wrong| *wrong == reply::OPAQUE_TOO_LONG)
}

fn is_late(wrong: Wrong) -> bool {
    [reply::INVALID_MODE_SET, reply::INVALID_MODE_ARITH, reply::OPAQUE_TOO_LONG].contains(&wrong)
}

fn key(raw: &[u8], is_base64: bool) -> Option<MetaKey<'_>> {
    if raw.len() > KEY_BYTES_MAX {
        return None;
    }
    if !is_base64 {
        return Some(MetaKey { raw, decoded: None });
    }
    let mut decoded = vec![0; raw.len()];
    let bytes = BASE64.decode_slice(raw, &mut decoded).ok().filter(|&bytes| bytes > 0)?;
    decoded.truncate(bytes);
    Some(MetaKey { raw, decoded: Some(decoded) })
}

impl<'a> MetaFlags<'a> {
    /// Adds each of the words, in place, since flags are long. `None` if one can't be meant.
    #[inline]
    fn read(&mut self, command: MetaCommand, words: Tokens<'a>) -> Option<()> {
        if command == MetaCommand::Debug {
            return self.read_debug(words);
        }
        for (n, word) in words.enumerate() {
            if n + command.words() >= WORDS_MAX {
                return None;
            }
            self.add(command, word).ok()?;
        }
        Some(())
    }

    /// `me` looks at one word, if it is `b`.
    fn read_debug(&mut self, mut words: Tokens<'a>) -> Option<()> {
        let first = { words }.next();
        if words.any(is_no_flag) {
            return None;
        }
        match first {
            Some(b"b") => self.add(MetaCommand::Debug, b"b").ok(),
            _ => Some(()),
        }
    }

    fn add(&mut self, command: MetaCommand, word: &'a [u8]) -> Result<(), Wrong> {
        let (&letter, operand) = word.split_first().ok_or(reply::INVALID_FLAG)?;
        let bit = letter_bit(letter).ok_or(reply::INVALID_FLAG)?;
        if self.present & bit != 0 {
            return Err(reply::DUPLICATE_FLAG);
        }
        self.present |= bit;
        let bad = reply::BAD_TOKEN;
        match letter {
            b'b' | b'c' | b'f' | b'h' | b'I' | b'k' | b'l' | b'q' | b's' | b't' | b'u' | b'v'
            | b'x' | b'L' | b'P' => {}
            b'O' if word.len() > OPAQUE_BYTES_MAX => return Err(reply::OPAQUE_TOO_LONG),
            b'O' => {}
            b'C' => self.compare = number_u64(operand).ok_or(bad)?,
            b'E' => self.assign = number_u64(operand).ok_or(bad)?,
            b'F' => self.client_flags = number_u32(operand).ok_or(reply::BAD_FORMAT)?,
            b'T' => self.exptime = number_i32(operand).ok_or(bad)?,
            b'N' => self.vivify = number_i32(operand).ok_or(bad)?,
            b'R' => self.recache = number_i32(operand).ok_or(bad)?,
            b'D' => self.delta = number_u64(operand).ok_or(reply::INVALID_DELTA_VALUE)?,
            b'J' => self.initial = number_u64(operand).ok_or(reply::INVALID_INITIAL_VALUE)?,
            b'M' => self.mode = mode(command, operand)?,
            _ => return Err(reply::INVALID_FLAG),
        }
        Ok(())
    }
}

/// As in memcached, only the first letter counts.
fn mode(command: MetaCommand, operand: &[u8]) -> Result<MetaMode, Wrong> {
    match (command, operand.first()) {
        (MetaCommand::Set { .. }, Some(b'S')) => Ok(MetaMode::Default),
        (MetaCommand::Set { .. }, Some(b'E')) => Ok(MetaMode::Add),
        (MetaCommand::Set { .. }, Some(b'A')) => Ok(MetaMode::Append),
        (MetaCommand::Set { .. }, Some(b'P')) => Ok(MetaMode::Prepend),
        (MetaCommand::Set { .. }, Some(b'R')) => Ok(MetaMode::Replace),
        (MetaCommand::Arith, Some(b'I' | b'+')) => Ok(MetaMode::Default),
        (MetaCommand::Arith, Some(b'D' | b'-')) => Ok(MetaMode::Decrement),
        (MetaCommand::Set { .. }, _) => Err(reply::INVALID_MODE_SET),
        (MetaCommand::Arith, _) => Err(reply::INVALID_MODE_ARITH),
        // Accepted and ignored elsewhere.
        _ => Ok(MetaMode::Default),
    }
}

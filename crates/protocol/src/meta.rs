//! The meta commands.

use crate::parser::Reject;
use crate::token::{Tokens, number_exptime, number_i32, number_u32, number_u64, plain_end};
use crate::{KEY_BYTES_MAX, Request, reply};
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Most words of a meta command, key and command counted.
const WORDS_MAX: usize = 20;
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

/// Why flags are no good, in the words of `mg`, `ms`, `md` and `me`.
type Wrong = &'static [u8];

pub(crate) fn request<'a>(letter: u8, mut tokens: Tokens<'a>) -> Result<Request<'a>, Reject> {
    if !matches!(letter, b'g' | b's' | b'd' | b'a' | b'e') {
        return Err(Reject::line(reply::ERROR));
    }
    let missing = if letter == b'e' { reply::BAD_FORMAT } else { reply::ERROR };
    let raw = tokens.next().ok_or(Reject::line(missing))?;
    if raw.len() > KEY_BYTES_MAX {
        return Err(Reject::line(reply::BAD_FORMAT));
    }
    let command = match letter {
        b'g' => MetaCommand::Get,
        b's' => MetaCommand::Set { value_bytes: value_bytes(&mut tokens)? },
        b'd' => MetaCommand::Delete,
        b'a' => MetaCommand::Arith,
        _ => MetaCommand::Debug,
    };
    // From here on it is known how long a data block is, so it is swallowed with the error.
    let swallow = match command {
        MetaCommand::Set { value_bytes } => u64::from(value_bytes) + 2,
        _ => 0,
    };
    let refuse = |wrong: Wrong| Reject { swallow, ..Reject::line(wrong) };
    let mut flags = MetaFlags { words: tokens.rest(), delta: 1, ..MetaFlags::default() };
    flags.read(command, tokens).map_err(|wrong| refuse(in_words_of(command, wrong)))?;
    let key = key(raw, flags.has(b'b')).map_err(refuse)?;
    Ok(Request::Meta(MetaRequest { command, key, flags }))
}

fn value_bytes(tokens: &mut Tokens<'_>) -> Result<u32, Reject> {
    let bytes = tokens.next().and_then(number_i32).and_then(|bytes| u32::try_from(bytes).ok());
    let bytes = bytes.filter(|&bytes| bytes <= i32::MAX as u32 - 2);
    bytes.ok_or(Reject::line(reply::BAD_FORMAT))
}

/// `ma` knows one text for several mistakes, and so does `md`.
fn in_words_of(command: MetaCommand, wrong: Wrong) -> Wrong {
    let is_general = [reply::INVALID_FLAG, reply::DUPLICATE_FLAG].contains(&wrong);
    match command {
        MetaCommand::Arith if is_general => reply::INVALID_OR_DUPLICATE_FLAG,
        _ => wrong,
    }
}

fn key(raw: &[u8], is_base64: bool) -> Result<MetaKey<'_>, Wrong> {
    if !is_base64 {
        return Ok(MetaKey { raw, decoded: None });
    }
    let mut decoded = vec![0; raw.len()];
    let bytes = BASE64.decode_slice(raw, &mut decoded).map_err(|_| reply::BAD_BASE64)?;
    if bytes == 0 || bytes > KEY_BYTES_MAX {
        return Err(reply::BAD_BASE64);
    }
    decoded.truncate(bytes);
    Ok(MetaKey { raw, decoded: Some(decoded) })
}

impl<'a> MetaFlags<'a> {
    /// Adds each of the words. In place, since flags are long.
    #[inline]
    fn read(&mut self, command: MetaCommand, words: Tokens<'a>) -> Result<(), Wrong> {
        let words_before = if matches!(command, MetaCommand::Set { .. }) { 3 } else { 2 };
        for (n, word) in words.enumerate() {
            if n + words_before >= WORDS_MAX {
                return Err(reply::OPTIONS_TOO_LONG);
            }
            self.add(command, word)?;
        }
        Ok(())
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
            b'F' => self.client_flags = number_u32(operand).ok_or(bad)?,
            b'T' => self.exptime = number_exptime(operand).ok_or(bad)?,
            b'N' => self.vivify = number_exptime(operand).ok_or(bad)?,
            b'R' => self.recache = number_exptime(operand).ok_or(bad)?,
            b'D' if command == MetaCommand::Arith => {
                self.delta = number_u64(operand).ok_or(reply::INVALID_DELTA_VALUE)?;
            }
            b'J' if command == MetaCommand::Arith => {
                self.initial = number_u64(operand).ok_or(reply::INVALID_INITIAL_VALUE)?;
            }
            b'M' => self.mode = mode(command, operand)?,
            b'D' | b'J' => {}
            _ => return Err(reply::INVALID_FLAG),
        }
        Ok(())
    }
}

fn mode(command: MetaCommand, operand: &[u8]) -> Result<MetaMode, Wrong> {
    let &[letter] = operand else { return Err(reply::MODE_LENGTH) };
    match (command, letter) {
        (MetaCommand::Set { .. }, b'S') => Ok(MetaMode::Default),
        (MetaCommand::Set { .. }, b'E') => Ok(MetaMode::Add),
        (MetaCommand::Set { .. }, b'A') => Ok(MetaMode::Append),
        (MetaCommand::Set { .. }, b'P') => Ok(MetaMode::Prepend),
        (MetaCommand::Set { .. }, b'R') => Ok(MetaMode::Replace),
        (MetaCommand::Arith, b'I' | b'+') => Ok(MetaMode::Default),
        (MetaCommand::Arith, b'D' | b'-') => Ok(MetaMode::Decrement),
        (MetaCommand::Set { .. }, _) => Err(reply::INVALID_MODE_SET),
        (MetaCommand::Arith, _) => Err(reply::INVALID_MODE_ARITH),
        // Accepted and ignored elsewhere.
        _ => Ok(MetaMode::Default),
    }
}

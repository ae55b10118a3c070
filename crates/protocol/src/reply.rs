//! Replies as bytes.

/// Fixed replies, each with its line end.
macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* #[allow(missing_docs, reason = "the text says it")]
        pub const $name: &[u8] = concat!($text, "\r\n").as_bytes();)*
    };
}

replies! {
    STORED = "STORED";
    NOT_STORED = "NOT_STORED";
    EXISTS = "EXISTS";
    NOT_FOUND = "NOT_FOUND";
    DELETED = "DELETED";
    TOUCHED = "TOUCHED";
    OK = "OK";
    END = "END";
    RESET = "RESET";
    ERROR = "ERROR";
    META_NOOP = "MN";
    META_MISS = "EN";
    BAD_FORMAT = "CLIENT_ERROR bad command line format";
    BAD_DATA_CHUNK = "CLIENT_ERROR bad data chunk";
    BAD_TOKEN = "CLIENT_ERROR bad token in command line format";
    BAD_BASE64 = "CLIENT_ERROR error decoding key";
    INVALID_EXPTIME = "CLIENT_ERROR invalid exptime argument";
    INVALID_DELTA = "CLIENT_ERROR invalid numeric delta argument";
    INVALID_DELTA_VALUE = "CLIENT_ERROR invalid numeric delta value";
    INVALID_INITIAL_VALUE = "CLIENT_ERROR invalid numeric initial value";
    NON_NUMERIC = "CLIENT_ERROR cannot increment or decrement non-numeric value";
    INVALID_FLAG = "CLIENT_ERROR invalid flag";
    DUPLICATE_FLAG = "CLIENT_ERROR duplicate flag";
    INVALID_OR_DUPLICATE_FLAG = "CLIENT_ERROR invalid or duplicate flag";
    OPTIONS_TOO_LONG = "CLIENT_ERROR options flags are too long";
    OPAQUE_TOO_LONG = "CLIENT_ERROR opaque token too long";
    INVALID_MODE_SET = "CLIENT_ERROR invalid mode for ms M token";
    INVALID_MODE_ARITH = "CLIENT_ERROR invalid mode for ma M token";
    FLUSH_NOT_ALLOWED = "CLIENT_ERROR flush_all not allowed";
    TOO_LARGE = "SERVER_ERROR object too large for cache";
    OUT_OF_MEMORY = "SERVER_ERROR out of memory storing object";
    RECOVERING = "SERVER_ERROR still recovering, try again later";
    UNAUTHENTICATED = "CLIENT_ERROR unauthenticated";
    AUTH_FAILURE = "CLIENT_ERROR authentication failure";
    AUTH_TOO_LONG = "CLIENT_ERROR auth token too long";
    AUTH_FORMAT = "CLIENT_ERROR bad authentication token format";
    AUTH_TERMINATION = "CLIENT_ERROR bad command line termination";
    TOO_MANY_CONNECTIONS = "ERROR Too many open connections";
}

/// What ends every line and every value.
pub const LINE_END: &[u8] = b"\r\n";

/// Appends a number in decimal.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = Backwards::default();
    digits.put_number(number);
    out.extend_from_slice(digits.bytes());
}

/// Appends `VALUE <key> <flags> <bytes> [<cas>]` and the line end.
pub fn put_value_line(
    out: &mut Vec<u8>,
    key: &[u8],
    client_flags: u32,
    bytes: u64,
    cas: Option<u64>,
) {
    // Appended as a whole: each piece by itself would ask for room.
    let mut numbers = Backwards::default();
    numbers.put(LINE_END);
    if let Some(cas) = cas {
        numbers.put_number(cas);
        numbers.put(b" ");
    }
    numbers.put_number(bytes);
    numbers.put(b" ");
    numbers.put_number(client_flags.into());
    numbers.put(b" ");
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.extend_from_slice(numbers.bytes());
}

/// The end of a line, made from its last byte to its first, as digits come.
struct Backwards {
    bytes: [u8; Self::ROOM],
    at: usize,
}

impl Backwards {
    /// More than three numbers take. A power of two, so that an index needs no look at it.
    const ROOM: usize = 64;

    fn put_byte(&mut self, byte: u8) {
        self.at -= 1;
        self.bytes[self.at % Self::ROOM] = byte;
    }

    fn put(&mut self, bytes: &[u8]) {
        bytes.iter().rev().for_each(|&byte| self.put_byte(byte));
    }

    fn put_number(&mut self, mut number: u64) {
        while number >= 10 {
            self.put_byte(b'0' + (number % 10) as u8);
            number /= 10;
        }
        self.put_byte(b'0' + number as u8);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.at..]
    }
}

impl Default for Backwards {
    fn default() -> Self {
        Self { bytes: [0; Self::ROOM], at: Self::ROOM }
    }
}

/// Appends a value and the line end behind it.
pub fn put_block(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(value);
    out.extend_from_slice(LINE_END);
}

/// A meta reply under construction: the code, then flags, then the line end.
#[derive(Debug)]
pub struct MetaReply<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> MetaReply<'o> {
    /// Begins with a code such as `HD`.
    pub fn begin(out: &'o mut Vec<u8>, code: &[u8]) -> Self {
        out.extend_from_slice(code);
        Self { out }
    }

    /// Begins with `VA <bytes>`.
    pub fn begin_value(out: &'o mut Vec<u8>, bytes: u64) -> Self {
        let mut line = Backwards::default();
        line.put_number(bytes);
        line.put(b"VA ");
        out.extend_from_slice(line.bytes());
        Self { out }
    }

    /// Adds a flag, with what follows its letter.
    pub fn flag(&mut self, letter: u8, operand: &[u8]) {
        self.out.extend_from_slice(&[b' ', letter]);
        self.out.extend_from_slice(operand);
    }

    /// Adds a flag with a number.
    pub fn number(&mut self, letter: u8, number: u64) {
        self.out.extend_from_slice(&[b' ', letter]);
        put_number(self.out, number);
    }

    /// Ends the line.
    pub fn end(self) {
        self.out.extend_from_slice(LINE_END);
    }
}

//! The secret that readers of the page must know.

use ring::hmac;
use std::io;
use std::path::Path;
use subtle::ConstantTimeEq;

/// Shorter ones can be guessed.
const BYTES_MIN: usize = 16;

/// A token; never shown.
pub(crate) struct Token(Vec<u8>);

impl Token {
    /// Reads the first line of a file.
    pub(crate) fn read(file: &Path) -> io::Result<Self> {
        let text = std::fs::read(file)?;
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
        match line.len() {
            BYTES_MIN.. => Ok(Self(line.to_vec())),
            _ => Err(io::Error::other(format!("a token has at least {BYTES_MIN} characters"))),
        }
    }

    #[cfg(test)]
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// What is signed for those who know it is signed with it.
    pub(super) fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    /// The value of `Authorization` by which a client shows it.
    pub(crate) fn authorization(&self) -> Vec<u8> {
        [b"Bearer ", &self.0[..]].concat()
    }

    /// Whether `given` is it. The time that takes depends on the lengths only.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn nothing_but_the_token_is_the_token() {
        let token = Token(b"0123456789abcdef".to_vec());
        assert!(token.is(b"0123456789abcdef"));
        for wrong in ["", "0", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "Token");
    }
}

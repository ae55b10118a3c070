//! Keys in lines of text.
//!
//! A key of the binary protocol, or in base64, may hold any byte: written as it is, a line's end in it could forge
//! the rest of an answer.

use std::io::Write;

/// Whether `key` may stand in a line as it is. One that came in a line may, whatever its script.
pub(crate) fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// Writes `key` as URLs spell it, as memcached does: letters, digits and four marks stand for themselves.
pub(crate) fn put_uri(out: &mut Vec<u8>, key: &[u8]) {
    put_spelled(out, key, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
}

/// Writes `text` as it is but for control characters, which are spelled as in URLs.
pub(crate) fn put_line(out: &mut Vec<u8>, text: &[u8]) {
    put_spelled(out, text, |byte| !byte.is_ascii_control());
}

fn put_spelled(out: &mut Vec<u8>, text: &[u8], stays: impl Fn(u8) -> bool) {
    for &byte in text {
        if stays(byte) {
            out.push(byte);
        } else {
            // Writing to a `Vec` never fails.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(put: fn(&mut Vec<u8>, &[u8]), text: &[u8]) -> String {
        let mut out = Vec::new();
        put(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_spelled_as_memcached_does() {
        assert_eq!(written(put_uri, b"a-b_c.d~e%25"), "a-b_c.d~e%2525");
        assert_eq!(written(put_uri, &[0, 255, b'/']), "%00%FF%2F");
    }

    #[test]
    fn control_characters_are_spelled_in_lines() {
        assert_eq!(written(put_line, b"get a%0A \r\n\x1b[2J\x7f\0"), "get a%0A %0D%0A%1B[2J%7F%00");
        assert_eq!(written(put_line, "größe".as_bytes()), "größe");
    }

    #[test]
    fn keys_with_blanks_or_control_characters_are_not_plain() {
        assert!(is_plain("größe%/:".as_bytes()) && is_plain(b""));
        for key in [&b"a b"[..], b"a\n", b"\0", b"a\x7f", b"\t"] {
            assert!(!is_plain(key), "{}", key.escape_ascii());
        }
    }
}

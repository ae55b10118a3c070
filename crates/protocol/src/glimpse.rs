//! Guessing a key before its request is parsed.

use crate::KEY_BYTES_MAX;

/// No command's name is longer, of those that begin with a key.
const NAME_BYTES_MAX: usize = 8;
const BINARY_REQUEST: u8 = 0x80;
const BINARY_HEADER: usize = 24;

/// The first key in `input`, if it can be told at a glance. It may turn out to be none: worth no more
/// than asking memory for what a request for it would need.
pub fn glimpse_key(input: &[u8]) -> Option<&[u8]> {
    let key = match input {
        [BINARY_REQUEST, _, high, low, extras, ..] => {
            let start = BINARY_HEADER + usize::from(*extras);
            let bytes = usize::from(u16::from_be_bytes([*high, *low]));
            input.get(start..start + bytes)?
        }
        _ => {
            let name = input.iter().take(NAME_BYTES_MAX).position(|&byte| byte == b' ')?;
            let rest = &input[name + 1..];
            let ends = |byte: &u8| matches!(byte, b' ' | b'\r' | b'\n');
            &rest[..rest.iter().take(KEY_BYTES_MAX + 1).position(ends)?]
        }
    };
    (!key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_protocols_are_seen_and_nothing_else_hurts() {
        let long = [b"get ".as_slice(), &[b'k'; 251], b"\r\n"].concat();
        let binary = [&[0x80, 1, 0, 3, 8, 0, 0, 0][..], &[0; 16], &[0; 8], b"keyvalue"].concat();
        for (input, key) in [
            (&b"get key\r\n"[..], Some(&b"key"[..])),
            (b"set key 0 0 1\r\nx\r\n", Some(b"key")),
            (b"mg key v\r\n", Some(b"key")),
            (b"gets a b c\n", Some(b"a")),
            (&binary, Some(b"key")),
            (&binary[..34], None),
            (b"get ke", None),
            (b"get  key\r\n", None),
            (b"version\r\n", None),
            (b"incomprehensible input\r\n", None),
            (b"\x80\x01", None),
            (b"", None),
            (&long, None),
        ] {
            assert_eq!(glimpse_key(input), key, "{input:?}");
        }
    }
}

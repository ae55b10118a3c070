//! Little-endian fields at fixed offsets; every structure of NVMe is little endian (Base 2.0, 1.4.3).
//!
//! Offsets are constants of the wire formats, so a slice that is too short is a mistake in this crate and panics.

/// The array that begins at `at`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Writes `field` at `at`; numbers come as their little-endian bytes.
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// The text of a field that is padded with spaces or zeros. Bytes that are not ASCII become `?`.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let ascii = |&byte: &u8| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '?' };
    field[..end].iter().map(ascii).collect::<String>().trim_end().to_owned()
}

/// Writes as much of `text` as fits, and fills the field with `pad`.
pub(crate) fn put_text(field: &mut [u8], text: &str, pad: u8) {
    field.fill(pad);
    let bytes = text.len().min(field.len());
    field[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_padded_and_trimmed() {
        let mut field = [7; 6];
        put_text(&mut field, "ab", b' ');
        assert_eq!(&field, b"ab    ");
        assert_eq!(text(&field), "ab");
        put_text(&mut field, "abcdefgh", 0);
        assert_eq!(text(&field), "abcdef");
        assert_eq!(text(b"a\x80\0bc"), "a?");
    }
}

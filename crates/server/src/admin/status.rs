//! Everything that `stats` and `stats tiers` tell, as JSON.

use crate::stats::view::View;
use crate::stats::{general, tiers};
use std::fmt::Write;

/// One object with an object for each of the two.
pub(super) fn json(view: &View<'_>) -> String {
    let (mut stats, mut tiers) = (Vec::new(), Vec::new());
    general::write(&mut stats, view);
    tiers::write_tiers(&mut tiers, view);
    format!(
        "{{\"server\":\"terrace\",\"version\":{},\"stats\":{},\"tiers\":{}}}\n",
        text(env!("CARGO_PKG_VERSION")),
        object(&stats),
        object(&tiers)
    )
}

/// From lines of `STAT name value` to an object.
fn object(lines: &[u8]) -> String {
    let lines = String::from_utf8_lossy(lines);
    let rows = lines.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    let members: Vec<_> =
        rows.map(|(name, value)| format!("{}:{}", text(name), literal(value))).collect();
    format!("{{{}}}", members.join(","))
}

/// Numbers stay numbers, and what is unknown is null.
fn literal(value: &str) -> String {
    if value == tiers::UNKNOWN {
        return "null".to_owned();
    }
    let digits = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_plain = digits && !value.starts_with('.') && !value.ends_with('.');
    match value.parse::<f64>() {
        // Beyond this a reader that takes every number for a float would change it.
        Ok(number) if is_plain && number < 9e15 && (value == "0" || !leads_with_zero(value)) => {
            value.to_string()
        }
        _ => text(value),
    }
}

fn leads_with_zero(value: &str) -> bool {
    value.starts_with('0') && !value.starts_with("0.")
}

pub(super) fn text(value: &str) -> String {
    let mut quoted = String::from('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Writing to a String can't fail.
            c if c.is_control() => drop(write!(quoted, "\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_members() {
        let lines = b"STAT a 1\r\nSTAT b 1.5\r\nSTAT c 1.6.45\r\nSTAT d \"x\\ y\r\nSTAT e 007\r\n";
        assert_eq!(object(lines), r#"{"a":1,"b":1.5,"c":"1.6.45","d":"\"x\\ y","e":"007"}"#);
        assert_eq!(object(b"STAT a unknown\r\n"), r#"{"a":null}"#);
        assert_eq!(text("\u{1}"), r#""\u0001""#);
        assert_eq!(literal("18446744073709551615"), r#""18446744073709551615""#);
    }
}

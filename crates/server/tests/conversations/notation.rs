//! How conversations are written down: `|` is a line end, `<k*250>` a letter 250 times, and what can't be
//! printed is escaped as in C. Packets of the binary protocol are `[01 k=key e=0000000000000000 v=value]`.

use crate::common::binary::Answer;
use std::fmt::Write as _;

/// Runs that are longer are shortened.
const RUN_MAX: usize = 20;

/// What is sent for a text.
pub fn bytes(text: &str) -> Vec<u8> {
    let (mut rest, mut out) = (text, Vec::new());
    while let Some(first) = rest.chars().next() {
        let (bytes, taken) = match first {
            '|' => (b"\r\n".to_vec(), 1),
            '<' => run(rest).unwrap_or((b"<".to_vec(), 1)),
            '\\' => escape(rest),
            _ => (vec![u8::try_from(first).expect("ASCII")], 1),
        };
        out.extend(bytes);
        rest = &rest[taken..];
    }
    out
}

fn run(text: &str) -> Option<(Vec<u8>, usize)> {
    let end = text.find('>')?;
    let (what, times) = text[1..end].rsplit_once('*')?;
    Some((bytes(what).repeat(times.parse().ok()?), end + 1))
}

fn escape(text: &str) -> (Vec<u8>, usize) {
    match text.as_bytes()[1] {
        b'n' => (vec![b'\n'], 2),
        b'r' => (vec![b'\r'], 2),
        b't' => (vec![b'\t'], 2),
        b'x' => (vec![u8::from_str_radix(&text[2..4], 16).expect("two digits")], 4),
        other => (vec![other], 2),
    }
}

/// The text for what was received.
pub fn text(bytes: &[u8]) -> String {
    let (mut rest, mut out) = (bytes, String::new());
    while let Some(&first) = rest.first() {
        let run = rest.iter().take_while(|&&byte| byte == first).count();
        let taken = match rest {
            [b'\r', b'\n', ..] => {
                out.push('|');
                2
            }
            _ if run > RUN_MAX => {
                let _ = write!(out, "<{}*{run}>", letter(first));
                run
            }
            _ => {
                out.push_str(&letter(first));
                1
            }
        };
        rest = &rest[taken..];
    }
    out
}

fn letter(byte: u8) -> String {
    match byte {
        b'\n' => "\\n".into(),
        b'\r' => "\\r".into(),
        b'\t' => "\\t".into(),
        b'\\' => "\\\\".into(),
        b'|' | 0..=31 | 127.. => format!("\\x{byte:02x}"),
        _ => char::from(byte).to_string(),
    }
}

/// The packets of a text. `k`, `v` and `e` are key, value and extras (in hexadecimal), `c` the CAS number, `m`
/// the magic; `K`, `E` and `B` are the lengths in the header where they are others than those.
pub fn packets(text: &str) -> Vec<u8> {
    let packets = text.split('[').filter_map(|packet| packet.split_once(']'));
    packets.flat_map(|(packet, behind)| [self::packet(packet), bytes(behind)].concat()).collect()
}

fn packet(text: &str) -> Vec<u8> {
    let mut words = text.split(' ');
    let opcode = hex(words.next().expect("an opcode"));
    let words: Vec<_> = words.filter_map(|word| word.split_once('=')).collect();
    let field = |name| words.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
    let [key, value] = ["k", "v"].map(|name| field(name).map_or(Vec::new(), bytes));
    let extras = field("e").map_or(Vec::new(), hex);
    let number = |name, or: usize| field(name).map_or(or as u64, |text| text.parse().expect(name));
    let body = extras.len() + key.len() + value.len();
    let mut out = vec![field("m").map_or(0x80, |magic| hex(magic)[0]), opcode[0]];
    out.extend((number("K", key.len()) as u16).to_be_bytes());
    out.extend([number("E", extras.len()) as u8, number("d", 0) as u8]);
    out.extend((number("s", 0) as u16).to_be_bytes());
    out.extend((number("B", body) as u32).to_be_bytes());
    out.extend([opcode[0]; 4]);
    out.extend(number("c", 0).to_be_bytes());
    [out, extras, key, value].concat()
}

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

/// The text for a response whose CAS number is written as `cas`.
pub fn response(answer: &Answer, cas: &str) -> String {
    let mut out = format!("[{:02x}", answer.opcode);
    let extras: String = answer.extras.iter().map(|byte| format!("{byte:02x}")).collect();
    let status = match answer.status {
        0 => String::new(),
        status => format!("{status:02x}"),
    };
    let (key, value) = (text(&answer.key), text(&answer.value));
    let cas = if cas == "0" { "" } else { cas };
    for (name, field) in [('s', &*status), ('k', &key), ('e', &extras), ('v', &value), ('c', cas)] {
        if !field.is_empty() {
            let _ = write!(out, " {name}={field}");
        }
    }
    out + "]"
}

//! Text: how wide it is at most, where it is broken, and numbers in few characters.

/// Characters of an element that mean something else in SVG and HTML, as what stands for them.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// About the width of a text, rather more: by the widest of the usual fonts without serifs.
pub(crate) fn width(text: &str, size: f64, is_bold: bool) -> f64 {
    let of = |c: char| match c {
        'i' | 'j' | 'l' | ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.36,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '/' | '-' | '"' | 'I' => 0.45,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.02,
        'A'..='Z' | '&' | '+' | '=' | '<' | '>' | '~' | '#' => 0.85,
        c if c.is_ascii() => 0.65,
        _ => 1.1,
    };
    let bold = if is_bold { 1.1 } else { 1.0 };
    text.chars().map(of).sum::<f64>() * size * bold
}

/// The text in lines of at most this width; broken at blanks, and within words that are longer.
pub(crate) fn lines(text: &str, size: f64, is_bold: bool, most: f64) -> Vec<String> {
    let is_too_long = |line: &str| width(line, size, is_bold) > most;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        let blank = if line.is_empty() { "" } else { " " };
        let longer = format!("{line}{blank}{word}");
        if !is_too_long(&longer) {
            *line = longer;
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        for c in word.chars() {
            let line = lines.last_mut().expect("there is one from the beginning");
            line.push(c);
            if line.chars().nth(1).is_some() && is_too_long(line) {
                line.pop();
                lines.push(c.to_string());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// A number with a letter for thousands, millions and so on.
pub(crate) fn decimal(value: f64) -> String {
    let size = value.abs();
    if size >= 1e15 || (size > 0.0 && size < 1e-3) {
        return format!("{:e}", rounded(value));
    }
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, letter) = units.into_iter().find(|(unit, _)| size >= *unit).unwrap_or((1.0, ""));
    format!("{}{letter}", rounded(value / unit))
}

/// A power of two with a letter for powers of 1024, as sizes of blocks are written.
pub(crate) fn binary(exponent: i32) -> String {
    match exponent {
        0..60 => {
            let letter = ["", "K", "M", "G", "T", "P"][(exponent / 10) as usize];
            format!("{}{letter}", 1 << (exponent % 10))
        }
        _ => format!("2^{exponent}"),
    }
}

/// Without what floating point adds behind the sixth digit.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let told = [0.0, 0.1 + 0.2, 5.0, 999.0, 1000.0, 25e4, 5e6, 1e9, 2e12, 1e15, 2e-6, -1500.0];
        let short = "0 0.3 5 999 1k 250k 5M 1G 2T 1e15 2e-6 -1.5k";
        assert_eq!(told.map(decimal).join(" "), short);
        let told = [0, 9, 10, 12, 26, 59, 60, -1].map(binary);
        assert_eq!(told.join(" "), "1 512 1K 4K 64M 512P 2^60 2^-1");
    }

    #[test]
    fn lines_keep_all_characters_and_the_width() {
        let long = "m".repeat(50);
        for text in ["", "one", "a title of several words that goes on and on", &long] {
            for most in [1.0, 60.0, 200.0, 1e6] {
                let lines = lines(text, 12.0, false, most);
                let joined: String = lines.concat().chars().filter(|c| *c != ' ').collect();
                assert_eq!(joined, text.replace(' ', ""));
                let fits =
                    |line: &String| width(line, 12.0, false) <= most || line.chars().count() == 1;
                assert!(lines.iter().all(fits), "{lines:?} in {most}");
            }
        }
        let two = lines("two words", 12.0, false, width("two word", 12.0, false));
        assert_eq!(two, ["two", "words"]);
    }
}

//! The words of the command line.

use std::ffi::OsString;

/// Names of this program. In the container image it stands under both.
const NAMES: [&str; 2] = ["terrace", "memcached"];

/// What follows the program's name. A first word that is such a name once more is left out: the image's entry point
/// gets `memcached -m 64` where a manifest has that as its arguments.
pub(crate) fn words() -> Vec<OsString> {
    without_name(std::env::args_os().skip(1).collect())
}

fn without_name(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.first().is_some_and(|word| NAMES.iter().any(|name| word == name)) {
        words.remove(0);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::without_name;

    #[test]
    fn a_name_in_front_is_left_out_once() {
        let cases = [
            ("", ""),
            ("-m 64", "-m 64"),
            ("memcached", ""),
            ("memcached -m 64", "-m 64"),
            ("terrace plan", "plan"),
            ("memcached memcached", "memcached"),
            ("-u memcached", "-u memcached"),
        ];
        for (given, left) in cases {
            let words = |text: &str| text.split_whitespace().map(Into::into).collect::<Vec<_>>();
            assert_eq!(without_name(words(given)), words(left), "{given}");
        }
    }
}

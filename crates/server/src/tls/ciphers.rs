//! `-o ssl_ciphers`: OpenSSL's language of cipher strings, over the suites that there are here. Start
//! scripts have words such as `HIGH:!aNULL`; all that those would leave out is never spoken anyway.

use rustls::SupportedCipherSuite;

/// Of `suites`, those that `text` chooses. TLS 1.3 has its own list in OpenSSL, which memcached leaves as
/// it is: its suites stay, unless one of them is named.
pub(super) fn chosen(text: &str, suites: &[SupportedCipherSuite]) -> Vec<SupportedCipherSuite> {
    // What stands behind an `@` is about their order, and how strong they must be: all are.
    let words = text.split([':', ',', ';', ' ']).filter_map(|word| word.split('@').next());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let names_new = suites.iter().any(|suite| suite.tls13().is_some() && is_taken(&words, suite));
    let is_chosen = |suite: &&SupportedCipherSuite| {
        is_taken(&words, suite) || suite.tls13().is_some() && !names_new
    };
    let all: Vec<_> = suites.iter().filter(is_chosen).copied().collect();
    // Not one that was asked for: the others alone were not meant.
    let is_empty = !all.iter().any(|suite| is_taken(&words, suite));
    if is_empty { Vec::new() } else { all }
}

/// What becomes of one suite, word by word.
fn is_taken(words: &[&str], suite: &SupportedCipherSuite) -> bool {
    let name = name_of(suite);
    let mut is_taken = false;
    for word in words {
        let is_meant = matches(word.trim_start_matches(['!', '-', '+']), &name);
        match word.as_bytes() {
            // Never again, whatever follows.
            [b'!', ..] if is_meant => return false,
            [b'-', ..] if is_meant => is_taken = false,
            // The last is about their order.
            [b'!' | b'-' | b'+', ..] => {}
            _ => is_taken |= is_meant,
        }
    }
    is_taken
}

/// The name as rustls spells it.
pub(super) fn name_of(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite())
}

/// Whether a word means a suite: by one of its names, or by classes that it belongs to all of.
fn matches(word: &str, name: &str) -> bool {
    standard_name(word) == name || word.split('+').all(|class| is_of_class(class, name))
}

/// Classes that hold any of the suites here, which all have ephemeral keys and authenticated encryption.
/// No suite of TLS 1.3 is in one.
fn is_of_class(class: &str, name: &str) -> bool {
    let has = |part: &str| name.contains(part);
    !name.starts_with("TLS13_")
        && match class {
            "ALL" | "DEFAULT" | "HIGH" | "ECDHE" | "EECDH" | "kECDHE" | "kEECDH" | "TLSv1.2" => {
                true
            }
            "ECDSA" | "aECDSA" => has("_ECDSA_"),
            "aRSA" => has("_RSA_"),
            "AES" | "AESGCM" => has("_AES_"),
            "AES128" => has("_AES_128_"),
            "AES256" => has("_AES_256_"),
            "CHACHA20" => has("_CHACHA20_"),
            _ => false,
        }
}

/// The name of a cipher suite as rustls spells it, from OpenSSL's spelling or the standard's:
/// `ECDHE-RSA-AES128-GCM-SHA256` and `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` are one.
fn standard_name(name: &str) -> String {
    let name = name.trim().to_ascii_uppercase().replace('-', "_");
    if name.contains("_WITH_") {
        return name;
    }
    if let Some(rest) = name.strip_prefix("TLS_") {
        return format!("TLS13_{rest}");
    }
    let name = name.replace("AES128", "AES_128").replace("AES256", "AES_256");
    let mut name = format!("TLS_{name}").replacen("RSA_", "RSA_WITH_", 1);
    name = name.replacen("ECDSA_", "ECDSA_WITH_", 1);
    if name.ends_with("POLY1305") {
        name.push_str("_SHA256");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old_names(text: &str) -> Vec<String> {
        let suites = rustls::crypto::ring::default_provider().cipher_suites;
        let chosen = chosen(text, &suites);
        chosen.iter().filter(|suite| suite.tls13().is_none()).map(name_of).collect()
    }

    #[test]
    fn cipher_suites_have_two_names() {
        for (given, name) in [
            ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            ("ecdhe-ecdsa-aes256-gcm-sha384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
            ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
            ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        ] {
            assert_eq!(old_names(&format!("RC4-MD5:{given}")), [name.to_string()], "{given}");
        }
        let suites = rustls::crypto::ring::default_provider().cipher_suites;
        assert_eq!(chosen("TLS_AES_128_GCM_SHA256", &suites).len(), 1);
        // Those of TLS 1.3 stay beside others.
        assert_eq!(chosen("ECDHE-RSA-AES128-GCM-SHA256", &suites).len(), 4);
        assert!(chosen("RC4-MD5", &suites).is_empty() && chosen("!aNULL", &suites).is_empty());
    }

    #[test]
    fn openssl_words_choose_among_them() {
        for all in ["HIGH:!aNULL:!MD5", "DEFAULT@SECLEVEL=2", "ECDHE+AESGCM:ECDHE+CHACHA20:!RC4"] {
            assert_eq!(old_names(all).len(), 6, "{all}");
        }
        assert_eq!(old_names("EECDH+AESGCM").len(), 4);
        assert_eq!(old_names("HIGH:!AESGCM:AESGCM").len(), 2);
        assert_eq!(old_names("HIGH:-AESGCM:AES128").len(), 4);
        assert_eq!(old_names("ECDSA+AES256"), ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]);
        assert_eq!(old_names("HIGH:!ECDSA:!AES:+HIGH:@STRENGTH").len(), 1);
        assert_eq!(old_names("kRSA:DHE:3DES:é"), [""; 0]);
    }
}

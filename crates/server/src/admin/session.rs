//! Sessions of browsers: cookies that were given for the token.
//!
//! A cookie is `END.NUMBER.CODE`: the Unix second at which it ends, a random number, and an HMAC-SHA-256 of both with
//! the token as its key. Nothing is kept of it, so that it is good after a restart too; what signed out before its end
//! is remembered until then.

use super::token::Token;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds that a session lasts.
const LIFE_S: u64 = 12 * 60 * 60;
/// Sessions that signed out are remembered up to this number; the oldest is forgotten for a new one.
const ENDED_MAX: usize = 1024;

/// The sessions of one token.
pub(super) struct Sessions {
    key: hmac::Key,
    /// The cookie's name. It differs for each token: cookies of one host are sent to all of its ports.
    name: String,
    /// Cookies that signed out, with their ends.
    ended: RefCell<VecDeque<(u64, String)>>,
}

impl Sessions {
    pub(super) fn new(token: &Token) -> Self {
        let key = token.key();
        let name = hmac::sign(&key, b"terrace name");
        let name = format!("terrace_{}", URL_SAFE_NO_PAD.encode(&name.as_ref()[..6]));
        Self { key, name, ended: RefCell::default() }
    }

    /// Begins a session, and returns the value of `Set-Cookie`; `None` if the system has no random numbers.
    pub(super) fn begin(&self) -> Option<String> {
        let mut number = [0; 16];
        SystemRandom::new().fill(&mut number).ok()?;
        let signed = format!("{}.{}", now() + LIFE_S, URL_SAFE_NO_PAD.encode(number));
        let code = URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, signed.as_bytes()));
        Some(self.header(&format!("{signed}.{code}"), LIFE_S))
    }

    /// The value of `Set-Cookie` that removes the cookie.
    pub(super) fn removal(&self) -> String {
        self.header("", 0)
    }

    fn header(&self, value: &str, age: u64) -> String {
        let name = &self.name;
        format!("{name}={value}; Max-Age={age}; Path=/; HttpOnly; SameSite=Strict")
    }

    /// Whether a cookie, as `name=value`, is that of a session that has not ended.
    pub(super) fn admits(&self, cookie: &str) -> bool {
        self.signed(cookie).is_some_and(|(end, signed)| {
            end > now() && !self.ended.borrow().iter().any(|(_, ended)| ended == signed)
        })
    }

    /// Ends the session of a cookie.
    pub(super) fn end(&self, cookie: &str) {
        let Some((end, signed)) = self.signed(cookie) else { return };
        let mut ended = self.ended.borrow_mut();
        let now = now();
        ended.retain(|(end, _)| *end > now);
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back((end, signed.to_string()));
    }

    /// The end of a session, and what is signed, if the code is right.
    fn signed<'c>(&self, cookie: &'c str) -> Option<(u64, &'c str)> {
        let value = cookie.strip_prefix(self.name.as_str())?.strip_prefix('=')?;
        let (signed, code) = value.rsplit_once('.')?;
        let code = URL_SAFE_NO_PAD.decode(code).ok()?;
        hmac::verify(&self.key, signed.as_bytes(), &code).ok()?;
        let (end, _) = signed.split_once('.')?;
        Some((end.parse().ok()?, signed))
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sessions")
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_cookies_and_old_ones_admit_nothing() {
        let sessions = Sessions::new(&Token::new(b"0123456789abcdef"));
        let header = sessions.begin().unwrap();
        let cookie = header.split("; ").next().unwrap();
        assert!(sessions.admits(cookie));
        assert_ne!(sessions.begin().unwrap(), header, "each has a number of its own");
        let (name, value) = cookie.split_once('=').unwrap();
        let [end, number, code] = value.split('.').collect::<Vec<_>>()[..] else {
            panic!("{value}")
        };
        let later = end.parse::<u64>().unwrap() + 1;
        for wrong in [
            format!("{name}={later}.{number}.{code}"),
            format!("{name}={end}.{number}x.{code}"),
            format!("{name}={end}.{number}."),
            format!("{name}={end}.{number}.{}", code.replace(&code[..1], "!")),
            format!("{name}x={value}"),
            format!("{name}="),
            name.to_string(),
        ] {
            assert!(!sessions.admits(&wrong), "{wrong}");
        }
        let signed = format!("{}.{number}", now());
        let code = URL_SAFE_NO_PAD.encode(hmac::sign(&sessions.key, signed.as_bytes()));
        assert!(!sessions.admits(&format!("{name}={signed}.{code}")), "it is over");
        assert!(sessions.removal().starts_with(&format!("{name}=; Max-Age=0; ")));
    }

    #[test]
    fn number_of_remembered_sessions_is_bounded() {
        let sessions = Sessions::new(&Token::new(b"0123456789abcdef"));
        for _ in 0..ENDED_MAX + 10 {
            let header = sessions.begin().unwrap();
            sessions.end(header.split("; ").next().unwrap());
        }
        assert_eq!(sessions.ended.borrow().len(), ENDED_MAX);
    }
}

//! Which clients may read the page, and what they show for it.

use super::host;
use super::session::Sessions;
use super::token::Token;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;

/// Which clients may read the page.
#[derive(Debug)]
pub(super) enum Access {
    /// Those that may open the Unix socket.
    Socket,
    /// Programs of this machine, which name it by an address, a loopback name or one of these.
    Hosts(Vec<String>),
    /// Those that send the token, or a cookie that was given for it.
    Token { token: Token, sessions: Box<Sessions> },
}

/// Why a client may not read the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It names another host.
    Host(StatusCode),
    /// It shows nothing, or a cookie that is over: that is no attempt to guess the token.
    Unknown,
    /// It shows a token that is wrong.
    Wrong,
}

impl Access {
    /// Asks for a token.
    pub(super) fn token(token: Token) -> Self {
        let sessions = Box::new(Sessions::new(&token));
        Self::Token { token, sessions }
    }

    /// Whether the page has a form to sign in.
    pub(super) fn has_login(&self) -> bool {
        matches!(self, Self::Token { .. })
    }

    /// Checks a request that only reads: everything but signing in and out does.
    pub(super) fn check(&self, request: &Parts) -> Result<(), Refused> {
        match self {
            Self::Socket => Ok(()),
            Self::Hosts(names) => host::check(request, names).map_err(Refused::Host),
            // Kubernetes' probes and load balancers have no token, and learn nothing else.
            Self::Token { .. } if matches!(request.uri.path(), "/healthz" | "/readyz") => Ok(()),
            Self::Token { token, sessions } => {
                match shown(request) {
                    Some(given) if token.is(&given) => return Ok(()),
                    Some(_) => return Err(Refused::Wrong),
                    None => {}
                }
                cookies(request)
                    .any(|cookie| sessions.admits(cookie))
                    .then_some(())
                    .ok_or(Refused::Unknown)
            }
        }
    }

    /// Checks a request that changes something. A browser sends cookies and passwords by itself, also for a page of
    /// another server: only the token itself counts.
    pub(super) fn check_change(&self, request: &Parts) -> Result<(), Refused> {
        match self {
            Self::Socket | Self::Hosts(_) => Err(Refused::Host(StatusCode::FORBIDDEN)),
            Self::Token { token, .. } => match bearer(request) {
                Some(given) if token.is(given) => Ok(()),
                Some(_) => Err(Refused::Wrong),
                None => Err(Refused::Unknown),
            },
        }
    }

    /// The header that signs a client in who sent `given`; `None` if that is not the token.
    pub(super) fn sign_in(&self, given: &[u8]) -> Option<String> {
        match self {
            Self::Token { token, sessions } if token.is(given) => sessions.begin(),
            _ => None,
        }
    }

    /// Ends the session of a request, and returns the header that removes its cookie.
    pub(super) fn sign_out(&self, request: &Parts) -> Option<String> {
        let Self::Token { sessions, .. } = self else { return None };
        cookies(request).for_each(|cookie| sessions.end(cookie));
        Some(sessions.removal())
    }
}

/// Whether a form was sent by a page of this server. Browsers name the origin of every form that is posted.
pub(super) fn is_of_own_page(request: &Parts) -> bool {
    let is_foreign =
        request.headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin");
    let Some(origin) = request.headers.get(ORIGIN) else { return !is_foreign };
    let host = request.headers.get(HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, host)| host);
    !is_foreign && origin.zip(host).is_some_and(|(origin, host)| is_same(origin, host))
}

fn is_same(origin: &str, host: &str) -> bool {
    let authority = |text: &str| text.parse::<Authority>().ok();
    authority(origin).zip(authority(host)).is_some_and(|(origin, host)| origin == host)
}

/// The token of `Authorization`: behind `Bearer`, or the password of `Basic`, whatever the user's name is.
fn shown(request: &Parts) -> Option<Vec<u8>> {
    if let Some(token) = bearer(request) {
        return Some(token.to_vec());
    }
    let (scheme, rest) = authorization(request)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let text = STANDARD.decode(rest).ok()?;
    let colon = text.iter().position(|&byte| byte == b':')?;
    Some(text[colon + 1..].to_vec())
}

/// The token of `Authorization: Bearer`.
fn bearer(request: &Parts) -> Option<&[u8]> {
    let (scheme, token) = authorization(request)?;
    scheme.eq_ignore_ascii_case(b"bearer").then_some(token)
}

/// The scheme of `Authorization`, and the rest of it.
fn authorization(request: &Parts) -> Option<(&[u8], &[u8])> {
    let value = request.headers.get(AUTHORIZATION)?.as_bytes();
    let blank = value.iter().position(|&byte| byte == b' ')?;
    Some((&value[..blank], value[blank..].trim_ascii()))
}

/// Names and values of all cookies, as `name=value`.
fn cookies(request: &Parts) -> impl Iterator<Item = &str> {
    let headers = request.headers.get_all(COOKIE).iter();
    headers.filter_map(|header| header.to_str().ok()).flat_map(|text| text.split("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn request(headers: &[(&str, &str)]) -> Parts {
        let mut request = hyper::Request::builder().uri("/status");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn access() -> Access {
        Access::token(Token::new(TOKEN.as_bytes()))
    }

    #[test]
    fn token_is_taken_as_bearer_and_as_basic_password() {
        let check = |value: &str| access().check(&request(&[("authorization", value)]));
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for right in
            ["Bearer 0123456789abcdef", "bearer  0123456789abcdef", &basic("any:0123456789abcdef")]
        {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for wrong in ["Bearer 0123456789abcdeX", "Bearer x", &basic("0123456789abcdef:")] {
            assert_eq!(check(wrong), Err(Refused::Wrong), "{wrong}");
        }
        for none in ["Bearer", "Basic ***", "0123456789abcdef", &basic(TOKEN)] {
            assert_eq!(check(none), Err(Refused::Unknown), "{none}");
        }
    }

    #[test]
    fn changes_need_the_token_as_bearer() {
        let check = |access: &Access, headers: &[_]| access.check_change(&request(headers));
        let basic = format!("Basic {}", STANDARD.encode(format!("any:{TOKEN}")));
        let header = access().sign_in(TOKEN.as_bytes()).unwrap();
        let cookie = header.split("; ").next().unwrap();
        assert_eq!(check(&access(), &[("authorization", "Bearer 0123456789abcdef")]), Ok(()));
        for (headers, refused) in [
            (vec![("authorization", "Bearer 0123456789abcdeX")], Refused::Wrong),
            (vec![("authorization", &basic[..])], Refused::Unknown),
            (vec![("cookie", cookie)], Refused::Unknown),
            (vec![], Refused::Unknown),
        ] {
            assert_eq!(check(&access(), &headers), Err(refused), "{headers:?}");
        }
        for access in [Access::Socket, Access::Hosts(Vec::new())] {
            let refused = check(&access, &[("authorization", "Bearer 0123456789abcdef")]);
            assert_eq!(refused, Err(Refused::Host(StatusCode::FORBIDDEN)));
        }
    }

    #[test]
    fn cookie_admits_until_it_signs_out() {
        let access = access();
        assert_eq!(access.sign_in(b"0123456789abcdeX"), None);
        let header = access.sign_in(TOKEN.as_bytes()).unwrap();
        for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(header.split("; ").any(|part| part == word), "{header}");
        }
        assert!(!header.contains(TOKEN), "{header}");
        let cookie = format!("other=1; {}", header.split("; ").next().unwrap());
        let signed_in = request(&[("cookie", &cookie)]);
        assert_eq!(access.check(&signed_in), Ok(()));
        // Another server with another token knows nothing of it, and one with the same token does.
        let stranger = Access::token(Token::new(b"another token entirely"));
        assert_eq!(stranger.check(&signed_in), Err(Refused::Unknown));
        assert_eq!(Access::token(Token::new(TOKEN.as_bytes())).check(&signed_in), Ok(()));
        let removal = access.sign_out(&signed_in).unwrap();
        assert!(removal.contains("Max-Age=0"), "{removal}");
        assert_eq!(access.check(&signed_in), Err(Refused::Unknown));
    }

    #[test]
    fn forms_of_other_origins_are_told() {
        let own = |headers: &[(&str, &str)]| is_of_own_page(&request(headers));
        assert!(own(&[("host", "db:9150")]));
        assert!(own(&[("host", "db:9150"), ("origin", "http://db:9150")]));
        assert!(own(&[
            ("host", "DB"),
            ("origin", "https://db"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(!own(&[("host", "db:9150"), ("origin", "http://evil.example")]));
        assert!(!own(&[("host", "db:9150"), ("origin", "http://db:80")]));
        assert!(!own(&[("host", "db:9150"), ("origin", "null")]));
        assert!(!own(&[("host", "db:9150"), ("sec-fetch-site", "cross-site")]));
    }
}

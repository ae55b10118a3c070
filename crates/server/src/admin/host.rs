//! The `Host` of a request, checked against DNS rebinding.
//!
//! A web page can have its own name resolve to 127.0.0.1 and then read the answers of local servers. Its requests
//! carry that name in `Host`. A literal address needs no resolver, and a loopback name can not be registered.

use hyper::StatusCode;
use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use std::net::IpAddr;

const LOOPBACK_NAMES: [&str; 4] =
    ["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"];

/// Whether the request names this host: by a loopback name, a literal address or one of `names`. Returns the status
/// of the refusal.
pub(super) fn check(request: &Parts, names: &[String]) -> Result<(), StatusCode> {
    let mut all = request.headers.get_all(HOST).iter();
    let host = match (all.next(), all.next()) {
        (Some(host), None) => host,
        // A browser sends one always.
        (None, _) if request.version < hyper::Version::HTTP_11 => return Ok(()),
        _ => return Err(StatusCode::BAD_REQUEST),
    };
    let in_header = Authority::try_from(host.as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)?;
    // In `GET http://host/path` the line counts.
    let authority = request.uri.authority().unwrap_or(&in_header);
    match is_own(authority.host(), names) {
        true => Ok(()),
        false => Err(StatusCode::MISDIRECTED_REQUEST),
    }
}

fn is_own(host: &str, names: &[String]) -> bool {
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if literal.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    LOOPBACK_NAMES.contains(&&*name)
        || name.ends_with(".localhost")
        || names.iter().any(|own| own.eq_ignore_ascii_case(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(line: &str, headers: &[&str]) -> Result<(), u16> {
        let (uri, version) = line.split_once(' ').unwrap();
        let version = match version {
            "1.0" => hyper::Version::HTTP_10,
            _ => hyper::Version::HTTP_11,
        };
        let mut request = hyper::Request::builder().uri(uri).version(version);
        for host in headers {
            request = request.header(HOST, *host);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts, &["terrace.example".to_string()]).map_err(|status| status.as_u16())
    }

    #[test]
    fn own_names_and_addresses_pass() {
        for host in [
            "localhost",
            "LOCALHOST:9150",
            "localhost.:1",
            "a.localhost",
            "127.0.0.1:9150",
            "10.1.2.3",
            "[::1]:9150",
            "[fe80::1]",
            "ip6-localhost",
            "Terrace.example:9150",
            "terrace.example.",
        ] {
            assert_eq!(checked("/metrics 1.1", &[host]), Ok(()), "{host}");
        }
        assert_eq!(checked("/metrics 1.0", &[]), Ok(()));
        assert_eq!(checked("http://127.0.0.1/metrics 1.1", &["evil.example"]), Ok(()));
    }

    #[test]
    fn names_of_others_are_refused() {
        for host in [
            "evil.example",
            "evil.example:9150",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "1.2.3",
            "x",
        ] {
            assert_eq!(checked("/metrics 1.1", &[host]), Err(421), "{host}");
        }
        assert_eq!(checked("http://evil.example/ 1.1", &["localhost"]), Err(421));
    }

    #[test]
    fn hosts_that_are_none_are_bad_requests() {
        for hosts in [&[][..], &["localhost", "localhost"], &["a b"], &[""], &["[::1"]] {
            assert_eq!(checked("/metrics 1.1", hosts), Err(400), "{hosts:?}");
        }
    }
}

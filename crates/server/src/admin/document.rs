//! The HTML documents: the live page and the form to sign in.
//!
//! Each is one document without anything to load: style and script are put into it when the server starts, and its
//! policy allows those two alone, by their hashes. Addresses are relative, for proxies that serve them in a folder.

use super::{
    CONTENT_SECURITY_POLICY, HTML, HeaderValue, REFERRER_POLICY, Response, StatusCode, response,
    with,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;

/// Where the forms are sent.
pub(super) const SIGN_IN: &str = "/sign-in";
pub(super) const SIGN_OUT: &str = "/sign-out";
/// Said above the form after a wrong attempt.
pub(super) const WRONG_TOKEN: &str = "That is not the token.";

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = concat!(
    "\"use strict\";\n{\n",
    include_str!("page/chart.js"),
    include_str!("page/page.js"),
    "}\n"
);
const PAGE: &str = include_str!("page/page.html");
const FORM: &str = include_str!("page/sign-in.html");
/// Stands in the page where it needs a token.
const SIGN_OUT_BUTTON: &str =
    r#"<form method="post" action="sign-out"><button>Sign out</button></form>"#;

/// The documents as they are sent.
pub(super) struct Document {
    page: Bytes,
    /// Around what is said above the form.
    form: [String; 2],
    policy: HeaderValue,
}

impl Document {
    /// `has_login` says whether the page can be signed out of.
    pub(super) fn new(has_login: bool) -> Self {
        let button = if has_login { SIGN_OUT_BUTTON } else { "" };
        let page = PAGE.replace("%style%", STYLE).replace("%sign-out%", button);
        let page = page.replace("%version%", env!("CARGO_PKG_VERSION")).replace("%script%", SCRIPT);
        let form = FORM.replace("%style%", STYLE);
        let (above, below) = form.split_once("%said%").unwrap_or((&form, ""));
        let [style, script] = [STYLE, SCRIPT].map(hash);
        let policy = format!(
            "default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src data:; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        );
        Self {
            page: page.into(),
            form: [above, below].map(str::to_string),
            policy: HeaderValue::try_from(policy)
                .unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    }

    /// The live page.
    pub(super) fn page(&self) -> Response {
        self.html(StatusCode::OK, self.page.clone())
    }

    /// The form, with something said above it.
    pub(super) fn sign_in(&self, status: StatusCode, said: Option<&str>) -> Response {
        let said = said.map_or(String::new(), |said| format!("<p role=\"alert\">{said}</p>"));
        let [above, below] = &self.form;
        self.html(status, [above.as_str(), &said, below].concat().into())
    }

    fn html(&self, status: StatusCode, text: Bytes) -> Response {
        let mut response = response(status, HTML, text);
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        // Browsers then name the origin of a form.
        with(response, REFERRER_POLICY, "same-origin")
    }
}

/// How a policy names a style or a script.
fn hash(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    format!("sha256-{}", STANDARD.encode(digest))
}

/// The token that a form brings; empty if it brings none.
pub(super) fn token_of(form: &[u8]) -> String {
    let token = form_urlencoded::parse(form).find(|(name, _)| name == "token");
    token.map_or(String::new(), |(_, token)| token.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_whole_and_allow_no_more_than_they_have() {
        let document = Document::new(true);
        let page = std::str::from_utf8(&document.page).unwrap();
        let form = document.form.concat();
        for text in [page, &form] {
            for left in ["%style%", "%script%", "%said%", "%version%", "%sign-out%"] {
                assert!(!text.contains(left), "{left}");
            }
            // What a policy of hashes forbids, and what would be loaded.
            for forbidden in [
                " style=",
                " onclick=",
                " onload=",
                " src=",
                "<link rel=\"stylesheet",
                "@import",
                "url(",
            ] {
                assert!(!text.contains(forbidden), "{forbidden}");
            }
        }
        let between = |text: &str, begin: &str, end: &str| {
            let (_, rest) = text.split_once(begin).unwrap();
            hash(rest.split_once(end).unwrap().0)
        };
        let policy = document.policy.to_str().unwrap();
        assert!(policy.contains(&between(page, "<style>", "</style>")), "{policy}");
        assert!(policy.contains(&between(&form, "<style>", "</style>")), "{policy}");
        assert!(policy.contains(&between(page, "<script>", "</script>")), "{policy}");
        assert!(page.contains("sign-out"));
        let open = Document::new(false);
        assert!(!std::str::from_utf8(&open.page).unwrap().contains("sign-out"));
    }

    #[test]
    fn token_of_a_form_is_decoded() {
        for (form, token) in [
            ("token=abc", "abc"),
            ("x=1&token=a%2Bb+c%26%3D&y=2", "a+b c&="),
            ("token=+abc%0D%0A", "abc"),
            ("token=%4", "%4"),
            ("token=%zz", "%zz"),
            ("tokens=abc", ""),
            ("", ""),
        ] {
            assert_eq!(token_of(form.as_bytes()), token, "{form}");
        }
    }
}

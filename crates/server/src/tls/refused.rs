//! Why a client's certificate is turned away, in words for the log.

use rustls::{CertificateError, Error};

/// What the library calls a client's certificate that is an authority's.
const AUTHORITYS_OWN: &str = "CaUsedAsEndEntity";

/// `None` where the error is none of certificates.
pub(super) fn reason(error: &Error) -> Option<String> {
    let reason = match error {
        Error::NoCertificatesPresented => "it showed none",
        Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => "no authority in ssl_ca_cert has signed it",
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "it is not valid yet"
            }
            CertificateError::BadSignature => "its signature is wrong",
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "it is not for clients (extended key usage)"
            }
            CertificateError::BadEncoding => "it is no certificate of X.509",
            // What the library has no name for; its own words stand in parentheses there.
            other => return Some(of_library(&other.to_string())),
        },
        _ => return None,
    };
    Some(reason.to_string())
}

/// Whether all that is wrong with a certificate is that it is marked as an authority's.
pub(super) fn is_authoritys_own(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(other @ CertificateError::Other(_))
        if other.to_string().contains(AUTHORITYS_OWN))
}

fn of_library(text: &str) -> String {
    let known = [
        (AUTHORITYS_OWN, "it is an authority's own (basic constraints CA:TRUE)"),
        ("UnsupportedCertVersion", "it is of X.509 version 1, and must be of version 3"),
        ("UnsupportedSignatureAlgorithm", "it is signed by an algorithm that is not supported"),
    ];
    let found = known.iter().find(|(name, _)| text.contains(name));
    found.map_or(text, |(_, words)| words).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_words() {
        let of = |error| reason(&Error::InvalidCertificate(error)).unwrap();
        assert_eq!(of(CertificateError::Expired), "it has expired");
        assert!(of_library("Other(OtherError(CaUsedAsEndEntity))").starts_with("it is an auth"));
        assert_eq!(reason(&Error::DecryptError), None);
    }
}

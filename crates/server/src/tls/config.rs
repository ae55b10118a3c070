//! From files to what rustls needs.

use crate::settings::{ListenTls, TlsSettings};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// Sessions that can be resumed, with `ssl_session_cache`.
const SESSIONS_MAX: usize = 4096;

/// TLS can't be spoken as asked for: one line that says which option is why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {reason}")]
pub struct TlsError {
    option: String,
    reason: String,
}

impl TlsError {
    fn at(option: &str, file: Option<&Path>, reason: impl Display) -> Self {
        let file = file.map_or(String::new(), |file| format!("={}", file.display()));
        Self { option: format!("-o {option}{file}"), reason: reason.to_string() }
    }
}

/// One configuration for each way that a listener may ask for.
pub(crate) struct Configs {
    basic: Arc<ServerConfig>,
    /// Where there is a CA: client certificates are asked for, and needed.
    mutual: Option<[Arc<ServerConfig>; 2]>,
}

impl Configs {
    /// Reads all files; they are either all good or of no effect.
    pub(crate) fn load(settings: &TlsSettings) -> Result<Self, TlsError> {
        let provider = Arc::new(provider(settings.ciphers.as_deref())?);
        let config = |verifier| server_config(settings, &provider, verifier);
        let mutual = match &settings.ca {
            None => None,
            Some(ca) => {
                let roots = Arc::new(roots(ca)?);
                let asked = verifier(ca, &roots, &provider, true)?;
                let needed = verifier(ca, &roots, &provider, false)?;
                Some([config(Some(asked))?, config(Some(needed))?])
            }
        };
        Ok(Self { basic: config(None)?, mutual })
    }

    /// The configuration for connections of such a listener; `None` if they aren't encrypted.
    pub(crate) fn of(&self, tls: ListenTls) -> Option<Arc<ServerConfig>> {
        let mutual = self.mutual.as_ref();
        match tls {
            ListenTls::Off => None,
            ListenTls::Basic => Some(Arc::clone(&self.basic)),
            ListenTls::Asked => mutual.map(|[asked, _]| Arc::clone(asked)),
            ListenTls::Mutual => mutual.map(|[_, needed]| Arc::clone(needed)),
        }
    }
}

fn server_config(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let versions = if settings.only_tls13 { &[&TLS13][..] } else { &[&TLS13, &TLS12] };
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::at("ssl_ciphers", None, error))?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let (chain, key) = (chain(settings)?, key(settings)?);
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::at("ssl_key", settings.key.as_deref(), error))?;
    match settings.session_cache {
        true => config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX),
        false => {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
    }
    Ok(Arc::new(config))
}

fn chain(settings: &TlsSettings) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let path = settings.chain.as_deref().unwrap_or(Path::new(""));
    let chain = if settings.is_der {
        std::fs::read(path).map(|bytes| vec![bytes.into()]).map_err(|error| error.to_string())
    } else {
        certificates(path)
    };
    match chain {
        Ok(chain) if chain.is_empty() => Err("there is no certificate in it".to_string()),
        chain => chain,
    }
    .map_err(|reason| TlsError::at("ssl_chain_cert", Some(path), reason))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).map_err(pem_error)?;
    all.collect::<Result<_, _>>().map_err(pem_error)
}

fn key(settings: &TlsSettings) -> Result<PrivateKeyDer<'static>, TlsError> {
    let path = settings.key.as_deref().unwrap_or(Path::new(""));
    let key = if settings.is_der {
        let bytes = std::fs::read(path).map_err(|error| error.to_string());
        bytes.and_then(|bytes| PrivateKeyDer::try_from(bytes).map_err(str::to_string))
    } else {
        PrivateKeyDer::from_pem_file(path).map_err(pem_error).map(as_it_is)
    };
    key.map_err(|reason| TlsError::at("ssl_key", Some(path), reason))
}

/// The key in the form that its bytes have: like OpenSSL, whatever the label of the PEM file says.
fn as_it_is(key: PrivateKeyDer<'static>) -> PrivateKeyDer<'static> {
    PrivateKeyDer::try_from(key.secret_der().to_vec()).unwrap_or(key)
}

/// What went wrong with a file, without the content of it.
fn pem_error(error: rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => error.to_string(),
        Error::NoItemsFound => "nothing of that kind is in it".to_string(),
        _ => "it is no PEM file".to_string(),
    }
}

fn roots(ca: &Path) -> Result<RootCertStore, TlsError> {
    let failed = |reason: String| TlsError::at("ssl_ca_cert", Some(ca), reason);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca).map_err(failed)? {
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    Ok(roots)
}

fn verifier(
    ca: &Path,
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
    may_be_absent: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
    let builder = if may_be_absent { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| TlsError::at("ssl_ca_cert", Some(ca), error))
}

/// The cryptography, with no other cipher suites than `ciphers` names.
fn provider(ciphers: Option<&str>) -> Result<CryptoProvider, TlsError> {
    let mut provider = rustls::crypto::ring::default_provider();
    let Some(ciphers) = ciphers else { return Ok(provider) };
    let wanted: Vec<_> = ciphers.split([':', ',']).map(standard_name).collect();
    let is_wanted = |suite: &SupportedCipherSuite| {
        // TLS 1.3 has its own list in OpenSSL, which memcached leaves as it is.
        let name = format!("{:?}", suite.suite());
        suite.tls13().is_some() && !wanted.iter().any(|w| w.starts_with("TLS13_"))
            || wanted.contains(&name)
    };
    let known: Vec<_> =
        provider.cipher_suites.iter().map(|suite| format!("{:?}", suite.suite())).collect();
    if !wanted.iter().any(|name| known.contains(name)) {
        let reason = format!("none of these is spoken here; there are {}", known.join(", "));
        return Err(TlsError::at("ssl_ciphers", None, reason));
    }
    provider.cipher_suites.retain(is_wanted);
    Ok(provider)
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

    #[test]
    fn cipher_suites_have_two_names() {
        let names = |text: &str| {
            let suites = provider(Some(text)).map(|p| p.cipher_suites);
            let suites = suites.map_err(|error| error.to_string())?;
            let tls12 = suites.iter().filter(|suite| suite.tls13().is_none());
            Ok::<_, String>(tls12.map(|suite| format!("{:?}", suite.suite())).collect::<Vec<_>>())
        };
        for (given, name) in [
            ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            ("ecdhe-ecdsa-aes256-gcm-sha384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
            ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
            ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        ] {
            assert_eq!(names(&format!("RC4-MD5:{given}")), Ok(vec![name.to_string()]), "{given}");
        }
        assert_eq!(names("TLS_AES_128_GCM_SHA256"), Ok(vec![]));
        assert!(names("RC4-MD5").unwrap_err().contains("none of these"));
    }
}

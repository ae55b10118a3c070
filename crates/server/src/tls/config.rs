//! From files to what rustls needs.

use super::no_authority::NoAuthority;
use super::pinned::Pinned;
use super::{ciphers, files};
use crate::settings::{ListenTls, TlsSettings};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
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
pub struct Configs {
    basic: Arc<ServerConfig>,
    /// Client certificates are asked for: checked if shown.
    asked: Arc<ServerConfig>,
    /// They are needed.
    needed: Arc<ServerConfig>,
}

impl Configs {
    /// Reads all files; they are either all good or of no effect.
    pub(crate) fn load(settings: &TlsSettings) -> Result<Self, TlsError> {
        let provider = Arc::new(provider(settings.ciphers.as_deref())?);
        let config = |verifier| server_config(settings, &provider, verifier);
        let basic = config(None)?;
        let (asked, needed) = match &settings.ca {
            None => {
                let needed = Arc::new(NoAuthority(Arc::clone(&provider)));
                (Arc::clone(&basic), config(Some(needed))?)
            }
            Some(ca) => {
                let authorities = authorities(ca)?;
                let asked = verifier(ca, &authorities, &provider, true)?;
                let needed = verifier(ca, &authorities, &provider, false)?;
                (config(Some(asked))?, config(Some(needed))?)
            }
        };
        Ok(Self { basic, asked, needed })
    }

    /// The configuration for connections of such a listener; `None` if they aren't encrypted.
    pub(crate) fn of(&self, tls: ListenTls) -> Option<Arc<ServerConfig>> {
        let config = match tls {
            ListenTls::Off => return None,
            ListenTls::Basic => &self.basic,
            ListenTls::Asked => &self.asked,
            ListenTls::Mutual => &self.needed,
        };
        Some(Arc::clone(config))
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
    let certified = SingleCertAndKey::from(certified(settings, provider)?);
    let mut config = builder.with_cert_resolver(Arc::new(certified));
    match settings.session_cache {
        true => config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX),
        false => {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
    }
    Ok(Arc::new(config))
}

/// The server's certificates and their key. The certificates are shown as they are: whether one is trusted, whatever
/// its version and whoever signed it, is for clients to decide.
fn certified(settings: &TlsSettings, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let (chain, key) = (chain(settings)?, key(settings)?);
    let failed = |reason: String| TlsError::at("ssl_key", settings.key.as_deref(), reason);
    let unknown = |_| failed(files::unusable_key(key.secret_der()));
    let signing = provider.key_provider.load_private_key(key.clone_key()).map_err(unknown)?;
    let public = signing.public_key();
    let is_of = |public: &[u8]| chain[0].windows(public.len()).any(|bytes| bytes == public);
    if public.is_some_and(|public| !is_of(&public)) {
        return Err(failed("it is not the key of the certificate".to_string()));
    }
    Ok(CertifiedKey::new(chain, signing))
}

fn chain(settings: &TlsSettings) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let path = settings.chain.as_deref().unwrap_or(Path::new(""));
    let chain = if settings.is_der {
        std::fs::read(path).map(|bytes| vec![bytes.into()]).map_err(|error| error.to_string())
    } else {
        files::certificates(path)
    };
    match chain {
        Ok(chain) if chain.is_empty() => Err("there is no certificate in it".to_string()),
        chain => chain,
    }
    .map_err(|reason| TlsError::at("ssl_chain_cert", Some(path), reason))
}

fn key(settings: &TlsSettings) -> Result<PrivateKeyDer<'static>, TlsError> {
    let path = settings.key.as_deref().unwrap_or(Path::new(""));
    let key = if settings.is_der {
        let bytes = std::fs::read(path).map_err(|error| error.to_string());
        bytes.and_then(|bytes| PrivateKeyDer::try_from(bytes).map_err(str::to_string))
    } else {
        files::key(path)
    };
    key.map_err(|reason| TlsError::at("ssl_key", Some(path), reason))
}

/// The authorities that vouch for clients.
struct Authorities {
    roots: Arc<RootCertStore>,
    certificates: Vec<CertificateDer<'static>>,
}

fn authorities(ca: &Path) -> Result<Authorities, TlsError> {
    let failed = |reason: String| TlsError::at("ssl_ca_cert", Some(ca), reason);
    let mut roots = RootCertStore::empty();
    let certificates = files::certificates(ca).map_err(failed)?;
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| failed(error.to_string()))?;
    }
    Ok(Authorities { roots: Arc::new(roots), certificates })
}

fn verifier(
    ca: &Path,
    authorities: &Authorities,
    provider: &Arc<CryptoProvider>,
    may_be_absent: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::clone(&authorities.roots);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    let builder = if may_be_absent { builder.allow_unauthenticated() } else { builder };
    let inner = builder.build().map_err(|error| TlsError::at("ssl_ca_cert", Some(ca), error))?;
    Ok(Arc::new(Pinned { inner, certificates: authorities.certificates.clone() }))
}

/// The cryptography, with no other cipher suites than `ciphers` chooses.
fn provider(ciphers: Option<&str>) -> Result<CryptoProvider, TlsError> {
    let mut provider = rustls::crypto::ring::default_provider();
    let Some(text) = ciphers else { return Ok(provider) };
    let chosen = ciphers::chosen(text, &provider.cipher_suites);
    if chosen.is_empty() {
        let known: Vec<_> = provider.cipher_suites.iter().map(ciphers::name_of).collect();
        let reason = format!("none of these is spoken here; there are {}", known.join(", "));
        return Err(TlsError::at("ssl_ciphers", None, reason));
    }
    provider.cipher_suites = chosen;
    Ok(provider)
}

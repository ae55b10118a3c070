//! Client certificates that stand in `ssl_ca_cert` themselves.

use super::refused;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Verifies as `inner` does, and takes an authority's own certificate from a client that has its key.
///
/// `openssl req -x509` marks every certificate as an authority's, and OpenSSL, and so memcached, lets clients show it.
/// That gives a client nothing: the key could sign any other certificate. `inner` checks the dates before it objects.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    /// Those of `ssl_ca_cert`.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

impl ClientCertVerifier for Pinned {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.inner.verify_client_cert(end_entity, intermediates, now) {
            Err(error)
                if refused::is_authoritys_own(&error) && self.certificates.contains(end_entity) =>
            {
                Ok(ClientCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

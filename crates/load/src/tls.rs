//! TLS towards the server: with its certificate checked, or with whoever answers.

use crate::LoadError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// How connections are encrypted.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    /// The name that the certificate must have; that of the address if none is given.
    name: Option<ServerName<'static>>,
}

impl Tls {
    /// With a certificate for `name` that the CAs of the PEM file vouch for.
    ///
    /// # Errors
    /// The file holds no certificates, or `name` is none.
    pub fn trusting(ca: &Path, name: Option<&str>) -> Result<Self, LoadError> {
        let wrong = |text: String| LoadError::Plan(format!("{}: {text}", ca.display()));
        let mut roots = RootCertStore::empty();
        let found = CertificateDer::pem_file_iter(ca).map_err(|error| wrong(error.to_string()))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("holds no certificates".into()));
        }
        let name = name.map(|name| {
            let no_name = |_| LoadError::Plan(format!("{name} is not a server's name"));
            ServerName::try_from(name.to_owned()).map_err(no_name)
        });
        let config = builder()?.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { config: Arc::new(config), name: name.transpose()? })
    }

    /// With whatever certificate the server shows: for measurements, where nothing is secret.
    ///
    /// # Errors
    /// The library has no cipher suites.
    pub fn blind() -> Result<Self, LoadError> {
        let anyone = Arc::new(Anyone(provider()));
        let config = builder()?.dangerous().with_custom_certificate_verifier(anyone);
        Ok(Self { config: Arc::new(config.with_no_client_auth()), name: None })
    }

    pub(crate) fn session(&self, address: IpAddr) -> Result<ClientConnection, LoadError> {
        let name = self.name.clone().unwrap_or_else(|| ServerName::IpAddress(address.into()));
        ClientConnection::new(Arc::clone(&self.config), name).map_err(failed)
    }
}

fn failed(error: Error) -> LoadError {
    LoadError::Plan(format!("TLS: {error}"))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, LoadError> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(failed)
}

/// Accepts every certificate; its signatures must still be right.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

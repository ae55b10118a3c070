//! Files of certificates and keys, as OpenSSL's tools write them.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;

/// Editors put it before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Other labels of a certificate, which OpenSSL reads.
const LABELS: [&[u8]; 2] = [b" TRUSTED CERTIFICATE-----", b" X509 CERTIFICATE-----"];
const LABEL: &[u8] = b" CERTIFICATE-----";

/// The identifier of a kind of key as it is encoded, and its name.
const KINDS: [(&[u8], &str); 7] = [
    (&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07], "an ECDSA key on P-256"),
    (&[0x2B, 0x81, 0x04, 0x00, 0x22], "an ECDSA key on P-384"),
    (&[0x2B, 0x81, 0x04, 0x00, 0x23], "an ECDSA key on P-521"),
    (&[0x2B, 0x81, 0x04, 0x00, 0x0A], "an ECDSA key on secp256k1"),
    (&[0x2B, 0x65, 0x71], "an Ed448 key"),
    (&[0x2A, 0x86, 0x48, 0xCE, 0x38, 0x04, 0x01], "a DSA key"),
    (&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x0A], "an RSA-PSS key"),
];
/// How an RSA key goes on with its modulus behind its version, 0.
const MODULUS: &[u8] = &[0x02, 0x01, 0x00, 0x02, 0x82];

/// The certificates of a PEM file.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let all = CertificateDer::pem_slice_iter(&text).map(|one| one.map(without_trust));
    all.collect::<Result<_, _>>().map_err(pem_error)
}

/// The key of a PEM file, in the form that its bytes have: like OpenSSL, whatever the label says.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let key = PrivateKeyDer::from_pem_slice(&read(path)?).map_err(pem_error)?;
    Ok(PrivateKeyDer::try_from(key.secret_der().to_vec()).unwrap_or(key))
}

/// Why a key can't be used: what it is, and what can be.
pub(super) fn unusable_key(der: &[u8]) -> String {
    let is_there = |id: &[u8]| der.windows(id.len()).any(|bytes| bytes == id);
    let modulus = der.windows(MODULUS.len() + 2).find_map(|bytes| bytes.strip_prefix(MODULUS));
    let kind = match (KINDS.iter().find(|(id, _)| is_there(id)), modulus) {
        (Some((_, name)), _) => (*name).to_string(),
        // A zero byte stands before the modulus.
        (None, Some(&[high, low])) => {
            format!("an RSA key of {} bits", usize::from(u16::from_be_bytes([high, low])) / 8 * 64)
        }
        _ => "a key of an unknown kind".to_string(),
    };
    format!(
        "{kind} can't be used; RSA of 2,048 to 4,096 bits, ECDSA on P-256 or P-384, and Ed25519 can"
    )
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
    let plain = |line: &[u8]| match LABELS.iter().find_map(|label| before(line, label)) {
        Some(start) if start.starts_with(b"-----") => [start, LABEL, b"\n"].concat(),
        _ => line.to_vec(),
    };
    Ok(text.split_inclusive(|byte| *byte == b'\n').flat_map(plain).collect())
}

/// What stands before the end of a line.
fn before<'l>(line: &'l [u8], end: &[u8]) -> Option<&'l [u8]> {
    line.trim_ascii_end().strip_suffix(end)
}

/// Behind a `TRUSTED CERTIFICATE` stands what OpenSSL trusts it for.
fn without_trust(certificate: CertificateDer<'static>) -> CertificateDer<'static> {
    let length = match *certificate {
        [0x30, 0x82, high, low, ..] => 4 + usize::from(u16::from_be_bytes([high, low])),
        [0x30, 0x81, length, ..] => 3 + usize::from(length),
        _ => certificate.len(),
    };
    certificate.get(..length).map_or(certificate.clone(), |whole| whole.to_vec().into())
}

/// What went wrong with a file, without the content of it.
fn pem_error(error: pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "nothing of that kind is in it".to_string(),
        _ => "it is no PEM file".to_string(),
    }
}

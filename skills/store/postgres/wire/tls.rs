//! TLS as `sslmode` asks for it, and what binds a login to it.

use super::WireError;
use super::socket::Plain;
use super::url::{Place, Roots, SslMode, Target};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use sha2::{Digest, Sha256, Sha384, Sha512};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Largest file of authorities.
const ROOT_FILE_BYTES_MAX: u64 = 4 << 20;
/// Beginnings of the identifiers of signature algorithms; the byte that follows tells the digest.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];

/// Shakes hands; the server's certificate is judged as the mode says.
pub fn secure(
    mut plain: Plain,
    target: &Target,
) -> Result<Box<StreamOwned<ClientConnection, Plain>>, WireError> {
    let Place::Tcp(host, _) = &target.place else {
        return Err(WireError::Insecure("a socket of this machine has no TLS".into()));
    };
    let config = config(target).map_err(WireError::Insecure)?;
    let name = ServerName::try_from(host.clone())
        .map_err(|_| WireError::Insecure("the host's name cannot stand in a certificate".into()))?;
    let mut session = ClientConnection::new(Arc::new(config), name)
        .map_err(|error| WireError::Insecure(error.to_string()))?;
    while session.is_handshaking() {
        session.complete_io(&mut plain)?;
    }
    Ok(Box::new(StreamOwned::new(session, plain)))
}

fn config(target: &Target) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let roots = || roots(target.roots.as_ref().unwrap_or(&Roots::WellKnown));
    if target.ssl_mode == SslMode::VerifyFull {
        return Ok(builder.with_root_certificates(roots()?).with_no_client_auth());
    }
    let roots = if target.ssl_mode == SslMode::VerifyCa { Some(roots()?) } else { None };
    let verifier = AnyName { provider, roots };
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

fn roots(told: &Roots) -> Result<RootCertStore, String> {
    match told {
        Roots::WellKnown => Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }),
        Roots::File(path) => read_roots(path).map_err(|error| format!("sslrootcert: {error}")),
    }
}

fn read_roots(path: &Path) -> Result<RootCertStore, String> {
    let named = |error: &dyn ToString| format!("{}: {}", path.display(), error.to_string());
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| named(&error))?;
    file.take(ROOT_FILE_BYTES_MAX).read_to_end(&mut text).map_err(|error| named(&error))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| named(&error))?;
        store.add(certificate).map_err(|error| named(&error))?;
    }
    if store.is_empty() {
        return Err(named(&"holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(store)
}

/// Accepts a certificate for any name: one of the given authorities, or where there are none, anybody's. The
/// handshake must be signed with its key all the same.
#[derive(Debug)]
struct AnyName {
    provider: Arc<CryptoProvider>,
    roots: Option<RootCertStore>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer,
        between: &[CertificateDer],
        _: &ServerName,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let parsed = ParsedCertificate::try_from(certificate)?;
            let known = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, between, now, known)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What TLS refused, and what to do about it.
pub fn explained(error: &rustls::Error) -> String {
    let remedy = match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "; name the file of its authority with sslrootcert=FILE"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "; ask for a name that stands in the certificate's subjectAltName, or use sslmode=verify-ca"
            }
            _ => "",
        },
        _ => "",
    };
    format!("TLS: {error}{remedy}")
}

/// The digest of the server's certificate as a login is bound to it (RFC 5929, `tls-server-end-point`): with
/// the certificate's own digest, SHA-256 in place of the broken ones. `None` where its signature names none.
pub fn end_point(session: &ClientConnection) -> Option<Vec<u8>> {
    digest(session.peer_certificates()?.first()?)
}

fn digest(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_algorithm(certificate)?;
    let sha256 = || Some(Sha256::digest(certificate).to_vec());
    let sha384 = || Some(Sha384::digest(certificate).to_vec());
    let sha512 = || Some(Sha512::digest(certificate).to_vec());
    if let Some(rsa) = algorithm.strip_prefix(RSA) {
        return match rsa {
            // MD5, SHA-1, SHA-256.
            [4 | 5 | 11] => sha256(),
            [12] => sha384(),
            [13] => sha512(),
            _ => None,
        };
    }
    match algorithm.strip_prefix(ECDSA)? {
        [2] => sha256(),
        [3] => sha384(),
        [4] => sha512(),
        _ => None,
    }
}

/// The identifier of the algorithm that a certificate is signed with: what stands behind the signed part.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const IDENTIFIER: u8 = 0x06;
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_, behind) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(behind, SEQUENCE)?;
    element(algorithm, IDENTIFIER).map(|(identifier, _)| identifier)
}

/// An element of DER: its content, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (*found == tag).then_some(())?;
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate as far as it is looked at: the signed part, the algorithm, nothing.
    fn certificate(algorithm: &[u8], signed_bytes: usize) -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| {
            let length = content.len();
            let mut out =
                vec![tag, 0x82, (length >> 8).try_into().unwrap(), (length & 255).try_into().unwrap()];
            out.extend(content);
            out
        };
        let identifier = [&[0x06, u8::try_from(algorithm.len()).unwrap()], algorithm].concat();
        let behind = wrap(0x30, &identifier);
        wrap(0x30, &[wrap(0x30, &vec![7; signed_bytes]), behind].concat())
    }

    #[test]
    fn a_login_is_bound_by_the_digest_that_the_certificate_is_signed_with() {
        for (algorithm, bytes) in [
            ([RSA, &[4]].concat(), Some(32)),
            ([RSA, &[5]].concat(), Some(32)),
            ([RSA, &[11]].concat(), Some(32)),
            ([RSA, &[12]].concat(), Some(48)),
            ([RSA, &[13]].concat(), Some(64)),
            ([RSA, &[10]].concat(), None),
            ([ECDSA, &[2]].concat(), Some(32)),
            ([ECDSA, &[3]].concat(), Some(48)),
            ([ECDSA, &[4]].concat(), Some(64)),
            (vec![0x2b, 0x65, 0x70], None),
        ] {
            let made = certificate(&algorithm, 300);
            assert_eq!(digest(&made).map(|digest| digest.len()), bytes, "{algorithm:?}");
        }
    }

    #[test]
    fn broken_certificates_have_no_digest_and_cause_no_panic() {
        let whole = certificate(&[RSA, &[11]].concat(), 40);
        for end in 0..whole.len() {
            assert_eq!(digest(&whole[..end]), None, "{end}");
        }
        for at in 0..whole.len() {
            for byte in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut broken = whole.clone();
                broken[at] = byte;
                let _ = digest(&broken);
            }
        }
    }
}

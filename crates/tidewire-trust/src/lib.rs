//! Certificates of servers that a client accepts if it names the trusted ones in a PEM file.
//!
//! A named certificate is an authority. It is also accepted as the certificate of the server itself. The reason:
//! `openssl req -x509` makes a certificate that is marked as an authority, and rustls rejects it as that of a server.
//! Programs on OpenSSL accept it, and nobody else has its key.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;

/// The reason why a file cannot be trusted: the caller's fault.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read or is not PEM.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// A certificate in it is broken.
    #[error(transparent)]
    Refused(#[from] Error),
    /// It has none.
    #[error("no certificate in it")]
    Empty,
}

/// The verifier of a client that trusts the certificates in the PEM file at `path`.
///
/// # Errors
/// [`TrustError`]; the caller knows the path.
pub fn verifier_of_file(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TrustError> {
    let named: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
    let mut roots = RootCertStore::empty();
    for certificate in &named {
        roots.add(certificate.clone())?;
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|_| TrustError::Empty)?;
    Ok(Arc::new(Named { authorities, named }))
}

#[derive(Debug)]
struct Named {
    authorities: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authorities = &self.authorities;
        let verified = authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The time is checked before this, the name after it.
            Err(error) if is_authority(&error) && self.named.contains(end_entity) => {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&certificate, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Whether a certificate was rejected because it is marked as an authority.
fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(source))) = error else {
        return false;
    };
    source.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
}

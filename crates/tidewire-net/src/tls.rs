//! TLS by rustls, with aws-lc-rs, for both sides.

use crate::closed::io_words;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert, WantsServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tidewire_trust::TrustError;

pub use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, ServerConfig,
    StreamOwned,
};

/// The reason why a certificate or key cannot be used: the caller's fault. The files have to be corrected.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read or is not PEM of the expected kind.
    #[error("cannot read {what} from {}: {}", path.display(), pem_words(source))]
    Pem {
        /// The expected content of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: pem::Error,
    },
    /// The chain is empty, or the key does not belong to the certificate.
    #[error("the certificate or its key cannot be used: {0}")]
    Refused(#[from] rustls::Error),
    /// Not a host name or IP address.
    #[error("{0:?} is not a host name or IP address")]
    ServerName(String),
}

impl TlsError {
    fn trust(path: &Path, error: TrustError) -> Self {
        let source = match error {
            TrustError::Pem(source) => source,
            TrustError::Refused(error) => return Self::Refused(error),
            TrustError::Empty => pem::Error::NoItemsFound,
        };
        Self::Pem {
            what: "certificates",
            path: path.to_owned(),
            source,
        }
    }
}

fn pem_words(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => io_words(error),
        error => error.to_string(),
    }
}

/// The configuration of a server that proves itself by the certificate chain and key in two PEM files.
/// TLS 1.3 and 1.2; sessions are resumed by stateless tickets, so that an idle session costs no
/// memory here.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn server_config(chain: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let (certificates, key) = chain_and_key(chain, key)?;
    server_config_from(certificates, key)
}

/// The same with a certificate that can be replaced while the server runs.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn server_config_with_slot(
    chain: &Path,
    key: &Path,
) -> Result<(Arc<ServerConfig>, CertificateSlot), TlsError> {
    let slot = CertificateSlot(Arc::new(Slot(RwLock::new(certified(chain, key)?))));
    let resolver = Arc::clone(&slot.0) as Arc<dyn ResolvesServerCert>;
    let config = server_config_of(|builder| Ok(builder.with_cert_resolver(resolver)))?;
    Ok((config, slot))
}

/// The certificate of a running server: handshakes use the one that is in it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CertificateSlot(Arc<Slot>);

#[derive(Debug)]
struct Slot(RwLock<Arc<CertifiedKey>>);

impl CertificateSlot {
    /// Reads the certificate chain and key from two PEM files; later handshakes use them. After an error they go on with
    /// those that they had. Connections stay. Returns whether the chain is another one.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn replace(&self, chain: &Path, key: &Path) -> Result<bool, TlsError> {
        let certified = certified(chain, key)?;
        let mut current = self.0.0.write().unwrap_or_else(PoisonError::into_inner);
        // Another key has another certificate: the two would not fit together.
        let is_other = current.cert != certified.cert;
        *current = certified;
        Ok(is_other)
    }
}

impl ResolvesServerCert for Slot {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certified = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&certified))
    }
}

fn certified(chain: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let (certificates, key) = chain_and_key(chain, key)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certified = CertifiedKey::from_der(certificates, key, &provider)?;
    Ok(Arc::new(certified))
}

fn chain_and_key(
    chain: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let pem = |what, path: &Path, source| TlsError::Pem {
        what,
        path: path.to_owned(),
        source,
    };
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect)
        .map_err(|source| pem("a certificate chain", chain, source))?;
    let key =
        PrivateKeyDer::from_pem_file(key).map_err(|source| pem("a private key", key, source))?;
    Ok((certificates, key))
}

/// The same with the chain and key in memory.
///
/// # Errors
/// [`TlsError::Refused`] if they do not fit together.
pub fn server_config_from(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, TlsError> {
    server_config_of(|builder| builder.with_single_cert(certificates, key))
}

type Builder = rustls::ConfigBuilder<ServerConfig, WantsServerCert>;

fn server_config_of(
    finish: impl FnOnce(Builder) -> Result<ServerConfig, rustls::Error>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth();
    let mut config = finish(builder)?;
    config.alpn_protocols = names(&["http/1.1"]);
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// The same configuration with these application protocols (ALPN), the preferred one first.
#[must_use]
pub fn server_offering(config: &ServerConfig, protocols: &[&str]) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = names(protocols);
    Arc::new(config)
}

/// The same configuration with these application protocols (ALPN), the preferred one first.
#[must_use]
pub fn client_offering(config: &ClientConfig, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = names(protocols);
    Arc::new(config)
}

fn names(protocols: &[&str]) -> Vec<Vec<u8>> {
    let name = |protocol: &&str| protocol.as_bytes().to_vec();
    protocols.iter().map(name).collect()
}

/// The configuration of a client that trusts the certificate authorities in a PEM file, or, with
/// `None`, any certificate: for the load lab, which tests servers with certificates of their own.
///
/// # Errors
/// [`TlsError::Pem`] for a file that holds no certificate.
pub fn client_config(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    client_config_for(&ClientIdentity {
        trust: authorities.map_or(Trust::Anybody, Trust::File),
        certificate: None,
    })
}

/// The trusted servers of a client, and its own certificate.
#[derive(Debug, Clone, Default)]
pub struct ClientIdentity<'a> {
    /// The trusted certificates.
    pub trust: Trust<'a>,
    /// A certificate chain and its key, in PEM files, for servers that ask for one.
    pub certificate: Option<(&'a Path, &'a Path)>,
}

/// The certificates that a client trusts.
#[derive(Debug, Clone, Copy, Default)]
pub enum Trust<'a> {
    /// The authorities that browsers trust (those of Mozilla).
    #[default]
    WebRoots,
    /// The authorities in a PEM file.
    File(&'a Path),
    /// Anybody's. The peer still has to hold the key of its certificate.
    Anybody,
}

/// The configuration of a client with this trust and this certificate.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn client_config_for(identity: &ClientIdentity<'_>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match identity.trust {
        Trust::WebRoots => {
            let mut roots = rustls::RootCertStore::empty();
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            builder.with_root_certificates(roots)
        }
        Trust::File(path) => {
            let verifier = tidewire_trust::verifier_of_file(path, Arc::clone(&provider));
            builder.dangerous().with_custom_certificate_verifier(
                verifier.map_err(|error| TlsError::trust(path, error))?,
            )
        }
        Trust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider })),
    };
    let mut config = match identity.certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let pem = |what, path: &Path, source| TlsError::Pem {
                what,
                path: path.to_owned(),
                source,
            };
            let certificates = CertificateDer::pem_file_iter(chain)
                .and_then(Iterator::collect)
                .map_err(|source| pem("a certificate chain", chain, source))?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|source| pem("a private key", key, source))?;
            builder.with_client_auth_cert(certificates, key)?
        }
    };
    config.alpn_protocols = names(&["http/1.1"]);
    Ok(Arc::new(config))
}

/// The name that a server's certificate has to be for.
///
/// # Errors
/// [`TlsError::ServerName`] if it is neither a host name nor an IP address.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::ServerName(host.to_owned()))
}

/// Accepts any certificate, but checks that the peer holds its key.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

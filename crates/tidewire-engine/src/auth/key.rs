//! Keys that tokens are signed and checked with, each for one algorithm.

use jsonwebtoken::{Algorithm, DecodingKey};
use std::fmt;

/// A key and the algorithm it is for. To check tokens the PEM text is a public key; to
/// [sign](crate::auth::token::sign) them it is the private one.
#[derive(Clone, PartialEq, Eq)]
pub enum KeyMaterial {
    /// HMAC with SHA-256: a shared secret of at least [`SECRET_BYTES_MIN`] bytes.
    Hs256(Vec<u8>),
    /// RSA PKCS#1 v1.5 with SHA-256: PEM, at least 2048 bits.
    Rs256Pem(Vec<u8>),
    /// ECDSA on P-256 with SHA-256: PEM, the private key as PKCS#8.
    Es256Pem(Vec<u8>),
    /// Ed25519: PEM, the private key as PKCS#8.
    EdDsaPem(Vec<u8>),
}

/// A key that tokens are checked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthKey {
    /// The key.
    pub material: KeyMaterial,
    /// If set, the key checks only tokens that name it in their header as `kid`; if not, it checks
    /// any token of its algorithm. Default: not set.
    pub kid: Option<String>,
}

/// Why keys cannot be used. The caller's fault: the configuration has to be mended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthConfigError {
    /// An HS256 secret that could be guessed.
    #[error(
        "an HS256 secret needs at least {SECRET_BYTES_MIN} bytes and this one has {bytes}; \
         make one with: openssl rand -hex 32"
    )]
    SecretTooShort {
        /// Its length.
        bytes: usize,
    },
    /// Tokens are checked with a public key; a private one need not be on this machine.
    #[error(
        "the {algorithm} key is a private key; give the public key: \
         openssl pkey -in private.pem -pubout"
    )]
    PrivateKey {
        /// The algorithm of the key.
        algorithm: &'static str,
    },
    /// A set of keys cannot be used.
    #[error("the key set: {0}")]
    KeySet(String),
    /// The text is not a PEM key of the kind that the algorithm needs.
    #[error("the {algorithm} key cannot be used; it has to be {wanted}")]
    Unusable {
        /// The algorithm of the key.
        algorithm: &'static str,
        /// The key that this algorithm needs.
        wanted: &'static str,
    },
}

/// A public key or a secret, read, and the one algorithm it is for.
#[derive(Debug)]
pub(crate) struct VerifyingKey {
    pub(crate) algorithm: Algorithm,
    /// As in a token's `alg`.
    pub(crate) algorithm_name: &'static str,
    pub(crate) key: DecodingKey,
    pub(crate) kid: Option<String>,
}

impl KeyMaterial {
    /// The name of the algorithm, as in a token's `alg`.
    #[must_use]
    pub fn algorithm_name(&self) -> &'static str {
        match self {
            Self::Hs256(_) => "HS256",
            Self::Rs256Pem(_) => "RS256",
            Self::Es256Pem(_) => "ES256",
            Self::EdDsaPem(_) => "EdDSA",
        }
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Hs256(_) => Algorithm::HS256,
            Self::Rs256Pem(_) => Algorithm::RS256,
            Self::Es256Pem(_) => Algorithm::ES256,
            Self::EdDsaPem(_) => Algorithm::EdDSA,
        }
    }

    /// The secret of HS256, if it is long enough.
    pub(crate) fn long_enough(secret: &[u8]) -> Result<&[u8], AuthConfigError> {
        let bytes = secret.len();
        if bytes < SECRET_BYTES_MIN {
            return Err(AuthConfigError::SecretTooShort { bytes });
        }
        Ok(secret)
    }

    pub(crate) fn is_private_pem(&self) -> bool {
        let (Self::Rs256Pem(pem) | Self::Es256Pem(pem) | Self::EdDsaPem(pem)) = self else {
            return false;
        };
        pem.windows(PRIVATE_MARK.len())
            .any(|window| window == PRIVATE_MARK)
    }
}

/// Secrets never reach a log.
impl fmt::Debug for KeyMaterial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyMaterial({}, …)", self.algorithm_name())
    }
}

impl VerifyingKey {
    /// Whether a signature is this key's for a message; `None` for text that is no signature.
    pub(crate) fn is_signed(&self, message: &[u8], signature: &str) -> Option<bool> {
        jsonwebtoken::crypto::verify(signature, message, &self.key, self.algorithm).ok()
    }

    pub(crate) fn new(key: &AuthKey) -> Result<Self, AuthConfigError> {
        let algorithm_name = key.material.algorithm_name();
        if key.material.is_private_pem() {
            return Err(AuthConfigError::PrivateKey {
                algorithm: algorithm_name,
            });
        }
        // The library accepts a key of any size or curve and would reject every token with it later.
        let (parsed, bytes, wanted) = match &key.material {
            KeyMaterial::Hs256(secret) => {
                let secret = KeyMaterial::long_enough(secret)?;
                (
                    Ok(DecodingKey::from_secret(secret)),
                    SECRET_BYTES_MIN..=usize::MAX,
                    "a secret",
                )
            }
            KeyMaterial::Rs256Pem(pem) => {
                let wanted = "a PEM public key of RSA with 2048 to 8192 bits";
                (DecodingKey::from_rsa_pem(pem), RSA_PUBLIC_BYTES, wanted)
            }
            KeyMaterial::Es256Pem(pem) => {
                let wanted = "a PEM public key on the curve P-256";
                (
                    DecodingKey::from_ec_pem(pem),
                    P256_PUBLIC_BYTES..=P256_PUBLIC_BYTES,
                    wanted,
                )
            }
            KeyMaterial::EdDsaPem(pem) => {
                let wanted = "a PEM public key of Ed25519";
                (
                    DecodingKey::from_ed_pem(pem),
                    ED25519_PUBLIC_BYTES..=ED25519_PUBLIC_BYTES,
                    wanted,
                )
            }
        };
        match parsed {
            Ok(parsed) if bytes.contains(&parsed.as_bytes().len()) => Ok(Self {
                algorithm: key.material.algorithm(),
                algorithm_name,
                key: parsed,
                kid: key.kid.clone(),
            }),
            _ => Err(AuthConfigError::Unusable {
                algorithm: algorithm_name,
                wanted,
            }),
        }
    }
}

/// The shortest secret for HS256, in bytes: as long as its hash (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

const PRIVATE_MARK: &[u8] = b"PRIVATE KEY-----";

/// The DER of an RSA public key: its modulus of 2048 to 8192 bits and some bytes more.
const RSA_PUBLIC_BYTES: std::ops::RangeInclusive<usize> = 256 + 8..=1024 + 64;

/// An uncompressed point: a mark and two coordinates.
pub(crate) const P256_PUBLIC_BYTES: usize = 65;

pub(crate) const ED25519_PUBLIC_BYTES: usize = 32;

//! Authentication of clients: a JSON Web Token (RFC 7519), checked before the upgrade.
//!
//! Each key is for one algorithm, so a token cannot choose how it is checked (RFC 8725, section
//! 3.1). Nothing of a token's claims is looked at before its signature is known to be good.

pub(crate) mod api_key;
mod claims;
pub mod hosts;
pub(crate) mod network;
pub(crate) mod origins;
pub mod token;

use crate::auth::claims::{ClaimSet, NumericDate};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use tidewire_wire::handshake::server::Request;

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

/// How tokens are found and checked. [`AuthConfig::new`] gives the defaults that each field states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    /// The key that tokens are signed with now.
    pub key: AuthKey,
    /// The key before, whose tokens are still good while keys are rotated. Default: none.
    pub previous_key: Option<AuthKey>,
    /// What `iss` has to be. Default: not checked.
    pub issuer: Option<String>,
    /// What `aud` has to be or contain. Default: not checked.
    pub audience: Option<String>,
    /// How far the clocks of the signer and of this machine may be apart, in seconds. Default 5.
    pub leeway_s: u64,
    /// Whether a session ends with its token. Default true; with false it goes on, whatever becomes
    /// of the token.
    pub ends_sessions: bool,
    /// How long a session goes on after the `exp` of its token, in seconds, so that a new token
    /// that is late can still come; at least `leeway_s`. Default 10.
    pub grace_s: u64,
    /// How long before `exp` a client is warned, in seconds; of a token that is good for less than
    /// twice as long, half of that. 0 for no warning. Only in version 1. Default 60.
    pub warning_s: u64,
    /// The cookie that holds the token. Default `access_token`.
    pub cookie_name: String,
    /// The query parameter that may hold the token, for pages of another origin. Such a token may
    /// end up in the logs of proxies. Default: none.
    pub query_parameter: Option<String>,
    /// A subprotocol that starts with this prefix may hold the token in its rest, for pages of
    /// another origin. Default: none.
    pub subprotocol_prefix: Option<String>,
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
    /// The text is not a PEM key of the kind that the algorithm takes.
    #[error("the {algorithm} key cannot be used; it has to be {wanted}")]
    Unusable {
        /// The algorithm of the key.
        algorithm: &'static str,
        /// What it takes.
        wanted: &'static str,
    },
}

/// Why a token is not accepted. The peer's fault; only another token helps, and for
/// [`NotYetValid`](Self::NotYetValid) time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TokenError {
    /// There is none.
    #[error("a token is needed")]
    Missing,
    /// It is longer than [`TOKEN_BYTES_MAX`].
    #[error("the token is too long")]
    TooLong,
    /// Not a JSON Web Token, or its `sub` or `exp` is missing or of the wrong type.
    #[error("the token is malformed")]
    Malformed,
    /// No key is for its `alg`; `none` never is.
    #[error("the token's algorithm is not accepted")]
    WrongAlgorithm,
    /// No key is for its `kid`.
    #[error("the token's key is not known")]
    UnknownKey,
    /// Signed with another key, or changed since.
    #[error("the token's signature is wrong")]
    WrongSignature,
    /// Its `exp` is past.
    #[error("the token has expired")]
    Expired,
    /// Its `nbf` is to come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Its `iss` is not the configured one.
    #[error("the token's issuer is not accepted")]
    WrongIssuer,
    /// Its `aud` does not name the configured audience.
    #[error("the token is for another audience")]
    WrongAudience,
}

impl TokenError {
    /// The error as a name for programs, such as `WRONG_SIGNATURE`. It does not change.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "MISSING",
            Self::TooLong => "TOO_LONG",
            Self::Malformed => "MALFORMED",
            Self::WrongAlgorithm => "WRONG_ALGORITHM",
            Self::UnknownKey => "UNKNOWN_KEY",
            Self::WrongSignature => "WRONG_SIGNATURE",
            Self::Expired => "EXPIRED",
            Self::NotYetValid => "NOT_YET_VALID",
            Self::WrongIssuer => "WRONG_ISSUER",
            Self::WrongAudience => "WRONG_AUDIENCE",
        }
    }
}

/// What a good token says.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    /// `sub`: the user's name; not empty.
    pub subject: String,
    /// `exp`: when the token ends, in seconds since 1970, UTC.
    pub expires_at_s: u64,
    /// The claims that are not registered: everything but `sub`, `exp`, `nbf`, `iat`, `iss` and
    /// `aud`.
    pub rest: Map<String, Value>,
}

/// What is asked of a token's claims beside a good signature. The default asks for the times alone,
/// with clocks that agree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimRules {
    /// What `iss` has to be. Default: not checked.
    pub issuer: Option<String>,
    /// What `aud` has to be or contain. Default: not checked.
    pub audience: Option<String>,
    /// How far the clocks of the signer and of this machine may be apart, in seconds. Default 0.
    pub leeway_s: u64,
}

/// Checks tokens; made once for a server and shared by its shards.
#[derive(Debug)]
pub struct Verifier {
    keys: Vec<VerifyingKey>,
    rules: ClaimRules,
}

#[derive(Debug)]
pub(crate) struct VerifyingKey {
    algorithm: Algorithm,
    algorithm_name: &'static str,
    key: DecodingKey,
    kid: Option<String>,
}

/// The part of a token's header that matters here.
#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    alg: Cow<'a, str>,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

impl AuthConfig {
    /// Tokens of this key, and the defaults.
    #[must_use]
    pub fn new(material: KeyMaterial) -> Self {
        Self {
            key: AuthKey {
                material,
                kid: None,
            },
            previous_key: None,
            issuer: None,
            audience: None,
            leeway_s: 5,
            ends_sessions: true,
            grace_s: 10,
            warning_s: 60,
            cookie_name: "access_token".to_owned(),
            query_parameter: None,
            subprotocol_prefix: None,
        }
    }
}

impl Verifier {
    /// Reads the keys.
    ///
    /// # Errors
    /// [`AuthConfigError`] for a key that is too short or not of its algorithm's kind.
    pub fn new(config: &AuthConfig) -> Result<Self, AuthConfigError> {
        let keys = std::iter::once(&config.key).chain(&config.previous_key);
        let rules = ClaimRules {
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            leeway_s: config.leeway_s,
        };
        Self::with_keys(keys, rules)
    }

    /// Reads any number of keys. A token is checked with those of its algorithm that are for its
    /// `kid`, in this order.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_keys<'a>(
        keys: impl IntoIterator<Item = &'a AuthKey>,
        rules: ClaimRules,
    ) -> Result<Self, AuthConfigError> {
        let keys = keys.into_iter().map(VerifyingKey::new);
        Ok(Self {
            keys: keys.collect::<Result<_, _>>()?,
            rules,
        })
    }

    /// How many keys a token may be checked with.
    pub(crate) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Checks a token at the time `now_unix_s`, in seconds since 1970, UTC.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify(&self, token: &str, now_unix_s: u64) -> Result<Claims, TokenError> {
        let (_, claims) = self.verified(token)?;
        let subject = claims.sub.clone().filter(|sub| !sub.is_empty());
        let subject = subject.ok_or(TokenError::Malformed)?;
        let expires_at_s = claims.exp.ok_or(TokenError::Malformed)?.0;
        self.verify_claims(&claims, now_unix_s)?;
        Ok(Claims {
            subject,
            expires_at_s,
            rest: claims.rest,
        })
    }

    /// Checks a token that need not be a user's: `sub` and `exp` may be missing, but an `exp` that
    /// is there counts. All its claims, as the JSON text of an object in which no registered claim
    /// comes twice.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify_text(&self, token: &str, now_unix_s: u64) -> Result<Vec<u8>, TokenError> {
        let (text, claims) = self.verified(token)?;
        self.verify_claims(&claims, now_unix_s)?;
        Ok(text)
    }

    /// The claims of a token whose signature is good: their text and what it says.
    fn verified(&self, token: &str) -> Result<(Vec<u8>, ClaimSet), TokenError> {
        if token.is_empty() {
            return Err(TokenError::Missing);
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = message.split_once('.').ok_or(TokenError::Malformed)?;
        if claims.contains('.') {
            return Err(TokenError::Malformed);
        }
        self.verify_signature(&decode(header)?, message, signature)?;
        let text = decode(claims)?;
        let claims = serde_json::from_slice(&text).map_err(|_| TokenError::Malformed)?;
        Ok((text, claims))
    }

    fn verify_signature(
        &self,
        header: &[u8],
        message: &str,
        signature: &str,
    ) -> Result<(), TokenError> {
        let header: Header<'_> =
            serde_json::from_slice(header).map_err(|_| TokenError::Malformed)?;
        // RFC 7515, section 4.1.11: extensions that must be understood, and none is.
        if header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        let mut error = TokenError::WrongAlgorithm;
        for key in self
            .keys
            .iter()
            .filter(|key| key.algorithm_name == header.alg)
        {
            if key.kid.is_some() && key.kid != header.kid {
                if error == TokenError::WrongAlgorithm {
                    error = TokenError::UnknownKey;
                }
                continue;
            }
            let is_good = jsonwebtoken::crypto::verify(
                signature,
                message.as_bytes(),
                &key.key,
                key.algorithm,
            );
            match is_good {
                Ok(true) => return Ok(()),
                Ok(false) => error = TokenError::WrongSignature,
                Err(_) => return Err(TokenError::Malformed),
            }
        }
        Err(error)
    }

    fn verify_claims(&self, claims: &ClaimSet, now_unix_s: u64) -> Result<(), TokenError> {
        let ClaimRules {
            issuer,
            audience,
            leeway_s,
        } = &self.rules;
        let is_past = |exp: NumericDate| now_unix_s >= exp.0.saturating_add(*leeway_s);
        if claims.exp.is_some_and(is_past) {
            return Err(TokenError::Expired);
        }
        let is_to_come = |nbf: NumericDate| nbf.0 > now_unix_s.saturating_add(*leeway_s);
        if claims.nbf.is_some_and(is_to_come) {
            return Err(TokenError::NotYetValid);
        }
        if issuer.is_some() && *issuer != claims.iss {
            return Err(TokenError::WrongIssuer);
        }
        let names = |audience| {
            claims
                .aud
                .as_ref()
                .is_some_and(|aud| aud.contains(audience))
        };
        if audience.as_deref().is_some_and(|audience| !names(audience)) {
            return Err(TokenError::WrongAudience);
        }
        Ok(())
    }
}

/// The token of a request: from the cookie, else from `Authorization: Bearer`, else from a
/// subprotocol or query parameter if the configuration allows them. The first that is there counts,
/// good or not; an empty one is as none.
#[must_use]
pub fn find_token<'a>(request: &Request<'a>, config: &AuthConfig) -> Option<Cow<'a, str>> {
    let non_empty = |token: &&str| !token.is_empty();
    let from_subprotocol = || request.protocol_token(config.subprotocol_prefix.as_deref()?);
    let from_query = || request.query_value(config.query_parameter.as_deref()?);
    let borrowed = request
        .cookie(&config.cookie_name)
        .filter(non_empty)
        .or_else(|| request.bearer().filter(non_empty))
        .or_else(from_subprotocol);
    match borrowed {
        Some(token) => Some(Cow::Borrowed(token)),
        None => from_query().filter(|token| !token.is_empty()),
    }
}

impl TokenError {
    /// A stable name for logs and counters.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::WrongAlgorithm => "wrong_algorithm",
            Self::UnknownKey => "unknown_key",
            Self::WrongSignature => "wrong_signature",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::WrongIssuer => "wrong_issuer",
            Self::WrongAudience => "wrong_audience",
        }
    }
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
    fn new(key: &AuthKey) -> Result<Self, AuthConfigError> {
        let algorithm_name = key.material.algorithm_name();
        if key.material.is_private_pem() {
            return Err(AuthConfigError::PrivateKey {
                algorithm: algorithm_name,
            });
        }
        // The library takes a key of any size or curve and would refuse every token with it later.
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

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed)
}

/// The shortest secret for HS256, in bytes: as long as its hash (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

/// The longest token that is looked at, in bytes.
pub const TOKEN_BYTES_MAX: usize = tidewire_wire::session::TOKEN_BYTES_MAX;

const PRIVATE_MARK: &[u8] = b"PRIVATE KEY-----";

/// The DER of an RSA public key: its modulus of 2048 to 8192 bits and some bytes more.
const RSA_PUBLIC_BYTES: std::ops::RangeInclusive<usize> = 256 + 8..=1024 + 64;

/// An uncompressed point: a mark and two coordinates.
const P256_PUBLIC_BYTES: usize = 65;

const ED25519_PUBLIC_BYTES: usize = 32;

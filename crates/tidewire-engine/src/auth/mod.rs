//! Authentication of clients: a JSON Web Token (RFC 7519), checked before the upgrade.
//!
//! Each key is for one algorithm, so a token cannot choose how it is checked (RFC 8725, section
//! 3.1). Nothing of a token's claims is looked at before its signature is known to be good.

pub(crate) mod api_key;
mod claims;
pub mod hosts;
pub(crate) mod jwks;
mod key;
pub(crate) mod key_set;
pub(crate) mod network;
pub mod token;

use crate::auth::claims::{ClaimSet, MissingClaim, NumericDate};
use crate::auth::key::VerifyingKey;
use crate::auth::key_set::{KeySet, Selection};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use tidewire_wire::handshake::server::Request;

pub use key::{AuthConfigError, AuthKey, KeyMaterial, SECRET_BYTES_MIN};
pub use key_set::{KeySetSource, KeySetUrl};

/// How tokens are found and checked. [`AuthConfig::new`] gives the defaults that each field states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    /// The key that tokens are signed with now; `None` if they are those of the key set alone.
    pub key: Option<AuthKey>,
    /// A set of keys, whose keys count besides the others. Default: none.
    pub key_set: Option<KeySetSource>,
    /// The key before, whose tokens are still good while keys are rotated. Default: none.
    pub previous_key: Option<AuthKey>,
    /// The required `iss`. Default: not checked.
    pub issuer: Option<String>,
    /// The `aud` that a token must be for. Default: not checked.
    pub audience: Option<String>,
    /// How far the clocks of the signer and of this machine may be apart, in seconds. Default 5.
    pub leeway_s: u64,
    /// Whether a session ends with its token. Default true; with false it goes on, whatever becomes
    /// of the token.
    pub ends_sessions: bool,
    /// How long a session goes on after the `exp` of its token, in seconds, so that a new token may arrive
    /// late; at least `leeway_s`. Default 10.
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
    /// Its `nbf` is in the future.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Its `iss` is not the configured one.
    #[error("the token's issuer is not accepted")]
    WrongIssuer,
    /// Its `aud` does not name the configured audience.
    #[error("the token is for another audience")]
    WrongAudience,
    /// A subscription token in the place of a session's, or the other way round.
    #[error("the token is for another use")]
    WrongUse,
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
            Self::WrongUse => "WRONG_USE",
        }
    }
}

/// The content of a valid token.
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

/// The content of a valid subscription token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TopicClaims {
    pub(crate) subject: String,
    /// The topic or pattern.
    pub(crate) topic: String,
    /// When the subscription ends, in seconds since 1970, if it does.
    pub(crate) expires_at_s: Option<u64>,
}

/// The requirements for a token's claims, beside a good signature. The default checks the times alone,
/// with clocks that agree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimRules {
    /// The required `iss`. Default: not checked.
    pub issuer: Option<String>,
    /// The `aud` that a token must be for. Default: not checked.
    pub audience: Option<String>,
    /// How far the clocks of the signer and of this machine may be apart, in seconds. Default 0.
    pub leeway_s: u64,
}

/// Checks tokens; made once for a server and shared by its shards.
#[derive(Debug)]
pub struct Verifier {
    keys: Vec<VerifyingKey>,
    set: Option<Arc<KeySet>>,
    rules: ClaimRules,
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
            key: Some(AuthKey {
                material,
                kid: None,
            }),
            ..Self::with_key_set(None)
        }
    }

    /// Tokens of the keys of a set, and the defaults.
    #[must_use]
    pub fn of_key_set(source: KeySetSource) -> Self {
        Self::with_key_set(Some(source))
    }

    fn with_key_set(key_set: Option<KeySetSource>) -> Self {
        Self {
            key: None,
            key_set,
            previous_key: None,
            issuer: None,
            audience: None,
            leeway_s: LEEWAY_S_DEFAULT,
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
    /// Reads the keys. A set of keys at a URL has none until a server has fetched it.
    ///
    /// # Errors
    /// [`AuthConfigError`] for a key that is too short or not of its algorithm's kind.
    pub fn new(config: &AuthConfig) -> Result<Self, AuthConfigError> {
        let keys = config.key.iter().chain(&config.previous_key);
        let rules = ClaimRules {
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            leeway_s: config.leeway_s,
        };
        let mut verifier = Self::with_keys(keys, rules)?;
        let set = config.key_set.as_ref().map(KeySet::new).transpose()?;
        verifier.set = set.map(Arc::new);
        Ok(verifier)
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
            set: None,
            rules,
        })
    }

    /// With how many keys a token is checked at most. Of a set it is one.
    pub(crate) fn keys(&self) -> usize {
        self.keys.len() + usize::from(self.set.is_some())
    }

    /// The set of keys, if there is one.
    pub(crate) fn set(&self) -> Option<&Arc<KeySet>> {
        self.set.as_ref()
    }

    /// Goes on with the set of another verifier, which has the same source.
    pub(crate) fn adopt(&mut self, set: &Arc<KeySet>) {
        self.set = Some(Arc::clone(set));
    }

    /// True if there is a key set that is not loaded yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.set.as_ref().is_some_and(|set| !set.is_loaded())
    }

    /// Checks a token at the time `now_unix_s`, in seconds since 1970, UTC.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify(&self, token: &str, now_unix_s: u64) -> Result<Claims, TokenError> {
        let (_, claims) = self.verified(token)?;
        if claims.is_for_subscription() {
            return Err(TokenError::WrongUse);
        }
        let user = claims.user();
        let (subject, expires_at) = user.map_err(|MissingClaim(_)| TokenError::Malformed)?;
        let subject = subject.to_owned();
        self.verify_claims(&claims, now_unix_s)?;
        Ok(Claims {
            subject,
            expires_at_s: expires_at.0,
            rest: claims.rest,
        })
    }

    /// Checks a subscription token at the time `now_unix_s`.
    pub(crate) fn verify_subscription(
        &self,
        token: &str,
        now_unix_s: u64,
    ) -> Result<TopicClaims, TokenError> {
        let (_, claims) = self.verified(token)?;
        if !claims.is_for_subscription() {
            return Err(TokenError::WrongUse);
        }
        let named = claims.user_and_topic();
        let (subject, topic) = named.map_err(|MissingClaim(_)| TokenError::Malformed)?;
        let (subject, topic) = (subject.to_owned(), topic.to_owned());
        self.verify_claims(&claims, now_unix_s)?;
        Ok(TopicClaims {
            subject,
            topic,
            expires_at_s: claims.exp.map(|exp| exp.0),
        })
    }

    /// How far the clocks of the signer and of this machine may be apart, in seconds.
    pub(crate) fn leeway_s(&self) -> u64 {
        self.rules.leeway_s
    }

    /// Checks a token that need not be a user's: `sub` and `exp` may be missing, but an `exp` that is there
    /// counts. Returns all its claims as the JSON text of an object without repeated registered claims.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify_text(&self, token: &str, now_unix_s: u64) -> Result<Vec<u8>, TokenError> {
        let (text, claims) = self.verified(token)?;
        self.verify_claims(&claims, now_unix_s)?;
        Ok(text)
    }

    /// The claims of a token whose signature is good: their text, and the parsed claims.
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
            match key.is_signed(message.as_bytes(), signature) {
                Some(true) => return Ok(()),
                Some(false) => error = TokenError::WrongSignature,
                None => return Err(TokenError::Malformed),
            }
        }
        let Some(set) = &self.set else {
            return Err(error);
        };
        match set.select(&header.alg, header.kid.as_deref()) {
            Selection::Key(keys, place) => {
                match keys[place].is_signed(message.as_bytes(), signature) {
                    Some(true) => Ok(()),
                    Some(false) => Err(TokenError::WrongSignature),
                    None => Err(TokenError::Malformed),
                }
            }
            Selection::UnknownKey if error == TokenError::WrongAlgorithm => {
                Err(TokenError::UnknownKey)
            }
            Selection::UnknownKey | Selection::WrongAlgorithm => Err(error),
        }
    }

    fn verify_claims(&self, claims: &ClaimSet, now_unix_s: u64) -> Result<(), TokenError> {
        let ClaimRules {
            issuer,
            audience,
            leeway_s,
        } = &self.rules;
        if claims.has_expired(now_unix_s, *leeway_s) {
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
            Self::WrongUse => "wrong_use",
        }
    }
}

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed)
}

/// How far the clocks of the signer and of the server may be apart by default, in seconds.
pub const LEEWAY_S_DEFAULT: u64 = 5;

/// The longest token that is looked at, in bytes.
pub const TOKEN_BYTES_MAX: usize = tidewire_wire::session::TOKEN_BYTES_MAX;

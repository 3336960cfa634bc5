//! JSON Web Tokens (RFC 7519), signed and checked as the server does it.

use crate::failure::Failure;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;
use tidewire_engine::auth::{
    AuthKey, ClaimRules, KeyMaterial, TokenError, Verifier as EngineVerifier,
};
use tidewire_engine::token::{SigningKey, check_claims, check_length, sign_text};

/// The key in a secret or in PEM text. Without an algorithm it is for the only one that it can be for.
///
/// # Errors
/// There is no such algorithm, or the key is for none.
pub fn token_key(
    key: &[u8],
    algorithm: Option<&str>,
    key_id: Option<String>,
) -> Result<AuthKey, Failure> {
    let material = match algorithm {
        Some(algorithm) => material(key, algorithm)?,
        None => guessed(key)?,
    };
    Ok(AuthKey {
        material,
        kid: key_id,
    })
}

/// The name of an algorithm as the engine has it.
///
/// # Errors
/// There is no such algorithm.
pub fn known_algorithm(name: &str) -> Result<&'static str, Failure> {
    let known = ALGORITHMS.into_iter().find(|known| *known == name);
    known.ok_or_else(|| unknown_algorithm(name))
}

/// Signs tokens with one key, which is read once.
pub struct TokenSigner {
    key: SigningKey,
    algorithm: &'static str,
    key_id: Option<String>,
}

impl TokenSigner {
    /// A signer that names the key in the header of its tokens, if the key has a name.
    ///
    /// # Errors
    /// The key is too short, or cannot sign.
    pub fn new(key: AuthKey) -> Result<Self, Failure> {
        Ok(Self {
            key: SigningKey::new(&key.material)?,
            algorithm: key.material.algorithm_name(),
            key_id: key.kid,
        })
    }

    /// The token with these claims, the text of a JSON object.
    ///
    /// # Errors
    /// The claims are no object.
    pub fn encode(&self, claims: &str) -> Result<String, Failure> {
        Ok(sign_text(claims, &self.key, self.key_id.as_deref())?)
    }

    /// [`encode`](Self::encode) for a token that a server accepts at the time `now_s`, in seconds since 1970.
    ///
    /// # Errors
    /// A server would not accept the token: `sub` or `exp` is missing, `exp` is past, or it is too long.
    pub fn encode_checked(&self, claims: &str, now_s: u64) -> Result<String, Failure> {
        check_claims(claims, now_s).map_err(Failure::argument)?;
        let token = self.encode(claims)?;
        check_length(&token).map_err(Failure::argument)?;
        Ok(token)
    }

    /// `HS256`, `RS256`, `ES256` or `EdDSA`.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }
}

/// The rules by which a token is accepted, besides its signature and its times.
#[derive(Clone, Debug, Default)]
pub struct TokenRules {
    /// The algorithms whose keys are used; `None` is all.
    pub algorithms: Option<Vec<String>>,
    /// The required `iss`.
    pub issuer: Option<String>,
    /// The `aud` that a token must be for.
    pub audience: Option<String>,
    /// How far the clocks may be apart, in seconds.
    pub leeway_s: u64,
    /// Claims that have to be there; `None` is `sub` and `exp`, as the server wants them.
    pub required: Option<Vec<String>>,
}

/// Checks tokens with some keys, which are read once.
pub struct TokenVerifier {
    verifier: EngineVerifier,
    keys: usize,
    required: Vec<String>,
}

impl TokenVerifier {
    /// A verifier that tries the keys of the wanted algorithms.
    ///
    /// # Errors
    /// There is no such algorithm or no key of it, or a key cannot be used.
    pub fn new(mut keys: Vec<AuthKey>, rules: TokenRules) -> Result<Self, Failure> {
        if let Some(names) = &rules.algorithms {
            let known: Result<Vec<_>, _> = names.iter().map(|name| known_algorithm(name)).collect();
            let known = known?;
            keys.retain(|key| known.contains(&key.material.algorithm_name()));
        }
        if keys.is_empty() {
            let message = "at least one key of the algorithms is needed";
            return Err(Failure::argument(message));
        }
        let claims = ClaimRules {
            issuer: rules.issuer,
            audience: rules.audience,
            leeway_s: rules.leeway_s,
        };
        let required = rules.required.unwrap_or_else(|| {
            let names = ["sub", "exp"];
            names.map(str::to_owned).into()
        });
        Ok(Self {
            verifier: EngineVerifier::with_keys(&keys, claims)?,
            keys: keys.len(),
            required,
        })
    }

    /// The claims of a good token, as the text of a JSON object. `now_s` is seconds since 1970.
    ///
    /// # Errors
    /// The token is not accepted; the code of the failure is the reason.
    pub fn decode(&self, token: &str, now_s: u64) -> Result<String, Failure> {
        let malformed = || Failure::from(TokenError::Malformed);
        let claims = self.verifier.verify_text(token, now_s)?;
        let claims = String::from_utf8(claims).map_err(|_| malformed())?;
        let present: Present = serde_json::from_str(&claims).map_err(|_| malformed())?;
        let missing = self.required.iter().find(|name| !present.has(name));
        match missing {
            Some(name) => Err(Failure::missing_claim(name)),
            None => Ok(claims),
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys
    }
}

/// The names of the claims of a token. A subject that is empty names nobody, and is not among them.
struct Present(Vec<String>);

impl Present {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|present| present == name)
    }
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Names)
    }
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = Present;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Present, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == SUBJECT {
                // If a claim occurs twice, the last one counts, as for every reader of JSON.
                names.retain(|present| present != SUBJECT);
                if is_empty(&map.next_value::<Value>()?) {
                    continue;
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            names.push(name);
        }
        Ok(Present(names))
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn material(key: &[u8], algorithm: &str) -> Result<KeyMaterial, Failure> {
    let is_pem = key.trim_ascii_start().starts_with(PEM_BEGIN);
    let key = key.to_vec();
    match algorithm {
        // A public key that served as a secret would let anyone sign.
        "HS256" if is_pem => Err(Failure::argument(
            "HS256 takes a secret and this is a PEM key; use RS256, ES256 or EdDSA",
        )),
        "HS256" => Ok(KeyMaterial::Hs256(key)),
        "RS256" => Ok(KeyMaterial::Rs256Pem(key)),
        "ES256" => Ok(KeyMaterial::Es256Pem(key)),
        "EdDSA" => Ok(KeyMaterial::EdDsaPem(key)),
        other => Err(unknown_algorithm(other)),
    }
}

/// The only algorithm that a key can be for: HS256 for a key that is no PEM text, else the one that accepts
/// the key.
fn guessed(key: &[u8]) -> Result<KeyMaterial, Failure> {
    if !key.trim_ascii_start().starts_with(PEM_BEGIN) {
        return material(key, "HS256");
    }
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let as_public = AuthKey {
            material: material(key, algorithm)?,
            kid: None,
        };
        if EngineVerifier::with_keys([&as_public], ClaimRules::default()).is_ok()
            || SigningKey::new(&as_public.material).is_ok()
        {
            return Ok(as_public.material);
        }
    }
    let message = "this PEM text is no key of RSA, P-256 or Ed25519";
    Err(Failure::argument(message))
}

fn unknown_algorithm(name: &str) -> Failure {
    Failure::argument(format!(
        "there is no algorithm {name:?}; there are {}",
        ALGORITHMS.join(", ")
    ))
}

const ALGORITHMS: [&str; 4] = ["HS256", "RS256", "ES256", "EdDSA"];

const SUBJECT: &str = "sub";

const PEM_BEGIN: &[u8] = b"-----BEGIN ";

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

    fn pair() -> (TokenSigner, TokenVerifier) {
        let key = token_key(SECRET, None, None).expect("a key");
        let verifier = TokenVerifier::new(vec![key.clone()], TokenRules::default());
        (
            TokenSigner::new(key).expect("it signs"),
            verifier.expect("it checks"),
        )
    }

    #[test]
    fn a_token_needs_a_subject_that_names_somebody() {
        let (signer, verifier) = pair();
        let checked = |claims: &str| {
            let token = signer.encode(claims).expect("a token");
            verifier.decode(&token, 1000)
        };
        assert!(checked(r#"{"sub":"a","exp":2000}"#).is_ok());
        for claims in [
            r#"{"exp":2000}"#,
            r#"{"sub":"","exp":2000}"#,
            r#"{"sub":"a"}"#,
        ] {
            let failure = checked(claims).expect_err("a claim is missing");
            assert_eq!(failure.code, "MISSING_CLAIM", "{claims}");
        }
    }

    #[test]
    fn a_pem_key_is_no_secret() {
        let pem = b"-----BEGIN PUBLIC KEY-----\n";
        assert!(token_key(pem, Some("HS256"), None).is_err());
        assert!(token_key(pem, None, None).is_err());
        assert!(token_key(SECRET, Some("none"), None).is_err());
    }
}

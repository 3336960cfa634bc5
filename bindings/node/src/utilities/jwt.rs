//! JSON Web Tokens, signed and checked as the server does.

use crate::errors::{Failure, Fault, argument};
use napi::bindgen_prelude::{BufferSlice, ClassInstance};
use napi_derive::napi;
use tidewire_engine::auth::{
    AuthConfigError, AuthKey, ClaimRules, KeyMaterial, TokenError, Verifier,
};
use tidewire_engine::token::{SignError, SigningKey, sign_text};

/// A key for one algorithm.
#[napi]
pub struct NativeTokenKey {
    key: AuthKey,
}

#[napi]
impl NativeTokenKey {
    /// Takes a secret or PEM text; without an algorithm the only one that the key can be for.
    #[napi(constructor)]
    pub fn new(
        key: BufferSlice<'_>,
        algorithm: Option<String>,
        key_id: Option<String>,
    ) -> napi::Result<Self> {
        let material = match algorithm {
            Some(algorithm) => material(&key, &algorithm)?,
            None => guessed(&key)?,
        };
        Ok(Self {
            key: AuthKey {
                material,
                kid: key_id,
            },
        })
    }

    /// `HS256`, `RS256`, `ES256` or `EdDSA`.
    #[napi(getter)]
    pub fn algorithm(&self) -> &'static str {
        self.key.material.algorithm_name()
    }

    /// The key's name in the header of tokens.
    #[napi(getter)]
    pub fn key_id(&self) -> Option<String> {
        self.key.kid.clone()
    }
}

/// Signs tokens with one key.
#[napi]
pub struct NativeTokenSigner {
    key: SigningKey,
    key_id: Option<String>,
}

#[napi]
impl NativeTokenSigner {
    #[napi(constructor)]
    pub fn new(key: ClassInstance<'_, NativeTokenKey>) -> napi::Result<Self> {
        Ok(Self {
            key: SigningKey::new(&key.key.material).map_err(unusable)?,
            key_id: key.key.kid.clone(),
        })
    }

    /// The token with these claims, a JSON object.
    #[napi]
    pub fn encode(&self, claims: String) -> napi::Result<String> {
        let token = sign_text(&claims, &self.key, self.key_id.as_deref());
        let failure = |error| match error {
            SignError::NotAnObject => argument(error),
            SignError::Provider => {
                let code = "CRYPTOGRAPHY_FAILED";
                Failure::new("SecurityError", code, Fault::Nobody, error)
            }
        };
        Ok(token.map_err(failure)?)
    }
}

/// Checks tokens with some keys.
#[napi]
pub struct NativeTokenVerifier {
    checker: Verifier,
}

#[napi]
impl NativeTokenVerifier {
    #[napi(constructor)]
    pub fn new(
        keys: Vec<ClassInstance<'_, NativeTokenKey>>,
        issuer: Option<String>,
        audience: Option<String>,
        leeway_s: f64,
    ) -> napi::Result<Self> {
        let keys: Vec<AuthKey> = keys.iter().map(|key| key.key.clone()).collect();
        let rules = ClaimRules {
            issuer,
            audience,
            leeway_s: leeway_s as u64,
        };
        let checker = Verifier::with_keys(&keys, rules).map_err(unusable)?;
        Ok(Self { checker })
    }

    /// The claims of a good token, as JSON text. `now` is seconds since 1970, UTC.
    #[napi]
    pub fn decode(&self, token: String, now_s: f64) -> napi::Result<String> {
        let claims = self.checker.verify_text(&token, now_s as u64);
        let claims = String::from_utf8(claims.map_err(refused)?);
        Ok(claims.map_err(|_| refused(TokenError::Malformed))?)
    }
}

fn unusable(error: AuthConfigError) -> Failure {
    argument(error)
}

fn refused(error: TokenError) -> Failure {
    Failure::new("TokenError", error.code(), Fault::Peer, error)
}

fn material(key: &[u8], algorithm: &str) -> Result<KeyMaterial, Failure> {
    let is_pem = key.trim_ascii_start().starts_with(PEM_BEGIN);
    let key = key.to_vec();
    match algorithm {
        // A public key that served as a secret would let anyone sign.
        "HS256" if is_pem => Err(argument(
            "HS256 takes a secret and this is a PEM key; use RS256, ES256 or EdDSA",
        )),
        "HS256" => Ok(KeyMaterial::Hs256(key)),
        "RS256" => Ok(KeyMaterial::Rs256Pem(key)),
        "ES256" => Ok(KeyMaterial::Es256Pem(key)),
        "EdDSA" => Ok(KeyMaterial::EdDsaPem(key)),
        other => Err(argument(format!(
            "there is no algorithm {other:?}; there are HS256, RS256, ES256, EdDSA"
        ))),
    }
}

/// The only algorithm that a key can be for: HS256 for what is no PEM text, else the one that accepts the key.
fn guessed(key: &[u8]) -> Result<KeyMaterial, Failure> {
    if !key.trim_ascii_start().starts_with(PEM_BEGIN) {
        return material(key, "HS256");
    }
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let as_public = AuthKey {
            material: material(key, algorithm)?,
            kid: None,
        };
        if Verifier::with_keys([&as_public], ClaimRules::default()).is_ok()
            || SigningKey::new(&as_public.material).is_ok()
        {
            return Ok(as_public.material);
        }
    }
    Err(argument("this PEM text is no key of RSA, P-256 or Ed25519"))
}

const PEM_BEGIN: &[u8] = b"-----BEGIN ";

//! JSON Web Tokens, signed and checked as the server does it.

use crate::errors::Failure;
use napi::bindgen_prelude::{BufferSlice, ClassInstance};
use napi_derive::napi;
use tidewire_bindings::utilities::tokens::{TokenRules, TokenSigner, TokenVerifier, token_key};
use tidewire_engine::auth::AuthKey;

/// A key for one algorithm.
#[napi]
pub struct NativeTokenKey {
    key: AuthKey,
}

#[napi]
impl NativeTokenKey {
    /// Accepts a secret or PEM text; without an algorithm the only one that the key can be for.
    #[napi(constructor)]
    pub fn new(
        key: BufferSlice<'_>,
        algorithm: Option<String>,
        key_id: Option<String>,
    ) -> napi::Result<Self> {
        let key = token_key(&key, algorithm.as_deref(), key_id);
        Ok(Self {
            key: key.map_err(Failure::from)?,
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
    signer: TokenSigner,
}

#[napi]
impl NativeTokenSigner {
    #[napi(constructor)]
    pub fn new(key: ClassInstance<'_, NativeTokenKey>) -> napi::Result<Self> {
        let signer = TokenSigner::new(key.key.clone()).map_err(Failure::from)?;
        Ok(Self { signer })
    }

    /// The token with these claims, a JSON object; with a time in seconds since 1970 only one that a server accepts then.
    #[napi]
    pub fn encode(&self, claims: String, checked_at_s: Option<f64>) -> napi::Result<String> {
        let token = match checked_at_s {
            Some(now_s) => self.signer.encode_checked(&claims, now_s as u64),
            None => self.signer.encode(&claims),
        };
        Ok(token.map_err(Failure::from)?)
    }
}

/// Checks tokens with some keys.
#[napi]
pub struct NativeTokenVerifier {
    verifier: TokenVerifier,
}

#[napi]
impl NativeTokenVerifier {
    #[napi(constructor)]
    pub fn new(
        keys: Vec<ClassInstance<'_, NativeTokenKey>>,
        algorithms: Option<Vec<String>>,
        issuer: Option<String>,
        audience: Option<String>,
        leeway_s: f64,
        required: Option<Vec<String>>,
    ) -> napi::Result<Self> {
        let keys = keys.iter().map(|key| key.key.clone()).collect();
        let rules = TokenRules {
            algorithms,
            issuer,
            audience,
            leeway_s: leeway_s as u64,
            required,
        };
        let verifier = TokenVerifier::new(keys, rules).map_err(Failure::from)?;
        Ok(Self { verifier })
    }

    /// The claims of a good token, as JSON text. `now_s` is seconds since 1970, UTC.
    #[napi]
    pub fn decode(&self, token: String, now_s: f64) -> napi::Result<String> {
        let claims = self.verifier.decode(&token, now_s as u64);
        Ok(claims.map_err(Failure::from)?)
    }
}

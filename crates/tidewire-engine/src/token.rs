//! Making tokens: for trying a server out, for load tests and for backends that sign their own.

use crate::auth::{AuthConfigError, KeyMaterial};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A key that signs tokens.
#[derive(Debug, Clone)]
pub struct SigningKey {
    algorithm: Algorithm,
    key: EncodingKey,
}

/// Why a token could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The claims are not a JSON object. The caller's fault.
    #[error("the claims of a token have to be a JSON object")]
    NotAnObject,
    /// The key cannot sign: the PEM text looked right but its content is not.
    #[error("the key cannot sign: {0}")]
    Key(#[from] jsonwebtoken::errors::Error),
}

impl SigningKey {
    /// Reads a key: the secret or the private key in PEM.
    ///
    /// # Errors
    /// [`AuthConfigError`] for a secret that is too short or a text that is not a private key of the
    /// algorithm's kind.
    pub fn new(material: &KeyMaterial) -> Result<Self, AuthConfigError> {
        let (parsed, wanted) = match material {
            KeyMaterial::Hs256(secret) => {
                let secret = KeyMaterial::long_enough(secret)?;
                (Ok(EncodingKey::from_secret(secret)), "a secret")
            }
            KeyMaterial::Rs256Pem(pem) => {
                (EncodingKey::from_rsa_pem(pem), "a PEM private key of RSA")
            }
            KeyMaterial::Es256Pem(pem) => {
                let wanted = "a PEM private key on the curve P-256 as PKCS#8 \
                              (openssl pkcs8 -topk8 -nocrypt makes that of another)";
                (EncodingKey::from_ec_pem(pem), wanted)
            }
            KeyMaterial::EdDsaPem(pem) => (
                EncodingKey::from_ed_pem(pem),
                "a PEM private key of Ed25519 as PKCS#8",
            ),
        };
        let is_secret = matches!(material, KeyMaterial::Hs256(_));
        match parsed {
            Ok(key) if is_secret || material.is_private_pem() => Ok(Self {
                algorithm: material.algorithm(),
                key,
            }),
            _ => {
                let algorithm = material.algorithm_name();
                Err(AuthConfigError::Unusable { algorithm, wanted })
            }
        }
    }
}

/// Signs claims, an object, and names the key in the header if `kid` is given. Nothing is added to the
/// claims; a server wants `sub` and `exp`.
///
/// # Errors
/// [`SignError`].
pub fn sign(claims: &Value, key: &SigningKey, kid: Option<&str>) -> Result<String, SignError> {
    if !claims.is_object() {
        return Err(SignError::NotAnObject);
    }
    sign_any(claims, key, kid)
}

/// [`sign`] for claims that are JSON text already, which is signed as it stands.
///
/// # Errors
/// [`SignError`].
pub fn sign_text(claims: &str, key: &SigningKey, kid: Option<&str>) -> Result<String, SignError> {
    match serde_json::from_str::<&RawValue>(claims) {
        Ok(claims) if claims.get().starts_with('{') => sign_any(&claims, key, kid),
        _ => Err(SignError::NotAnObject),
    }
}

fn sign_any(
    claims: &impl Serialize,
    key: &SigningKey,
    kid: Option<&str>,
) -> Result<String, SignError> {
    let mut header = Header::new(key.algorithm);
    header.kid = kid.map(str::to_owned);
    Ok(jsonwebtoken::encode(&header, claims, &key.key)?)
}

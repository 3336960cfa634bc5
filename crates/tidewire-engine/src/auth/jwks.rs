//! JSON Web Key Sets (RFC 7517) as text: which of their keys check tokens, each with the one algorithm it is for.
//!
//! The type of a key and its own `alg` decide about the algorithm, never a token. Keys of other uses, of types that are
//! not known, without a member that their type needs, or out of the supported ranges are ignored (RFC 7517, section 5):
//! none of them spoils the others. Those that are for tokens are reported.

use crate::auth::key::{ED25519_PUBLIC_BYTES, KeyMaterial, P256_PUBLIC_BYTES, VerifyingKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use zeroize::Zeroizing;

/// The source of a set of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file of this machine: it may hold secrets.
    File,
    /// A server: its keys are public.
    Url,
}

/// The keys of a set that check tokens.
#[derive(Debug, Default)]
pub(crate) struct ReadKeys {
    /// At least one of a set that was read.
    pub(crate) keys: Vec<VerifyingKey>,
    /// The faults of keys for tokens that are ignored, at most three.
    pub(crate) problems: Vec<String>,
}

/// Reads a set.
///
/// # Errors
/// The fault of the set.
pub(crate) fn read(text: &[u8], place: Place) -> Result<ReadKeys, String> {
    if text.len() > SET_BYTES_MAX {
        return Err(format!("more than {SET_BYTES_MAX} bytes"));
    }
    let set: Set = serde_json::from_slice(text)
        .map_err(|_| "not a JSON object with the keys as a list in `keys`".to_owned())?;
    if set.keys.len() > KEYS_MAX {
        let count = set.keys.len();
        return Err(format!("{count} keys, and {KEYS_MAX} is the most"));
    }
    let mut keys: Vec<VerifyingKey> = Vec::new();
    let mut problems = Vec::new();
    for (index, value) in set.keys.into_iter().enumerate() {
        let name = name_of(index, &value);
        let is_twice = |key: &VerifyingKey| {
            let mut others = keys.iter();
            others.any(|other| other.kid == key.kid && other.algorithm == key.algorithm)
        };
        match key(value, place) {
            Ok(None) => {}
            Ok(Some(key)) if key.kid.is_some() && is_twice(&key) => {
                problems.push(format!("{name} has the `kid` of another key"));
            }
            Ok(Some(key)) => keys.push(key),
            Err(problem) => problems.push(format!("{name} {problem}")),
        }
    }
    if keys.is_empty() {
        let reason = problems.into_iter().next();
        let reason = reason.map_or_else(String::new, |problem| format!(": {problem}"));
        return Err(format!("no key that checks tokens{reason}"));
    }
    problems.truncate(PROBLEMS_MAX);
    Ok(ReadKeys { keys, problems })
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

/// The members of a key that matter here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
    /// Of a private key.
    d: Option<IgnoredAny>,
}

/// How a key is named in an error: its number from 1, and its `kid`.
fn name_of(index: usize, value: &Value) -> String {
    let number = index + 1;
    match value.get("kid").and_then(Value::as_str) {
        Some(kid) => {
            let shown: String = kid.chars().take(KID_CHARS_SHOWN).collect();
            format!("key {number} ({shown:?})")
        }
        None => format!("key {number}"),
    }
}

/// One key; `None` if it is not for tokens, or of a type that is not known.
fn key(value: Value, place: Place) -> Result<Option<VerifyingKey>, &'static str> {
    let jwk: Jwk = serde_json::from_value(value)
        .map_err(|_| "is not an object with the text `kty`, or has members of a wrong type")?;
    let is_for_signatures = jwk
        .purpose
        .as_deref()
        .is_none_or(|purpose| purpose == "sig");
    let verifies = |ops: &Vec<String>| ops.iter().any(|op| op == "verify");
    if !is_for_signatures || !jwk.key_ops.as_ref().is_none_or(verifies) {
        return Ok(None);
    }
    let Some((algorithm, algorithm_name)) = algorithm_of(&jwk) else {
        return Ok(None);
    };
    if jwk.d.is_some() {
        return Err("is a private key; the set needs the public part alone");
    }
    let key = match algorithm {
        Algorithm::HS256 if place == Place::Url => {
            return Err("is a secret, which nobody may publish");
        }
        Algorithm::HS256 => secret(&jwk)?,
        Algorithm::ES256 => point(&jwk, P256_PUBLIC_BYTES)?,
        Algorithm::ES384 => point(&jwk, P384_PUBLIC_BYTES)?,
        Algorithm::EdDSA => ed25519(&jwk)?,
        _ => rsa(&jwk)?,
    };
    Ok(Some(VerifyingKey {
        algorithm,
        algorithm_name,
        key,
        kid: jwk.kid,
    }))
}

/// The algorithm of a key, by its type and, if it has one, its `alg`; `None` for any that checks no token here.
fn algorithm_of(jwk: &Jwk) -> Option<(Algorithm, &'static str)> {
    let family: &[(Algorithm, &'static str)] = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => &[
            (Algorithm::RS256, "RS256"),
            (Algorithm::RS384, "RS384"),
            (Algorithm::RS512, "RS512"),
            (Algorithm::PS256, "PS256"),
            (Algorithm::PS384, "PS384"),
            (Algorithm::PS512, "PS512"),
        ],
        ("EC", Some("P-256")) => &[(Algorithm::ES256, "ES256")],
        ("EC", Some("P-384")) => &[(Algorithm::ES384, "ES384")],
        ("OKP", Some("Ed25519")) => &[(Algorithm::EdDSA, "EdDSA")],
        ("oct", _) => &[(Algorithm::HS256, "HS256")],
        _ => return None,
    };
    let Some(alg) = &jwk.alg else {
        return family.first().copied();
    };
    family.iter().copied().find(|(_, name)| name == alg)
}

fn rsa(jwk: &Jwk) -> Result<DecodingKey, &'static str> {
    let (modulus, exponent) = (number(&jwk.n)?, number(&jwk.e)?);
    if !RSA_MODULUS_BYTES.contains(&modulus.len()) {
        return Err("is a key of RSA with less than 2048 or more than 8192 bits");
    }
    // An even exponent, 1, or one beyond 32 bits is of no key that anybody makes.
    let is_odd = exponent.last().is_some_and(|last| last % 2 == 1);
    if !is_odd || exponent == [1] || exponent.len() > 4 {
        return Err("has an exponent `e` that no key of RSA has");
    }
    Ok(DecodingKey::from_rsa_raw_components(&modulus, &exponent))
}

fn point(jwk: &Jwk, bytes: usize) -> Result<DecodingKey, &'static str> {
    let (x, y) = (decoded(&jwk.x)?, decoded(&jwk.y)?);
    let coordinate_bytes = (bytes - 1) / 2;
    if x.len() != coordinate_bytes || y.len() != coordinate_bytes {
        return Err("has a coordinate that is not as long as its curve wants");
    }
    let point = [&[UNCOMPRESSED], x.as_slice(), y.as_slice()].concat();
    Ok(DecodingKey::from_ec_der(&point))
}

fn ed25519(jwk: &Jwk) -> Result<DecodingKey, &'static str> {
    let x = decoded(&jwk.x)?;
    match x.len() {
        ED25519_PUBLIC_BYTES => Ok(DecodingKey::from_ed_der(&x)),
        _ => Err("is a key of Ed25519 that has not 32 bytes"),
    }
}

fn secret(jwk: &Jwk) -> Result<DecodingKey, &'static str> {
    let text = jwk.k.as_ref().ok_or(MISSING)?;
    let secret = URL_SAFE_NO_PAD.decode(text.as_bytes());
    let secret = Zeroizing::new(secret.map_err(|_| NOT_BASE64)?);
    let secret =
        KeyMaterial::long_enough(&secret).map_err(|_| "is a secret of less than 32 bytes")?;
    Ok(DecodingKey::from_secret(secret))
}

/// A number without zeros at its front.
fn number(text: &Option<String>) -> Result<Vec<u8>, &'static str> {
    let bytes = decoded(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Ok(bytes[zeros..].to_vec())
}

fn decoded(text: &Option<String>) -> Result<Vec<u8>, &'static str> {
    let text = text.as_ref().ok_or(MISSING)?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| NOT_BASE64)
}

const MISSING: &str = "lacks a member that its type needs";

const NOT_BASE64: &str = "has a member that is not base64url without padding";

/// A whole set, in bytes.
pub(crate) const SET_BYTES_MAX: usize = 256 * 1024;

/// Keys of one set, those included that are not for tokens.
const KEYS_MAX: usize = 256;

/// Problems of one set that are reported.
const PROBLEMS_MAX: usize = 3;

/// Characters of a `kid` in an error.
const KID_CHARS_SHOWN: usize = 64;

/// 2048 to 8192 bits.
const RSA_MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

const P384_PUBLIC_BYTES: usize = 97;

/// The first byte of a point with both coordinates (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read_all(keys: Value, place: Place) -> Result<ReadKeys, String> {
        read(json!({ "keys": keys }).to_string().as_bytes(), place)
    }

    fn octets(count: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![0x81; count])
    }

    fn algorithms(keys: Value, place: Place) -> Vec<&'static str> {
        let read = read_all(keys, place).unwrap();
        read.keys.iter().map(|key| key.algorithm_name).collect()
    }

    #[test]
    fn the_type_of_a_key_decides_about_its_algorithm() {
        let (n, x32, x48) = (octets(256), octets(32), octets(48));
        let keys = json!([
            {"kty": "RSA", "n": n, "e": "AQAB"},
            {"kty": "RSA", "n": n, "e": "AQAB", "alg": "PS384", "use": "sig", "key_ops": ["verify"]},
            {"kty": "EC", "crv": "P-256", "x": x32, "y": x32},
            {"kty": "EC", "crv": "P-384", "x": x48, "y": x48},
            {"kty": "OKP", "crv": "Ed25519", "x": x32},
            {"kty": "oct", "k": x32},
        ]);
        assert_eq!(
            algorithms(keys.clone(), Place::File),
            ["RS256", "PS384", "ES256", "ES384", "EdDSA", "HS256"]
        );
        let at_url = read_all(keys, Place::Url).unwrap();
        assert!(
            at_url
                .keys
                .iter()
                .all(|key| key.algorithm != Algorithm::HS256)
        );
        assert_eq!(
            at_url.problems,
            ["key 6 is a secret, which nobody may publish"]
        );
    }

    #[test]
    fn keys_for_other_purposes_are_passed_over() {
        let (n, x32) = (octets(256), octets(32));
        let keys = json!([
            {"kty": "RSA", "n": n, "e": "AQAB", "use": "enc"},
            {"kty": "RSA", "n": n, "e": "AQAB", "alg": "RSA-OAEP"},
            {"kty": "RSA", "n": n, "e": "AQAB", "alg": "HS256"},
            {"kty": "RSA", "n": n, "e": "AQAB", "key_ops": ["encrypt"]},
            {"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"},
            {"kty": "EC", "crv": "P-256", "alg": "ES384", "x": x32, "y": x32},
            {"kty": "OKP", "crv": "X25519", "x": x32},
            {"kty": "new", "anything": 1},
            {"kty": "OKP", "crv": "Ed25519", "x": x32},
        ]);
        assert_eq!(algorithms(keys.clone(), Place::Url), ["EdDSA"]);
        assert_eq!(algorithms(keys, Place::File), ["EdDSA"]);
    }

    #[test]
    fn a_key_that_cannot_be_used_is_named() {
        let (n, x32) = (octets(256), octets(32));
        for (key, words) in [
            (
                json!({"kty": "RSA", "n": octets(255), "e": "AQAB", "kid": "a"}),
                "key 1 (\"a\") is a key of RSA",
            ),
            (
                json!({"kty": "RSA", "n": octets(1025), "e": "AQAB"}),
                "8192 bits",
            ),
            (json!({"kty": "RSA", "n": n, "e": "AQ"}), "exponent"),
            (json!({"kty": "RSA", "n": n, "e": "Ag"}), "exponent"),
            (json!({"kty": "RSA", "n": n}), "lacks"),
            (json!({"kty": "RSA", "n": "=", "e": "AQAB"}), "base64url"),
            (
                json!({"kty": "RSA", "n": n, "e": "AQAB", "d": "AA"}),
                "private key",
            ),
            (
                json!({"kty": "EC", "crv": "P-256", "x": x32, "y": octets(31)}),
                "coordinate",
            ),
            (
                json!({"kty": "OKP", "crv": "Ed25519", "x": octets(31)}),
                "32 bytes",
            ),
            (json!({"kty": "oct", "k": octets(31)}), "less than 32 bytes"),
            (json!({"n": n}), "kty"),
            (json!(7), "kty"),
        ] {
            let good = json!({"kty": "OKP", "crv": "Ed25519", "x": x32});
            for place in [Place::File, Place::Url] {
                let read = read_all(json!([key, good]), place).unwrap();
                assert_eq!((read.keys.len(), read.problems.len()), (1, 1), "{key}");
                let error = read_all(json!([key]), place).unwrap_err();
                assert!(
                    error.starts_with("no key that checks tokens: key 1"),
                    "{error}"
                );
                if place == Place::File {
                    assert!(
                        error.contains(words) && read.problems[0].contains(words),
                        "{error}"
                    );
                }
            }
        }
    }

    #[test]
    fn sets_are_bounded_and_names_are_of_one_key() {
        let key = |kid: usize| json!({"kty": "OKP", "crv": "Ed25519", "x": octets(32), "kid": kid.to_string()});
        let keys = |count: usize| (0..count).map(key).collect::<Value>();
        assert_eq!(read_all(keys(256), Place::Url).unwrap().keys.len(), 256);
        assert!(
            read_all(keys(257), Place::Url)
                .unwrap_err()
                .contains("257 keys")
        );
        let long = [b"{\"keys\":[]", vec![b' '; SET_BYTES_MAX].as_slice()].concat();
        assert!(read(&long, Place::Url).unwrap_err().contains("bytes"));
        let twice = read_all(json!([key(1), key(1)]), Place::Url).unwrap();
        assert_eq!((twice.keys.len(), twice.problems.len()), (1, 1));
        for text in ["", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[]}"] {
            assert!(read(text.as_bytes(), Place::Url).is_err(), "{text}");
        }
    }
}

//! The settings about what lies between messages and frames: compression, encryption, signatures.

use super::{SettingError, Settings, excluded, wrong};
use crate::config::{Compression, Config, Deflate, Encryption, SignatureKey, Signing};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) const NAMES: &[&str] = &[
    "deflate",
    "compression_level",
    "compression_threshold_bytes",
    "deflate_window_bits",
    "encryption",
    "identity_key",
    "signature_secret",
    "signature_secret_file",
    "signature_public_key",
    "require_signatures",
];

pub(super) fn set(settings: Settings<'_>, config: &mut Config) -> Result<(), SettingError> {
    config.compression = compression(settings)?;
    config.encryption = match settings.text("encryption")?.as_deref() {
        None | Some("off") => Encryption::Off,
        Some("optional") => Encryption::Optional,
        Some("required") => Encryption::Required,
        Some(_) => return Err(wrong("encryption", "expected off, optional or required")),
    };
    config.identity_key = settings.get("identity_key")?;
    if config.identity_key.is_some() && config.encryption == Encryption::Off {
        let problem = "it is of use with encryption only: set encryption to optional or required";
        return Err(wrong("identity_key", problem));
    }
    config.signing = signing(settings)?;
    Ok(())
}

fn compression(settings: Settings<'_>) -> Result<Compression, SettingError> {
    let default = Compression::default();
    let deflate = match settings.text("deflate")?.as_deref() {
        None | Some("off") => Deflate::Off,
        Some("shared") => Deflate::Shared,
        Some("per-connection" | "per_connection") => Deflate::PerConnection,
        Some(_) => return Err(wrong("deflate", "expected off, shared or per-connection")),
    };
    let level = settings.get("compression_level")?.unwrap_or(default.level);
    if !(1..=9).contains(&level) {
        return Err(wrong("compression_level", "expected 1 to 9"));
    }
    let window_bits = settings.get("deflate_window_bits")?;
    let window_bits = window_bits.unwrap_or(default.window_bits);
    if !(9..=15).contains(&window_bits) {
        return Err(wrong("deflate_window_bits", "expected 9 to 15"));
    }
    let threshold_bytes = settings.get("compression_threshold_bytes")?;
    Ok(Compression {
        deflate,
        level,
        threshold_bytes: threshold_bytes.unwrap_or(default.threshold_bytes),
        window_bits,
    })
}

fn signing(settings: Settings<'_>) -> Result<Option<Signing>, SettingError> {
    let required = settings.flag("require_signatures")?;
    let given = settings.text("signature_secret")?.map(String::into_bytes);
    let secret = match (given, settings.secret_file("signature_secret_file")?) {
        (Some(_), Some(_)) => return Err(excluded("signature_secret", "signature_secret_file")),
        (given, file) => given.or(file),
    };
    let key = match (secret, settings.file("signature_public_key")?) {
        (None, None) if required => {
            let problem = "it needs a key to check them with: give signature_secret, signature_secret_file or \
                signature_public_key";
            return Err(wrong("require_signatures", problem));
        }
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(excluded("signature_public_key", "a secret")),
        (Some(secret), None) => SignatureKey::Hmac(secret),
        (None, Some(pem)) => {
            let point = p256_point_of_pem(&pem).ok_or_else(|| {
                let problem =
                    "expected a public key on P-256 in PEM: openssl pkey -pubout writes one";
                wrong("signature_public_key", problem)
            })?;
            SignatureKey::Ecdsa(point)
        }
    };
    Ok(Some(Signing::new(key, required)))
}

/// The uncompressed point of a public key on P-256 in PEM, as `openssl pkey -pubout` writes it; `None` for anything
/// else.
#[must_use]
pub fn p256_point_of_pem(pem: &[u8]) -> Option<[u8; 65]> {
    let text = std::str::from_utf8(pem).ok()?;
    let (_, rest) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, _) = rest.split_once("-----END PUBLIC KEY-----")?;
    let encoded: String = body.split_ascii_whitespace().collect();
    let der = STANDARD.decode(encoded).ok()?;
    der.strip_prefix(P256_SPKI_HEAD)?.try_into().ok()
}

/// What comes before the point in the DER of a public key on P-256 (RFC 5480, section 2).
const P256_SPKI_HEAD: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_that_openssl_wrote() {
        let pem = "-----BEGIN PUBLIC KEY-----\n\
            MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEczs0MHjtsk9OPcN2J8jB211HGMqb\n\
            uVw9gwgSili0IDjlEvP2Hawvh0qo6TR+bd68/lSqRfmZxl5vd5Gviu0GvQ==\n\
            -----END PUBLIC KEY-----\n";
        let point = p256_point_of_pem(pem.as_bytes()).expect("a point");
        assert_eq!((point[0], point[1], point[64]), (0x04, 0x73, 0xbd));
        assert_eq!(
            p256_point_of_pem(pem.replace("MFkw", "MFow").as_bytes()),
            None
        );
        assert_eq!(p256_point_of_pem(b"no PEM"), None);
    }
}

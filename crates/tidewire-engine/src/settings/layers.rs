//! Options of the layers between messages and frames: compression, encryption, signatures.

use super::SettingError;
use super::given::Settings;
use crate::config::{Config, Deflate, Encryption, SignatureKey, Signing};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Level, threshold and window of the compression are plain fields.
pub(super) fn set(settings: &Settings, config: &mut Config) -> Result<(), SettingError> {
    config.compression.deflate = match settings.text("deflate").as_deref() {
        Some("shared") => Deflate::Shared,
        Some("per-connection") => Deflate::PerConnection,
        _ => Deflate::Off,
    };
    config.encryption = match settings.text("encryption").as_deref() {
        Some("optional") => Encryption::Optional,
        Some("required") => Encryption::Required,
        Some("required-v2") => Encryption::RequiredV2,
        _ => Encryption::Off,
    };
    config.identity_key = settings.text("identity_key").map(Into::into);
    if config.identity_key.is_some() && config.encryption == Encryption::Off {
        let problem = "the key is of use with encryption only: set `encryption` to optional, required or required-v2";
        return Err(settings.wrong("identity_key", problem));
    }
    config.signing = signing(settings)?;
    Ok(())
}

fn signing(settings: &Settings) -> Result<Option<Signing>, SettingError> {
    let required = settings.flag("require_signatures");
    let ways = [
        "signature_secret",
        "signature_secret_file",
        "signature_public_key",
    ];
    let key = match settings.strongest(&ways)? {
        None if required => {
            let problem = "a key is needed to check signatures with: give `signature_secret`, \
                `signature_secret_file` or `signature_public_key`";
            return Err(settings.wrong("require_signatures", problem));
        }
        None => return Ok(None),
        Some("signature_secret") => {
            let secret = settings.text("signature_secret").unwrap_or_default();
            SignatureKey::Hmac(secret.into_bytes())
        }
        Some(name @ "signature_secret_file") => {
            SignatureKey::Hmac(settings.secret_file(name)?.unwrap_or_default())
        }
        Some(name) => {
            let pem = settings.file(name)?.unwrap_or_default();
            let problem = "expected a public key on P-256 in PEM: openssl pkey -pubout writes one";
            let point = p256_point_of_pem(&pem);
            SignatureKey::Ecdsa(point.ok_or_else(|| settings.wrong(name, problem))?)
        }
    };
    let mut signing = Signing::new(key, required);
    if let Some(nonces_max) = settings.integer("signature_nonces_max") {
        signing.nonces_max = usize::try_from(nonces_max).unwrap_or(usize::MAX);
    }
    Ok(Some(signing))
}

/// The uncompressed point of a public key on P-256 in PEM, as `openssl pkey -pubout` writes it; `None`
/// for anything else.
#[must_use]
pub fn p256_point_of_pem(pem: &[u8]) -> Option<[u8; 65]> {
    let text = std::str::from_utf8(pem).ok()?;
    let (_, rest) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, _) = rest.split_once("-----END PUBLIC KEY-----")?;
    let encoded: String = body.split_ascii_whitespace().collect();
    let der = STANDARD.decode(encoded).ok()?;
    der.strip_prefix(P256_SPKI_HEAD)?.try_into().ok()
}

/// The bytes before the point in the DER of a public key on P-256 (RFC 5480, section 2).
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

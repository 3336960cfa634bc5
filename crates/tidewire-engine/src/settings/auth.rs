//! The settings about tokens.

use super::{SettingError, Settings, excluded, wrong};
use crate::auth::{AuthConfig, AuthKey, KeyMaterial};
use crate::config::Protocol;

pub(super) const NAMES: &[&str] = &[
    "jwt_secret",
    "jwt_secret_file",
    "jwt_public_key",
    "jwt_algorithm",
    "jwt_key_id",
    "jwt_previous_secret",
    "jwt_previous_secret_file",
    "jwt_previous_public_key",
    "jwt_previous_algorithm",
    "jwt_previous_key_id",
    "jwt_issuer",
    "jwt_audience",
    "jwt_leeway_s",
    "token_grace_s",
    "token_warning_s",
    "keep_expired_sessions",
    "cookie_name",
    "token_query_parameter",
    "token_subprotocol_prefix",
    "no_auth",
];

/// How tokens are checked; `None` to let everyone in.
pub(super) fn auth(
    settings: Settings<'_>,
    protocol: Protocol,
) -> Result<Option<AuthConfig>, SettingError> {
    let algorithm = settings.text("jwt_algorithm")?;
    let material = key(settings, "jwt", algorithm.as_deref())?;
    let material = match (material, settings.flag("no_auth")?) {
        (Some(_), true) => {
            return Err(wrong("no_auth", "it excludes a key: give one or the other"));
        }
        (None, true) => return Ok(None),
        (None, false) if protocol == Protocol::Raw => return Ok(None),
        (None, false) => return Err(wrong("jwt_secret", NO_KEY)),
        (Some(material), false) => material,
    };
    let mut config = AuthConfig::new(material);
    config.key.kid = settings.text("jwt_key_id")?;
    let previous = settings.text("jwt_previous_algorithm")?.or(algorithm);
    config.previous_key = match key(settings, "jwt_previous", previous.as_deref())? {
        None => None,
        Some(material) => Some(AuthKey {
            material,
            kid: settings.text("jwt_previous_key_id")?,
        }),
    };
    config.issuer = settings.text("jwt_issuer")?;
    config.audience = settings.text("jwt_audience")?;
    config.leeway_s = settings.get("jwt_leeway_s")?.unwrap_or(config.leeway_s);
    config.grace_s = settings.get("token_grace_s")?.unwrap_or(config.grace_s);
    config.warning_s = settings.get("token_warning_s")?.unwrap_or(config.warning_s);
    config.ends_sessions = !settings.flag("keep_expired_sessions")?;
    config.cookie_name = settings.text("cookie_name")?.unwrap_or(config.cookie_name);
    config.query_parameter = settings.text("token_query_parameter")?;
    config.subprotocol_prefix = settings.text("token_subprotocol_prefix")?;
    Ok(Some(config))
}

/// The key that one of `{prefix}_secret`, `{prefix}_secret_file` and `{prefix}_public_key` gives.
fn key(
    settings: Settings<'_>,
    prefix: &str,
    algorithm: Option<&str>,
) -> Result<Option<KeyMaterial>, SettingError> {
    let [secret, secret_file, public_key] =
        ["secret", "secret_file", "public_key"].map(|rest| format!("{prefix}_{rest}"));
    let mut ways = Vec::new();
    if let Some(secret_text) = settings.text(&secret)? {
        ways.push((&secret, KeyMaterial::Hs256(secret_text.into_bytes())));
    }
    if let Some(bytes) = settings.secret_file(&secret_file)? {
        ways.push((&secret_file, KeyMaterial::Hs256(bytes)));
    }
    if let Some(pem) = settings.file(&public_key)? {
        ways.push((&public_key, material_of(pem, algorithm, prefix)?));
    }
    match ways.len() {
        0 | 1 => Ok(ways.pop().map(|(_, material)| material)),
        _ => Err(excluded(ways[0].0, ways[1].0)),
    }
}

fn material_of(
    pem: Vec<u8>,
    algorithm: Option<&str>,
    prefix: &str,
) -> Result<KeyMaterial, SettingError> {
    match algorithm {
        Some("rs256") => Ok(KeyMaterial::Rs256Pem(pem)),
        Some("es256") => Ok(KeyMaterial::Es256Pem(pem)),
        Some("eddsa") => Ok(KeyMaterial::EdDsaPem(pem)),
        Some(_) => Err(wrong(
            &format!("{prefix}_algorithm"),
            "expected rs256, es256 or eddsa",
        )),
        None => Err(wrong(
            &format!("{prefix}_public_key"),
            format!("it needs {prefix}_algorithm: rs256, es256 or eddsa"),
        )),
    }
}

const NO_KEY: &str = "a key is needed to check tokens with: give jwt_secret, jwt_secret_file or jwt_public_key, or \
    no_auth to let everyone in";

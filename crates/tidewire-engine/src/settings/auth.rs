//! How tokens are checked.

use super::SettingError;
use super::given::Settings;
use crate::auth::{AuthConfig, AuthKey, KeyMaterial};
use crate::config::Protocol;

/// How tokens are checked; `None` to accept everybody.
pub(super) fn auth(
    settings: &Settings,
    protocol: Protocol,
) -> Result<Option<AuthConfig>, SettingError> {
    let algorithm = settings.text("jwt_algorithm");
    let ways = ["no_auth", "jwt_secret", "jwt_secret_file", "jwt_public_key"];
    let material = match settings.strongest(&ways)? {
        Some("no_auth") => return Ok(None),
        None if protocol == Protocol::Raw => return Ok(None),
        None => return Err(settings.no_key(NO_KEY)),
        Some(name) => material(settings, name, "jwt_algorithm", algorithm.as_deref())?,
    };
    let mut config = AuthConfig::new(material);
    config.key.kid = settings.text("jwt_key_id");
    config.previous_key = previous_key(settings, algorithm)?;
    config.issuer = settings.text("jwt_issuer");
    config.audience = settings.text("jwt_audience");
    let seconds = |name| settings.integer(name).filter(|_| settings.is_set(name));
    config.leeway_s = seconds("jwt_leeway_s").unwrap_or(config.leeway_s);
    config.grace_s = seconds("token_grace_s").unwrap_or(config.grace_s);
    config.warning_s = seconds("token_warning_s").unwrap_or(config.warning_s);
    config.ends_sessions = !settings.flag("keep_expired_sessions");
    config.cookie_name = settings.text("cookie_name").unwrap_or(config.cookie_name);
    config.query_parameter = settings.text("token_query_parameter");
    config.subprotocol_prefix = settings.text("token_subprotocol_prefix");
    Ok(Some(config))
}

fn previous_key(
    settings: &Settings,
    algorithm: Option<String>,
) -> Result<Option<AuthKey>, SettingError> {
    let ways = [
        "jwt_previous_secret",
        "jwt_previous_secret_file",
        "jwt_previous_public_key",
    ];
    let Some(name) = settings.strongest(&ways)? else {
        return Ok(None);
    };
    let algorithm = settings.text("jwt_previous_algorithm").or(algorithm);
    let material = material(
        settings,
        name,
        "jwt_previous_algorithm",
        algorithm.as_deref(),
    )?;
    let kid = settings.text("jwt_previous_key_id");
    Ok(Some(AuthKey { material, kid }))
}

/// The key that the option `name` gives; a public key needs its algorithm.
fn material(
    settings: &Settings,
    name: &str,
    algorithm_name: &str,
    algorithm: Option<&str>,
) -> Result<KeyMaterial, SettingError> {
    if name.ends_with("_secret") {
        let secret = settings.text(name).unwrap_or_default();
        return Ok(KeyMaterial::Hs256(secret.into_bytes()));
    }
    if name.ends_with("_secret_file") {
        let secret = settings.secret_file(name)?.unwrap_or_default();
        return Ok(KeyMaterial::Hs256(secret));
    }
    let pem = settings.file(name)?.unwrap_or_default();
    match algorithm {
        Some("rs256") => Ok(KeyMaterial::Rs256Pem(pem)),
        Some("es256") => Ok(KeyMaterial::Es256Pem(pem)),
        Some("eddsa") => Ok(KeyMaterial::EdDsaPem(pem)),
        _ => {
            let problem = format!(
                "a public key needs its algorithm: give `{algorithm_name}`, one of rs256, es256, eddsa"
            );
            Err(settings.wrong(name, problem))
        }
    }
}

const NO_KEY: &str =
    "give `jwt_secret`, `jwt_secret_file` or `jwt_public_key`, or `no_auth` to accept everybody";

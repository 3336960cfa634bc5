//! Options of tokens and their keys.

use super::SettingError;
use super::given::Settings;
use crate::auth::{AuthConfig, AuthKey, KeyMaterial, KeySetSource, KeySetUrl};
use crate::config::backend::BackendEvent;
use crate::config::{Config, Protocol};
use crate::model::url::HttpUrl;

/// How tokens are checked; `None` to accept everybody.
pub(super) fn auth(
    settings: &Settings,
    config: &Config,
) -> Result<Option<AuthConfig>, SettingError> {
    let algorithm = settings.text("jwt_algorithm");
    let ways = [
        "no_auth",
        "jwt_secret",
        "jwt_secret_file",
        "jwt_public_key",
        "jwt_jwks_file",
        "jwt_jwks_url",
    ];
    let mut config = match settings.strongest(&ways)? {
        Some("no_auth") => return Ok(None),
        None if config.protocol == Protocol::Raw => return Ok(None),
        // The backend decides who may connect.
        None if asks_backend(config) => return Ok(None),
        None => return Err(settings.no_key(NO_KEY)),
        Some("jwt_jwks_file") => AuthConfig::of_key_set(key_set_file(settings)?),
        Some("jwt_jwks_url") => AuthConfig::of_key_set(key_set_url(settings)?),
        Some(name) => {
            let material = material(settings, name, "jwt_algorithm", algorithm.as_deref())?;
            AuthConfig::new(material)
        }
    };
    match &mut config.key {
        Some(key) => key.kid = settings.text("jwt_key_id"),
        None if settings.is_given("jwt_key_id") => {
            let problem = "it is for a single key, and the keys of a set have names of their own";
            return Err(settings.wrong("jwt_key_id", problem));
        }
        None => {}
    }
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

fn asks_backend(config: &Config) -> bool {
    let backend = config.backend.as_ref();
    backend.is_some_and(|backend| backend.events.has(BackendEvent::Connect))
}

/// The set of keys in a file, after a check that it can be used.
fn key_set_file(settings: &Settings) -> Result<KeySetSource, SettingError> {
    let text = settings.file("jwt_jwks_file")?.unwrap_or_default();
    let source = KeySetSource::Text(text);
    checked(settings, "jwt_jwks_file", source)
}

fn key_set_url(settings: &Settings) -> Result<KeySetSource, SettingError> {
    let text = settings.text("jwt_jwks_url").unwrap_or_default();
    let url = HttpUrl::parse(&text);
    let url = url.map_err(|error| settings.wrong("jwt_jwks_url", error.to_string()))?;
    let mut source = KeySetUrl::new(url);
    source.authorities = settings.text("jwt_jwks_ca_file").map(Into::into);
    let refresh_s = settings.integer("jwt_jwks_refresh_s");
    source.refresh_s = refresh_s.unwrap_or(source.refresh_s);
    let source = KeySetSource::Url(Box::new(source));
    checked(settings, "jwt_jwks_url", source)
}

fn checked(
    settings: &Settings,
    name: &str,
    source: KeySetSource,
) -> Result<KeySetSource, SettingError> {
    match source.check() {
        Ok(()) => Ok(source),
        Err(error) => Err(settings.wrong(name, error.to_string())),
    }
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

const NO_KEY: &str = "give `jwt_secret`, `jwt_secret_file`, `jwt_public_key`, `jwt_jwks_file` or `jwt_jwks_url`, or `no_auth` to accept \
     everybody";

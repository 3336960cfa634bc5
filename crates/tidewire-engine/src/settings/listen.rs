//! Options of the listeners.

use super::SettingError;
use super::given::Settings;
use super::value::{ANY, address};
use crate::auth::api_key::{ApiKey, NamedApiKey};
use crate::config::{Config, OriginPolicy, Protocol, TlsFiles};
use std::net::{SocketAddr, ToSocketAddrs};

pub(super) fn set(settings: &Settings, config: &mut Config) -> Result<(), SettingError> {
    config.listen = listen(settings)?.unwrap_or(config.listen);
    config.ops_listen = settings.text("ops_listen").and_then(|text| address(&text));
    config.ops_api_keys = api_keys(settings)?;
    config.protocol = match settings.text("protocol").as_deref() {
        Some("raw") => Protocol::Raw,
        _ => Protocol::V1,
    };
    config.default_type = settings.text("default_type");
    if let Some(paths) = settings.texts("path") {
        config.paths = if is_any(&paths) { Vec::new() } else { paths };
    }
    config.origins = match settings.texts("origin") {
        None => OriginPolicy::SameHost,
        Some(origins) if is_any(&origins) => OriginPolicy::Any,
        Some(origins) => OriginPolicy::Listed(origins),
    };
    config.subprotocols = settings.texts("subprotocol").unwrap_or_default();
    config.tls = tls(settings)?;
    Ok(())
}

/// The address of `listen`, or that of `host` and `port`.
fn listen(settings: &Settings) -> Result<Option<SocketAddr>, SettingError> {
    let (by_host, by_port) = (settings.is_set("host"), settings.is_set("port"));
    if settings.is_set("listen") && (by_host || by_port) {
        let problem = "give either `listen`, or `host` and `port`, not both";
        return Err(settings.wrong("listen", problem));
    }
    if !by_host && !by_port {
        return Ok(settings.text("listen").and_then(|text| address(&text)));
    }
    let host = settings.text("host").unwrap_or_default();
    let port = settings.integer("port").unwrap_or_default();
    let port = u16::try_from(port).unwrap_or(u16::MAX);
    let found = (host.as_str(), port).to_socket_addrs();
    let found = found.ok().and_then(|mut found| found.next());
    let problem = || format!("{host:?}: expected an address or a name of this machine");
    found
        .map(Some)
        .ok_or_else(|| settings.wrong("host", problem()))
}

/// The key of `api_key` or `api_key_file`, which permits everything, and those of `api_keys_file`.
fn api_keys(settings: &Settings) -> Result<Vec<NamedApiKey>, SettingError> {
    let mut keys = Vec::new();
    let single = settings.strongest(&["api_key", "api_key_file"])?;
    let several = settings
        .is_given("api_keys_file")
        .then_some("api_keys_file");
    if let (Some(name), false) = (single.or(several), settings.is_set("ops_listen")) {
        let problem = "the key is of use on the operations listener only: give `ops_listen`";
        return Err(settings.wrong(name, problem));
    }
    if let Some(name) = single {
        let key = match name {
            "api_key" => settings.text(name).unwrap_or_default().into_bytes(),
            _ => settings.secret_file(name)?.unwrap_or_default(),
        };
        let path = settings.text(name).filter(|_| name == "api_key_file");
        let place = path.map_or_else(String::new, |path| format!("{path}: "));
        let key =
            ApiKey::new(key).map_err(|error| settings.wrong(name, format!("{place}{error}")))?;
        keys.push(NamedApiKey::all("api", key));
    }
    if let Some(name) = several {
        keys.extend(named_keys(settings, name)?);
    }
    Ok(keys)
}

/// The keys of a file, one in each line that is neither empty nor a comment.
fn named_keys(settings: &Settings, name: &str) -> Result<Vec<NamedApiKey>, SettingError> {
    let path = settings.text(name).unwrap_or_default();
    let bytes = settings.file(name)?.unwrap_or_default();
    let wrong = |problem: String| settings.wrong(name, problem);
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| wrong(format!("{path}: expected text in UTF-8")))?;
    let mut keys: Vec<NamedApiKey> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{path}:{}", index + 1);
        let key = NamedApiKey::parse(line).map_err(|error| wrong(format!("{place}: {error}")))?;
        if keys.iter().any(|other| other.name == key.name) {
            let problem = format!("{place}: the name {} is given twice", key.name);
            return Err(wrong(problem));
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return Err(wrong(format!("{path}: there is no key in the file")));
    }
    Ok(keys)
}

fn tls(settings: &Settings) -> Result<Option<TlsFiles>, SettingError> {
    match (settings.text("tls_certificate"), settings.text("tls_key")) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
            certificate: certificate.into(),
            key: key.into(),
        })),
        (Some(_), None) => Err(settings.wrong(
            "tls_certificate",
            "the certificate needs its key: give `tls_key`",
        )),
        (None, Some(_)) => Err(settings.wrong(
            "tls_key",
            "the key needs its certificate: give `tls_certificate`",
        )),
    }
}

fn is_any(values: &[String]) -> bool {
    values.iter().any(|value| value == ANY)
}

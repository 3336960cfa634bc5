//! Where the server listens, and for what.

use super::SettingError;
use super::given::Settings;
use super::value::{ANY, address};
use crate::auth::api_key::ApiKey;
use crate::config::{Config, OriginPolicy, Protocol, TlsFiles};
use std::net::{SocketAddr, ToSocketAddrs};

pub(super) fn set(settings: &Settings, config: &mut Config) -> Result<(), SettingError> {
    config.listen = listen(settings)?.unwrap_or(config.listen);
    config.ops_listen = settings.text("ops_listen").and_then(|text| address(&text));
    config.ops_api_key = api_key(settings)?;
    config.protocol = match settings.text("protocol").as_deref() {
        Some("raw") => Protocol::Raw,
        _ => Protocol::V1,
    };
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

fn api_key(settings: &Settings) -> Result<Option<ApiKey>, SettingError> {
    let Some(name) = settings.strongest(&["api_key", "api_key_file"])? else {
        return Ok(None);
    };
    if !settings.is_set("ops_listen") {
        let problem = "the key is of use on the operations listener only: give `ops_listen`";
        return Err(settings.wrong(name, problem));
    }
    let key = match name {
        "api_key" => settings.text(name).unwrap_or_default().into_bytes(),
        _ => settings.secret_file(name)?.unwrap_or_default(),
    };
    let path = settings.text(name).filter(|_| name == "api_key_file");
    let place = path.map_or_else(String::new, |path| format!("{path}: "));
    let key = ApiKey::new(key).map_err(|error| settings.wrong(name, format!("{place}{error}")))?;
    Ok(Some(key))
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

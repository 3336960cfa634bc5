//! A configuration from settings by name, for what drives the engine from other languages.
//!
//! The names and units are those of the options of `tidewire serve`, with underscores. Values are JSON.
//!
//! ```
//! use serde_json::json;
//! use tidewire_engine::settings::config_from;
//!
//! let settings = json!({"port": 0, "no_auth": true, "message_bytes_max": 65536, "history": {"news.>": 100}});
//! let config = config_from(settings.as_object().unwrap()).unwrap();
//! assert_eq!(config.limits.message_bytes_max, 65536);
//!
//! let settings = json!({"no_auth": true, "mesage_bytes_max": 1});
//! let error = config_from(settings.as_object().unwrap()).unwrap_err();
//! assert_eq!(error.to_string(), "unknown option mesage_bytes_max: did you mean message_bytes_max?");
//! ```

mod auth;
mod front;
mod layers;
mod topics;

pub use layers::p256_point_of_pem;

use crate::auth::api_key::ApiKey;
use crate::config::{Config, OriginPolicy, Protocol, TlsFiles};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Why settings make no configuration. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error("unknown option {name}{}", hint(.nearest))]
    Unknown {
        /// As it was given.
        name: String,
        /// The setting with the nearest name.
        nearest: Option<&'static str>,
    },
    /// A value that cannot be used.
    #[error("{name}: {problem}")]
    Value {
        /// The setting.
        name: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// The configuration that settings make; `null` is the default of each.
///
/// # Errors
/// [`SettingError`], of the first that is wrong.
pub fn config_from(settings: &Map<String, Value>) -> Result<Config, SettingError> {
    let settings = Settings(settings);
    for (name, _) in settings.given() {
        if !names().any(|known| known == name) {
            return Err(SettingError::Unknown {
                nearest: nearest(name),
                name: name.clone(),
            });
        }
    }
    let mut config = Config::default();
    for (name, value) in settings.given() {
        set_plain(&mut config, name, value).map_err(|problem| wrong(name, problem))?;
    }
    config.listen = listen(settings, config.listen)?;
    config.ops_listen = settings
        .get("ops_listen")?
        .map(|text: String| address("ops_listen", &text))
        .transpose()?;
    config.ops_api_key = api_key(settings)?;
    config.protocol = match settings.text("protocol")?.as_deref() {
        None | Some("v1") => Protocol::V1,
        Some("raw") => Protocol::Raw,
        Some(_) => return Err(wrong("protocol", "expected v1 or raw")),
    };
    if let Some(paths) = settings.texts("path")? {
        config.paths = if is_any(&paths) { Vec::new() } else { paths };
    }
    config.origins = match settings.texts("origin")? {
        None => OriginPolicy::SameHost,
        Some(origins) if is_any(&origins) => OriginPolicy::Any,
        Some(origins) => OriginPolicy::Listed(origins),
    };
    front::set(settings, &mut config)?;
    config.subprotocols = settings.texts("subprotocol")?.unwrap_or_default();
    config.tls = tls(settings)?;
    config.auth = auth::auth(settings, config.protocol)?;
    layers::set(settings, &mut config)?;
    topics::set(settings, &mut config.topics)?;
    Ok(config)
}

/// The names of all settings.
pub fn names() -> impl Iterator<Item = &'static str> {
    PLAIN
        .iter()
        .chain(OWN)
        .chain(auth::NAMES)
        .chain(front::NAMES)
        .chain(layers::NAMES)
        .chain(topics::NAMES)
        .copied()
}

/// Settings that are one field of the configuration, of a type that JSON has.
macro_rules! plain {
    ($($name:ident: $($field:ident).+;)+) => {
        const PLAIN: &[&str] = &[$(stringify!($name),)+];

        fn set_plain(config: &mut Config, name: &str, value: &Value) -> Result<(), String> {
            match name {
                $(stringify!($name) => config.$($field).+ = read(value)?,)+
                _ => {}
            }
            Ok(())
        }
    };
}

plain! {
    shards: shards;
    auth_failure_after_upgrade: auth_failure_after_upgrade;
    deduplicate: intake.deduplicate;
    intake_ids_max: intake.remembered_ids_max;
    producers_max: intake.producers_max;
    producer_ttl_ms: intake.producer_ttl_ms;
    drain_rate_per_s: drain.rate_per_s;
    reconnect_spread_ms: drain.reconnect_spread_ms;
    connections_max: limits.connections_max;
    handshakes_max: limits.handshakes_max;
    handshakes_per_address_max: limits.handshakes_per_address_max;
    handshakes_parked_max: limits.handshakes_parked_max;
    handshake_timeout_ms: limits.handshake_timeout_ms;
    request_head_bytes_max: limits.request_head_bytes_max;
    message_bytes_max: limits.message_bytes_max;
    rate_limit_capacity: limits.rate_limit_capacity;
    rate_limit_refill_per_s: limits.rate_limit_refill_per_s;
    errors_max: limits.errors_max;
    errors_window_ms: limits.errors_window_ms;
    outbox_bytes_max: limits.outbox_bytes_max;
    outboxes_bytes_max: limits.outboxes_bytes_max;
    outbox_pause_bytes: limits.outbox_pause_bytes;
    receive_buffer_bytes_max: limits.receive_buffer_bytes_max;
    receive_buffers_bytes_max: limits.receive_buffers_bytes_max;
    ping_interval_ms: limits.ping_interval_ms;
    idle_timeout_ms: limits.idle_timeout_ms;
    close_timeout_ms: limits.close_timeout_ms;
    shard_stall_ms: limits.shard_stall_ms;
    retry_after_s: limits.retry_after_s;
    call_timeout_ms: limits.call_timeout_ms;
    calls_per_connection_max: limits.calls_per_connection_max;
    subscriptions_per_connection_max: topics.limits.subscriptions_per_connection_max;
    subscribers_per_topic_max: topics.limits.subscribers_per_topic_max;
    payload_bytes_max: topics.limits.payload_bytes_max;
    backlog_bytes_max: topics.limits.backlog_bytes_max;
    history_bytes_max: topics.limits.history_bytes_max;
    history_topics_max: topics.limits.history_topics_max;
    presence_data_bytes_max: topics.limits.presence_data_bytes_max;
    remembered_ids_max: topics.limits.remembered_ids_max;
    lag_publications_max: topics.limits.lag_publications_max;
    lag_bytes_max: topics.limits.lag_bytes_max;
    group_waiting_max: topics.limits.group_waiting_max;
    group_waiting_bytes_max: topics.limits.group_waiting_bytes_max;
    subscription_bytes_per_connection_max: topics.limits.subscription_bytes_per_connection_max;
    subscription_bytes_per_owner_max: topics.limits.subscription_bytes_per_owner_max;
    subscription_bytes_max: topics.limits.subscription_bytes_max;
    patterns_per_connection_max: topics.limits.patterns_per_connection_max;
    groups_per_topic_max: topics.limits.groups_per_topic_max;
    owner_work_ms_per_s: limits.owner_work_ms_per_s;
}

/// The settings that are read in this file.
const OWN: &[&str] = &[
    "listen",
    "host",
    "port",
    "ops_listen",
    "api_key",
    "api_key_file",
    "protocol",
    "path",
    "origin",
    "subprotocol",
    "tls_certificate",
    "tls_key",
];

/// The settings as they were given.
#[derive(Clone, Copy)]
struct Settings<'a>(&'a Map<String, Value>);

impl<'a> Settings<'a> {
    fn given(self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.0.iter().filter(|(_, value)| !value.is_null())
    }

    fn value(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn get<T: DeserializeOwned>(self, name: &str) -> Result<Option<T>, SettingError> {
        let value = self.value(name).map(read).transpose();
        value.map_err(|problem| wrong(name, problem))
    }

    fn text(self, name: &str) -> Result<Option<String>, SettingError> {
        self.get(name)
    }

    fn flag(self, name: &str) -> Result<bool, SettingError> {
        Ok(self.get(name)?.unwrap_or(false))
    }

    /// One text, or a list of them.
    fn texts(self, name: &str) -> Result<Option<Vec<String>>, SettingError> {
        match self.value(name) {
            Some(Value::String(text)) => Ok(Some(vec![text.clone()])),
            _ => self.get(name),
        }
    }

    fn file(self, name: &str) -> Result<Option<Vec<u8>>, SettingError> {
        let Some(path) = self.get::<PathBuf>(name)? else {
            return Ok(None);
        };
        let bytes = fs::read(&path)
            .map_err(|error| wrong(name, format!("cannot read {}: {error}", path.display())))?;
        Ok(Some(bytes))
    }

    /// A file with a secret; a line feed at its end does not count.
    fn secret_file(self, name: &str) -> Result<Option<Vec<u8>>, SettingError> {
        let trimmed = |mut secret: Vec<u8>| {
            while matches!(secret.last(), Some(b'\n' | b'\r')) {
                secret.pop();
            }
            secret
        };
        Ok(self.file(name)?.map(trimmed))
    }
}

fn listen(settings: Settings<'_>, default: SocketAddr) -> Result<SocketAddr, SettingError> {
    let (host, port) = (settings.text("host")?, settings.get::<u16>("port")?);
    match settings.text("listen")? {
        Some(_) if host.is_some() || port.is_some() => Err(wrong(
            "listen",
            "give either listen, or host and port, not both",
        )),
        Some(text) => address("listen", &text),
        None => {
            let host = host.unwrap_or_else(|| default.ip().to_string());
            let port = port.unwrap_or(default.port());
            let found = (host.as_str(), port).to_socket_addrs();
            found
                .ok()
                .and_then(|mut found| found.next())
                .ok_or_else(|| wrong("host", format!("{host} is no address of this machine")))
        }
    }
}

fn address(name: &str, text: &str) -> Result<SocketAddr, SettingError> {
    let found = text.to_socket_addrs().ok();
    found.and_then(|mut found| found.next()).ok_or_else(|| {
        let problem = "expected an address and a port, such as 127.0.0.1:5006 or [::]:5006";
        wrong(name, problem)
    })
}

fn api_key(settings: Settings<'_>) -> Result<Option<ApiKey>, SettingError> {
    let given = settings.text("api_key")?.map(String::into_bytes);
    let (name, key) = match (given, settings.secret_file("api_key_file")?) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(excluded("api_key", "api_key_file")),
        (Some(key), None) => ("api_key", key),
        (None, Some(key)) => ("api_key_file", key),
    };
    if settings.value("ops_listen").is_none() {
        let problem = "it is of use on the operations listener only: give ops_listen";
        return Err(wrong(name, problem));
    }
    let key = ApiKey::new(key).map_err(|error| wrong(name, error.to_string()))?;
    Ok(Some(key))
}

fn tls(settings: Settings<'_>) -> Result<Option<TlsFiles>, SettingError> {
    match (settings.get("tls_certificate")?, settings.get("tls_key")?) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
        (Some(_), None) => Err(wrong("tls_certificate", "it needs its key: give tls_key")),
        (None, Some(_)) => Err(wrong(
            "tls_key",
            "it needs its certificate: give tls_certificate",
        )),
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}

fn wrong(name: &str, problem: impl Into<String>) -> SettingError {
    SettingError::Value {
        name: name.to_owned(),
        problem: problem.into(),
    }
}

fn excluded(one: &str, other: &str) -> SettingError {
    wrong(one, format!("it excludes {other}: give one of them"))
}

fn is_any(values: &[String]) -> bool {
    values.iter().any(|value| value == "any")
}

fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(": did you mean {name}?"))
}

/// The setting whose name is most like this one, if one is.
fn nearest(name: &str) -> Option<&'static str> {
    let scored = names().map(|known| (strsim::jaro_winkler(known, name), known));
    scored
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .filter(|(likeness, _)| *likeness >= LIKE_MIN)
        .map(|(_, known)| known)
}

/// From 0, nothing in common, to 1, the same.
const LIKE_MIN: f64 = 0.8;

#[cfg(test)]
mod tests;

//! The options of a client by name, as JSON: what bindings and tables of scenarios give.

use crate::backoff::Delay;
use crate::config::{
    Compression, Config, Encryption, Queue, Signing, Tls, TokenPlacement, Uncertain,
};
use crate::endpoints::{Choice, Endpoint};
use crate::error::Error;
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;
use tidewire_wire::format::Format;

/// The names of all options. `urls`, a list of addresses or of pairs of an address and its weight, is the one that has
/// to be there. `token` may be a text; what gives tokens is no JSON. `wait` is for who calls: whether to wait for the
/// first session.
pub const NAMES: [&str; 41] = [
    "token",
    "token_placement",
    "token_name",
    "headers",
    "tls_ca_file",
    "format",
    "compression",
    "encryption",
    "server_identity",
    "signature_secret",
    "signature_version",
    "choice",
    "reconnect",
    "reconnect_delay",
    "reconnect_base_ms",
    "reconnect_max_ms",
    "reconnect_attempts_max",
    "reconnect_time_max_ms",
    "breaker_failures_max",
    "breaker_open_ms",
    "breaker_trials",
    "connect_timeout_ms",
    "request_timeout_ms",
    "idle_timeout_ms",
    "ping_interval_ms",
    "message_bytes_max",
    "outbox_bytes_max",
    "inbox_bytes_max",
    "requests_max",
    "reorder_window_ms",
    "rate_limit",
    "client_version",
    "source_address",
    "offline_queue",
    "queue_messages_max",
    "queue_bytes_max",
    "queue_age_max_ms",
    "queue_window",
    "queue_resend_uncertain",
    "wait",
    "urls",
];

/// Options that are bytes, which JSON does not have.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The server's public identity key: an uncompressed P-256 point of 65 bytes.
    pub server_identity: Option<Vec<u8>>,
    /// The secret that signs messages, at least 32 bytes.
    pub signature_secret: Option<Vec<u8>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// Reads the options, a JSON object.
///
/// # Errors
/// [`Error::Invalid`]: an option is unknown or has a value that cannot be used.
pub fn read(text: &str, secrets: Secrets) -> Result<Config, Error> {
    let fields: Map<String, Value> = serde_json::from_str(text).map_err(configuration)?;
    if let Some(unknown) = fields.keys().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(configuration(format!("unknown option {unknown}")));
    }
    let options = Options(fields);
    let mut config = Config::new("");
    config.endpoints = options.endpoints()?;
    options.read_limits(&mut config)?;
    options.read_layers(&mut config, secrets)?;
    options.read_reconnect(&mut config)?;
    config.queue = options.queue()?;
    if let Some(token) = options.text("token")? {
        config = config.with_token(token);
    }
    Ok(config)
}

struct Options(Map<String, Value>);

impl Options {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(name, "a whole number from 0 on", value)),
            },
        }
    }

    fn size(&self, name: &str, default: usize) -> Result<usize, Error> {
        match self.number(name)? {
            None => Ok(default),
            Some(0) => Err(configuration(format!(
                "{name} is 0, it has to be 1 or more"
            ))),
            Some(number) => usize::try_from(number).map_err(configuration),
        }
    }

    fn time(&self, name: &str, default: Duration) -> Result<Duration, Error> {
        Ok(self.number(name)?.map_or(default, Duration::from_millis))
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Error> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(wrong(name, "True or False", value)),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(wrong(name, "a text", value)),
        }
    }

    /// One of some words; the first is the default.
    fn choice<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<T, Error> {
        let known = || {
            words
                .iter()
                .map(|(word, _)| format!("{word:?}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self.text(name)? {
            None => Ok(words[0].1),
            Some(text) => match words.iter().find(|(word, _)| *word == text) {
                Some((_, value)) => Ok(*value),
                None => Err(configuration(format!(
                    "{name} is {text:?}, it is one of {}",
                    known()
                ))),
            },
        }
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, Error> {
        let list = self.get("urls").and_then(Value::as_array);
        let list = list.filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| {
            configuration("a client needs an address, such as ws://127.0.0.1:5006/ws")
        })?;
        list.iter().map(endpoint).collect()
    }

    fn read_limits(&self, config: &mut Config) -> Result<(), Error> {
        config.connect_timeout = self.time("connect_timeout_ms", config.connect_timeout)?;
        config.request_timeout = self.time("request_timeout_ms", config.request_timeout)?;
        config.idle_timeout = self.time("idle_timeout_ms", config.idle_timeout)?;
        config.ping_interval = self.number("ping_interval_ms")?.map(Duration::from_millis);
        config.message_bytes_max = self.size("message_bytes_max", config.message_bytes_max)?;
        config.outbox_bytes_max = self.size("outbox_bytes_max", config.outbox_bytes_max)?;
        config.inbox_bytes_max = self.size("inbox_bytes_max", config.inbox_bytes_max)?;
        config.requests_max = self.size("requests_max", config.requests_max)?;
        config.reorder_window = self.time("reorder_window_ms", config.reorder_window)?;
        config.rate_limit = self.flag("rate_limit", config.rate_limit)?;
        if let Some(version) = self.text("client_version")? {
            version.clone_into(&mut config.client_version);
        }
        if let Some(address) = self.text("source_address")? {
            let parsed = address.parse().map_err(|_| {
                configuration(format!(
                    "source_address is {address:?}, which is no IP address"
                ))
            })?;
            config.source_address = Some(parsed);
        }
        Ok(())
    }

    fn read_layers(&self, config: &mut Config, secrets: Secrets) -> Result<(), Error> {
        let formats = [("json", Format::Json), ("msgpack", Format::MessagePack)];
        config.format = self.choice("format", &formats)?;
        let compressions = [
            ("off", Compression::Off),
            ("zlib", Compression::Zlib),
            ("deflate", Compression::Deflate),
        ];
        config.compression = self.choice("compression", &compressions)?;
        let encryption = self.choice("encryption", &[("off", 0), ("on", 2), ("version-1", 1)])?;
        config.encryption = match (encryption, secrets.server_identity) {
            (1, None) => Encryption::VersionOne,
            (2, None) => Encryption::On,
            (_, None) => Encryption::Off,
            (1, Some(_)) => {
                return Err(configuration("server_identity needs encryption=\"on\""));
            }
            (_, Some(key)) => Encryption::Pinned(Box::new(key.try_into().map_err(|_| {
                configuration("server_identity is the 65 bytes of an uncompressed P-256 point")
            })?)),
        };
        let version_one = match self.number("signature_version")? {
            None | Some(2) => false,
            Some(1) => true,
            Some(other) => {
                return Err(configuration(format!(
                    "signature_version is {other}, it is 1 or 2"
                )));
            }
        };
        config.signing = match secrets.signature_secret {
            Some(secret) if secret.len() < 32 => {
                return Err(configuration("signature_secret has less than 32 bytes"));
            }
            secret => secret.map(|secret| Signing {
                secret,
                version_one,
            }),
        };
        if let Some(path) = self.text("tls_ca_file")? {
            config.tls = Tls::CaFile(path.into());
        }
        let name = self.text("token_name")?;
        let named = |default: &str| name.unwrap_or(default).to_owned();
        config.token_placement = match self.choice(
            "token_placement",
            &[
                ("header", 0),
                ("cookie", 1),
                ("query", 2),
                ("subprotocol", 3),
            ],
        )? {
            1 => TokenPlacement::Cookie(named("access_token")),
            2 => TokenPlacement::Query(named("token")),
            3 => TokenPlacement::Subprotocol(named("")),
            _ => TokenPlacement::Header,
        };
        config.headers = self.headers()?;
        Ok(())
    }

    fn headers(&self) -> Result<Vec<(String, String)>, Error> {
        let Some(value) = self.get("headers") else {
            return Ok(Vec::new());
        };
        let fields = value
            .as_object()
            .ok_or_else(|| wrong("headers", "a dict of texts", value))?;
        fields
            .iter()
            .map(|(name, value)| match value.as_str() {
                Some(text) => Ok((name.clone(), text.to_owned())),
                None => Err(wrong(&format!("headers[{name:?}]"), "a text", value)),
            })
            .collect()
    }

    fn read_reconnect(&self, config: &mut Config) -> Result<(), Error> {
        let choices = [
            ("weighted", Choice::Weighted),
            ("least_connections", Choice::LeastConnections),
            ("round_robin", Choice::RoundRobin),
        ];
        config.choice = self.choice("choice", &choices)?;
        let breaker = &mut config.breaker;
        if let Some(failures) = self.number("breaker_failures_max")? {
            breaker.failures_max = u32::try_from(failures).map_err(configuration)?;
        }
        breaker.open_for = self.time("breaker_open_ms", breaker.open_for)?;
        if let Some(trials) = self.number("breaker_trials")? {
            breaker.trials = u32::try_from(trials).map_err(configuration)?;
        }
        let mut reconnect = config.reconnect.take().unwrap_or_default();
        let delays = [
            ("exponential", Delay::Exponential),
            ("linear", Delay::Linear),
            ("fibonacci", Delay::Fibonacci),
            ("adaptive", Delay::Adaptive),
        ];
        reconnect.delay = self.choice("reconnect_delay", &delays)?;
        reconnect.base = self.time("reconnect_base_ms", reconnect.base)?;
        reconnect.max = self.time("reconnect_max_ms", reconnect.max)?;
        if let Some(attempts) = self.number("reconnect_attempts_max")? {
            reconnect.attempts_max = u32::try_from(attempts).map_err(configuration)?;
        }
        let time_max = self
            .number("reconnect_time_max_ms")?
            .filter(|time| *time > 0);
        reconnect.time_max = time_max.map(Duration::from_millis);
        config.reconnect = self.flag("reconnect", true)?.then_some(reconnect);
        Ok(())
    }

    fn queue(&self) -> Result<Option<Queue>, Error> {
        let Some(path) = self.text("offline_queue")? else {
            return Ok(None);
        };
        let default = Queue::default();
        let uncertain = self.flag("queue_resend_uncertain", false)?;
        Ok(Some(Queue {
            path: (path != IN_MEMORY).then(|| path.into()),
            messages_max: self.size("queue_messages_max", default.messages_max)?,
            bytes_max: self.number("queue_bytes_max")?.unwrap_or(default.bytes_max),
            age_max: self.time("queue_age_max_ms", default.age_max)?,
            window: self.size("queue_window", default.window)?,
            uncertain: if uncertain {
                Uncertain::Resend
            } else {
                Uncertain::Drop
            },
        }))
    }
}

/// An address, or a pair of an address and its weight.
fn endpoint(value: &Value) -> Result<Endpoint, Error> {
    let expected = "an address or a pair of an address and a weight from 1 on";
    match value {
        Value::String(url) => Ok(Endpoint::new(url)),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(url), weight] => {
                let weight = weight
                    .as_u64()
                    .and_then(|weight| u32::try_from(weight).ok());
                let weight = weight.filter(|weight| *weight > 0);
                let weight = weight.ok_or_else(|| wrong("url", expected, value))?;
                Ok(Endpoint {
                    url: url.clone(),
                    weight,
                })
            }
            _ => Err(wrong("url", expected, value)),
        },
        _ => Err(wrong("url", expected, value)),
    }
}

fn configuration(message: impl ToString) -> Error {
    Error::Invalid(message.to_string())
}

fn wrong(name: &str, expected: &str, value: &Value) -> Error {
    configuration(format!("{name} is {value}, expected {expected}"))
}

const IN_MEMORY: &str = ":memory:";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidewire_wire::session::PUBLIC_KEY_BYTES;

    fn config(text: &str) -> Result<Config, String> {
        read(text, Secrets::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_given_is_the_default() {
        let read =
            config(r#"{"urls": ["ws://a", ["ws://b", 3]], "reconnect_max_ms": null}"#).unwrap();
        let default = Config::new("ws://a");
        assert_eq!(read.endpoints[1].weight, 3);
        assert_eq!(read.reconnect, default.reconnect);
        assert_eq!(
            (read.breaker, read.requests_max),
            (default.breaker, default.requests_max)
        );
    }

    /// The rows of `options/client.json`.
    fn table() -> Vec<Value> {
        let table: Value =
            serde_json::from_str(include_str!("../../../options/client.json")).unwrap();
        let groups = table["groups"].as_array().unwrap().clone();
        let options = |group: &Value| group["options"].as_array().unwrap().clone();
        groups.iter().flat_map(options).collect()
    }

    /// The configuration that these options make, as text.
    fn described(mut options: Map<String, Value>) -> String {
        options.insert("urls".to_owned(), json!(["ws://a"]));
        let mut secrets = Secrets::default();
        if let Some(secret) = options.remove("signature_secret") {
            secrets.signature_secret = Some(secret.as_str().unwrap().into());
        }
        if options.remove("server_identity").is_some() {
            secrets.server_identity = Some(vec![4; PUBLIC_KEY_BYTES]);
        }
        format!(
            "{:?}",
            read(&Value::Object(options).to_string(), secrets).unwrap()
        )
    }

    #[test]
    fn the_names_are_those_of_the_table() {
        let table = table();
        let keywords = table.iter().filter(|row| row["keyword"] == json!(true));
        let mut expected: Vec<&str> = keywords.map(|row| row["name"].as_str().unwrap()).collect();
        expected.push("urls");
        let mut names = NAMES.to_vec();
        expected.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn the_defaults_are_those_of_the_table_and_examples_change_them() {
        let table = table();
        let example = |name: &Value| {
            let row = table.iter().find(|row| row["name"] == *name).unwrap();
            row["example"].clone()
        };
        for row in &table {
            let name = row["name"].as_str().unwrap();
            // `wait` is for who calls.
            if row["keyword"] != json!(true) || name == "wait" {
                continue;
            }
            let needs = row["needs"].as_array().cloned().unwrap_or_default();
            let beside: Map<String, Value> = needs
                .iter()
                .map(|need| (need.as_str().unwrap().to_owned(), example(need)))
                .collect();
            let with = |value: &Value| {
                let mut options = beside.clone();
                options.insert(name.to_owned(), value.clone());
                described(options)
            };
            if let Some(default) = row.get("default") {
                assert_eq!(with(default), described(beside.clone()), "{name}");
            }
            assert_ne!(with(&row["example"]), described(beside.clone()), "{name}");
        }
    }

    #[test]
    fn the_fields_of_the_configuration_have_the_defaults_of_the_table() {
        let config = Config::new("ws://a");
        let reconnect = config.reconnect.clone().unwrap();
        let queue = Queue::default();
        let ms = |time: Duration| json!(u64::try_from(time.as_millis()).unwrap());
        let fields = [
            ("connect_timeout", ms(config.connect_timeout)),
            ("idle_timeout", ms(config.idle_timeout)),
            ("request_timeout", ms(config.request_timeout)),
            ("reorder_window", ms(config.reorder_window)),
            ("message_bytes_max", json!(config.message_bytes_max)),
            ("outbox_bytes_max", json!(config.outbox_bytes_max)),
            ("inbox_bytes_max", json!(config.inbox_bytes_max)),
            ("requests_max", json!(config.requests_max)),
            ("rate_limit", json!(config.rate_limit)),
            ("reconnect.base", ms(reconnect.base)),
            ("reconnect.max", ms(reconnect.max)),
            ("reconnect.attempts_max", json!(reconnect.attempts_max)),
            (
                "reconnect.time_max",
                ms(reconnect.time_max.unwrap_or_default()),
            ),
            ("reconnect.hint_max", ms(reconnect.hint_max)),
            ("breaker.failures_max", json!(config.breaker.failures_max)),
            ("breaker.open_for", ms(config.breaker.open_for)),
            ("breaker.trials", json!(config.breaker.trials)),
            ("queue.messages_max", json!(queue.messages_max)),
            ("queue.bytes_max", json!(queue.bytes_max)),
            ("queue.age_max", ms(queue.age_max)),
            ("queue.window", json!(queue.window)),
        ];
        let table = table();
        for (field, default) in fields {
            let row = table.iter().find(|row| row["rust"] == json!(field));
            assert_eq!(row.unwrap()["default"], default, "{field}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (options, words) in [
            ("[]", "map"),
            ("{}", "address"),
            (
                r#"{"urls": ["ws://a"], "reconect": true}"#,
                "unknown option reconect",
            ),
            (
                r#"{"urls": ["ws://a"], "requests_max": 0}"#,
                "requests_max is 0",
            ),
            (
                r#"{"urls": ["ws://a"], "requests_max": -1}"#,
                "whole number",
            ),
            (r#"{"urls": ["ws://a"], "choice": "best"}"#, "round_robin"),
            (r#"{"urls": [["ws://a", 0]]}"#, "a weight from 1 on"),
        ] {
            let error = config(options).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}

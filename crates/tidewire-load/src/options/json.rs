//! The options of a load as JSON, with the names of the command line; the bindings of other
//! languages use it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::OptionError;
use super::load::{LoadOptions, TlsOptions};
use super::message::matching;
use super::quantity::stages;
use super::request::{BodyOptions, statuses};
use crate::plan::load::FindLimit;
use crate::worker::messages::Pointer;
use crate::worker::template::Syntax;
use crate::worker::websocket::profile::Profile;

/// The options in their JSON form.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    connections: Option<usize>,
    requests: Option<u64>,
    duration_s: Option<f64>,
    warm_up_s: Option<f64>,
    rate_per_s: Option<f64>,
    messages_per_s: Option<f64>,
    stages: Option<String>,
    poisson: bool,
    find_limit: bool,
    from_per_s: Option<f64>,
    to_per_s: Option<f64>,
    step_s: Option<f64>,
    ramp_per_s: Option<f64>,
    connection_stages: Option<String>,
    in_flight: Option<u32>,
    threads: Option<usize>,
    seed: Option<u64>,
    method: Option<String>,
    headers: BTreeMap<String, String>,
    cookies: BTreeMap<String, String>,
    body: Option<String>,
    json_body: Option<serde_json::Value>,
    form: Option<BTreeMap<String, String>>,
    scenario: Option<PathBuf>,
    compressed: bool,
    redirects: Option<u32>,
    literal: bool,
    message: Option<String>,
    message_file: Option<PathBuf>,
    subscribe: Vec<String>,
    reply: Option<String>,
    timestamp_field: Option<String>,
    binary: bool,
    deflate: bool,
    encrypt: bool,
    profile: Option<String>,
    token: Option<String>,
    expect_status: Option<String>,
    expect_body: Option<String>,
    expect_length: Option<u64>,
    expect: Vec<String>,
    abort_after_s: Option<f64>,
    confidence: Option<String>,
    keep_alive: Option<bool>,
    reconnect: bool,
    retry: Option<String>,
    requests_per_connection: Option<u64>,
    timeout_ms: Option<u64>,
    connect_timeout_ms: Option<u64>,
    drain_ms: Option<u64>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    sni: Option<String>,
    insecure: bool,
    proxy: Option<String>,
    unix_socket: Option<PathBuf>,
    source_address: Vec<std::net::IpAddr>,
    resolve: Vec<String>,
    memory: bool,
    server_pid: Option<u32>,
}

impl LoadOptions {
    /// Options from a JSON object with the names of the command line's flags; an absent option has
    /// its default.
    ///
    /// # Errors
    /// An unknown name, or a wrong value.
    pub fn from_json(url: &str, json: &str) -> Result<Self, OptionError> {
        let written: Written = serde_json::from_str(json).map_err(|error| mistake(json, &error))?;
        written.options(url)
    }
}

/// A mistake in the words of an option, and not of a place in the JSON text, which the user has not
/// written.
fn mistake(json: &str, error: &serde_json::Error) -> OptionError {
    let text = error.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(text, _)| text);
    if let Some(names) = text.strip_prefix("unknown field `") {
        // The wrong name, and then all known ones: "x`, expected one of `a`, `b`".
        let mut names = names.split('`').step_by(2);
        let wrong = names.next().unwrap_or_default();
        let likeness = |name: &&str| strsim::jaro_winkler(name, wrong);
        let nearest = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        return match nearest.filter(|name| likeness(name) >= LIKENESS_MIN) {
            Some(name) => OptionError::new(format_args!(
                "unknown option `{wrong}`: did you mean `{name}`?"
            )),
            None => OptionError::new(format_args!(
                "unknown option `{wrong}`: see the flags of `tidewire load --help`"
            )),
        };
    }
    match option_before(json, error.column()) {
        Some(name) => OptionError::new(format_args!("{name}: {text}")),
        None => OptionError::new(text),
    }
}

/// The name of the option whose value ends at this byte of an object in one line.
fn option_before(json: &str, column: usize) -> Option<&str> {
    let bytes = json.get(..column.min(json.len()))?.as_bytes();
    let (mut depth, mut start, mut is_escaped) = (0, None, false);
    let (mut last_text, mut name) = ("", None);
    for (at, byte) in bytes.iter().enumerate() {
        match (start, byte) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), b'\\') => is_escaped = true,
            (Some(from), b'"') => (last_text, start) = (&json[from..at], None),
            (Some(_), _) => {}
            (None, b'"') => start = Some(at + 1),
            (None, b'{' | b'[') => depth += 1,
            (None, b'}' | b']') => depth -= 1,
            (None, b':') if depth == 1 => name = Some(last_text),
            _ => {}
        }
    }
    name
}

/// Below this likeness two names have nothing to do with each other.
const LIKENESS_MIN: f64 = 0.8;

impl Written {
    fn options(self, url: &str) -> Result<LoadOptions, OptionError> {
        let mut options = LoadOptions::new(url);
        self.plan(&mut options)?;
        self.request(&mut options)?;
        self.messages(&mut options)?;
        self.connection(&mut options)?;
        options.scenario = self.scenario;
        Ok(options)
    }

    fn plan(&self, options: &mut LoadOptions) -> Result<(), OptionError> {
        options.connections = self.connections.unwrap_or(options.connections);
        options.requests = self.requests;
        options.duration = self.duration_s.map(seconds).transpose()?;
        options.warm_up = seconds(self.warm_up_s.unwrap_or(0.0))?;
        options.rate_per_s = self.rate_per_s;
        options.each_per_s = self.messages_per_s;
        options.stages = self.stages.as_deref().map(stages).transpose()?;
        options.poisson = self.poisson;
        options.ramp_per_s = self.ramp_per_s;
        let growth = self.connection_stages.as_deref().map(stages);
        options.connection_stages = growth.transpose()?;
        options.in_flight = self.in_flight.unwrap_or(options.in_flight);
        options.threads = self.threads.unwrap_or(options.threads);
        options.seed = self.seed.unwrap_or(options.seed);
        if self.find_limit {
            let usual = FindLimit::default();
            options.find_limit = Some(FindLimit {
                from_per_s: self.from_per_s.unwrap_or(usual.from_per_s),
                to_per_s: self.to_per_s.unwrap_or(usual.to_per_s),
                step: self.step_s.map(seconds).transpose()?.unwrap_or(usual.step),
                is_poisson: self.poisson,
                ..usual
            });
        } else if let Some(name) = self.search_option() {
            return Err(OptionError::new(format_args!(
                "{name} is for a search of the highest rate: give find_limit"
            )));
        }
        for text in &self.expect {
            let expectation = text.parse().map_err(OptionError::new)?;
            options.expectations.push(expectation);
        }
        options.abort_after = self.abort_after_s.map(seconds).transpose()?;
        let precision = self.confidence.as_deref().map(str::parse).transpose();
        options.precision = precision.map_err(OptionError::new)?;
        options.memory = self.memory;
        options.server_pid = self.server_pid;
        Ok(())
    }

    /// An option that only a search has.
    fn search_option(&self) -> Option<&'static str> {
        let given = [
            self.from_per_s.map(|_| "from_per_s"),
            self.to_per_s.map(|_| "to_per_s"),
            self.step_s.map(|_| "step_s"),
        ];
        given.into_iter().flatten().next()
    }

    fn request(&self, options: &mut LoadOptions) -> Result<(), OptionError> {
        let request = &mut options.request;
        request.method = self.method.as_ref().map(|method| method.to_uppercase());
        let owned = |map: &BTreeMap<String, String>| -> Vec<(String, String)> {
            map.iter().map(|(n, v)| (n.clone(), v.clone())).collect()
        };
        request.headers = owned(&self.headers);
        request.cookies = owned(&self.cookies);
        let bodies = [
            self.body
                .clone()
                .map(|text| BodyOptions::Bytes(text.into_bytes())),
            self.json_body
                .as_ref()
                .map(|json| BodyOptions::Json(json.to_string())),
            self.form
                .as_ref()
                .map(|form| BodyOptions::Form(owned(form))),
        ];
        let mut given = bodies.into_iter().flatten();
        request.body = given.next();
        if given.next().is_some() {
            return Err(OptionError::new(
                "several bodies: give one of body, json_body and form",
            ));
        }
        request.statuses = self.expect_status.as_deref().map(statuses).transpose()?;
        request.body_contains.clone_from(&self.expect_body);
        request.body_bytes = self.expect_length;
        options.compressed = self.compressed;
        options.redirects = self.redirects.unwrap_or(0);
        if self.literal {
            options.syntax = Syntax::Literal;
        }
        Ok(())
    }

    fn messages(&self, options: &mut LoadOptions) -> Result<(), OptionError> {
        let messages = &mut options.messages;
        messages.message.clone_from(&self.message);
        messages.file.clone_from(&self.message_file);
        messages.subscribe.clone_from(&self.subscribe);
        if let Some(reply) = &self.reply {
            messages.matching = matching(reply)?;
        }
        messages.stamp = self.timestamp_field.as_deref().map(Pointer::new);
        messages.is_binary = self.binary;
        messages.deflate = self.deflate;
        messages.encrypt = self.encrypt;
        messages.token.clone_from(&self.token);
        messages.profile = match self.profile.as_deref() {
            None => None,
            Some("raw") => Some(Profile::Raw),
            Some("v1") => Some(Profile::V1),
            Some(other) => {
                return Err(OptionError::new(format_args!(
                    "`{other}` is not a profile: write raw or v1"
                )));
            }
        };
        Ok(())
    }

    fn connection(&self, options: &mut LoadOptions) -> Result<(), OptionError> {
        options.keep_alive = self.keep_alive.unwrap_or(true);
        options.reconnect = self.reconnect;
        if let Some(retry) = &self.retry {
            options.retry = retry.parse()?;
        }
        options.requests_per_connection = self.requests_per_connection;
        let timeouts = &mut options.timeouts;
        timeouts.request_ms = self.timeout_ms.unwrap_or(timeouts.request_ms);
        timeouts.connect_ms = self.connect_timeout_ms.unwrap_or(timeouts.connect_ms);
        timeouts.drain_ms = self.drain_ms.unwrap_or(timeouts.drain_ms);
        options.tls = TlsOptions {
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            sni: self.sni.clone(),
            insecure: self.insecure,
        };
        options.proxy.clone_from(&self.proxy);
        options.unix_socket.clone_from(&self.unix_socket);
        options.source_addresses.clone_from(&self.source_address);
        options.resolve.clone_from(&self.resolve);
        Ok(())
    }
}

fn seconds(seconds: f64) -> Result<Duration, OptionError> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| OptionError::new(format_args!("{seconds} is not a time in seconds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        let json = r#"{"connections":7,"rate_per_s":100,"expect":["p99<1s"],"headers":{"A":"b"},
            "stages":null,"keep_alive":false,"reply":"field:id","profile":"v1"}"#;
        let options = LoadOptions::from_json("http://127.0.0.1/", json).unwrap();
        assert_eq!((options.connections, options.rate_per_s), (7, Some(100.0)));
        assert!(!options.keep_alive && options.expectations.len() == 1);
        assert_eq!(options.messages.profile, Some(Profile::V1));
    }

    #[test]
    fn a_wrong_value_is_named() {
        let error = |json| {
            let options = LoadOptions::from_json("http://127.0.0.1/", json);
            options.unwrap_err().to_string()
        };
        let unknown = "unknown option `conections`: did you mean `connections`?";
        assert_eq!(error(r#"{"conections":1}"#), unknown);
        assert!(error(r#"{"qqq":1}"#).contains("tidewire load --help"));
        let headers = r#"{"headers":{"a:\"b":"c"},"connections":"5","seed":1}"#;
        assert!(error(headers).starts_with("connections: invalid type: string \"5\""));
        assert!(error(r#"{"headers":{"a":1}}"#).starts_with("headers: invalid type"));
        assert!(error(r#"{"expect":"p99<1s"}"#).starts_with("expect: invalid type"));
        assert!(error(r#"{"profile":"v2"}"#).contains("raw or v1"));
        assert!(error(r#"{"body":"a","form":{}}"#).contains("several bodies"));
        assert!(error(r#"{"duration_s":-1}"#).contains("not a time"));
        assert!(error(r#"{"step_s":1}"#).contains("step_s is for a search"));
    }
}

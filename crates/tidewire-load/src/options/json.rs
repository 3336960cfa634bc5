//! The options of a load as programs give them: in JSON, with the names of the table.

use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::OptionError;
use super::body::BodyOptions;
use super::conversation::ConversationFile;
use super::load::LoadOptions;
use super::matching::matching;
use super::quantity::stages;
use super::request::statuses;
use super::scenario::Scenario;
use super::spec::{Kind, OptionSpec, Pairs, address, in_range};
use super::table::{OPTIONS, Written};
use super::tls::TlsOptions;
use super::workers::WorkerOptions;
use crate::plan::load::FindLimit;
use crate::worker::inputs;
use crate::worker::messages::Pointer;
use crate::worker::template::Syntax;
use crate::worker::websocket::profile::Profile;

impl LoadOptions {
    /// Options from a JSON object with the names of `docs/load-options.md`; an absent option has its default.
    ///
    /// # Errors
    /// An unknown name, a wrong value, or options that exclude each other.
    pub fn from_json(url: &str, json: &str) -> Result<Self, OptionError> {
        let values = serde_json::from_str(json).map_err(OptionError::new)?;
        Self::from_values(url, values)
    }

    /// [`Self::from_json`] of an object that is read already.
    ///
    /// # Errors
    /// The same.
    pub fn from_values(url: &str, mut values: Map<String, Value>) -> Result<Self, OptionError> {
        values.retain(|_, value| !value.is_null());
        for (name, value) in &values {
            let spec = OPTIONS.iter().find(|spec| spec.name == name);
            let spec = spec.ok_or_else(|| unknown(name))?;
            check(spec, value)
                .map_err(|error| OptionError::new(format_args!("{name}: {error}")))?;
            check_others(spec, value, &values)?;
        }
        let written = Written::deserialize(Value::Object(values.clone()));
        let written = written.map_err(OptionError::new)?;
        let commands = written.workers.0.clone();
        if commands.is_empty() {
            return written.options(url);
        }
        let mut workers = WorkerOptions::new(commands, url, values);
        let (options, inputs) = inputs::noted(|| written.options(url));
        let options = options?;
        workers.note(options.shown(), inputs);
        Ok(LoadOptions {
            workers: Some(workers),
            ..options
        })
    }
}

fn unknown(wrong: &str) -> OptionError {
    let likeness = |spec: &&OptionSpec| strsim::jaro_winkler(spec.name, wrong);
    let nearest = OPTIONS
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|spec| likeness(spec) >= LIKENESS_MIN) {
        Some(spec) => OptionError::new(format_args!(
            "unknown option `{wrong}`: did you mean `{}`?",
            spec.name
        )),
        None => OptionError::new(format_args!(
            "unknown option `{wrong}`: see the flags of `tidewire load --help`"
        )),
    }
}

/// That a value is one of its option, alone.
fn check(spec: &OptionSpec, value: &Value) -> Result<(), OptionError> {
    let alone = Map::from_iter([(spec.name.to_owned(), value.clone())]);
    Written::deserialize(Value::Object(alone)).map_err(OptionError::new)?;
    match spec.kind {
        Kind::Integer { smallest, largest } => {
            in_range(value.as_u64(), smallest, largest).map(drop)
        }
        _ => Ok(()),
    }
}

/// That what an option needs is there, and nothing that it excludes.
fn check_others(
    spec: &OptionSpec,
    value: &Value,
    values: &Map<String, Value>,
) -> Result<(), OptionError> {
    let is_given = |name: &&&str| values.get(**name).is_some_and(is_set);
    if !is_set(value) {
        return Ok(());
    }
    if let Some(need) = spec.needs.iter().find(|need| !is_given(need)) {
        return Err(OptionError::new(format_args!("{} needs {need}", spec.name)));
    }
    match spec.excludes.iter().find(is_given) {
        None => Ok(()),
        Some(other) => Err(OptionError::new(format_args!(
            "{} and {other} exclude each other",
            spec.name
        ))),
    }
}

/// False for what most options are by default: null, false, an empty list or an empty object.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
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
        if let Some(connections) = self.connections {
            options.connections = usize::try_from(connections).unwrap_or(usize::MAX);
        }
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
        if let Some(threads) = self.threads {
            options.threads = usize::try_from(threads).unwrap_or(usize::MAX);
        }
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
        }
        for text in &self.expect.0 {
            let expectation = text.parse().map_err(OptionError::new)?;
            options.expectations.push(expectation);
        }
        options.abort_after = self.abort_after_s.map(seconds).transpose()?;
        let precision = self.confidence.as_deref().map(str::parse).transpose();
        options.precision = precision.map_err(OptionError::new)?;
        Ok(())
    }

    fn request(&self, options: &mut LoadOptions) -> Result<(), OptionError> {
        let request = &mut options.request;
        request.method = self.method.as_ref().map(|method| method.to_uppercase());
        let pairs = |pairs: &Option<Pairs>| pairs.clone().map(|pairs| pairs.0);
        request.headers = pairs(&self.headers).unwrap_or_default();
        request.cookies = pairs(&self.cookies).unwrap_or_default();
        request.credentials.clone_from(&self.basic_auth);
        // They exclude each other.
        request.body = if let Some(text) = &self.body {
            Some(BodyOptions::Bytes(text.clone().into_bytes()))
        } else if let Some(path) = &self.body_file {
            Some(BodyOptions::File(path.clone()))
        } else if let Some(json) = &self.json_body {
            Some(BodyOptions::Json(json.to_string()))
        } else if let Some(text) = &self.json_text {
            Some(BodyOptions::Json(text.clone()))
        } else {
            pairs(&self.form).map(BodyOptions::Form)
        };
        request.statuses = self.expect_status.as_deref().map(statuses).transpose()?;
        request.body_contains.clone_from(&self.expect_body);
        request.body_bytes = self.expect_length;
        options.compressed = self.compressed;
        options.redirects = self.redirects.unwrap_or(0);
        options.keep_cookies = self.keep_cookies.unwrap_or(true);
        if self.literal {
            options.syntax = Syntax::Literal;
        }
        Ok(())
    }

    fn messages(&self, options: &mut LoadOptions) -> Result<(), OptionError> {
        let values = self
            .profile_values
            .clone()
            .map_or(Vec::new(), |pairs| pairs.0);
        let messages = &mut options.messages;
        messages.message.clone_from(&self.message);
        messages.file.clone_from(&self.message_file);
        messages.subscribe.clone_from(&self.subscribe.0);
        messages.stamp = self.timestamp_field.as_deref().map(Pointer::new);
        messages.is_binary = self.binary;
        messages.profile = match self.profile.as_deref() {
            None => None,
            Some("raw" | "v1") if !values.is_empty() => {
                ConversationFile::default().set(&values, &options.syntax)?;
                None
            }
            Some("raw") => Some(Profile::Raw),
            Some("v1") => Some(Profile::V1),
            Some(other) => {
                // A scenario that cannot be read is an error of the plan.
                let scenario = self.scenario.as_deref().map(Scenario::read);
                let variables = scenario.and_then(Result::ok);
                let variables = variables.map_or(Vec::new(), |scenario| scenario.captured());
                let mut file = ConversationFile::read_with(other, variables)?;
                file.set(&values, &options.syntax)?;
                messages.matching = file.matching()?.unwrap_or_default();
                messages.is_binary |= file.binary;
                messages.conversation = Some(file);
                None
            }
        };
        if let Some(reply) = &self.reply {
            messages.matching = matching(reply)?;
        }
        messages.deflate = self.deflate;
        messages.encrypt = self.encrypt;
        messages.token.clone_from(&self.token);
        Ok(())
    }

    fn connection(&self, options: &mut LoadOptions) -> Result<(), OptionError> {
        options.keep_alive = self.keep_alive.unwrap_or(true);
        options.reconnect = self.reconnect;
        if let Some(retry) = &self.retry {
            options.retry = retry.parse()?;
        }
        options.http2 = self.http2;
        options.streams = self.streams;
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
        let addresses = self.source_address.0.iter().map(|text| address(text));
        options.source_addresses = addresses.collect::<Result<_, _>>()?;
        options.resolve.clone_from(&self.resolve.0);
        options.memory = self.memory;
        options.server_pid = self.server_pid;
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
    fn the_example_of_each_option_changes_it_and_its_default_does_not() {
        let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../options/load.json");
        let table: Value = serde_json::from_str(&std::fs::read_to_string(table).unwrap()).unwrap();
        let options = table["groups"].as_array().unwrap().iter();
        let options: Vec<&Value> = options
            .flat_map(|group| group["options"].as_array().unwrap())
            .collect();
        assert_eq!(options.len(), OPTIONS.len());
        let example = |name: &Value| {
            let row = options.iter().find(|row| row["name"] == *name).unwrap();
            let value = match row["kind"].as_str() {
                Some("number") => row["example"].as_str().unwrap().parse().unwrap(),
                _ => row["example"].clone(),
            };
            (name.as_str().unwrap().to_owned(), value)
        };
        let usual = format!("{:?}", LoadOptions::new("http://127.0.0.1/"));
        for row in &options {
            let mut values = Map::from_iter([example(&row["name"])]);
            let needs = row["needs"].as_array().into_iter().flatten();
            values.extend(needs.map(example));
            let options = LoadOptions::from_values("http://127.0.0.1/", values).unwrap();
            assert_ne!(format!("{options:?}"), usual, "{row}: it changes nothing");
            let default = (
                row["name"].as_str().unwrap().to_owned(),
                row["default"].clone(),
            );
            let default = Map::from_iter([default]);
            let options = LoadOptions::from_values("http://127.0.0.1/", default).unwrap();
            assert_eq!(
                format!("{options:?}"),
                usual,
                "{row}: the default is another"
            );
        }
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
        assert_eq!(
            error(r#"{"connections":0}"#),
            "connections: expected a whole number from 1"
        );
        assert!(error(r#"{"source_address":"a"}"#).contains("`a` is not an address"));
        assert!(error(r#"{"headers":{"a":1}}"#).starts_with("headers: invalid type"));
        assert!(error(r#"{"expect":5}"#).starts_with("expect: invalid type"));
        assert!(error(r#"{"profile":"v2"}"#).contains("raw, v1, action-cable"));
        let bodies = r#"{"body":"a","form":{"b":"c"}}"#;
        assert_eq!(error(bodies), "body and form exclude each other");
        let set = r#"{"profile":"mqtt","profile_values":{"tpoic":"secret"}}"#;
        let expected = "the profile has no value tpoic: set one of client, keep_alive, ";
        assert!(error(set).starts_with(expected), "{}", error(set));
        for set in [
            r#"{"profile":"raw","profile_values":{"a":"b"}}"#,
            r#"{"profile":"socket.io","profile_values":{"a":"b"}}"#,
        ] {
            assert!(error(set).contains("has no values"), "{set}");
        }
        let alone = r#"{"profile_values":{"topic":"a"}}"#;
        assert_eq!(error(alone), "profile_values needs profile");
        assert!(error(r#"{"duration_s":-1}"#).contains("not a time"));
        assert_eq!(error(r#"{"step_s":1}"#), "step_s needs find_limit");
    }
}

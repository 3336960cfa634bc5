//! The configuration of an exporter, and the variables of OpenTelemetry that give it.

use percent_encoding::percent_decode_str;
use tidewire_engine::HttpUrl;

/// The configuration of an exporter.
#[derive(Debug, Clone)]
pub struct ExporterConfig {
    /// The URL that batches are posted to, such as `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: String,
    /// Further headers of each request, such as a key. Default: none.
    pub headers: Vec<(String, String)>,
    /// `service.name`. Default `tidewire`.
    pub service_name: String,
    /// Further attributes of the resource. Default: none.
    pub attributes: Vec<(String, String)>,
    /// The part of new traces that is sampled, from 0 to 1. Default 1.
    pub sampling: f64,
    /// Spans that wait at most; further ones are dropped. Default 8,192.
    pub queue_spans_max: usize,
}

/// Why a setting cannot be used. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct ConfigError {
    /// The variable.
    pub name: &'static str,
    /// The fault, and a right value. Values are not repeated: they can be secrets.
    pub problem: String,
}

impl ExporterConfig {
    /// The defaults, for this URL.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            headers: Vec::new(),
            service_name: "tidewire".to_owned(),
            attributes: Vec::new(),
            sampling: 1.0,
            queue_spans_max: 8_192,
        }
    }

    /// The URL for traces of a collector with this base URL.
    #[must_use]
    pub fn traces_url(base: &str) -> String {
        format!("{}/v1/traces", base.trim_end_matches('/'))
    }

    /// The part of traces that a text names.
    #[must_use]
    pub fn ratio(text: &str) -> Option<f64> {
        let ratio = text.trim().parse().ok();
        ratio.filter(|ratio| (0.0..=1.0).contains(ratio))
    }

    /// The configuration from the program's own base URL and the variables of OpenTelemetry. A base URL overrides
    /// the variables that name a receiver or switch traces off. Without one, the result is `None` if no variable
    /// names a receiver, or if the variables switch traces off.
    ///
    /// # Errors
    /// [`ConfigError`], of the first variable that is wrong.
    pub fn from_environment(
        base: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ConfigError> {
        // An empty variable is as good as none, by the specification.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let Some(endpoint) = (match base {
            Some(base) => Some(Self::traces_url(base)),
            None => endpoint(&variable)?,
        }) else {
            return Ok(None);
        };
        let mut config = Self::new(endpoint);
        for name in [
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        ] {
            for (header, value) in pairs(name, variable(name))? {
                config.headers.retain(|(known, _)| *known != header);
                config.headers.push((header, value));
            }
        }
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        config.attributes = pairs(name, variable(name))?;
        let mut attributes = config.attributes.iter();
        let named = attributes.find(|(key, _)| key == "service.name");
        config.service_name = variable("OTEL_SERVICE_NAME")
            .or_else(|| named.map(|(_, name)| name.clone()))
            .unwrap_or(config.service_name);
        config.sampling = sampling(&variable)?;
        Ok(Some(config))
    }
}

fn endpoint(variable: &impl Fn(&str) -> Option<String>) -> Result<Option<String>, ConfigError> {
    let is = |name: &str, wanted: &str| variable(name).is_some_and(|value| value == wanted);
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return Ok(None);
    }
    let name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    let (name, url) = match variable(name) {
        Some(url) => (name, url),
        None => {
            let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
            let Some(base) = variable(name) else {
                return Ok(None);
            };
            (name, ExporterConfig::traces_url(&base))
        }
    };
    let checked = HttpUrl::parse(&url).map_err(|error| ConfigError {
        name,
        problem: error.to_string(),
    });
    checked.map(|_| Some(url))
}

fn sampling(variable: &impl Fn(&str) -> Option<String>) -> Result<f64, ConfigError> {
    match variable("OTEL_TRACES_SAMPLER").as_deref() {
        Some("always_off" | "parentbased_always_off") => return Ok(0.0),
        Some("always_on" | "parentbased_always_on") => return Ok(1.0),
        _ => {}
    }
    let name = "OTEL_TRACES_SAMPLER_ARG";
    let Some(text) = variable(name) else {
        return Ok(1.0);
    };
    ExporterConfig::ratio(&text).ok_or(ConfigError {
        name,
        problem: "expected a number from 0 to 1".to_owned(),
    })
}

/// The pairs of a list such as `key=value,other=value`, whose values are percent-encoded.
fn pairs(name: &'static str, text: Option<String>) -> Result<Vec<(String, String)>, ConfigError> {
    let text = text.unwrap_or_default();
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let is_plain = !key.trim().is_empty() && !value.contains(['\r', '\n']);
        is_plain.then(|| (key.trim().to_owned(), value.into_owned()))
    };
    let wrong = || ConfigError {
        name,
        problem: "expected key=value, separated by commas, with values percent-encoded".to_owned(),
    };
    parts.map(|part| pair(part).ok_or_else(wrong)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        base: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Option<ExporterConfig>, ConfigError> {
        ExporterConfig::from_environment(base, |name| {
            let mut variables = variables.iter();
            variables
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_variables_of_opentelemetry_are_read() {
        let config = read(
            None,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a.example:4318/"),
                ("OTEL_SERVICE_NAME", "live"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "key=a%20b, other=1"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "other=2"),
                ("OTEL_RESOURCE_ATTRIBUTES", "host.name=h,service.version=3"),
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ],
        );
        let config = config.unwrap().unwrap();
        assert_eq!(config.endpoint, "http://a.example:4318/v1/traces");
        assert_eq!(config.service_name, "live");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(config.headers, [pair("key", "a b"), pair("other", "2")]);
        assert_eq!(config.attributes[0], pair("host.name", "h"));
        assert!((config.sampling - 0.25).abs() < 1e-9);
    }

    #[test]
    fn the_name_of_the_service_is_its_variable_else_its_attribute() {
        let url = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a.example");
        let attribute = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=prices");
        let name =
            |variables: &[(&str, &str)]| read(None, variables).unwrap().unwrap().service_name;
        assert_eq!(name(&[url]), "tidewire");
        assert_eq!(name(&[url, attribute]), "prices");
        assert_eq!(
            name(&[url, attribute, ("OTEL_SERVICE_NAME", "live")]),
            "live"
        );
    }

    #[test]
    fn an_exact_url_is_taken_as_it_is_and_the_program_comes_first() {
        let exact = (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "https://a.example/own",
        );
        assert_eq!(read(None, &[exact]).unwrap().unwrap().endpoint, exact.1);
        let own = read(
            Some("http://b.example"),
            &[exact, ("OTEL_SDK_DISABLED", "true")],
        );
        assert_eq!(own.unwrap().unwrap().endpoint, "http://b.example/v1/traces");
    }

    #[test]
    fn traces_are_off_without_a_receiver() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a.example");
        assert!(read(None, &[]).unwrap().is_none());
        assert!(read(None, &[(base.0, "")]).unwrap().is_none());
        assert!(
            read(None, &[base, ("OTEL_SDK_DISABLED", "true")])
                .unwrap()
                .is_none()
        );
        assert!(
            read(None, &[base, ("OTEL_TRACES_EXPORTER", "none")])
                .unwrap()
                .is_none()
        );
        let off = read(None, &[base, ("OTEL_TRACES_SAMPLER", "always_off")]);
        assert!(off.unwrap().unwrap().sampling.abs() < 1e-9);
    }

    #[test]
    fn wrong_variables_are_named() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a.example");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "a.example:4317"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "key"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "key=%0d%0a"),
            ("OTEL_RESOURCE_ATTRIBUTES", "=1"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
            ("OTEL_TRACES_SAMPLER_ARG", "NaN"),
        ] {
            assert_eq!(read(None, &[(name, value), base]).unwrap_err().name, name);
        }
    }
}

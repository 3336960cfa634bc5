//! The exporter of traces, in a program that was built with the feature `otlp`.

use super::options;
use crate::failure::Failure;
use tidewire_engine::settings::Settings;
use tidewire_engine::{Config, HttpUrl};

/// The exporter of spans, while the server runs.
pub(super) struct Traces {
    #[cfg(feature = "otlp")]
    exporter: Option<tidewire_otlp::Exporter>,
}

/// Checks the options of traces; an option without the feature is an error. Variables of OpenTelemetry are not: they are
/// often set for all programs of a machine.
pub(super) fn check(settings: &Settings) -> Result<(), Failure> {
    let wrong = |name: &str, problem: &str| options::failure(settings.wrong(name, problem));
    if let Some(url) = settings.text("otlp_endpoint") {
        HttpUrl::parse(&url).map_err(|error| wrong("otlp_endpoint", &error.to_string()))?;
        if !cfg!(feature = "otlp") {
            let problem = "this program was built without traces: build it with \
                `cargo build --release --package tidewire-cli --features otlp`";
            return Err(wrong("otlp_endpoint", problem));
        }
    }
    Ok(())
}

#[cfg(not(feature = "otlp"))]
impl Traces {
    /// Nothing but the check.
    pub(super) fn start(settings: &Settings, _config: &mut Config) -> Result<Self, Failure> {
        check(settings).map(|()| Self {})
    }

    pub(super) fn stop(self) {}
}

#[cfg(feature = "otlp")]
impl Traces {
    /// Starts the exporter, if a receiver is named, and lets the server send it its spans.
    pub(super) fn start(settings: &Settings, config: &mut Config) -> Result<Self, Failure> {
        check(settings)?;
        let base = settings.text("otlp_endpoint");
        let variable = |name: &str| std::env::var(name).ok();
        let chosen = tidewire_otlp::ExporterConfig::from_environment(base.as_deref(), variable);
        let Some(mut chosen) = chosen.map_err(Failure::usage)? else {
            return Ok(Self { exporter: None });
        };
        let ratio = settings.text("otlp_sampling");
        let ratio = ratio.and_then(|ratio| tidewire_otlp::ExporterConfig::ratio(&ratio));
        chosen.sampling = ratio.unwrap_or(chosen.sampling);
        tracing::info!(
            endpoint = chosen.endpoint,
            sampling = chosen.sampling,
            "traces are sent"
        );
        let exporter = tidewire_otlp::Exporter::start(chosen).map_err(Failure::run)?;
        config.traces = Some(exporter.sink());
        Ok(Self {
            exporter: Some(exporter),
        })
    }

    /// Sends what waits, for a short time.
    pub(super) fn stop(self) {
        if let Some(exporter) = self.exporter {
            exporter.stop(PATIENCE);
        }
    }
}

/// How long the program waits at its end for the receiver.
#[cfg(feature = "otlp")]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

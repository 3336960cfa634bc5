//! The log of `tidewire serve`, on standard error: lines of text, or of JSON for programs that collect logs.

mod writer;

use super::options;
use crate::failure::Failure;
use serde_json::{Map, Value};
use std::fmt;
use tidewire_engine::settings::Settings;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, Subscriber as Formatter};
use tracing_subscriber::registry::LookupSpan;

pub(super) use writer::LogThread;

/// Changes which events are logged.
pub(super) struct LogLevel(Box<dyn Fn(EnvFilter) -> bool + Send + Sync>);

impl LogLevel {
    /// Logs from now on what `filter` selects.
    pub(super) fn set(&self, filter: EnvFilter) {
        if !(self.0)(filter) {
            tracing::error!("the log level could not be changed");
        }
    }
}

/// Logs to standard error what `log_level` selects, in the form of `log_format`. A thread of its own writes, so that
/// nobody who logs waits for the reader of standard error.
pub(super) fn to_stderr(settings: &Settings) -> Result<(LogLevel, LogThread), Failure> {
    let filter = filter(settings)?;
    let thread = LogThread::start()?;
    let builder = Formatter::builder()
        .with_writer(writer::LineWriter::default)
        .with_ansi(false);
    let level: Box<dyn Fn(EnvFilter) -> bool + Send + Sync> = if is_json(settings) {
        let builder = builder
            .event_format(JsonLines)
            .with_env_filter(filter)
            .with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        Box::new(move |filter| handle.reload(filter).is_ok())
    } else {
        let builder = builder.with_env_filter(filter).with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        Box::new(move |filter| handle.reload(filter).is_ok())
    };
    writer::log_panics();
    Ok((LogLevel(level), thread))
}

/// Whether log lines are JSON.
pub(super) fn is_json(settings: &Settings) -> bool {
    settings.text("log_format").as_deref() == Some("json")
}

/// The levels that `log_level` selects.
pub(super) fn filter(settings: &Settings) -> Result<EnvFilter, Failure> {
    let level = settings.text("log_level").unwrap_or_default();
    EnvFilter::builder().parse(&level).map_err(|_| {
        let problem = format!(
            "{level:?}: expected error, warn, info, debug, trace, off, or filters such as \
             warn,tidewire_engine=debug"
        );
        options::failure(settings.wrong("log_level", problem))
    })
}

/// One JSON object per line: `time`, `level`, `target`, `message`, and the fields of the event.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let metadata = event.metadata();
        let mut fields = Fields(Map::new());
        let head = [
            ("time", time.as_str()),
            ("level", metadata.level().as_str()),
            ("target", metadata.target()),
        ];
        for (name, value) in head {
            fields.0.insert(name.to_owned(), value.into());
        }
        event.record(&mut fields);
        writeln!(writer, "{}", Value::Object(fields.0))
    }
}

/// The fields of an event. The fields for time and origin keep their meaning.
struct Fields(Map<String, Value>);

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        self.0.entry(field.name()).or_insert(value);
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}").into());
    }
}

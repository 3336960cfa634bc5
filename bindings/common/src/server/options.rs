//! The options of a server: those of the engine, and those of its queue.

use serde_json::{Map, Value};
use tidewire_engine::Config;
use tidewire_engine::settings::{SettingError, Settings, Way, names};

/// The options of one server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The configuration of the engine.
    pub config: Config,
    /// The bytes of events that may wait to be received; past it nothing is read from the sockets.
    pub queue_bytes_max: usize,
    /// Whether the application answers clients that ask for the state of topics.
    pub snapshot_requests: bool,
}

impl ServerOptions {
    /// Reads the options under the names of the engine's table, in snake_case.
    ///
    /// # Errors
    /// A name that is unknown, or a value that cannot be used.
    pub fn from_keywords(keywords: &Map<String, Value>) -> Result<Self, SettingError> {
        let settings = Settings::from_keywords(keywords)?;
        let queue_bytes_max = settings.integer("queue_bytes_max").unwrap_or(u64::MAX);
        let config = settings.config()?;
        settings.log_warnings(&config);
        Ok(Self {
            config,
            queue_bytes_max: usize::try_from(queue_bytes_max).unwrap_or(usize::MAX),
            snapshot_requests: settings.flag("snapshot_requests"),
        })
    }

    /// The names of all options, in snake_case.
    pub fn names() -> impl Iterator<Item = &'static str> {
        names(Way::Keyword)
    }

    /// Everything that was given or has a default, without secrets.
    #[must_use]
    pub fn describe(&self) -> String {
        let queue = format!("{} {}", self.queue_bytes_max, self.snapshot_requests);
        format!("{:#?}\n{queue}", self.config)
    }

    /// `ws`, or `wss` with TLS.
    pub(super) fn scheme(&self) -> &'static str {
        match self.config.tls {
            Some(_) => "wss",
            None => "ws",
        }
    }

    /// The first path on which the server accepts WebSockets.
    pub(super) fn path(&self) -> &str {
        self.config.paths.first().map_or("/", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_read_under_the_name_of_the_table() {
        let text = r#"{"no_auth": true, "queue_bytes_max": 4096, "snapshot_requests": true}"#;
        let keywords: Map<String, Value> = serde_json::from_str(text).expect("an object");
        let options = ServerOptions::from_keywords(&keywords).expect("options");
        assert_eq!(
            (options.queue_bytes_max, options.snapshot_requests),
            (4096, true)
        );
        assert_eq!(options.scheme(), "ws");
        assert!(ServerOptions::names().any(|name| name == "queue_bytes_max"));
    }

    #[test]
    fn an_unknown_option_is_an_error() {
        let keywords: Map<String, Value> =
            serde_json::from_str(r#"{"prot": 1}"#).expect("an object");
        assert!(ServerOptions::from_keywords(&keywords).is_err());
    }
}

//! A configuration from options by name: flags, variables, keys of a file and keyword arguments of bindings.
//!
//! The table of options is in `options/` of the repository; [`OPTIONS`] is generated from it. Every way to give an
//! option is checked here in the same manner and makes the same [`Config`].
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

mod advice;
mod auth;
mod backend;
mod cluster;
mod front;
mod given;
mod given_rule;
mod layers;
mod listen;
mod lookup;
mod origin;
mod plain;
mod reload;
mod rules;
mod spec;
mod table;
mod topics;
mod value;

pub use given::Settings;
pub use layers::p256_point_of_pem;
pub use lookup::{names, nearest, option, spelled};
pub use origin::Origin;
pub use spec::{GroupSpec, Item, Kind, OptionSpec, Way};
pub use table::{GROUPS, OPTIONS, RULE_KEYS};

use crate::config::Config;
use crate::config::broker::BrokerConfig;
use crate::model::spelling::OptionSpelling;
use serde_json::{Map, Value};

/// Why settings make no configuration. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such option.
    #[error("{option}{}", hint(.nearest))]
    Unknown {
        /// The option as it was given, and where.
        option: String,
        /// The option with the nearest name.
        nearest: Option<String>,
    },
    /// A value that cannot be used.
    #[error("{option}: {}{problem}", given(.value))]
    Value {
        /// The option as it was given, and where.
        option: String,
        /// The value, unless it is a secret or missing.
        value: Option<String>,
        /// The fault, and a right value.
        problem: String,
    },
    /// Two options that exclude each other.
    #[error("{one} and {other} exclude each other: give one of them")]
    Conflict {
        /// One of them, and where it was given.
        one: String,
        /// The other.
        other: String,
    },
    /// No option defines how tokens are checked.
    #[error("{option}: a key is needed to check tokens with: {advice}")]
    NoKey {
        /// The option that most likely should have been given.
        option: String,
        /// The missing value.
        advice: String,
    },
}

/// The configuration that keyword arguments make, as JSON; `null` is the default of each. Options of a binding's own
/// queue, such as `queue_bytes_max`, are checked and otherwise left to the binding. Settings that are permitted but
/// most likely not meant are logged ([`Settings::warnings`]).
///
/// # Errors
/// [`SettingError`], of the first that is wrong.
pub fn config_from(keywords: &Map<String, Value>) -> Result<Config, SettingError> {
    let settings = Settings::from_keywords(keywords)?;
    let config = settings.config()?;
    settings.log_warnings(&config);
    Ok(config)
}

impl Settings {
    /// The configuration of a server. Options of whoever runs it, such as `log_level`, have no part in it.
    ///
    /// # Errors
    /// A file of a key or secret cannot be read, or options do not fit together.
    pub fn config(&self) -> Result<Config, SettingError> {
        let mut config = Config::default();
        plain::set(self, &mut config);
        listen::set(self, &mut config)?;
        front::set(self, &mut config)?;
        config.backend = backend::backend(self)?;
        config.auth = auth::auth(self, &config)?;
        layers::set(self, &mut config)?;
        topics::set(self, &mut config.topics)?;
        config.broker = self.broker()?;
        config.option_spelling = match self.way() {
            Way::Keyword => OptionSpelling::Keyword,
            Way::File | Way::Variable | Way::Flag => OptionSpelling::Flag,
        };
        Ok(config)
    }

    /// The broker of that configuration; `None` without one.
    ///
    /// # Errors
    /// Options of the broker do not fit together.
    pub fn broker(&self) -> Result<Option<BrokerConfig>, SettingError> {
        cluster::broker(self)
    }
}

fn hint(nearest: &Option<String>) -> String {
    let hint = nearest.as_ref();
    hint.map_or_else(String::new, |name| format!(": did you mean {name}?"))
}

fn given(value: &Option<String>) -> String {
    let value = value.as_ref();
    value.map_or_else(String::new, |value| format!("{value}: "))
}

/// Options that are one field of the configuration.
#[cfg(test)]
pub(crate) fn plain_names() -> &'static [&'static str] {
    plain::NAMES
}

#[cfg(test)]
mod tests;

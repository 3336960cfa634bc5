//! Reload: the program reads its configuration again, at SIGHUP or when the operations API asks for it.

use super::log::{self, LogLevel};
use super::options::warnings;
use super::options::{self, ServeFlags};
use super::traces;
use crate::failure::Failure;
use std::sync::{Arc, Mutex, PoisonError};
use tidewire_engine::settings::Settings;
use tidewire_engine::{GivenSetting, ReloadFunction, Reloaded, Reloader, Server, SettingsFunction};

/// The configuration of a running program.
pub(super) struct Configuration {
    flags: ServeFlags,
    /// The settings in force.
    settings: Mutex<Settings>,
    reloader: Reloader,
    log_level: LogLevel,
}

impl Configuration {
    /// The configuration of `server`, which the operations API can reload from now on.
    pub(super) fn of(
        server: &Server,
        flags: &ServeFlags,
        settings: &Settings,
        log_level: LogLevel,
    ) -> Arc<Self> {
        let configuration = Arc::new(Self {
            flags: flags.clone(),
            settings: Mutex::new(settings.clone()),
            reloader: server.reloader(),
            log_level,
        });
        let other = Arc::clone(&configuration);
        server.on_reload(ReloadFunction(Box::new(move || other.reload())));
        let other = Arc::clone(&configuration);
        server.on_settings(SettingsFunction(Box::new(move || other.given())));
        configuration
    }

    /// The options that were given, for the operations API.
    fn given(&self) -> Vec<GivenSetting> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let given = settings.given().map(|(name, value, source)| GivenSetting {
            name,
            value,
            source,
        });
        given.collect()
    }

    /// How long a drain waits, in milliseconds.
    pub(super) fn drain_timeout_ms(&self) -> u64 {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        settings.integer("drain_timeout_ms").unwrap_or_default()
    }

    /// Reads all sources of options again. An error states why nothing has changed.
    pub(super) fn reload(&self) -> Result<Reloaded, String> {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.replace(&mut settings);
        match &result {
            Ok(Reloaded {
                changed,
                needs_restart,
            }) => {
                let (changed, needs_restart) = (changed.join(", "), needs_restart.join(", "));
                tracing::info!(changed, "the configuration was read again");
                if !needs_restart.is_empty() {
                    tracing::warn!("changes that hold only after a restart: {needs_restart}");
                }
            }
            Err(problem) => {
                tracing::error!("the configuration is as it was before: {problem}");
            }
        }
        result
    }

    fn replace(&self, settings: &mut Settings) -> Result<Reloaded, String> {
        let words = |failure: Failure| failure.to_string();
        let new = self.flags.settings().map_err(words)?;
        let config = new.config().map_err(options::failure).map_err(words)?;
        let filter = log::filter(&new).map_err(words)?;
        traces::check(&new).map_err(words)?;
        let reloaded = self.reloader.reload(&config);
        let Reloaded {
            mut changed,
            mut needs_restart,
        } = reloaded.map_err(|error| error.to_string())?;
        self.log_level.set(filter);
        for (name, can_change) in OWN {
            let differs = !settings.has_same(&new, name);
            match can_change {
                true if differs => changed.push(name),
                false if differs => needs_restart.push(name),
                _ => {}
            }
        }
        for warning in warnings(&new, &config) {
            tracing::warn!("{warning}");
        }
        let names = |reported: &[&'static str]| {
            let options = reported
                .iter()
                .flat_map(|name| new.changed_from(settings, name));
            let mut options: Vec<_> = options.collect();
            options.sort_unstable();
            options.dedup();
            options
        };
        let mut reloaded = Reloaded {
            changed: names(&changed),
            needs_restart: names(&needs_restart),
        };
        // Rules of topics are reported together, of which presence waits.
        let waits = |name: &&str| reloaded.needs_restart.contains(name);
        reloaded.changed.retain(|name| !waits(name));
        // An option that waits for a restart is named again at the next reload, because it differs from the
        // value in force.
        let mut in_force = new.clone();
        for name in needs_restart {
            in_force.keep(settings, name);
        }
        *settings = in_force;
        Ok(reloaded)
    }
}

/// Options of the program, and whether they can change while it runs.
const OWN: [(&str, bool); 6] = [
    ("app", false),
    ("log_level", true),
    ("log_format", false),
    ("drain_timeout_ms", true),
    ("otlp_endpoint", false),
    ("otlp_sampling", false),
];

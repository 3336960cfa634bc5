//! The log of `tidewire serve`, on standard error.

use super::options;
use crate::failure::Failure;
use tidewire_engine::settings::Settings;
use tracing_subscriber::EnvFilter;

/// Logs to standard error what `log_level` selects.
pub(super) fn to_stderr(settings: &Settings) -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_env_filter(filter(settings)?)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    Ok(())
}

/// What `log_level` selects.
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

//! Notifications to the service manager (sd_notify(3)), if the program runs under one.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};
use tidewire_engine::{Handle, ShardHealth};

/// The service manager, such as systemd. Without one, nothing happens.
#[derive(Debug)]
pub(super) struct Supervisor {
    /// How often it wants a sign of life, if it does.
    watchdog: Option<Duration>,
    last_sign: Option<Instant>,
}

impl Supervisor {
    /// The one that the environment names.
    pub(super) fn from_environment() -> Self {
        Self {
            // Twice as often as it has to be, as systemd advises.
            watchdog: sd_notify::watchdog_enabled().map(|interval| interval / 2),
            last_sign: None,
        }
    }

    pub(super) fn serves(&self, address: &str) {
        let status = format!("listening on {address}");
        tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    pub(super) fn stops(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Names the process that is the service from now on.
    pub(super) fn is_succeeded_by(&self, process: u32) {
        tell(&[NotifyState::MainPid(process)]);
    }

    /// Gives a sign of life if it is time and no shard is stuck.
    pub(super) fn sign_of_life(&mut self, handle: &Handle) {
        let Some(interval) = self.watchdog else {
            return;
        };
        if self.last_sign.is_some_and(|sign| sign.elapsed() < interval) {
            return;
        }
        let is_healthy = |health: &ShardHealth| matches!(health, ShardHealth::Healthy);
        if handle.shard_health().iter().all(is_healthy) {
            tell(&[NotifyState::Watchdog]);
            self.last_sign = Some(Instant::now());
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

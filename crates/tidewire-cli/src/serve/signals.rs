//! Signals of a server.

use crate::failure::Failure;
use crate::stop;
use signal_hook::consts::{SIGHUP, SIGUSR2};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags that signals set.
#[derive(Debug)]
pub(super) struct Signals {
    pub(super) stop: Arc<AtomicBool>,
    hangup: Arc<AtomicBool>,
    hand_over: Arc<AtomicBool>,
}

impl Signals {
    /// Watches for SIGINT and SIGTERM (stop), SIGHUP (reload) and SIGUSR2 (start the next server).
    pub(super) fn watch() -> Result<Self, Failure> {
        let signals = Self {
            stop: stop::on_signals()?,
            hangup: Arc::default(),
            hand_over: Arc::default(),
        };
        for (signal, flag) in [(SIGHUP, &signals.hangup), (SIGUSR2, &signals.hand_over)] {
            signal_hook::flag::register(signal, Arc::clone(flag))
                .map_err(|error| Failure::run(format!("cannot handle signals: {error}")))?;
        }
        Ok(signals)
    }

    pub(super) fn told_to_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// True if SIGHUP arrived since the last call.
    pub(super) fn was_hung_up(&self) -> bool {
        self.hangup.swap(false, Ordering::AcqRel)
    }

    /// True if SIGUSR2 arrived since the last call.
    pub(super) fn told_to_hand_over(&self) -> bool {
        self.hand_over.swap(false, Ordering::AcqRel)
    }
}

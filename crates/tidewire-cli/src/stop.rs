//! Requests to stop: SIGINT, SIGTERM, or the end of standard input.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidewire_load::report::model::EXIT_INTERRUPTED;

/// A flag that the first signal sets. The second one ends the program at once.
pub(crate) fn on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The first handler reads the flag before the second sets it.
        let flag = Arc::clone(&stop);
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED.into(), flag)
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::run(format!("cannot handle signals: {error}")))?;
    }
    Ok(stop)
}

/// Sets the flag when standard input ends, which happens when the parent process ends.
pub(crate) fn with_stdin(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut ignored = [0; 256];
        while matches!(stdin.read(&mut ignored), Ok(1..)) {}
        stop.store(true, Ordering::Release);
    });
}

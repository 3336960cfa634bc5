//! What is shown while a load runs: plain lines on standard error.

use std::io::Write;
use std::time::{Duration, Instant};
use tidewire_load::plan::load::{LoadLive, LoadProgress};

/// The progress for the standard error of this process.
pub(crate) fn for_stderr(is_quiet: bool) -> Box<dyn LoadProgress> {
    if is_quiet {
        Box::new(())
    } else {
        Box::new(Lines {
            last: Instant::now(),
        })
    }
}

/// One line every few seconds.
#[derive(Debug)]
struct Lines {
    last: Instant,
}

impl LoadProgress for Lines {
    fn phase_started(&mut self, what: &str, expected: Option<Duration>) {
        let time = expected.map(|time| format!(" for {} s", time.as_secs_f64()));
        // Nothing can be shown any more when standard error is closed.
        let _ = writeln!(std::io::stderr(), "{what}{} …", time.unwrap_or_default());
        self.last = Instant::now();
    }

    fn tick(&mut self, live: &LoadLive) {
        if self.last.elapsed() < LINE_EVERY {
            return;
        }
        self.last = Instant::now();
        let p99 = live.service.window.as_ref();
        let p99 = p99.and_then(|(_, window)| window.percentile_us(99.0));
        let p99 = p99.map(|us| format!(", p99 {:.2} ms", us / 1e3));
        let _ = writeln!(
            std::io::stderr(),
            "  {:.0} s: {:.0} requests/s, {} connected, {} failed{}",
            live.service.elapsed.as_secs_f64(),
            live.rate_per_s,
            live.service.connected,
            live.service.requests.failed,
            p99.unwrap_or_default()
        );
    }
}

const LINE_EVERY: Duration = Duration::from_secs(5);

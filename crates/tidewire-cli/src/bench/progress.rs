//! Progress of a run: bars and current figures on a terminal, plain lines elsewhere.
//! Everything goes to standard error.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use tidewire_load::Progress;
use tidewire_load::accounting::live::Live;
use tidewire_load::report::TestResult;

/// The progress for the standard error of this process.
pub(crate) fn for_stderr() -> Shown {
    let form = if std::io::stderr().is_terminal() {
        Form::Bar(None)
    } else {
        Form::Lines
    };
    let now = Instant::now();
    Shown {
        form,
        name: String::new(),
        expected: Duration::ZERO,
        started: now,
        last_line: now,
    }
}

/// Shows a run.
#[derive(Debug)]
pub(crate) struct Shown {
    form: Form,
    /// The current test.
    name: String,
    /// Its approximate duration.
    expected: Duration,
    started: Instant,
    last_line: Instant,
}

#[derive(Debug)]
enum Form {
    /// The bar of the current test.
    Bar(Option<ProgressBar>),
    Lines,
}

impl Progress for Shown {
    fn test_started(&mut self, name: &str, detail: &str, expected: Duration) {
        self.name = if detail.is_empty() {
            name.to_owned()
        } else {
            format!("{name}, {detail}")
        };
        self.expected = expected;
        self.started = Instant::now();
        self.last_line = self.started;
        if let Form::Bar(bar) = &mut self.form {
            let new = if expected.is_zero() {
                ProgressBar::new_spinner().with_style(style(SPINNER))
            } else {
                ProgressBar::new(expected.as_millis() as u64).with_style(style(BAR))
            };
            new.set_prefix(self.name.clone());
            *bar = Some(new);
        }
    }

    fn tick(&mut self, live: &Live) {
        match &mut self.form {
            Form::Bar(Some(bar)) => {
                bar.set_message(figures(live));
                if self.expected.is_zero() {
                    bar.tick();
                } else {
                    bar.set_position(self.started.elapsed().min(self.expected).as_millis() as u64);
                }
            }
            Form::Bar(None) => {}
            Form::Lines => {
                if self.last_line.elapsed() >= LINE_INTERVAL {
                    self.last_line = Instant::now();
                    let seconds = self.started.elapsed().as_secs();
                    line(&format!("{}: {seconds} s, {}", self.name, figures(live)));
                }
            }
        }
    }

    fn test_finished(&mut self, result: &TestResult) {
        if let Form::Bar(bar) = &mut self.form
            && let Some(bar) = bar.take()
        {
            bar.finish_and_clear();
        }
        line(&format!("{}: {}", self.name, outcome(result)));
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Form::Bar(Some(bar)) = &self.form {
            bar.finish_and_clear();
        }
    }
}

fn figures(live: &Live) -> String {
    let mut parts = vec![format!("{} open", live.connected)];
    if live.failed > 0 {
        parts.push(format!("{} failed", live.failed));
    }
    if live.confirmed > 0 {
        parts.push(format!("{} confirmed", short(live.confirmed as f64)));
    }
    if live.rate_per_s > 0.0 {
        parts.push(format!("{}/s", short(live.rate_per_s)));
    }
    if let Some(p99_us) = live.latency_p99_us {
        parts.push(format!("p99 {}", duration(p99_us)));
    }
    parts.join(", ")
}

fn outcome(result: &TestResult) -> String {
    let mut parts = Vec::new();
    if let Some(rate) = result.rate_per_s {
        parts.push(format!("{}/s", short(rate)));
    }
    if let Some(latency) = &result.latency_us {
        parts.push(format!(
            "p50 {}, p99 {}",
            duration(latency.p50),
            duration(latency.p99)
        ));
    }
    if let Some(survival) = result.survival {
        parts.push(format!("{:.1} % survived", survival.percent));
    }
    if let Some(limit) = result.limit {
        parts.push(format!("{} connections", limit.largest_stable));
    }
    parts.push(result.verdict.as_str().replace('_', " "));
    parts.join(", ")
}

/// `15.2 M`, `734`.
fn short(number: f64) -> String {
    let (scaled, unit) = match number {
        1e9.. => (number / 1e9, " G"),
        1e6.. => (number / 1e6, " M"),
        1e4.. => (number / 1e3, " k"),
        _ => return format!("{number:.0}"),
    };
    format!("{scaled:.1}{unit}")
}

fn duration(microseconds: f64) -> String {
    match microseconds {
        1e6.. => format!("{:.2} s", microseconds / 1e6),
        1e3.. => format!("{:.2} ms", microseconds / 1e3),
        _ => format!("{microseconds:.0} µs"),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn line(text: &str) {
    // A run continues when nobody reads its progress any more.
    let _ = writeln!(std::io::stderr(), "{text}");
}

const BAR: &str = "{prefix} [{bar:24}] {elapsed} {msg}";
const SPINNER: &str = "{prefix} {spinner} {elapsed} {msg}";
/// Between two plain lines of one test.
const LINE_INTERVAL: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            (short(734.0), short(15_234_567.0)),
            ("734".into(), "15.2 M".into())
        );
        assert_eq!(
            (duration(12.3), duration(1250.0)),
            ("12 µs".into(), "1.25 ms".into())
        );
        let live = Live {
            connected: 100,
            rate_per_s: 2.0e6,
            ..Live::default()
        };
        assert_eq!(figures(&live), "100 open, 2.0 M/s");
    }
}

//! Live view of `bench` and `load` on standard error: figures with their history on a terminal,
//! plain lines elsewhere.

mod board;
mod screen;

use board::Board;
pub(crate) use board::RunKind;
use screen::Screen;
use std::io::{IsTerminal, Stderr, Write};
use std::time::{Duration, Instant};
use tidewire_load::report::{TestResult, number};
use tidewire_load::{Progress, RunLive};

/// The view of a run against this target, for the standard error of this process.
pub(crate) fn for_stderr(is_quiet: bool, target: &str, kind: RunKind) -> Box<dyn Progress> {
    let stderr = std::io::stderr();
    if is_quiet {
        Box::new(())
    } else if stderr.is_terminal() && terminal_size().is_some() {
        // https://no-color.org
        let has_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Box::new(Live {
            board: Board::new(target, kind),
            screen: Screen::new(stderr, has_color),
            drawn: None,
            kind,
            phase: String::new(),
        })
    } else {
        Box::new(Lines {
            last: Instant::now(),
            kind,
            phase: String::new(),
        })
    }
}

/// Columns and rows of the terminal, if there is room for a board.
fn terminal_size() -> Option<(u16, u16)> {
    let (columns, rows) = ratatui::crossterm::terminal::size().ok()?;
    (columns >= COLUMNS_MIN && rows > ROWS_MIN).then_some((columns, rows))
}

/// A board that is drawn repeatedly.
#[derive(Debug)]
struct Live {
    board: Board,
    screen: Screen<Stderr>,
    drawn: Option<Instant>,
    kind: RunKind,
    phase: String,
}

impl Live {
    fn draw(&mut self) {
        let Some((columns, rows)) = terminal_size() else {
            return;
        };
        // On some terminals a full line would begin another line.
        let width = (columns - 1).min(COLUMNS_MAX);
        let height = self.board.height().min(rows - 1);
        self.screen.draw(&self.board, width, height);
        self.drawn = Some(Instant::now());
    }
}

impl Progress for Live {
    fn phase_started(&mut self, what: &str, expected: Option<Duration>) {
        what.clone_into(&mut self.phase);
        self.board.start(what, expected);
        self.draw();
    }

    fn tick(&mut self, live: &RunLive) {
        self.board.observe(live);
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY) {
            self.draw();
        }
    }

    fn finished(&mut self, result: &TestResult) {
        if self.kind == RunKind::Tests {
            self.screen.clear();
            write_line(&format!("{}: {}", self.phase, outcome(result)));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The report contains all of it.
        self.screen.clear();
    }
}

/// One line every few seconds.
#[derive(Debug)]
struct Lines {
    last: Instant,
    kind: RunKind,
    phase: String,
}

impl Progress for Lines {
    fn phase_started(&mut self, what: &str, expected: Option<Duration>) {
        what.clone_into(&mut self.phase);
        if self.kind == RunKind::Load {
            let time = expected.map(|time| format!(" for {} s", time.as_secs_f64()));
            write_line(&format!("{what}{} …", time.unwrap_or_default()));
        }
        self.last = Instant::now();
    }

    fn tick(&mut self, live: &RunLive) {
        if self.last.elapsed() < LINE_EVERY {
            return;
        }
        self.last = Instant::now();
        match self.kind {
            RunKind::Load => write_line(&format!("  {}", line(live))),
            RunKind::Tests => write_line(&format!("{}: {}", self.phase, line(live))),
        }
    }

    fn finished(&mut self, result: &TestResult) {
        if self.kind == RunKind::Tests {
            write_line(&format!("{}: {}", self.phase, outcome(result)));
        }
    }
}

fn write_line(text: &str) {
    // A closed standard error ends the view, not the run.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The result of a test in one line.
fn outcome(result: &TestResult) -> String {
    let mut parts = Vec::new();
    if let Some(rate) = result.rate_per_s {
        parts.push(format!("{}/s", number::si(rate)));
    }
    if let Some(latency) = &result.latency_us {
        let (p50, p99) = (number::us(latency.p50), number::us(latency.p99));
        parts.push(format!("p50 {p50}, p99 {p99}"));
    }
    if let Some(survival) = result.survival {
        parts.push(format!("{:.1} % survived", survival.percent));
    }
    if let Some(limit) = &result.limit {
        parts.push(number::connections(limit.largest_stable));
    }
    let expectations = &result.load.expectations;
    let broken = expectations.iter().filter(|one| !one.kept);
    parts.extend(broken.map(|one| format!("`{}` is broken", one.text)));
    parts.push(result.verdict.as_str().replace('_', " "));
    parts.join(", ")
}

/// The figures of a moment in one line.
fn line(live: &RunLive) -> String {
    let service = &live.service;
    let p99 = live.latency.p99_us;
    let p99 = p99.map(|us| format!(", p99 {}", number::us(us)));
    let share = |name: &str, share: Option<f64>| {
        share
            .map(|share| format!(", {name} {:.0} % CPU", share * 100.0))
            .unwrap_or_default()
    };
    format!(
        "{} s: {}/s, {} connected, {} failed{}{}{}",
        service.elapsed.as_secs(),
        number::si(live.rate_per_s),
        number::grouped(service.connected),
        number::grouped(service.requests.failed),
        p99.unwrap_or_default(),
        share("generator", live.client_share),
        share("server", live.server_share),
    )
}

const DRAW_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(5);
const COLUMNS_MIN: u16 = 40;
const COLUMNS_MAX: u16 = 120;
const ROWS_MIN: u16 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_figures_that_are_known() {
        let mut live = RunLive {
            rate_per_s: 12_345.0,
            ..RunLive::default()
        };
        live.service.elapsed = Duration::from_millis(5_900);
        live.service.connected = 1_000;
        assert_eq!(line(&live), "5 s: 12.3 k/s, 1,000 connected, 0 failed");
        live.client_share = Some(0.5);
        live.server_share = Some(0.987);
        assert!(line(&live).ends_with("0 failed, generator 50 % CPU, server 99 % CPU"));
    }

    #[test]
    fn the_outcome_of_a_test_has_what_it_measured_and_what_is_broken() {
        let mut result = TestResult::new("throughput", 10);
        result.rate_per_s = Some(1_500_000.0);
        assert_eq!(outcome(&result), "1.50 M/s, valid");
        let broken = tidewire_load::report::ExpectationResult {
            text: "rate>2M".to_owned(),
            ..Default::default()
        };
        result.load.expectations.push(broken);
        assert_eq!(outcome(&result), "1.50 M/s, `rate>2M` is broken, valid");
    }
}

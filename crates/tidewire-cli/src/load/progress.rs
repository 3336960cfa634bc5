//! Progress of a load on standard error: figures with their history on a terminal, plain lines
//! elsewhere.

use super::board::Board;
use super::screen::Screen;
use std::io::{IsTerminal, Stderr, Write};
use std::time::{Duration, Instant};
use tidewire_load::plan::load::{LoadLive, LoadProgress};
use tidewire_load::report::number;

/// The progress of a load of this target, for the standard error of this process.
pub(crate) fn for_stderr(is_quiet: bool, target: &str) -> Box<dyn LoadProgress> {
    let stderr = std::io::stderr();
    if is_quiet {
        Box::new(())
    } else if stderr.is_terminal() && terminal_size().is_some() {
        // https://no-color.org
        let has_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Box::new(Live {
            board: Board::new(target),
            screen: Screen::new(stderr, has_color),
            drawn: None,
        })
    } else {
        Box::new(Lines {
            last: Instant::now(),
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

impl LoadProgress for Live {
    fn phase_started(&mut self, what: &str, expected: Option<Duration>) {
        self.board.start(what, expected);
        self.draw();
    }

    fn tick(&mut self, live: &LoadLive) {
        self.board.observe(live);
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY) {
            self.draw();
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
}

impl LoadProgress for Lines {
    fn phase_started(&mut self, what: &str, expected: Option<Duration>) {
        let time = expected.map(|time| format!(" for {} s", time.as_secs_f64()));
        // A closed standard error ends the progress, not the load.
        let _ = writeln!(std::io::stderr(), "{what}{} …", time.unwrap_or_default());
        self.last = Instant::now();
    }

    fn tick(&mut self, live: &LoadLive) {
        if self.last.elapsed() < LINE_EVERY {
            return;
        }
        self.last = Instant::now();
        let _ = writeln!(std::io::stderr(), "  {}", line(live));
    }
}

/// The figures of a moment in one line.
fn line(live: &LoadLive) -> String {
    let service = &live.service;
    let window = service.window.as_ref().map(|ended| &ended.window);
    let p99 = window.and_then(|window| window.percentile_us(99.0));
    let p99 = p99.map(|us| format!(", p99 {}", number::us(us)));
    let share = |name: &str, share: Option<f64>| {
        share
            .map(|share| format!(", {name} {:.0} % CPU", share * 100.0))
            .unwrap_or_default()
    };
    format!(
        "{} s: {} requests/s, {} connected, {} failed{}{}{}",
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
        let mut live = LoadLive {
            rate_per_s: 12_345.0,
            ..LoadLive::default()
        };
        live.service.elapsed = Duration::from_millis(5_900);
        live.service.connected = 1_000;
        assert_eq!(
            line(&live),
            "5 s: 12.3 k requests/s, 1,000 connected, 0 failed"
        );
        live.client_share = Some(0.5);
        live.server_share = Some(0.987);
        assert!(line(&live).ends_with("0 failed, generator 50 % CPU, server 99 % CPU"));
    }
}

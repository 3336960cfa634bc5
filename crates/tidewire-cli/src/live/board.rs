//! The board of a run: one row per figure, with its value and its history.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget};
use std::time::Duration;
use tidewire_load::RunLive;
use tidewire_load::report::number;
use tidewire_load::report::printable::printable_line;

/// The kind of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RunKind {
    /// One load, whose result is shown by its report.
    #[default]
    Load,
    /// Several tests, each of whose results is shown in a line when it is complete.
    Tests,
}

/// The current figures of a run, and those of the previous seconds.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// The URL under load.
    target: String,
    kind: RunKind,
    phase: String,
    expected: Option<Duration>,
    live: RunLive,
    /// One for each second of the phase, the newest last.
    seconds: Vec<Second>,
}

/// The figures of one second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    rate_per_s: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    max_us: Option<f64>,
    failed: u64,
    client_share: Option<f64>,
    server_share: Option<f64>,
    server_rss_bytes: Option<u64>,
}

/// A row: its name, its figure, and the figure of each second.
struct Row {
    name: &'static str,
    value: String,
    course: Vec<Option<f64>>,
    color: Color,
}

impl Board {
    /// A board of a run against this target.
    pub(crate) fn new(target: &str, kind: RunKind) -> Self {
        Self {
            kind,
            target: printable_line(target).into_owned(),
            ..Self::default()
        }
    }

    /// Starts a phase of the run.
    pub(crate) fn start(&mut self, phase: &str, expected: Option<Duration>) {
        self.phase = printable_line(phase).into_owned();
        self.expected = expected;
        self.seconds.clear();
        self.live = RunLive::default();
    }

    /// Adds new figures.
    pub(crate) fn observe(&mut self, live: &RunLive) {
        let second = live.service.elapsed.as_secs() as usize;
        if second > self.second() {
            let failed_before: u64 = self.seconds.iter().map(|second| second.failed).sum();
            self.seconds.push(Second {
                rate_per_s: live.rate_per_s,
                p50_us: live.latency.p50_us,
                p99_us: live.latency.p99_us,
                max_us: live.latency.max_us,
                failed: live.service.requests.failed.saturating_sub(failed_before),
                client_share: live.client_share,
                server_share: live.server_share,
                server_rss_bytes: live.server_rss_bytes,
            });
            if self.seconds.len() > SECONDS_MAX {
                // Dropped seconds must not count as new ones.
                let oldest = self.seconds.remove(0);
                self.seconds[0].failed += oldest.failed;
            }
        }
        self.live = live.clone();
    }

    /// The last second of the phase.
    fn second(&self) -> usize {
        self.live.service.elapsed.as_secs() as usize
    }

    /// The number of lines that it needs.
    pub(crate) fn height(&self) -> u16 {
        // The title, the rows, statuses, errors, and the key that ends the load.
        self.rows().len() as u16 + 4
    }

    fn title(&self) -> String {
        let service = &self.live.service;
        let of = self
            .expected
            .map(|expected| format!(" of {} s", expected.as_secs_f64()));
        format!(
            "{}  {}, {} s{}",
            self.target,
            self.phase,
            service.elapsed.as_secs(),
            of.unwrap_or_default()
        )
    }

    fn rows(&self) -> Vec<Row> {
        let live = &self.live;
        let last = self.seconds.last().copied().unwrap_or_default();
        let course = |of: fn(&Second) -> Option<f64>| self.seconds.iter().map(of).collect();
        let time = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), number::us);
        let percent = |share: Option<f64>| {
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
        };
        let row = |name, value, course, color| Row {
            name,
            value,
            course,
            color,
        };
        let requests = &live.service.requests;
        let mut rows = vec![
            row(
                "rate",
                format!("{}/s", number::si(live.rate_per_s)),
                course(|second| Some(second.rate_per_s)),
                Color::Green,
            ),
            row(
                "p50",
                time(last.p50_us),
                course(|second| second.p50_us),
                Color::Cyan,
            ),
            row(
                "p99",
                time(last.p99_us),
                course(|second| second.p99_us),
                Color::Cyan,
            ),
            row(
                "max",
                time(last.max_us),
                course(|second| second.max_us),
                Color::Cyan,
            ),
            row(
                "failed",
                number::grouped(requests.failed),
                course(|second| Some(second.failed as f64)),
                Color::Red,
            ),
            row(
                "generator",
                percent(live.client_share),
                course(|second| second.client_share),
                Color::Yellow,
            ),
            row(
                "server",
                percent(live.server_share),
                course(|second| second.server_share),
                Color::Yellow,
            ),
            row(
                "server memory",
                live.server_rss_bytes
                    .map_or_else(|| "-".to_owned(), |bytes| number::bytes(bytes as f64)),
                course(|second| second.server_rss_bytes.map(|bytes| bytes as f64)),
                Color::Magenta,
            ),
        ];
        if self.kind == RunKind::Tests {
            // The workers of a test publish only this percentile while they work.
            rows.retain(|row| !matches!(row.name, "p50" | "max"));
        }
        rows
    }

    fn statuses(&self) -> String {
        let service = &self.live.service;
        let each = service
            .statuses
            .iter()
            .map(|(status, count)| format!("{status}: {}", number::grouped(*count)));
        let connected = format!("{} connected", number::grouped(service.connected));
        std::iter::once(connected)
            .chain(each)
            .collect::<Vec<_>>()
            .join("   ")
    }

    fn errors(&self) -> String {
        let errors = self.live.service.errors.iter();
        let each = errors.map(|(name, count)| format!("{name}: {}", number::grouped(*count)));
        each.collect::<Vec<_>>().join("   ")
    }
}

impl Widget for &Board {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let rows = self.rows();
        let [title, figures, statuses, errors, footer] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(rows.len() as u16),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
        ])
        .areas(area);
        Line::from(self.title().bold()).render(title, buffer);
        for (row, area) in rows.iter().zip(figures.rows()) {
            row.draw(area, buffer);
        }
        Line::from(self.statuses()).render(statuses, buffer);
        Line::from(self.errors().red()).render(errors, buffer);
        Line::from("Ctrl-C ends the run and reports".dim()).render(footer, buffer);
    }
}

impl Row {
    fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let [text, course] =
            Layout::horizontal([Constraint::Length(TEXT_WIDTH), Constraint::Min(0)]).areas(area);
        let name = Span::styled(format!("{:<14}", self.name), Style::new().fg(self.color));
        Line::from(vec![name, Span::raw(format!("{:>11}", self.value))]).render(text, buffer);
        let largest = self.course.iter().flatten().copied().fold(0.0, f64::max);
        let from = self.course.len().saturating_sub(usize::from(course.width));
        let heights = self.course[from..].iter().map(|value| {
            let value = value.filter(|value| value.is_finite() && largest > 0.0)?;
            Some((value / largest * HEIGHT_MAX as f64) as u64)
        });
        Sparkline::default()
            .data(heights.collect::<Vec<Option<u64>>>())
            .max(HEIGHT_MAX)
            .style(Style::new().fg(self.color))
            .render(course, buffer);
    }
}

const SECONDS_MAX: usize = 300;
const TEXT_WIDTH: u16 = 28;
const HEIGHT_MAX: u64 = 1_000;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use tidewire_load::accounting::windows::WindowSeries;
    use tidewire_load::plan::observe::LiveLatency;

    /// The board after this many seconds, with growing latencies and one failure in each.
    pub(crate) fn board(seconds: u64) -> Board {
        let mut board = Board::new("http://h/", RunKind::Load);
        board.start("sending", Some(Duration::from_secs(30)));
        for second in 1..=seconds {
            let mut series = WindowSeries::new();
            (0..100).for_each(|n| series.succeed(n, second * 1_000_000, 1));
            let mut live = RunLive {
                rate_per_s: 12_500.0,
                client_share: Some(0.45),
                server_share: Some(0.9),
                server_rss_bytes: Some(52 << 20),
                ..RunLive::default()
            };
            live.service.elapsed = Duration::from_millis(second * 1_000 + 50);
            live.service.connected = 50;
            live.service.requests.failed = second;
            live.service.statuses = [(200, 12_500 * second), (503, second)].into();
            live.service.errors = [("timeout", 3)].into();
            let window = series.last_whole(Duration::from_secs(1)).unwrap().window;
            live.latency = LiveLatency {
                p50_us: window.percentile_us(50.0),
                p99_us: window.percentile_us(99.0),
                max_us: window.max_us(),
            };
            board.observe(&live);
            // A second update of the same second adds nothing.
            board.observe(&live);
        }
        board
    }

    fn drawn(board: &Board, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| frame.render_widget(board, frame.area()))
            .unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn every_figure_is_there_with_its_course() {
        let board = board(8);
        let screen = drawn(&board, 80, board.height());
        for words in [
            "http://h/  sending, 8 s of 30 s",
            "rate             12.5 k/s   ████████",
            "8 ms   ▁▂▃▄▅▆▇█",
            "failed                  8   ████████",
            "45 %",
            "90 %",
            "52 MiB",
            "50 connected   200: 100,000   503: 8",
            "timeout: 3",
            "Ctrl-C ends",
        ] {
            assert!(screen.contains(words), "no {words:?} in\n{screen}");
        }
    }

    #[test]
    fn before_the_first_second_and_in_a_small_terminal_nothing_is_wrong() {
        let mut new = Board::new("http://h/\u{1b}[2J", RunKind::Tests);
        new.start("connecting", None);
        new.observe(&RunLive::default());
        let screen = drawn(&new, 80, new.height());
        assert!(
            screen.contains("connecting, 0 s") && !screen.contains('\u{1b}'),
            "{screen}"
        );
        assert!(
            screen.contains("p99") && !screen.contains("p50"),
            "{screen}"
        );
        for (width, height) in [(1, 1), (10, 3), (300, 2)] {
            drawn(&board(3), width, height);
        }
    }

    #[test]
    fn a_long_load_keeps_the_newest_seconds_and_its_failures() {
        let board = board(SECONDS_MAX as u64 + 50);
        assert_eq!(board.seconds.len(), SECONDS_MAX);
        let failed: u64 = board.seconds.iter().map(|second| second.failed).sum();
        assert_eq!(failed, SECONDS_MAX as u64 + 50);
        assert_eq!(board.seconds.last().map(|second| second.failed), Some(1));
    }
}

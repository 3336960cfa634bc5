//! The board on a terminal.

use super::board::Board;
use crate::failure::Failure;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use std::time::{Duration, Instant};

/// Shows the result of `look` every `interval`, until the user ends the program.
pub(crate) fn run(
    interval: Duration,
    look: impl FnMut() -> Result<Board, String>,
) -> Result<(), Failure> {
    let mut terminal = ratatui::try_init()
        .map_err(|error| Failure::run(format!("cannot use this terminal: {error}")))?;
    let result = show(&mut terminal, interval, look);
    ratatui::restore();
    result.map_err(|error| Failure::run(format!("cannot use this terminal: {error}")))
}

fn show(
    terminal: &mut DefaultTerminal,
    interval: Duration,
    mut look: impl FnMut() -> Result<Board, String>,
) -> std::io::Result<()> {
    let mut board = None;
    loop {
        let due = Instant::now() + interval;
        let trouble = match look() {
            Ok(seen) => {
                board = Some(seen);
                None
            }
            // The last figures stay, because the server may answer again.
            Err(words) => Some(words),
        };
        loop {
            terminal.draw(|frame| draw(frame, board.as_ref(), trouble.as_deref()))?;
            let wait = due.saturating_duration_since(Instant::now());
            if !event::poll(wait)? {
                break;
            }
            if wants_to_go(&event::read()?) {
                return Ok(());
            }
        }
    }
}

fn wants_to_go(event: &Event) -> bool {
    let Event::Key(key) = event else {
        return false;
    };
    let interrupts =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let quits = matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc);
    key.kind == KeyEventKind::Press && (quits || interrupts)
}

fn draw(frame: &mut Frame<'_>, board: Option<&Board>, trouble: Option<&str>) {
    let [main, footer] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    let footer_text = match trouble {
        Some(words) => Line::from(words.red()),
        None => Line::from("q ends".dim()),
    };
    frame.render_widget(footer_text, footer);
    if let Some(board) = board {
        draw_board(frame, main, board);
    }
}

fn draw_board(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let slow_rows = match board.slow.len() as u16 {
        0 | 1 => 0,
        rows => rows + 1,
    };
    // A cluster that is large leaves room for the topics.
    let node_rows = match board.nodes.len() as u16 {
        0 => 0,
        rows => (rows + 1).min(area.height / 3),
    };
    let [title, figures, topics, slow, nodes] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(board.figures.len() as u16 + 1),
        Constraint::Min(2),
        Constraint::Length(slow_rows),
        Constraint::Length(node_rows),
    ])
    .areas(area);
    frame.render_widget(Line::from(board.title.as_str().bold()), title);
    let lines = board.figures.iter().map(|(name, words)| {
        let name = Span::styled(format!("{name:<12} "), Style::new().cyan());
        Line::from(vec![name, Span::raw(words)])
    });
    frame.render_widget(Paragraph::new(Vec::from_iter(lines)), figures);
    let widths = [
        Constraint::Min(20),
        Constraint::Length(10),
        Constraint::Length(12),
        Constraint::Length(10),
    ];
    frame.render_widget(table(&board.topics, widths), topics);
    let widths = [
        Constraint::Min(20),
        Constraint::Length(10),
        Constraint::Length(12),
    ];
    frame.render_widget(table(&board.slow, widths), slow);
    let widths = [
        Constraint::Length(16),
        Constraint::Min(16),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Length(8),
        Constraint::Length(8),
    ];
    frame.render_widget(table(&board.nodes, widths), nodes);
}

fn table<'a, const N: usize>(rows: &'a [[String; N]], widths: [Constraint; N]) -> Table<'a> {
    let row = |cells: &'a [String; N]| Row::new(cells.iter().map(String::as_str));
    let (head, rest) = match rows.split_first() {
        Some((head, rest)) => (row(head), rest),
        None => (Row::default(), rows),
    };
    let head = head.style(Style::new().add_modifier(Modifier::REVERSED));
    Table::new(rest.iter().map(row), widths).header(head)
}

#[cfg(test)]
mod tests {
    use super::super::board::tests::sample;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;

    fn drawn(width: u16, height: u16, trouble: Option<&str>) -> String {
        let board = Board::new("URL".to_owned(), &sample(1, 5), None);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| draw(frame, Some(&board), trouble))
            .unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_is_on_the_screen() {
        let screen = drawn(100, 24, None);
        for words in [
            "tidewire 1.2.3 at URL",
            "12.3k open",
            "orders.eu?[2J",
            "SLOW CONNECTION",
            "0-17",
            "00000000000000aa",
            "q ends",
        ] {
            assert!(screen.contains(words), "no {words:?} in\n{screen}");
        }
        let screen = drawn(100, 24, Some("URL does not answer"));
        assert!(screen.contains("URL does not answer") && screen.contains("12.3k open"));
    }

    #[test]
    fn a_small_terminal_still_shows_how_to_end() {
        for (width, height) in [(1, 1), (10, 3), (300, 2)] {
            let screen = drawn(width, height, None);
            assert_eq!(screen.lines().count(), usize::from(height));
            // The backend quotes each line.
            let last = screen.lines().last().unwrap().trim_start_matches('"');
            let shown = &"q ends"[..usize::from(width).min(6)];
            assert!(last.starts_with(shown), "{width} x {height}: {last}");
        }
    }

    #[test]
    fn keys_that_end_it() {
        let press = |code, modifiers| wants_to_go(&Event::Key(KeyEvent::new(code, modifiers)));
        assert!(press(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(press(KeyCode::Esc, KeyModifiers::NONE));
        assert!(press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!wants_to_go(&Event::FocusLost));
    }
}

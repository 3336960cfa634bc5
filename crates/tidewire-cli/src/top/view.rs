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
    let title_lines = folded(&board.title, area.width);
    let figure_lines = figure_lines(board, area.width);
    let [title, figures, topics, slow, nodes] = Layout::vertical([
        Constraint::Length(title_lines.len() as u16),
        Constraint::Length(figure_lines.len() as u16 + 1),
        Constraint::Min(2),
        Constraint::Length(slow_rows),
        Constraint::Length(node_rows),
    ])
    .areas(area);
    let bold = title_lines.into_iter().map(|line| Line::from(line.bold()));
    frame.render_widget(Paragraph::new(Vec::from_iter(bold)), title);
    frame.render_widget(Paragraph::new(figure_lines), figures);
    let widths = [
        Constraint::Min(16),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Length(7),
        Constraint::Length(8),
    ];
    frame.render_widget(table(&board.topics, widths), topics);
    let widths = [
        Constraint::Min(20),
        Constraint::Length(10),
        Constraint::Length(8),
    ];
    frame.render_widget(table(&board.slow, widths), slow);
    let widths = [
        Constraint::Min(21),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Length(8),
        Constraint::Length(8),
    ];
    frame.render_widget(table(&board.nodes, widths), nodes);
}

/// The figures with their names. Words that do not fit in a line continue below its beginning.
fn figure_lines(board: &Board, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (name, words) in &board.figures {
        let rest = folded(words, width.saturating_sub(NAME_COLUMNS));
        for (index, words) in rest.into_iter().enumerate() {
            let name = if index == 0 { *name } else { "" };
            let columns = usize::from(NAME_COLUMNS);
            let name = Span::styled(format!("{name:<columns$}"), Style::new().cyan());
            lines.push(Line::from(vec![name, Span::raw(words)]));
        }
    }
    lines
}

/// A text in lines of at most `width` letters, broken between words. A word that is longer has a line of its own, which
/// is cut.
fn folded(text: &str, width: u16) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let letters = word.chars().count();
        if used > 0 && used + 1 + letters > usize::from(width) {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("there is always one line");
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += letters;
    }
    lines
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

/// The columns of the name of a figure, with the gap behind it.
const NAME_COLUMNS: u16 = 13;

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
            "orders.eu\\u{1b}[2J",
            "SLOW CONNECTION",
            "0-17",
            "10.0.0.1:5006",
            "q ends",
        ] {
            assert!(screen.contains(words), "no {words:?} in\n{screen}");
        }
        let screen = drawn(100, 24, Some("URL does not answer"));
        assert!(screen.contains("URL does not answer") && screen.contains("12.3k open"));
    }

    #[test]
    fn sixty_columns_show_every_figure_and_every_column() {
        let (before, after) = (sample(1, 1_000), sample(1, 5_000));
        let passed = Duration::from_secs(2);
        let url = "http://127.0.0.1:5007".to_owned();
        let board = Board::new(url, &after, Some((passed, &before)));
        let mut terminal = Terminal::new(TestBackend::new(60, 40)).unwrap();
        terminal
            .draw(|frame| draw(frame, Some(&board), None))
            .unwrap();
        let screen = terminal.backend().to_string();
        // The words of the lines, whatever line they are on.
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|letter: char| letter == '"' || letter.is_whitespace());
            let words = words.filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let shown = words(&screen).join(" ");
        for (name, figures) in &board.figures {
            let whole = format!("{name} {figures}");
            assert!(shown.contains(&whole), "{whole:?} is cut in\n{screen}");
        }
        assert!(shown.contains(&words(&board.title).join(" ")), "{screen}");
        let rows = board.topics.iter().map(|row| row.join(" "));
        let rows = rows.chain(board.slow.iter().map(|row| row.join(" ")));
        for row in rows.chain(board.nodes.iter().map(|row| row.join(" "))) {
            assert!(shown.contains(&row), "{row:?} is cut in\n{screen}");
        }
    }

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(folded("one two three", 7), ["one two", "three"]);
        assert_eq!(folded("one two three", 3), ["one", "two", "three"]);
        assert_eq!(folded("one", 0), ["one"]);
        assert_eq!(folded("", 9), [""]);
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

//! Repeated drawing at the end of a terminal, without control of the whole terminal.
//!
//! It uses neither the alternate screen nor raw mode: Ctrl-C stays a signal, earlier lines stay in
//! place, and a program that ends at any moment leaves a usable terminal.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::widgets::Widget;
use std::io::Write;

/// The lines that were drawn last.
#[derive(Debug)]
pub(crate) struct Screen<W> {
    out: W,
    /// The number of lines from the first of them to the cursor.
    height: u16,
    has_color: bool,
}

impl<W: Write> Screen<W> {
    /// Draws to this terminal, with colours or without.
    pub(crate) fn new(out: W, has_color: bool) -> Self {
        Self {
            out,
            height: 0,
            has_color,
        }
    }

    /// Draws the widget over the previous one.
    pub(crate) fn draw(&mut self, widget: impl Widget, width: u16, height: u16) {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        widget.render(area, &mut buffer);
        let mut text = self.to_the_top();
        for row in buffer.content.chunks(usize::from(width.max(1))) {
            text.push_str(&self.line(row));
            text.push_str("\r\n");
        }
        self.write(&text);
        self.height = height;
    }

    /// Erases the widget.
    pub(crate) fn clear(&mut self) {
        if self.height > 0 {
            let text = self.to_the_top();
            self.write(&text);
            self.height = 0;
        }
    }

    /// Moves to the first line, and erases all from there.
    fn to_the_top(&self) -> String {
        match self.height {
            0 => String::new(),
            height => format!("\x1b[{height}A\r\x1b[J"),
        }
    }

    /// One line without spaces at its end.
    fn line(&self, row: &[Cell]) -> String {
        let end = row
            .iter()
            .rposition(|cell| !cell.symbol().trim().is_empty());
        let mut text = String::new();
        let mut style = String::new();
        for cell in &row[..end.map_or(0, |end| end + 1)] {
            let wanted = if self.has_color {
                style_of(cell)
            } else {
                String::new()
            };
            if wanted != style {
                text.push_str(&format!("\x1b[0{wanted}m"));
                style = wanted;
            }
            text.push_str(cell.symbol());
        }
        if !style.is_empty() {
            text.push_str("\x1b[0m");
        }
        text
    }

    fn write(&mut self, text: &str) {
        // A closed terminal shows nothing.
        let _ = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
    }
}

/// The parameters after `0` in a sequence of ECMA-48, SGR, for the cell's style.
fn style_of(cell: &Cell) -> String {
    let mut codes = String::new();
    if cell.modifier.contains(Modifier::BOLD) {
        codes.push_str(";1");
    }
    if cell.modifier.contains(Modifier::DIM) {
        codes.push_str(";2");
    }
    codes.push_str(match cell.fg {
        Color::Red => ";31",
        Color::Green => ";32",
        Color::Yellow => ";33",
        Color::Magenta => ";35",
        Color::Cyan => ";36",
        _ => "",
    });
    codes
}

#[cfg(test)]
mod tests {
    use super::super::board::tests::board;
    use super::*;
    use ratatui::style::Stylize;
    use ratatui::text::Line;

    fn drawn(has_color: bool, draw: impl FnOnce(&mut Screen<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        draw(&mut Screen::new(&mut out, has_color));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_second_drawing_covers_the_first() {
        let text = drawn(false, |screen| {
            screen.draw(Line::from("one"), 10, 2);
            screen.draw(Line::from("two"), 10, 2);
            screen.clear();
            screen.clear();
        });
        assert_eq!(text, "one\r\n\r\n\x1b[2A\r\x1b[Jtwo\r\n\r\n\x1b[2A\r\x1b[J");
    }

    #[test]
    fn colours_end_with_their_line_and_are_left_out_where_not_wanted() {
        let line = || Line::from(vec!["a".into(), "b".red(), "c".bold().cyan(), " ".into()]);
        let text = drawn(true, |screen| screen.draw(line(), 10, 1));
        assert_eq!(text, "a\x1b[0;31mb\x1b[0;1;36mc\x1b[0m\r\n");
        assert_eq!(drawn(false, |screen| screen.draw(line(), 10, 1)), "abc\r\n");
    }

    #[test]
    fn a_board_is_as_high_as_it_says() {
        let board = board(3);
        let text = drawn(false, |screen| screen.draw(&board, 60, board.height()));
        assert_eq!(text.lines().count(), usize::from(board.height()));
        assert!(text.lines().last().unwrap().contains("Ctrl-C"), "{text}");
    }
}

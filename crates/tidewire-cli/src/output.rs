//! Standard output.

use crate::failure::Failure;
use std::io::{IsTerminal, Write};

/// The maximum width of tables on standard output, in characters; `None` if it is not a terminal.
pub(crate) fn table_width() -> Option<usize> {
    let size = std::io::stdout()
        .is_terminal()
        .then(ratatui::crossterm::terminal::size);
    let (columns, _) = size?.ok()?;
    (columns > 0).then(|| usize::from(columns))
}

/// Writes to standard output at once, for a parent that reads it. A closed pipe is an error, not a
/// panic.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::run(format!("cannot write to standard output: {error}")))
}

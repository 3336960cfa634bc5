//! Standard output.

use crate::failure::Failure;
use std::io::{IsTerminal, Write};
use tidewire_load::report::printable::{printable, printable_json};

/// The maximum width of tables on standard output, in characters; `None` if it is not a terminal.
pub(crate) fn table_width() -> Option<usize> {
    let size = std::io::stdout()
        .is_terminal()
        .then(ratatui::crossterm::terminal::size);
    let (columns, _) = size?.ok()?;
    (columns > 0).then(|| usize::from(columns))
}

/// Writes to standard output at once, for a parent that reads it. A closed pipe is an error, not a
/// panic. What a file or a peer has chosen of the text changes nothing of the terminal.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(&printable(text))
}

/// The same for JSON, which stays JSON with the same values.
pub(crate) fn print_json(json: &str) -> Result<(), Failure> {
    write(&printable_json(json))
}

/// Writes to standard error; a closed one must not prevent what follows.
pub(crate) fn print_error(text: &str) {
    let _ = std::io::stderr().write_all(printable(text).as_bytes());
}

fn write(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::run(format!("cannot write to standard output: {error}")))
}

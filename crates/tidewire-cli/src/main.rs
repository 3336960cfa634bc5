//! The `tidewire` program: arguments and printing. The work is done by the engine and the load lab.

mod arguments;
mod baseline;
mod bench;
mod config_file;
mod failure;
mod init;
mod keys;
mod load;
mod numbers;
mod report;
mod serve;
mod sources;
mod stop;
mod test_server;
mod token;
mod top;

use arguments::Parsed;
use failure::Failure;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // Nothing can be said any more when standard error is closed.
            let _ = writeln!(std::io::stderr(), "tidewire: {failure}");
            ExitCode::from(failure.exit_code)
        }
    }
}

/// Returns the exit code of a command that did its work.
fn run() -> Result<u8, Failure> {
    match arguments::parse(std::env::args_os().collect())? {
        Parsed::Text(text) => print(&text).map(|()| 0),
        Parsed::Usage(text) => Err(Failure::usage(text)),
        Parsed::Init(flags) => init::run(&flags),
        Parsed::Serve(flags) => serve::run(&flags),
        Parsed::Top(flags) => top::run(&flags),
        Parsed::Token(flags, ranks) => token::run(&flags, &ranks),
        Parsed::Bench(flags, ranks) => bench::run(&flags, &ranks),
        Parsed::Load(flags) => load::run(&flags),
        Parsed::Report(flags) => report::run(&flags),
        Parsed::TestServer(flags) => test_server::run(&flags),
    }
}

/// The maximum width of tables on standard output, in characters; `None` if it is not a terminal.
fn table_width() -> Option<usize> {
    let size = std::io::stdout()
        .is_terminal()
        .then(ratatui::crossterm::terminal::size);
    let (columns, _) = size?.ok()?;
    (columns > 0).then(|| usize::from(columns))
}

/// Writes to standard output at once, for a parent that reads it. A reader that has gone is an error,
/// not a panic.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::run(format!("cannot write to standard output: {error}")))
}

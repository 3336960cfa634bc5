//! The `tidewire` program: arguments and printing. The work is done by the engine and the load lab.

mod arguments;
mod baseline;
mod bench;
mod command_line;
mod config_file;
mod failure;
mod files;
mod init;
mod keys;
mod live;
mod load;
mod numbers;
mod output;
mod partition;
mod report;
mod serve;
mod sources;
mod stop;
mod test_server;
mod token;
mod top;
mod worker;

use arguments::Parsed;
use failure::Failure;
use output::print;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // An error here is ignored: standard error is closed, and no other place is left for the message.
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
        Parsed::Partition(flags) => partition::run(&flags),
        Parsed::Top(flags) => top::run(&flags),
        Parsed::Token(flags, ranks) => token::run(&flags, &ranks),
        Parsed::Bench(flags, ranks) => bench::run(&flags, &ranks),
        Parsed::Load(flags) => load::run(&flags),
        Parsed::Report(flags) => report::run(&flags),
        Parsed::TestServer(flags) => test_server::run(&flags),
        Parsed::Worker(flags) => worker::run(&flags),
    }
}

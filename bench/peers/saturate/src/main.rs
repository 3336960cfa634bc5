//! A client that never waits. One thread, plain epoll: it writes whenever a socket takes something, and bounds nothing.
//!
//! The load generator of the project limits what is unconfirmed. Other clients do not, and a server that falls behind
//! then has as much waiting in the kernel as the kernel allows. This program is that kind of client. It prints one
//! line of JSON; the fields are those of [`report::Report`].

mod connection;
mod fleet;
mod frames;
mod options;
mod report;

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match options::Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}; usage: {}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match fleet::run(&options) {
        Ok(report) => {
            println!("{}", report.to_json());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", options.address);
            ExitCode::FAILURE
        }
    }
}

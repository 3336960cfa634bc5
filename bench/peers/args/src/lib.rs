//! Shared parts of the comparison servers: the command line, the listener and the runtime.
//!
//! None of them handles SIGTERM: its default action, to end the process at once, is what a benchmark wants.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The reaction of a server to a data message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sends it back, with the same opcode.
    Echo,
    /// Swallows it. Pings are answered all the same.
    Sink,
    /// Sends it to all connections; whether the sender gets it too is left to the server.
    Broadcast,
}

/// The command line: `--port N --mode echo|sink|broadcast [--deflate-level N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// TCP port on 127.0.0.1; 0 lets the system choose.
    pub port: u16,
    /// The reaction to a data message.
    pub mode: Mode,
    /// Level of permessage-deflate, 1 to 9; without one, no compression. Servers
    /// whose library does not compress take no notice of it.
    pub deflate_level: Option<u32>,
}

impl Options {
    /// Reads the arguments after the program's name. The error is one line for the user.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut port, mut mode, mut deflate_level) = (None, None, None);
        while let Some(flag) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("{flag} needs a value"))?;
            match (flag.as_str(), value.as_str()) {
                ("--port", text) => {
                    port = Some(
                        text.parse()
                            .map_err(|_| format!("--port {text}: not a TCP port"))?,
                    );
                }
                ("--deflate-level", text) => {
                    let level = text.parse().ok().filter(|level| (1..=9).contains(level));
                    deflate_level = Some(
                        level.ok_or_else(|| format!("--deflate-level {text}: not from 1 to 9"))?,
                    );
                }
                ("--mode", "echo") => mode = Some(Mode::Echo),
                ("--mode", "sink") => mode = Some(Mode::Sink),
                ("--mode", "broadcast") => mode = Some(Mode::Broadcast),
                _ => return Err(format!("{flag} {value}: not understood")),
            }
        }
        match (port, mode) {
            (Some(port), Some(mode)) => Ok(Self {
                port,
                mode,
                deflate_level,
            }),
            _ => Err("both --port and --mode are needed".into()),
        }
    }

    /// The options of a server that has only these modes. A mistake is reported on standard error and ends
    /// the program.
    #[must_use]
    pub fn of_program(modes: &[Mode]) -> Self {
        let parsed = Self::parse(std::env::args().skip(1));
        let known = parsed.and_then(|options| match modes.contains(&options.mode) {
            true => Ok(options),
            false => Err("this server does not have that --mode".to_owned()),
        });
        known.unwrap_or_else(|message| {
            eprintln!("{message}; usage: --port N --mode echo|sink|broadcast [--deflate-level N]");
            std::process::exit(2);
        })
    }
}

/// Runs a server that has these modes: parses the arguments, listens, says so, and hands each accepted
/// socket (with `TCP_NODELAY` set) to `serve` as a task of its own, all on one thread. Returns only on an
/// error.
pub fn run<F>(modes: &[Mode], serve: impl Fn(TcpStream, Options) -> F) -> ExitCode
where
    F: Future<Output = ()> + 'static,
{
    let options = Options::of_program(modes);
    let Err(error) = run_loop(options, serve);
    eprintln!("127.0.0.1:{}: {error}", options.port);
    ExitCode::FAILURE
}

fn run_loop<F>(
    options: Options,
    serve: impl Fn(TcpStream, Options) -> F,
) -> io::Result<std::convert::Infallible>
where
    F: Future<Output = ()> + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async move {
        let listener = listen(options.port)?;
        println!("listening on {}", listener.local_addr()?);
        loop {
            // A failed accept (out of descriptors, a peer gone) must not end the run for the others.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(serve(stream, options));
        }
    })
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.listen(LISTEN_BACKLOG_CONNECTIONS)
}

/// Enough for ten thousand connections opened at once; the kernel caps it at `somaxconn`.
const LISTEN_BACKLOG_CONNECTIONS: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn both_flags_are_read_in_any_order() {
        let expected = Options {
            port: 9001,
            mode: Mode::Sink,
            deflate_level: None,
        };
        assert_eq!(parse("--port 9001 --mode sink"), Ok(expected));
        assert_eq!(parse("--mode sink --port 9001"), Ok(expected));
        let broadcasting = Options {
            mode: Mode::Broadcast,
            ..expected
        };
        assert_eq!(parse("--port 9001 --mode broadcast"), Ok(broadcasting));
        let compressing = Options {
            deflate_level: Some(6),
            ..expected
        };
        let line = "--mode sink --port 9001 --deflate-level 6";
        assert_eq!(parse(line), Ok(compressing));
    }

    #[test]
    fn anything_else_is_refused() {
        for line in [
            "",
            "--port 1",
            "--mode echo",
            "--port x --mode echo",
            "--port 1 --mode loud",
            "--port",
            "--port 1 --mode echo --deflate-level 10",
        ] {
            assert!(parse(line).is_err(), "{line:?} was accepted");
        }
    }
}

//! `tidewire worker`: carries out the orders of a bench or a load on this or another machine, or checks another worker.

use crate::bench::{EmbeddedServer, FREE_PORT};
use crate::failure::Failure;
use crate::numbers;
use crate::output::print;
use clap::Args;
use std::sync::Arc;
use tidewire_load::fleet::check::check;
use tidewire_load::fleet::serve::serve;
use tidewire_load::options::terms::planned;

/// The options of `worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerFlags {
    /// Threads, each with an event loop of its own [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<usize>)]
    threads: Option<usize>,
    /// Check whether the worker that this shell command starts keeps the contract, with a server of this program; the exit
    /// code is 1 if it does not
    #[arg(long, value_name = "COMMAND", conflicts_with = "threads")]
    check: Option<String>,
}

/// Works until standard input ends.
pub(crate) fn run(flags: &WorkerFlags) -> Result<u8, Failure> {
    if let Some(command) = &flags.check {
        return check_worker(command);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = flags.threads.unwrap_or((cores / 2).max(1));
    serve(threads, planned).map(|()| 0).map_err(Failure::run)
}

fn check_worker(command: &str) -> Result<u8, Failure> {
    let arguments = ["--app", "echo", "--no-auth", "--topics-open"];
    let server = EmbeddedServer::start(&arguments, FREE_PORT, None, &Arc::default())?;
    let base = server.url.trim_end_matches("/ws");
    let (mut kept, mut broken, mut unprinted) = (0, 0, None);
    check(command, base, |name, held| {
        let line = match held {
            Ok(()) => {
                kept += 1;
                format!("kept    {name}\n")
            }
            Err(fault) => {
                broken += 1;
                format!("BROKEN  {name}\n  {fault}\n")
            }
        };
        unprinted = unprinted.take().or(print(&line).err());
    });
    if let Some(failure) = unprinted {
        return Err(failure);
    }
    print(&format!("{kept} dialogues kept, {broken} broken\n"))?;
    Ok(u8::from(broken > 0))
}

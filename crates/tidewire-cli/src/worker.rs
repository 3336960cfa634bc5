//! `tidewire worker`: carries out the orders of a bench on this or another machine.

use crate::failure::Failure;
use crate::numbers;
use clap::Args;
use tidewire_load::fleet::serve::serve;

/// The options of `worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerFlags {
    /// Threads, each with an event loop of its own [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<usize>)]
    threads: Option<usize>,
}

/// Works until standard input ends.
pub(crate) fn run(flags: &WorkerFlags) -> Result<u8, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = flags.threads.unwrap_or((cores / 2).max(1));
    serve(threads).map(|()| 0).map_err(Failure::run)
}

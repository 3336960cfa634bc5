//! The workers of a run: threads of this program, or processes that speak the worker contract.

use crate::failure::Failure;
use crate::numbers;
use clap::{Args, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};

/// Who opens the connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub(crate) struct WorkerFlags {
    /// The client library that is measured. With python and typescript each worker is a process with that
    /// library, as an application has it; `all` runs the plan with each of the three and compares them
    #[arg(long, value_enum, conflicts_with_all = ["worker", "workers"])]
    pub(crate) client: Option<ClientFlag>,
    /// Processes of the generator, each with its share of the connections. Several numbers, with commas, run the
    /// plan with each and compare them: 1,2,4,8 shows how the rate grows [default: 1 with --client python and
    /// typescript; else none, but threads of this program]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = numbers::positive::<usize>, conflicts_with_all = ["worker", "workers"])]
    pub(crate) processes: Vec<usize>,
    /// A shell command that starts a worker, on this or another machine, such as 'ssh load-1 tidewire
    /// worker'; its standard streams speak the worker contract. May be repeated
    #[arg(long, value_name = "COMMAND")]
    pub(crate) worker: Vec<String>,
    /// A file with such a command in each line; empty lines and those that begin with # are left out
    #[arg(long, value_name = "FILE")]
    pub(crate) workers: Option<PathBuf>,
    /// End the run, with a partial report, when a worker has ended; else the others go on, and the next
    /// test starts it again
    #[arg(long)]
    pub(crate) stop_with_worker: bool,
    /// End the run when standard input ends: for a program that starts this one and may be killed
    #[arg(long, hide = true)]
    pub(crate) end_with_stdin: bool,
}

/// A client library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientFlag {
    Rust,
    Python,
    Typescript,
    All,
}

impl ClientFlag {
    /// The name of its folder among the reports of all.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Typescript => "typescript",
            Self::All => "all",
        }
    }

    /// What to do when its worker cannot be started.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Python => {
                "`python3 -m tidewire.worker` must run: install the Python package, or start the bench with \
                 `python -m tidewire.bench`"
            }
            Self::Typescript => {
                "`tidewire-worker-ts` must be in PATH: npm install @tidewire/bench, or start the bench with \
                 `npx tidewire-bench-ts`"
            }
            Self::Rust | Self::All => "",
        }
    }
}

/// The workers of one run: those of a client library, and how many processes if that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crew {
    pub(crate) client: ClientFlag,
    pub(crate) processes: Option<usize>,
}

impl Crew {
    /// The name of its folder and column among the reports of all, which differ in the client or in the number.
    pub(crate) fn name(self, has_several_clients: bool) -> String {
        match self.processes.filter(|_| !has_several_clients) {
            None => self.client.name().to_owned(),
            Some(1) => "1-process".to_owned(),
            Some(count) => format!("{count}-processes"),
        }
    }
}

impl WorkerFlags {
    /// The workers of each run, one run after the other.
    ///
    /// # Errors
    /// Several clients together with several numbers of processes, or one number twice.
    pub(crate) fn crews(&self) -> Result<Vec<Crew>, Failure> {
        let client = self.client.unwrap_or(ClientFlag::Rust);
        if client == ClientFlag::All {
            if self.processes.len() > 1 {
                return Err(Failure::usage(
                    "--client all and several numbers of --processes are two comparisons: choose one of them",
                ));
            }
            let processes = self.processes.first().copied();
            let all = [ClientFlag::Rust, ClientFlag::Python, ClientFlag::Typescript];
            return Ok(all.map(|client| Crew { client, processes }).to_vec());
        }
        if self.processes.is_empty() {
            let processes = None;
            return Ok(vec![Crew { client, processes }]);
        }
        let mut distinct = self.processes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < self.processes.len() {
            return Err(Failure::usage("--processes: one number is given twice"));
        }
        let numbers = self.processes.iter();
        let crew = |&number| Crew {
            client,
            processes: Some(number),
        };
        Ok(numbers.map(crew).collect())
    }

    /// Whether the plan has a client library that is made for protocol version 1.
    pub(crate) fn has_client_of_v1(&self) -> bool {
        self.client.is_some_and(|client| client != ClientFlag::Rust)
    }

    /// The commands that start the workers of a crew; none if they are threads of this program.
    ///
    /// # Errors
    /// The file of commands cannot be read.
    pub(crate) fn commands(
        &self,
        crew: Crew,
        threads: Option<usize>,
    ) -> Result<Vec<String>, Failure> {
        let mut commands = self.worker.clone();
        if let Some(path) = &self.workers {
            commands.extend(commands_of_file(path)?);
        }
        if !commands.is_empty() {
            return Ok(commands);
        }
        let (command, processes) = match crew.client {
            ClientFlag::Rust | ClientFlag::All => (own_worker(threads)?, 0),
            ClientFlag::Python => (PYTHON.command(), 1),
            ClientFlag::Typescript => (TYPESCRIPT.command(), 1),
        };
        Ok(vec![command; crew.processes.unwrap_or(processes)])
    }
}

/// The commands in a file, one in each line.
///
/// # Errors
/// It cannot be read, or has none.
pub(crate) fn commands_of_file(path: &Path) -> Result<Vec<String>, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("--workers {shown}: {error}")))?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let commands: Vec<String> = lines.map(str::to_owned).collect();
    match commands.is_empty() {
        true => Err(Failure::usage(format!(
            "--workers {shown}: it names no worker"
        ))),
        false => Ok(commands),
    }
}

/// The command that starts this program as a worker.
///
/// # Errors
/// The path of this program is not known.
pub(crate) fn own_worker(threads: Option<usize>) -> Result<String, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::run(format!("cannot find this program: {error}")))?;
    let program = program.display().to_string().replace('\'', r"'\''");
    Ok(format!(
        "exec '{program}' worker --threads {}",
        threads.unwrap_or(1)
    ))
}

/// The worker of another language.
struct Foreign {
    /// The variable with its command, which the launchers of the packages set.
    variable: &'static str,
    default: &'static str,
}

impl Foreign {
    fn command(&self) -> String {
        std::env::var(self.variable).unwrap_or_else(|_| self.default.to_owned())
    }
}

const PYTHON: Foreign = Foreign {
    variable: "TIDEWIRE_WORKER_PYTHON",
    default: "exec python3 -m tidewire.worker",
};
const TYPESCRIPT: Foreign = Foreign {
    variable: "TIDEWIRE_WORKER_TYPESCRIPT",
    default: "exec tidewire-worker-ts",
};

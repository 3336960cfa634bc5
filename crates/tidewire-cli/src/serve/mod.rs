//! `tidewire serve`: runs the engine until a signal stops it.

mod introduction;
mod log;
mod options;
mod reload;
mod signals;
mod sockets;
mod successor;
mod supervisor;
mod traces;

pub(crate) use options::{BrokerFlags, ServeFlags};

use crate::failure::Failure;
use crate::output::print;
use crate::stop;
use introduction::Addresses;
use log::LogLevel;
use reload::Configuration;
use signals::Signals;
use sockets::Inheritance;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use successor::{Progress, Succession, Successor};
use supervisor::Supervisor;
use tidewire_engine::settings::Settings;
use tidewire_engine::{Config, ListeningSockets, Server, ServerFailure, StartError};
use tidewire_load::fleet::preflight;
use traces::Traces;

/// Serves until a signal, drains, and returns the exit code.
pub(crate) fn run(flags: &ServeFlags) -> Result<u8, Failure> {
    let settings = flags.settings()?;
    if flags.check {
        return check(&settings).map(|()| 0);
    }
    let (log_level, log_thread) = log::to_stderr(&settings)?;
    let end = serve(flags, &settings, log_level);
    match end {
        // Its words would wait for a reader.
        Err(failure) if !log_thread.end() => Ok(failure.exit_code),
        end => end,
    }
}

fn serve(flags: &ServeFlags, settings: &Settings, log_level: LogLevel) -> Result<u8, Failure> {
    let mut config = settings.config().map_err(options::failure)?;
    for warning in options::warnings(settings, &config) {
        tracing::warn!("{warning}");
    }
    if flags.print_config {
        return print(&printed(settings, &config)).map(|()| 0);
    }
    traces::check(settings)?;
    // Before anything else opens files, as the sockets are found by the numbers of their descriptors.
    let mut inheritance = Inheritance::take()?;
    let succession = Succession::new(inheritance.are_kept);
    let signals = Signals::watch()?;
    if flags.stop_with_stdin {
        stop::with_stdin(&signals.stop);
    }
    // A connection is an open file, and the limit that is in force is often only 1,024.
    preflight::raise_open_files();
    preflight::make_room_for(config.limits.connections_max.min(ROOM_AT_START) as u64);
    let traces = Traces::start(settings, &mut config)?;
    let ops_listen = config.ops_listen;
    let sockets = std::mem::take(&mut inheritance.sockets);
    let server =
        start(sockets, config.clone(), settings).map_err(|error| explain(&error, ops_listen))?;
    let configuration = Configuration::of(&server, flags, settings, log_level);
    introduce(settings, &config, &server)?;
    inheritance.take_over();
    let mut running = Running {
        server,
        configuration,
        succession,
        supervisor: Supervisor::from_environment(),
    };
    running
        .supervisor
        .serves(&running.server.address().to_string());
    let end = running.wait(&signals);
    let code = running.end(end, inheritance.are_kept);
    traces.stop();
    code
}

fn start(
    sockets: ListeningSockets,
    config: Config,
    settings: &Settings,
) -> Result<Server, StartError> {
    match settings.text("app").as_deref() {
        Some("sink") => Server::start_sink(sockets, config),
        _ => Server::start_echo(sockets, config),
    }
}

/// A server that serves.
struct Running {
    server: Server,
    configuration: Arc<Configuration>,
    succession: io::Result<Succession>,
    supervisor: Supervisor,
}

/// The reason why a server stops to serve.
enum End {
    Stopped,
    Failed(ServerFailure),
    /// The process of this number has its sockets and serves.
    Succeeded(u32),
}

impl Running {
    /// Serves until a signal stops it, the server has failed, or another one has replaced it. Meanwhile
    /// SIGHUP reloads the configuration; if it was sent because the terminal is gone, it stops the program.
    /// SIGUSR2 starts the next server.
    fn wait(&mut self, signals: &Signals) -> End {
        let had_terminal = io::stderr().is_terminal();
        let handle = self.server.handle();
        let mut successor: Option<Successor> = None;
        while !signals.told_to_stop() {
            if signals.was_hung_up() {
                if had_terminal && !io::stderr().is_terminal() {
                    break;
                }
                // The result is logged there.
                let _ = self.configuration.reload();
            }
            if signals.told_to_hand_over() && successor.is_none() {
                successor = self.start_successor();
            }
            if let Some(next) = &mut successor {
                match next.progress() {
                    Progress::Starts => {}
                    Progress::Serves => return End::Succeeded(next.process()),
                    Progress::Failed(reason) => {
                        tracing::error!("no server takes over, this one goes on: {reason}");
                        successor = None;
                    }
                }
            }
            if let Some(failure) = handle.failure() {
                return End::Failed(failure);
            }
            self.supervisor.sign_of_life(&handle);
            std::thread::sleep(POLL);
        }
        if let Some(mut next) = successor {
            next.end();
        }
        End::Stopped
    }

    fn start_successor(&self) -> Option<Successor> {
        let started = match &self.succession {
            Ok(succession) => succession.start(self.server.sockets()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match started {
            Ok(next) => {
                tracing::info!(process = next.process(), "the next server starts");
                Some(next)
            }
            Err(error) => {
                tracing::error!(%error, "the next server cannot be started, this one goes on");
                None
            }
        }
    }

    /// Drains, and returns the exit code. Sockets that another process has are left to it at once.
    fn end(self, end: End, sockets_are_kept: bool) -> Result<u8, Failure> {
        let open = self.server.handle().connections();
        let (is_left_to_another, word) = match end {
            End::Failed(failure) => {
                drop(self.server);
                return Err(Failure::run(failure));
            }
            End::Stopped => {
                self.supervisor.stops();
                (sockets_are_kept, "draining".to_owned())
            }
            End::Succeeded(process) => {
                self.supervisor.is_succeeded_by(process);
                (true, format!("process {process} has taken over, draining"))
            }
        };
        // A parent that has closed the pipe does not hear it, which must not keep the drain from happening.
        tell(format!("{word}, sessions: {open}\n"));
        let timeout = Duration::from_millis(self.configuration.drain_timeout_ms());
        let left = match is_left_to_another {
            true => self.server.hand_over(timeout),
            false => self.server.drain(timeout),
        };
        tell(format!("stopped, sessions left: {left}\n"));
        Ok(0)
    }
}

/// Prints for a parent that may be gone, or read no more: its pipe may be full. Waits a moment for it.
fn tell(line: String) {
    let (done, is_done) = mpsc::channel();
    let printing = std::thread::Builder::new().spawn(move || {
        let _ = print(&line);
        let _ = done.send(());
    });
    if printing.is_ok() {
        let _ = is_done.recv_timeout(TELL_TIME);
    }
}

/// Prints the meaning of the configuration: what a server would do, which options were given and where, and
/// which are probably mistakes. A configuration with which no server would start is an error.
fn check(settings: &Settings) -> Result<(), Failure> {
    log::filter(settings)?;
    let config = settings.config().map_err(options::failure)?;
    traces::check(settings)?;
    Server::check(&config).map_err(|error| explain(&error, config.ops_listen))?;
    let addresses = Addresses {
        clients: config.listen,
        operations: config.ops_listen,
    };
    let mut out = introduction::text(settings, &config, &addresses);
    out.push_str("options that were given:\n");
    let given: Vec<String> = settings
        .given()
        .map(|(name, value, label)| format!("  {label}: {name} = {value}\n"))
        .collect();
    if given.is_empty() {
        out.push_str("  none\n");
    }
    out.extend(given);
    for warning in options::warnings(settings, &config) {
        out.push_str(&format!("warning: {warning}\n"));
    }
    print(&out)
}

/// Prints the addresses, which programs read, and for a person at a terminal what the server does.
fn introduce(settings: &Settings, config: &Config, server: &Server) -> Result<(), Failure> {
    let addresses = Addresses {
        clients: server.address(),
        operations: server.ops_address(),
    };
    let mut lines = format!(
        "listening on {}\n",
        introduction::url(config, addresses.clients)
    );
    if let Some(address) = addresses.operations {
        lines.push_str(&format!("operations on http://{address}\n"));
    }
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() && !log::is_json(settings) {
        let text = introduction::text(settings, config, &addresses);
        let next = introduction::next_steps(settings, config, addresses.operations);
        // A terminal that is gone is no reason not to serve.
        let _ = stderr.write_all((text + &next).as_bytes());
    }
    print(&lines)
}

/// The configuration, without secrets, and what the program itself does.
fn printed(settings: &Settings, config: &Config) -> String {
    let own = OWN.map(|name| settings.text(name).unwrap_or_default());
    let timeout_ms = settings.integer("drain_timeout_ms");
    format!("{config:#?}\n{own:?} {timeout_ms:?}\n")
}

/// The engine's error with what to do about it.
fn explain(error: &StartError, ops_listen: Option<SocketAddr>) -> Failure {
    use std::io::ErrorKind;
    let advice = match error {
        StartError::Listen { address, source } => {
            let is_ops = ops_listen == Some(*address);
            let flag = if is_ops { "--ops-listen" } else { "--listen" };
            match source.kind() {
                ErrorKind::AddrInUse => format!(
                    "another program listens there: stop it, or give another address with {flag} \
                     (port 0 takes a free one)"
                ),
                ErrorKind::AddrNotAvailable => {
                    format!("it is not an address of this machine: give another with {flag}")
                }
                ErrorKind::PermissionDenied => {
                    format!("ports below 1024 need privileges: give another with {flag}")
                }
                _ => format!("give another address with {flag}"),
            }
        }
        StartError::Tls(_) => "give PEM files with --tls-certificate and --tls-key".to_owned(),
        StartError::Limit { name, .. } => {
            format!("give another value with --{}", name.replace('_', "-"))
        }
        StartError::IdentityKey { .. } => {
            "give a PKCS#8 PEM file of a P-256 key with --identity-key \
             (`openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` writes one)"
                .to_owned()
        }
        StartError::SignatureKey(_) => {
            "give another file with --signature-secret-file or --signature-public-key".to_owned()
        }
        StartError::Access(_)
        | StartError::Broker(_)
        | StartError::TopicRule { .. }
        | StartError::Auth(_)
        | StartError::System(_)
        | StartError::Useless(_) => {
            return Failure::usage(error);
        }
    };
    Failure::usage(format!("{error}: {advice}"))
}

/// Options of the program itself, as texts.
const OWN: [&str; 5] = [
    "app",
    "log_level",
    "log_format",
    "otlp_endpoint",
    "otlp_sampling",
];

/// Connections for which there is room from the start; more make room by themselves.
const ROOM_AT_START: usize = 65_536;

/// The longest wait for the reader of standard output, at the end.
const TELL_TIME: Duration = Duration::from_secs(1);

/// The interval at which the program looks for signals.
const POLL: Duration = Duration::from_millis(50);

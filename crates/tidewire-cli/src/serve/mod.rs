//! `tidewire serve`: runs the engine until it is told to stop.

mod introduction;
mod log;
mod options;
mod reload;

pub(crate) use options::ServeFlags;

use crate::failure::Failure;
use crate::{print, stop};
use introduction::Addresses;
use reload::Configuration;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidewire_engine::settings::Settings;
use tidewire_engine::{Config, Handle, Server, ServerFailure, StartError, apps};
use tidewire_load::fleet::preflight;

/// Serves until a signal, drains, and returns the exit code.
pub(crate) fn run(flags: &ServeFlags) -> Result<u8, Failure> {
    let settings = flags.settings()?;
    if flags.check {
        return check(&settings).map(|()| 0);
    }
    let log_level = log::to_stderr(&settings)?;
    let config = settings.config().map_err(options::failure)?;
    for warning in warnings(&settings, &config) {
        tracing::warn!("{warning}");
    }
    if flags.print_config {
        return print(&printed(&settings, &config)).map(|()| 0);
    }
    let stop = stop::on_signals()?;
    let hangup = reload::on_hangup()?;
    if flags.stop_with_stdin {
        stop::with_stdin(&stop);
    }
    // A connection is an open file, and the limit that is in force is often only 1,024.
    preflight::raise_open_files();
    preflight::make_room_for(config.limits.connections_max.min(ROOM_AT_START) as u64);
    let ops_listen = config.ops_listen;
    let server = start(config.clone(), &settings).map_err(|error| explain(&error, ops_listen))?;
    let configuration = Configuration::of(&server, flags, &settings, log_level);
    introduce(&settings, &config, &server)?;
    if let Some(failure) = wait(&stop, &hangup, &server.handle(), &configuration) {
        drop(server);
        return Err(Failure::run(failure));
    }
    let open = server.handle().connections();
    // A parent that has closed the pipe does not hear it, which must not keep the drain from happening.
    let _ = print(&format!("draining, sessions: {open}\n"));
    let timeout = Duration::from_millis(configuration.drain_timeout_ms());
    let left = server.drain(timeout);
    let _ = print(&format!("stopped, sessions left: {left}\n"));
    Ok(0)
}

fn start(config: Config, settings: &Settings) -> Result<Server, StartError> {
    match settings.text("app").as_deref() {
        Some("sink") => Server::start(config, |_| apps::Sink),
        _ => Server::start(config, |_| apps::Echo),
    }
}

/// Says what the configuration means: what a server would do, which options were given and where, and what was most
/// likely not meant. A configuration with which no server would start is an error.
fn check(settings: &Settings) -> Result<(), Failure> {
    log::filter(settings)?;
    let config = settings.config().map_err(options::failure)?;
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
    for warning in warnings(settings, &config) {
        out.push_str(&format!("warning: {warning}\n"));
    }
    print(&out)
}

/// Settings and variables that are permitted but most likely not meant.
fn warnings(settings: &Settings, config: &Config) -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let mut warnings = options::unknown_variables(names);
    warnings.extend(settings.warnings(config));
    warnings
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
    let own =
        ["app", "log_level", "log_format"].map(|name| settings.text(name).unwrap_or_default());
    let timeout_ms = settings.integer("drain_timeout_ms");
    format!("{config:#?}\n{own:?} {timeout_ms:?}\n")
}

/// Waits until the program is told to stop, or the server has failed. Meanwhile SIGHUP reloads the configuration; if it
/// came because the terminal is gone, it stops the program.
fn wait(
    stop: &AtomicBool,
    hangup: &AtomicBool,
    handle: &Handle,
    configuration: &Configuration,
) -> Option<ServerFailure> {
    let had_terminal = std::io::stderr().is_terminal();
    while !stop.load(Ordering::Acquire) {
        if reload::was_hung_up(hangup) {
            if had_terminal && !std::io::stderr().is_terminal() {
                return None;
            }
            // It logs what comes of it.
            let _ = configuration.reload();
        }
        if let Some(failure) = handle.failure() {
            return Some(failure);
        }
        std::thread::sleep(STOP_POLL);
    }
    None
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
        | StartError::TopicRule { .. }
        | StartError::Unshared { .. }
        | StartError::Auth(_)
        | StartError::System(_)
        | StartError::Useless(_) => {
            return Failure::usage(error);
        }
    };
    Failure::usage(format!("{error}: {advice}"))
}

/// Connections for which there is room from the start; more make room by themselves.
const ROOM_AT_START: usize = 65_536;

/// The interval at which the program checks for a signal to stop.
const STOP_POLL: Duration = Duration::from_millis(50);

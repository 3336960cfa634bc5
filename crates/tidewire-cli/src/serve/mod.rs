//! `tidewire serve`: runs the engine until it is told to stop.

mod options;

pub(crate) use options::ServeFlags;

use crate::failure::Failure;
use crate::{print, stop};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidewire_engine::settings::Settings;
use tidewire_engine::{Config, Handle, Server, ServerFailure, StartError, apps};
use tidewire_load::fleet::preflight;
use tracing_subscriber::EnvFilter;

/// Serves until a signal, drains, and returns the exit code.
pub(crate) fn run(flags: &ServeFlags) -> Result<u8, Failure> {
    let settings = flags.settings()?;
    log_to_stderr(&settings)?;
    for warning in options::unknown_variables(std::env::vars_os().map(|(name, _)| name)) {
        tracing::warn!("{warning}");
    }
    let config = settings.config().map_err(options::failure)?;
    if flags.print_config {
        return print(&printed(&settings, &config)).map(|()| 0);
    }
    let stop = stop::on_signals()?;
    if flags.stop_with_stdin {
        stop::with_stdin(&stop);
    }
    // A connection is an open file, and the limit that is in force is often only 1,024.
    preflight::raise_open_files();
    preflight::make_room_for(config.limits.connections_max.min(ROOM_AT_START) as u64);
    let ops_listen = config.ops_listen;
    let scheme = if config.tls.is_some() { "wss" } else { "ws" };
    let path = config.paths.first().cloned().unwrap_or("/".to_owned());
    let server = start(config, &settings).map_err(|error| explain(&error, ops_listen))?;
    let mut lines = format!("listening on {scheme}://{}{path}\n", server.address());
    if let Some(address) = server.ops_address() {
        lines.push_str(&format!("operations on http://{address}\n"));
    }
    print(&lines)?;
    if let Some(failure) = wait(&stop, &server.handle()) {
        drop(server);
        return Err(Failure::run(failure));
    }
    let open = server.handle().connections();
    // A parent that has closed the pipe does not hear it, which must not keep the drain from happening.
    let _ = print(&format!("draining, sessions: {open}\n"));
    let timeout_ms = settings.integer("drain_timeout_ms").unwrap_or_default();
    let left = server.drain(Duration::from_millis(timeout_ms));
    let _ = print(&format!("stopped, sessions left: {left}\n"));
    Ok(0)
}

fn start(config: Config, settings: &Settings) -> Result<Server, StartError> {
    match settings.text("app").as_deref() {
        Some("sink") => Server::start(config, |_| apps::Sink),
        _ => Server::start(config, |_| apps::Echo),
    }
}

/// The configuration, without secrets, and what the program itself does.
fn printed(settings: &Settings, config: &Config) -> String {
    let own = ["app", "log_level"].map(|name| settings.text(name).unwrap_or_default());
    let timeout_ms = settings.integer("drain_timeout_ms");
    format!("{config:#?}\n{own:?} {timeout_ms:?}\n")
}

/// Waits until the program is told to stop, or the server has failed.
fn wait(stop: &AtomicBool, handle: &Handle) -> Option<ServerFailure> {
    while !stop.load(Ordering::Acquire) {
        if let Some(failure) = handle.failure() {
            return Some(failure);
        }
        std::thread::sleep(STOP_POLL);
    }
    None
}

fn log_to_stderr(settings: &Settings) -> Result<(), Failure> {
    let level = settings.text("log_level").unwrap_or_default();
    let filter = EnvFilter::builder().parse(&level).map_err(|error| {
        let problem = format!(
            "{level:?}: {error}; give error, warn, info, debug, trace or filters such as \
             warn,tidewire_engine=debug"
        );
        options::failure(settings.wrong("log_level", problem))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    Ok(())
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

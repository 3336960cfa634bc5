//! The engine's server, from start to end.

use super::not_started;
use crate::errors::{Failure, Fault, stopped};
use crate::options::Options;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidewire_engine::queue::{Receiver, queue};
use tidewire_engine::{Handle, Server};

/// The part of a server that threads share.
pub(super) struct Core {
    options: Options,
    running: OnceLock<Running>,
    server: Mutex<Option<Server>>,
    is_starting: AtomicBool,
    is_stopped: AtomicBool,
}

struct Running {
    handle: Handle,
    address: SocketAddr,
    ops_address: Option<SocketAddr>,
}

/// Calls the function of JavaScript that receives. It does not keep the process alive.
pub(super) type Waker = ThreadsafeFunction<(), (), (), napi::Status, false, true>;

impl Core {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            running: OnceLock::new(),
            server: Mutex::new(None),
            is_starting: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn start(&self, waker: Waker) -> Result<Receiver, Failure> {
        if self.is_starting.swap(true, Ordering::AcqRel) {
            return Err(stopped("a server can be started once: make a new one"));
        }
        let (sender, receiver) = queue(self.options.queue_bytes_max);
        let sender = match self.options.snapshot_requests {
            true => sender.with_syncs(),
            false => sender,
        };
        let config = self.options.config.clone();
        let started = Server::start(config, |_shard| sender.application());
        let server = started.inspect_err(|_| self.is_starting.store(false, Ordering::Release))?;
        receiver.on_batch(move || {
            // An environment that is about to end receives nothing more.
            waker.call((), ThreadsafeFunctionCallMode::NonBlocking);
        });
        let running = Running {
            handle: server.handle(),
            address: server.address(),
            ops_address: server.ops_address(),
        };
        *locked(&self.server) = Some(server);
        let _ = self.running.set(running);
        Ok(receiver)
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(server) = locked(&self.server).take() {
            server.stop();
        }
    }

    pub(super) fn drain(&self, timeout: Duration) -> usize {
        let server = locked(&self.server).take();
        let left = server.map_or(0, |server| server.drain(timeout));
        self.is_stopped.store(true, Ordering::Release);
        left
    }

    /// A server that does not run has no new connections to let in.
    pub(super) fn set_admitting(&self, is_admitting: bool) {
        if let Some(running) = self.running.get() {
            running.handle.set_admitting(is_admitting);
        }
    }

    pub(super) fn state(&self) -> &'static str {
        if self.is_stopped.load(Ordering::Acquire) {
            "stopped"
        } else if self.running.get().is_some() {
            "running"
        } else {
            "new"
        }
    }

    /// The address of the server, and that of its operations listener.
    pub(super) fn addresses(&self) -> Result<(SocketAddr, Option<SocketAddr>), Failure> {
        let running = self.running()?;
        Ok((running.address, running.ops_address))
    }

    pub(super) fn url(&self) -> Result<String, Failure> {
        let address = self.running()?.address;
        let Options { scheme, path, .. } = &self.options;
        // A server that listens on every address is reached on this machine's own.
        let host = match address.ip() {
            ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
            ip if ip.is_unspecified() => "[::1]".to_owned(),
            ip if ip.is_ipv6() => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        Ok(format!("{scheme}://{host}:{}{path}", address.port()))
    }

    /// The way to the running server.
    pub(super) fn handle(&self) -> Result<&Handle, Failure> {
        let running = self.running()?;
        match self.is_stopped.load(Ordering::Acquire) {
            true => Err(stopped("the server has stopped")),
            false => Ok(&running.handle),
        }
    }

    /// The error of a server that stopped without a call of `stop`.
    pub(super) fn check_failure(&self) -> Result<(), Failure> {
        let failure = self.running()?.handle.failure();
        failure.map_or(Ok(()), |failure| {
            let code = "SERVER_FAILED";
            Err(Failure::new("TidewireError", code, Fault::Nobody, failure))
        })
    }

    fn running(&self) -> Result<&Running, Failure> {
        self.running.get().ok_or_else(not_started)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stop();
    }
}

/// No thread that panics leaves the server half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

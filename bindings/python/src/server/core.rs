//! The engine's server and its queue, from start to end.

use super::ServerResult;
use super::batch::{Segment, Stored};
use crate::errors::{Failure, Fault, argument, stopped};
use serde_json::{Map, Value};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidewire_engine::queue::{Finished, Receiver, queue};
use tidewire_engine::settings::{Settings, Way, names};
use tidewire_engine::{Config, Handle, Server};

/// What a server was told.
pub(super) struct Options {
    config: Config,
    scheme: &'static str,
    path: String,
    queue_bytes_max: usize,
    snapshot_requests: bool,
}

/// What all objects of one server share.
pub(crate) struct Core {
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
    inbox: Mutex<Inbox>,
    wake_reader: UnixStream,
}

/// What waits to be received.
struct Inbox {
    /// `None` in a process that was forked from that of the server.
    receiver: Option<Receiver>,
    /// The rest of a batch that was longer than what was asked for.
    rest: Option<Segment>,
}

impl Options {
    /// Reads a JSON object.
    pub(super) fn read(text: &str) -> ServerResult<Self> {
        let keywords: Map<String, Value> = serde_json::from_str(text).map_err(argument)?;
        let settings = Settings::from_keywords(&keywords)?;
        let config = settings.config()?;
        let queue_bytes_max = settings.integer("queue_bytes_max").unwrap_or(u64::MAX);
        Ok(Self {
            scheme: if config.tls.is_some() { "wss" } else { "ws" },
            path: config.paths.first().cloned().unwrap_or("/".to_owned()),
            config,
            queue_bytes_max: usize::try_from(queue_bytes_max).unwrap_or(usize::MAX),
            snapshot_requests: settings.flag("snapshot_requests"),
        })
    }

    /// Everything that was given or has a default, without secrets.
    pub(super) fn describe(&self) -> String {
        let queue = format!("{} {}", self.queue_bytes_max, self.snapshot_requests);
        format!("{:#?}\n{queue}", self.config)
    }

    /// The names of all options.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        names(Way::Keyword)
    }
}

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

    pub(super) fn describe(&self) -> String {
        self.options.describe()
    }

    pub(super) fn start(&self) -> ServerResult<()> {
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
        drop(sender);
        let (wake_reader, wake_writer) =
            wake_pair().map_err(|error| stopped(format!("no descriptor: {error}")))?;
        receiver.on_batch(move || {
            // A full pipe is readable already.
            let _ = (&wake_writer).write(&[1]);
        });
        let running = Running {
            handle: server.handle(),
            address: server.address(),
            ops_address: server.ops_address(),
            inbox: Mutex::new(Inbox {
                receiver: Some(receiver),
                rest: None,
            }),
            wake_reader,
        };
        *locked(&self.server) = Some(server);
        let _ = self.running.set(running);
        Ok(())
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

    /// Lets newcomers in, or turns them away. A server that does not run has none.
    pub(super) fn set_admitting(&self, is_admitting: bool) {
        if let Some(running) = self.running.get() {
            running.handle.set_admitting(is_admitting);
        }
    }

    /// Forgets the server without ending it: its threads are in another process.
    pub(super) fn abandon(&self) {
        self.is_stopped.store(true, Ordering::Release);
        // A thread of the parent may have held a lock at the fork; then nobody will ever open it here.
        if let Ok(mut server) = self.server.try_lock() {
            std::mem::forget(server.take());
        }
        if let Some(running) = self.running.get()
            && let Ok(mut inbox) = running.inbox.try_lock()
        {
            std::mem::forget(inbox.receiver.take());
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

    pub(super) fn address(&self) -> ServerResult<SocketAddr> {
        Ok(self.running()?.address)
    }

    pub(super) fn ops_address(&self) -> ServerResult<Option<SocketAddr>> {
        Ok(self.running()?.ops_address)
    }

    pub(super) fn url(&self) -> ServerResult<String> {
        let address = self.running()?.address;
        let Options { scheme, path, .. } = &self.options;
        // Who listens everywhere is reached here.
        let host = match address.ip() {
            ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
            ip if ip.is_unspecified() => "[::1]".to_owned(),
            ip if ip.is_ipv6() => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        Ok(format!("{scheme}://{host}:{}{path}", address.port()))
    }

    /// The way to the running server.
    pub(super) fn handle(&self) -> ServerResult<&Handle> {
        let running = self.running()?;
        match self.is_stopped.load(Ordering::Acquire) {
            true => Err(stopped("the server has stopped")),
            false => Ok(&running.handle),
        }
    }

    fn running(&self) -> ServerResult<&Running> {
        self.running
            .get()
            .ok_or_else(|| stopped("the server was not started: call start() first"))
    }

    /// Waits for events, and takes at most so many.
    pub(super) fn receive(
        self: &Arc<Self>,
        max: usize,
        timeout: Duration,
    ) -> ServerResult<Vec<Segment>> {
        let running = self.running()?;
        // Who receives answers.
        running.handle.set_admitting(true);
        let mut inbox = locked(&running.inbox);
        let mut segments = Vec::new();
        let mut room = max.max(1);
        while room > 0 {
            let wait = if segments.is_empty() {
                timeout
            } else {
                Duration::ZERO
            };
            let next = match inbox.next(self, wait) {
                Ok(next) => next,
                Err(Finished) if segments.is_empty() => {
                    if let Some(failure) = running.handle.failure() {
                        let fault = Fault::Nobody;
                        return Err(Failure::new(
                            "TidewireError",
                            "SERVER_FAILED",
                            fault,
                            failure,
                        ));
                    }
                    return Err(stopped(
                        "the server has stopped and everything was received",
                    ));
                }
                Err(Finished) => break,
            };
            let Some(mut segment) = next else { break };
            inbox.rest = segment.split_off(room);
            room -= segment.len();
            segments.push(segment);
        }
        Ok(segments)
    }

    pub(super) fn fileno(&self) -> ServerResult<i32> {
        Ok(self.running()?.wake_reader.as_raw_fd())
    }

    /// Whether nothing waits now, so that the next message wakes the event loop.
    pub(super) fn arm(self: &Arc<Self>) -> ServerResult<bool> {
        let mut inbox = locked(&self.running()?.inbox);
        if inbox.rest.is_some() {
            return Ok(false);
        }
        if let Some(receiver) = &inbox.receiver {
            receiver.arm();
        }
        // What came before the wake-up was armed did not cause one.
        match inbox.next(self, Duration::ZERO) {
            Ok(None) => Ok(true),
            Ok(Some(segment)) => {
                inbox.rest = Some(segment);
                Ok(false)
            }
            Err(Finished) => Ok(false),
        }
    }

    pub(super) fn disarm(&self) -> ServerResult<()> {
        let mut sink = [0; 64];
        let mut wake_reader = &self.running()?.wake_reader;
        while matches!(wake_reader.read(&mut sink), Ok(read) if read == sink.len()) {}
        Ok(())
    }
}

impl Inbox {
    fn next(&mut self, core: &Arc<Core>, wait: Duration) -> Result<Option<Segment>, Finished> {
        if self.rest.is_some() {
            return Ok(self.rest.take());
        }
        let receiver = self.receiver.as_ref().ok_or(Finished)?;
        let batch = receiver.receive(wait)?;
        Ok(batch.map(|batch| Segment::new(Stored::new(batch, core))))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A pair of descriptors: what is written to the second can be read from the first.
fn wake_pair() -> std::io::Result<(UnixStream, UnixStream)> {
    let (wake_reader, wake_writer) = UnixStream::pair()?;
    wake_reader.set_nonblocking(true)?;
    wake_writer.set_nonblocking(true)?;
    Ok((wake_reader, wake_writer))
}

/// No thread that panics leaves what these hold half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

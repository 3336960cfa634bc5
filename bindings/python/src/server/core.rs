//! A server of the engine, and what Python receives of it.

use super::ServerResult;
use super::adopting::Adoptions;
use super::batch::{Segment, Stored};
use crate::errors::{argument, stopped};
use serde_json::{Map, Value};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidewire_bindings::server::{ServerLifecycle, ServerOptions};
use tidewire_engine::Handle;
use tidewire_engine::queue::{Finished, Receiver};

/// The shared state of all objects of one server.
pub(crate) struct Core {
    /// The process that has made it.
    process: u32,
    pub(super) server: ServerLifecycle,
    receiving: OnceLock<Receiving>,
    pub(super) adoptions: Adoptions,
}

/// There once the server was started.
struct Receiving {
    inbox: Mutex<Inbox>,
    wake_reader: UnixStream,
}

/// The events that wait to be received.
struct Inbox {
    /// `None` in a process that was forked from that of the server.
    receiver: Option<Receiver>,
    /// The rest of a batch that was longer than requested.
    rest: Option<Segment>,
}

/// The options in a JSON object.
pub(super) fn read_options(text: &str) -> ServerResult<ServerOptions> {
    let keywords: Map<String, Value> = serde_json::from_str(text).map_err(argument)?;
    Ok(ServerOptions::from_keywords(&keywords)?)
}

impl Core {
    pub(super) fn new(options: ServerOptions) -> Self {
        Self::with(ServerLifecycle::new(options))
    }

    /// That of another server with the same options.
    pub(super) fn renewed(&self) -> Self {
        Self::with(self.server.renewed())
    }

    fn with(server: ServerLifecycle) -> Self {
        Self {
            process: std::process::id(),
            server,
            receiving: OnceLock::new(),
            adoptions: Adoptions::default(),
        }
    }

    pub(super) fn start(&self) -> ServerResult<()> {
        // The fork has marked this server as stopped, so that no handler could answer.
        if std::process::id() != self.process {
            return Err(stopped(
                "the server was made before this process was forked: make it in the process that starts it",
            ));
        }
        let (wake_reader, wake_writer) =
            wake_pair().map_err(|error| stopped(format!("no descriptor: {error}")))?;
        let receiver = self.server.start(true, move || {
            // A full pipe is readable already.
            let _ = (&wake_writer).write(&[1]);
        })?;
        let inbox = Mutex::new(Inbox {
            receiver: Some(receiver),
            rest: None,
        });
        let _ = self.receiving.set(Receiving { inbox, wake_reader });
        Ok(())
    }

    /// Forgets the server without ending it: its threads are in another process.
    pub(super) fn abandon(&self) {
        self.server.abandon();
        // A thread of the parent may have held the lock at the fork; then nobody will ever open it here.
        if let Some(receiving) = self.receiving.get()
            && let Ok(mut inbox) = receiving.inbox.try_lock()
        {
            std::mem::forget(inbox.receiver.take());
        }
    }

    pub(super) fn address(&self) -> ServerResult<SocketAddr> {
        Ok(self.server.address()?)
    }

    /// The way to the running server.
    pub(super) fn handle(&self) -> ServerResult<&Handle> {
        Ok(self.server.handle()?)
    }

    fn receiving(&self) -> ServerResult<&Receiving> {
        let receiving = self.receiving.get();
        receiving.ok_or_else(|| stopped("the server was not started: call start() first"))
    }

    /// Waits for events, and returns at most `max`.
    pub(super) fn receive(
        self: &Arc<Self>,
        max: usize,
        timeout: Duration,
    ) -> ServerResult<Vec<Segment>> {
        let receiving = self.receiving()?;
        // Who receives answers.
        self.server.set_admitting(true);
        let mut inbox = locked(&receiving.inbox);
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
                    self.server.check_failure()?;
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
        Ok(self.receiving()?.wake_reader.as_raw_fd())
    }

    /// Whether nothing waits now, so that the next event wakes the reader.
    pub(super) fn arm(self: &Arc<Self>) -> ServerResult<bool> {
        let mut inbox = locked(&self.receiving()?.inbox);
        if inbox.rest.is_some() {
            return Ok(false);
        }
        if let Some(receiver) = &inbox.receiver {
            receiver.arm();
        }
        // Events that arrived before the wake-up was armed did not cause one.
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
        let mut reader = &self.receiving()?.wake_reader;
        while matches!(reader.read(&mut sink), Ok(read) if read == sink.len()) {}
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

/// A pair of descriptors: the first reads the bytes that the second writes.
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

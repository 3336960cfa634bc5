//! Sends the spans of a Tidewire server to an OpenTelemetry collector, by OTLP over HTTP with Protocol Buffers
//! (<https://opentelemetry.io/docs/specs/otlp/>).
//!
//! Shards put finished spans into a bounded queue and never wait. If the queue is full, a span is dropped and counted.
//! One thread empties the queue a few times a second and posts the spans in batches. A slow or unreachable receiver
//! causes the loss of spans, and has no other effect.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidewire_engine::{Config, Server, apps::Echo};
//! use tidewire_otlp::{Exporter, ExporterConfig};
//!
//! let exporter = Exporter::start(ExporterConfig::new("http://127.0.0.1:4318/v1/traces"))?;
//! let config = Config { traces: Some(exporter.sink()), ..Config::default() };
//! let server = Server::start(config, |_shard| Echo)?;
//! server.drain(Duration::from_secs(10));
//! exporter.stop(Duration::from_secs(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod encode;
mod post;
mod queue;
mod worker;

pub use config::{ConfigError, ExporterConfig};

use queue::{Control, Queue};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tidewire_engine::TraceSink;
use worker::Worker;

/// A running exporter. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Exporter {
    queue: Arc<Queue>,
    control: Arc<Control>,
    thread: JoinHandle<()>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Exporter {
    /// Starts the thread that exports.
    ///
    /// # Errors
    /// The operating system has no thread left.
    pub fn start(config: ExporterConfig) -> io::Result<Self> {
        let control = Arc::new(Control::default());
        let (queue, spans) = Queue::new(&config, Arc::clone(&control));
        let (running, ended) = channel();
        let worker = Worker::new(config, spans, Arc::clone(&control));
        let thread = std::thread::Builder::new()
            .name("tidewire-otlp".to_owned())
            .spawn(move || {
                worker.run();
                drop(running);
            })?;
        Ok(Self {
            queue: Arc::new(queue),
            control,
            thread,
            ended,
        })
    }

    /// Where a server puts its spans ([`Config::traces`](tidewire_engine::Config::traces)).
    #[must_use]
    pub fn sink(&self) -> Arc<dyn TraceSink> {
        Arc::clone(&self.queue) as _
    }

    /// Sends the queued spans, and waits for at most this time. If the process ends before all of them are sent, the
    /// rest is lost.
    pub fn stop(self, patience: Duration) {
        self.control.stop();
        self.thread.thread().unpark();
        let _ = self.ended.recv_timeout(patience);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.control.stop();
        self.thread.thread().unpark();
    }
}

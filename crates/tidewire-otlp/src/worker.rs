//! The exporter's thread: reads spans from the queue, posts them in batches, and logs losses.

use crate::config::ExporterConfig;
use crate::encode;
use crate::post::{Client, Refused};
use crate::queue::Control;
use opentelemetry_proto::tonic::resource::v1::Resource;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tidewire_engine::Span;

pub(crate) struct Worker {
    client: Client,
    resource: Resource,
    endpoint: String,
    spans: Receiver<Span>,
    control: Arc<Control>,
    /// When a loss was logged last.
    logged: Option<Instant>,
    /// Spans that were lost when that was logged last: dropped, and not accepted.
    told: (u64, u64),
    /// Why the last batch was not accepted.
    reason: String,
}

impl Worker {
    pub(crate) fn new(
        config: ExporterConfig,
        spans: Receiver<Span>,
        control: Arc<Control>,
    ) -> Self {
        Self {
            client: Client::new(&config),
            resource: encode::resource(&config),
            endpoint: config.endpoint,
            spans,
            control,
            logged: None,
            told: (0, 0),
            reason: String::new(),
        }
    }

    /// Exports until the exporter is stopped and the queue is empty.
    pub(crate) fn run(mut self) {
        loop {
            // Checked before the queue is read, so that spans recorded before the stop are sent.
            let is_last = self.control.is_stopped();
            loop {
                let batch: Vec<Span> = self.spans.try_iter().take(BATCH_SPANS).collect();
                if batch.is_empty() {
                    break;
                }
                self.export(batch);
                self.report(false);
            }
            self.report(is_last);
            if is_last {
                return;
            }
            std::thread::park_timeout(INTERVAL);
        }
    }

    /// Posts a batch, and again while that helps.
    fn export(&mut self, batch: Vec<Span>) {
        let count = batch.len() as u64;
        let body = encode::request(&self.resource, batch);
        let mut wait = RETRY_AFTER;
        let rejected = loop {
            match self.client.post(&body) {
                Ok(rejected) => break rejected.min(count),
                Err(Refused {
                    reason,
                    is_temporary,
                }) => {
                    self.reason = reason;
                    if !is_temporary || wait > RETRY_AFTER_MAX || self.control.is_stopped() {
                        break count;
                    }
                    self.pause(wait);
                    wait *= 2;
                }
            }
        };
        if rejected > 0 && rejected < count {
            "it rejects some of the spans".clone_into(&mut self.reason);
        }
        let control = &self.control;
        control
            .exported
            .fetch_add(count - rejected, Ordering::Relaxed);
        control.failed.fetch_add(rejected, Ordering::Relaxed);
    }

    /// Waits, unless the exporter is stopped.
    fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait;
        while !self.control.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }

    /// Logs the spans lost since the last report, at most once a minute and at the end.
    fn report(&mut self, is_last: bool) {
        let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let lost = (load(&self.control.dropped), load(&self.control.failed));
        let is_due = self
            .logged
            .is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
        if lost == self.told || !(is_due || is_last) {
            return;
        }
        let (dropped, failed) = (lost.0 - self.told.0, lost.1 - self.told.1);
        (self.told, self.logged) = (lost, Some(Instant::now()));
        if failed > 0 {
            tracing::warn!(
                endpoint = self.endpoint,
                failed,
                "spans were not accepted: {}",
                self.reason
            );
        }
        if dropped > 0 {
            tracing::warn!(
                endpoint = self.endpoint,
                dropped,
                "spans were dropped because too many waited; lower the sampling ratio"
            );
        }
    }
}

/// Spans of one request.
const BATCH_SPANS: usize = 512;

/// How often the queue is emptied.
const INTERVAL: Duration = Duration::from_millis(250);

/// The wait before a batch is sent again; it doubles up to the largest.
const RETRY_AFTER: Duration = Duration::from_millis(500);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Losses are logged at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

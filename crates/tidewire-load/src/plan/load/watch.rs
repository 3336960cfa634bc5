//! Observation of a load: display, early end, and the resources of both sides second by second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::ending::Ending;
use super::{LoadLive, LoadProgress};
use crate::accounting::generator::GeneratorCores;
use crate::accounting::live::ServiceLive;
use crate::accounting::resources;
use crate::accounting::server::{ServerSample, ServerWatch};
use crate::fleet::service::Wish;
use crate::report::ResourceSample;

/// Observes a phase about twenty times per second.
pub(super) struct Watcher<'a> {
    stop: &'a AtomicBool,
    progress: &'a mut dyn LoadProgress,
    server: &'a ServerWatch,
    cores: &'a GeneratorCores,
    /// Cores that the server may use.
    server_cores: f64,
    last: Option<Look>,
    samples: Vec<ResourceSample>,
    counts: Vec<(Duration, u64)>,
    ending: Ending,
}

/// The resources that both sides had used at one moment.
struct Look {
    at: Instant,
    client_cpu: Option<Duration>,
    server: Option<ServerSample>,
}

/// The results of the observation.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) samples: Vec<ResourceSample>,
    /// The expectation that ended the load early.
    pub(super) aborted: Option<String>,
    /// The precision of the figure that was to end the load, in a sentence.
    pub(super) precision: Option<String>,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(
        stop: &'a AtomicBool,
        progress: &'a mut dyn LoadProgress,
        server: &'a ServerWatch,
        cores: &'a GeneratorCores,
    ) -> Self {
        Self {
            stop,
            progress,
            server,
            cores,
            server_cores: server.cores().1,
            last: None,
            samples: Vec::new(),
            counts: Vec::new(),
            ending: Ending::default(),
        }
    }

    /// The conditions for an early end of the phase.
    pub(super) fn ending(&mut self) -> &mut Ending {
        &mut self.ending
    }

    pub(super) fn into_samples(self) -> Seen {
        let (aborted, precision) = self.ending.into_words();
        Seen {
            samples: self.samples,
            aborted,
            precision,
        }
    }

    pub(super) fn look(&mut self, service: &ServiceLive) -> Wish {
        self.sample(service);
        let live = LoadLive {
            service: service.clone(),
            rate_per_s: self.rate_per_s(service),
            client_share: self.samples.last().and_then(|last| last.client_share),
            server_share: self.samples.last().and_then(|last| last.server_share),
            server_rss_bytes: self.samples.last().and_then(|last| last.server_rss_bytes),
        };
        self.progress.tick(&live);
        if self.stop.load(Ordering::Relaxed) {
            return Wish::Interrupt;
        }
        match self.ending.look(service) {
            Some(_) => Wish::Stop,
            None => Wish::GoOn,
        }
    }

    /// Successes of the last second.
    fn rate_per_s(&mut self, service: &ServiceLive) -> f64 {
        let now = (service.elapsed, service.requests.succeeded);
        if self.counts.last().is_some_and(|last| last.0 > now.0) {
            self.counts.clear();
        }
        self.counts.push(now);
        while self.counts.len() > 2 && now.0.saturating_sub(self.counts[1].0) >= SECOND {
            self.counts.remove(0);
        }
        let first = self.counts[0];
        let seconds = now.0.saturating_sub(first.0).as_secs_f64();
        match seconds > 0.0 {
            true => now.1.saturating_sub(first.1) as f64 / seconds,
            false => 0.0,
        }
    }

    /// Once per second, and less often the longer the load.
    fn sample(&mut self, service: &ServiceLive) {
        let now = Instant::now();
        if let Some(last) = &self.last
            && now - last.at < SECOND
        {
            return;
        }
        let look = Look {
            at: now,
            client_cpu: resources::process_cpu(),
            server: self.server.glance(),
        };
        let server_rss_bytes = look.server.as_ref().map(|server| server.rss_bytes);
        if let Some(last) = self.last.replace(look)
            && let Some(look) = &self.last
        {
            let seconds = (look.at - last.at).as_secs_f64();
            let share = |cpu: Duration, cores: f64| {
                (cores > 0.0).then(|| cpu.as_secs_f64() / (seconds * cores))
            };
            let client = look.client_cpu.zip(last.client_cpu);
            let server = look.server.as_ref().zip(last.server.as_ref());
            let own = resources::process_usage(std::process::id());
            self.samples.push(ResourceSample {
                at_s: service.elapsed.as_secs_f64(),
                client_share: client
                    .and_then(|(now, before)| share(now.saturating_sub(before), self.cores.count)),
                server_share: server
                    .and_then(|(now, before)| share(now.cpu_since(before), self.server_cores)),
                client_rss_bytes: own.map(|usage| usage.rss_bytes),
                server_rss_bytes,
                connected: Some(service.connected),
            });
            self.thin_out();
        }
    }

    /// In a long load every other sample is enough.
    fn thin_out(&mut self) {
        if self.samples.len() > SAMPLES_MAX {
            let mut is_kept = false;
            self.samples.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const SAMPLES_MAX: usize = 7_200;

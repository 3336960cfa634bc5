//! Sampler of resources: processor and memory of both sides, about once per second.

use std::time::{Duration, Instant};

use super::generator::GeneratorCores;
use super::live::ProcessesLive;
use super::resources;
use super::server::{ServerSample, ServerWatch};
use crate::report::ResourceSample;

/// Samples of one phase.
pub(crate) struct ResourceSampler<'a> {
    server: &'a ServerWatch,
    cores: &'a GeneratorCores,
    /// Cores that the server may use.
    server_cores: f64,
    last: Option<Look>,
    samples: Vec<ResourceSample>,
}

/// The resources that both sides had used at one moment.
struct Look {
    at: Instant,
    client_cpu: Option<Duration>,
    server: Option<ServerSample>,
}

impl<'a> ResourceSampler<'a> {
    pub(crate) fn new(server: &'a ServerWatch, cores: &'a GeneratorCores) -> Self {
        Self {
            server,
            cores,
            server_cores: server.cores().1,
            last: None,
            samples: Vec::new(),
        }
    }

    /// The last sample; `None` in the first second.
    pub(crate) fn last(&self) -> Option<&ResourceSample> {
        self.samples.last()
    }

    /// All samples, or every other one of a long phase.
    pub(crate) fn into_samples(self) -> Vec<ResourceSample> {
        self.samples
    }

    /// Records a sample if the last one is at least a second old. `elapsed` counts from the start of the
    /// phase. `workers` are those that are processes of their own.
    pub(crate) fn look(&mut self, elapsed: Duration, connected: u64, workers: &ProcessesLive) {
        let now = Instant::now();
        if let Some(last) = &self.last
            && now - last.at < SECOND
        {
            return;
        }
        let look = Look {
            at: now,
            client_cpu: resources::process_cpu().map(|own| own + workers.cpu),
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
            self.samples.push(ResourceSample {
                at_s: elapsed.as_secs_f64(),
                client_share: client
                    .and_then(|(now, before)| share(now.saturating_sub(before), self.cores.count)),
                server_share: server
                    .and_then(|(now, before)| share(now.cpu_since(before), self.server_cores)),
                client_rss_bytes: resources::own_rss_bytes().map(|own| own + workers.rss_bytes),
                server_rss_bytes,
                connected: Some(connected),
            });
            self.thin_out();
        }
    }

    /// In a long phase every other sample is enough.
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

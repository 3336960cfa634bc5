//! Observation of a load: display, early end, and the resources of both sides second by second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ending::Ending;
use crate::accounting::generator::GeneratorCores;
use crate::accounting::live::ServiceLive;
use crate::accounting::sampler::ResourceSampler;
use crate::accounting::server::ServerWatch;
use crate::fleet::Wish;
use crate::plan::observe::{Progress, RunLive};
use crate::report::ResourceSample;

/// Observes a phase about twenty times per second.
pub(super) struct Watcher<'a> {
    stop: &'a AtomicBool,
    progress: &'a mut dyn Progress,
    resources: ResourceSampler<'a>,
    counts: Vec<(Duration, u64)>,
    ending: Ending,
}

/// The results of the observation.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) samples: Vec<ResourceSample>,
    /// The expectation that ended the load early.
    pub(super) aborted: Option<String>,
    /// The time after which no connection was left, if that has ended the load.
    pub(super) nobody_left: Option<Duration>,
    /// The precision of the figure that was to end the load, in a sentence.
    pub(super) precision: Option<String>,
}

impl Seen {
    /// Whether the phase lasted as long as planned.
    pub(super) fn ended_by_itself(&self) -> bool {
        self.aborted.is_none() && self.nobody_left.is_none() && self.precision.is_none()
    }
}

impl<'a> Watcher<'a> {
    pub(super) fn new(
        stop: &'a AtomicBool,
        progress: &'a mut dyn Progress,
        server: &'a ServerWatch,
        cores: &'a GeneratorCores,
    ) -> Self {
        Self {
            stop,
            progress,
            resources: ResourceSampler::new(server, cores),
            counts: Vec::new(),
            ending: Ending::default(),
        }
    }

    /// The conditions for an early end of the phase.
    pub(super) fn ending(&mut self) -> &mut Ending {
        &mut self.ending
    }

    pub(super) fn into_samples(self) -> Seen {
        let nobody_left = self.ending.nobody_left();
        let (aborted, precision) = self.ending.into_words();
        Seen {
            samples: self.resources.into_samples(),
            aborted,
            nobody_left,
            precision,
        }
    }

    pub(super) fn look(&mut self, service: &ServiceLive) -> Wish {
        self.resources
            .look(service.elapsed, service.connected, &service.processes);
        let rate_per_s = self.rate_per_s(service);
        let live = RunLive::of_load(service, rate_per_s, self.resources.last());
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
}

const SECOND: Duration = Duration::from_secs(1);

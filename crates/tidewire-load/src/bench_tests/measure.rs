//! What the tests have in common: phases measured on both sides, and judged.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::accounting::Accounting;
use crate::fleet::{Fleet, Watch};
use crate::live::Live;
use crate::pace::Pace;
use crate::payload::Payload;
use crate::plan::{Activity, Opened, Ran, Setup};
use crate::profile::ServerFacts;
use crate::report::{Bottleneck, Cpu, LatencyOrigin, Memory, TestResult, Verdict};
use crate::ring::FrameRing;
use crate::run::{BenchOptions, Progress, RunError};
use crate::server::{ServerSample, ServerWatch};
use crate::stats::ServerCounts;
use crate::stop::StopRule;
use crate::verdict::{bottleneck, coefficient_of_variation, cpu_share, verdict};

/// What every test of a run works with.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a BenchOptions,
    sources: Arc<[IpAddr]>,
    server: ServerWatch,
    /// The server's memory before the first connection.
    rss_bytes_empty: Option<u64>,
    progress: &'a mut dyn Progress,
    stop: &'a AtomicBool,
    facts: ServerFacts,
}

/// A phase and what the server says about it.
pub(crate) struct Measured {
    pub(crate) ran: Ran,
    pub(crate) server_cpu_s: Option<f64>,
    /// Of the server's busiest thread, as a share of the time.
    server_share: Option<f64>,
    pub(crate) rss_bytes: Option<(u64, u64)>,
    counts: Option<ServerCounts>,
    /// The counters were asked for and did not come.
    counts_error: Option<String>,
    wall_s: f64,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(
        options: &'a BenchOptions,
        sources: Arc<[IpAddr]>,
        server: ServerWatch,
        progress: &'a mut dyn Progress,
        stop: &'a AtomicBool,
    ) -> Self {
        let rss_bytes_empty = server.sample().map(|sample| sample.rss_bytes);
        let facts = ServerFacts::default();
        Self {
            options,
            sources,
            server,
            rss_bytes_empty,
            progress,
            stop,
            facts,
        }
    }

    /// What the server calls itself, once a connection has been open.
    pub(crate) fn server_name(&self) -> Option<String> {
        self.facts.version.clone()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn started(&mut self, name: &str, detail: &str, expected: Duration) {
        self.progress.test_started(name, detail, expected);
    }

    pub(crate) fn finished(&mut self, result: TestResult) -> TestResult {
        self.progress.test_finished(&result);
        result
    }

    pub(crate) fn fleet(&self) -> Result<Fleet, RunError> {
        let options = self.options;
        let mut setup = Setup::new(options.target.clone(), options.profile);
        setup.timeouts = options.timeouts;
        setup.handshakes_in_flight_max = options.handshakes_in_flight_max;
        setup.sources = Arc::clone(&self.sources);
        setup.seed = options.seed;
        Ok(Fleet::start(setup, options.threads)?)
    }

    pub(crate) fn open(&mut self, fleet: &mut Fleet, count: usize) -> Result<Opened, RunError> {
        let progress = &mut *self.progress;
        let mut tick = |live: &Live| progress.tick(live);
        let opened = fleet.open(
            count,
            &mut Watch {
                tick: &mut tick,
                stop: self.stop,
            },
        )?;
        if opened.connected > 0 {
            self.facts = opened.facts.clone();
        }
        Ok(opened)
    }

    pub(crate) fn ring(&self, payload: Payload) -> Arc<FrameRing> {
        Arc::new(FrameRing::of(payload, self.options.seed))
    }

    /// Sending as the options say: as fast as the server takes it, or at the given rate.
    pub(crate) fn sending(
        &self,
        ring: &Arc<FrameRing>,
        replies: bool,
    ) -> impl Fn(usize, usize) -> Activity + use<> {
        let options = self.options;
        let (rate_per_s, poisson) = (options.rate_per_s, options.poisson);
        let (in_flight, seed) = (options.in_flight, options.seed);
        let ring = Arc::clone(ring);
        move |worker, workers| {
            let ring = Arc::clone(&ring);
            match rate_per_s {
                Some(per_s) => {
                    let pace = Pace::share(per_s, poisson, workers, worker, seed);
                    Activity::Paced {
                        ring,
                        pace,
                        replies,
                    }
                }
                None if replies => Activity::Window { ring, in_flight },
                None => Activity::Blast { ring },
            }
        }
    }

    pub(crate) fn measure(
        &mut self,
        fleet: &mut Fleet,
        activity: impl Fn(usize, usize) -> Activity,
        stop: StopRule,
    ) -> Result<Measured, RunError> {
        let stats = self.options.stats;
        let counts_before = stats.map(|stats| stats.read());
        let before = self.server.sample();
        let start = Instant::now();
        let progress = &mut *self.progress;
        let mut tick = |live: &Live| progress.tick(live);
        let mut watch = Watch {
            tick: &mut tick,
            stop: self.stop,
        };
        let ran = fleet.run(activity, stop, &mut watch)?;
        let wall_s = start.elapsed().as_secs_f64();
        let after = self.server.sample();
        let mut measured = Measured::new(ran, before.as_ref(), after.as_ref(), wall_s);
        if let (Some(stats), Some(before)) = (stats, counts_before) {
            let counts = before.and_then(|before| stats.read_settled(before, measured.ran.offered));
            match counts {
                Ok(counts) => measured.counts = Some(counts),
                Err(error) => measured.counts_error = Some(error.to_string()),
            }
        }
        Ok(measured)
    }

    pub(crate) fn server_sample(&self) -> Option<ServerSample> {
        self.server.sample()
    }

    /// The server's memory with so many connections open. Its growth is per connection only before
    /// other work has made the server grow.
    pub(crate) fn memory(&self, connections: u64) -> Option<Memory> {
        let server_rss_bytes = self.server.sample()?.rss_bytes;
        let growth = server_rss_bytes.saturating_sub(self.rss_bytes_empty?);
        let per_connection_bytes = (connections > 0).then(|| growth as f64 / connections as f64);
        Some(Memory {
            server_rss_bytes,
            per_connection_bytes,
            ..Memory::default()
        })
    }

    /// A result with what every test on these connections reports.
    pub(crate) fn result(&self, name: &str, asked: usize, opened: &Opened) -> TestResult {
        let mut result = TestResult::new(name, asked as u64);
        result.connected = Some(opened.connected);
        result.failed = Some(opened.failures.total());
        if let Some(words) = opened.failures.in_words() {
            result
                .notes
                .push(format!("Connections that could not be opened: {words}."));
        }
        result
    }

    /// Adds the figures of a phase and the verdict over it.
    pub(crate) fn judge(
        &self,
        result: &mut TestResult,
        opened: &Opened,
        measured: &Measured,
        saturating: bool,
    ) {
        let ran = &measured.ran;
        let account = measured.account(opened);
        let duration_s = ran.duration_s();
        result.failed = Some(account.connections_failed);
        result.duration_s = Some(duration_s);
        result.messages = account.messages();
        if account.offered > 0 {
            result.rate_per_s = account.rate_per_s(duration_s);
            result.rate_series.clone_from(&ran.series);
        }
        let is_paced = ran.latency_sent.count() > 0;
        let origin = if is_paced {
            LatencyOrigin::Intended
        } else {
            LatencyOrigin::Sent
        };
        result.latency_us = ran.latency.summary(origin);
        result.latency_other_us = ran.latency_sent.summary(LatencyOrigin::Sent);
        result.cpu = Some(Cpu {
            client_s: ran.cpu.as_secs_f64(),
            server_s: measured.server_cpu_s,
        });
        result.bottleneck = measured.bottleneck(self.options.threads);
        // The last second holds the end of the sending.
        let full_seconds = &ran.series[..ran.series.len().saturating_sub(1)];
        let noise = saturating
            .then(|| coefficient_of_variation(full_seconds))
            .flatten();
        let (verdict, notes) = verdict(&account, result.bottleneck, saturating, noise);
        result.verdict = verdict;
        result.notes.extend(notes);
        self.add_notes(result, measured);
    }

    fn add_notes(&self, result: &mut TestResult, measured: &Measured) {
        let ran = &measured.ran;
        if let Some(words) = ran.broken.in_words() {
            result
                .notes
                .push(format!("Connections that broke during the test: {words}."));
        }
        if ran.wrong_replies > 0 {
            result.verdict = Verdict::Failed;
            result.notes.push(format!(
                "{} replies had another kind or length than the message they answer: this server \
                 does not echo.",
                ran.wrong_replies
            ));
        }
        if ran.errors > 0 {
            result
                .notes
                .push(format!("The server sent {} error messages.", ran.errors));
        }
        if ran.rate_limited > 0 {
            let limit = match (
                self.facts.rate_limit_refill_per_s,
                self.facts.rate_limit_capacity,
            ) {
                (Some(refill), Some(capacity)) => format!(
                    " It allows each connection {refill} messages a second and {capacity} at once."
                ),
                _ => String::new(),
            };
            result.notes.push(format!(
                "The server answered {} times with RATE_LIMITED.{limit}",
                ran.rate_limited
            ));
        }
        if let Some(error) = &measured.counts_error {
            result.verdict = Verdict::Failed;
            result.notes.push(format!(
                "The server's counters could not be compared: {error}."
            ));
        }
        if ran.interrupted {
            result
                .notes
                .push("The test was interrupted before its end.".into());
        }
    }
}

impl Measured {
    fn new(
        ran: Ran,
        before: Option<&ServerSample>,
        after: Option<&ServerSample>,
        wall_s: f64,
    ) -> Self {
        let both = before.zip(after);
        Self {
            ran,
            server_cpu_s: both
                .map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64()),
            server_share: both
                .filter(|_| wall_s > 0.0)
                .map(|(before, after)| after.busiest_since(before).as_secs_f64() / wall_s),
            rss_bytes: both.map(|(before, after)| (before.rss_bytes, after.rss_bytes)),
            counts: None,
            counts_error: None,
            wall_s,
        }
    }

    fn account(&self, opened: &Opened) -> Accounting {
        let ran = &self.ran;
        // Without its counters, what the server told each connection is all that is known.
        let told = (ran.rate_limited > 0).then_some(ran.rate_limited);
        let told_delivered = told.map(|refused| ran.confirmed.saturating_sub(refused));
        let messages = ran.offered > 0;
        Accounting {
            offered: ran.offered,
            confirmed: ran.confirmed,
            delivered: self
                .counts
                .filter(|_| messages)
                .map_or(told_delivered, |counts| Some(counts.delivered)),
            refused: self
                .counts
                .filter(|_| messages)
                .map_or(told, |counts| Some(counts.refused)),
            connections_attempted: opened.attempted,
            connections_failed: opened.failures.total() + ran.broken.total(),
            pings_sent: ran.pings_sent,
            pongs_lost: ran.pongs_lost,
        }
    }

    fn bottleneck(&self, threads: usize) -> Bottleneck {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let client_s = self.ran.cpu.as_secs_f64();
        let (threads, cores) = (threads as u32, cores as u32);
        let client = cpu_share(client_s, self.wall_s, threads, cores);
        let found = bottleneck(client, self.server_share);
        let together_s = client_s + self.server_cpu_s.unwrap_or(0.0);
        let is_machine_full = self.server_cpu_s.is_some()
            && bottleneck(cpu_share(together_s, self.wall_s, cores, cores), None)
                != Bottleneck::None;
        if found == Bottleneck::None && is_machine_full {
            Bottleneck::Both
        } else {
            found
        }
    }
}

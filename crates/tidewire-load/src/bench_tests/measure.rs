//! What the tests have in common: phases measured on both sides, and judged.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::accounting::Accounting;
use crate::fleet::{Fleet, Watch};
use crate::layer::Layer;
use crate::live::Live;
use crate::pace::Pace;
use crate::payload::{Content, Payload};
use crate::plan::{Activity, Opened, Ran, Setup};
use crate::profile::ServerFacts;
use crate::report::model::{CONNECTION_STORM, SUSTAINED_HOLD};
use crate::report::{Bottleneck, Cpu, LatencyOrigin, Memory, TestResult, Verdict};
use crate::ring::FrameRing;
use crate::run::{BenchOptions, Progress, RunError};
use crate::server::{ServerSample, ServerWatch};
use crate::stats::ServerCounts;
use crate::stop::{Confidence, StopRule};
use crate::verdict::{bottleneck, coefficient_of_variation, cpu_share, verdict};

/// What every test of a run works with.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a BenchOptions,
    sources: Arc<[IpAddr]>,
    server: ServerWatch,
    /// The server's memory before the first connection.
    rss_bytes_empty: Option<u64>,
    /// Whether anything has made the server grow but connections that say little.
    is_loaded: bool,
    /// The most connections that were open at once.
    connected_most: u64,
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
    /// The most memory of the server that was seen, ten times a second.
    pub(crate) rss_bytes_peak: Option<u64>,
    counts: Option<ServerCounts>,
    /// The counters were asked for and did not come.
    counts_error: Option<String>,
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
            is_loaded: false,
            connected_most: 0,
            progress,
            stop,
            facts,
        }
    }

    /// What the server calls itself, once a connection has been open.
    pub(crate) fn server_name(&self) -> Option<String> {
        let ServerFacts {
            server, version, ..
        } = &self.facts;
        // Version 1 has no field for a name, but our own server is known by other signs.
        let is_ours = self.options.embedded || self.options.stats.is_some();
        match version {
            Some(version) if is_ours && !version.contains('/') => {
                Some(format!("tidewire/{version}"))
            }
            _ => server.clone().or_else(|| version.clone()),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn started(&mut self, name: &str, detail: &str, expected: Duration) {
        self.is_loaded |= !matches!(name, CONNECTION_STORM | SUSTAINED_HOLD);
        self.progress.test_started(name, detail, expected);
    }

    pub(crate) fn finished(&mut self, result: TestResult) -> TestResult {
        self.progress.test_finished(&result);
        result
    }

    pub(crate) fn fleet(&self) -> Result<Fleet, RunError> {
        let options = self.options;
        let mut setup = Setup::new(options.target.clone(), options.profile);
        setup.layer = options.layer;
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
        self.connected_most = self.connected_most.max(opened.connected);
        Ok(opened)
    }

    /// A message of so many bytes with the content that the options ask for.
    pub(crate) fn payload(&self, json_bytes: usize) -> Payload {
        let compresses = self.options.layer == Layer::Deflate;
        let usual = if compresses {
            Content::Trades
        } else {
            Content::Trade
        };
        Payload::json(json_bytes).telling(self.options.content.unwrap_or(usual))
    }

    pub(crate) fn ring(&self, payload: Payload) -> Arc<FrameRing> {
        Arc::new(FrameRing::of(
            payload,
            self.options.layer,
            self.options.seed,
        ))
    }

    /// Adds what the messages of a phase were.
    pub(crate) fn describe(&self, result: &mut TestResult, payload: Payload, ring: &FrameRing) {
        let wire_bytes = ring.payload_bytes_mean();
        result.format = Some(payload.encoding.as_str().to_owned());
        result.payload_bytes = Some(payload.json_bytes as u64);
        result.wire_bytes = Some(wire_bytes);
        result.bytes_per_s = result.rate_per_s.map(|rate| rate * wire_bytes);
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

    /// When a sending test ends.
    pub(crate) fn sending_stop(&self) -> StopRule {
        let duration = self.options.duration;
        match self.options.confidence {
            None => StopRule::Duration(duration),
            Some(half_width_max) => StopRule::Confidence(Confidence {
                half_width_max,
                at_least: duration,
                at_most: duration * CONFIDENCE_DURATIONS_MAX,
            }),
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
        let (progress, server) = (&mut *self.progress, &self.server);
        let mut rss_bytes_peak = before.as_ref().map(|before| before.rss_bytes);
        let mut tick = |live: &Live| {
            rss_bytes_peak = rss_bytes_peak.max(server.rss_bytes());
            progress.tick(live);
        };
        let mut watch = Watch {
            tick: &mut tick,
            stop: self.stop,
        };
        let ran = fleet.run(activity, stop, &mut watch)?;
        let after = self.server.sample();
        rss_bytes_peak = rss_bytes_peak.max(after.as_ref().map(|after| after.rss_bytes));
        if ran.facts != ServerFacts::default() {
            self.facts = ran.facts.clone();
        }
        let mut measured = Measured::new(ran, before.as_ref(), after.as_ref());
        measured.rss_bytes_peak = rss_bytes_peak;
        if let (Some(stats), Some(before)) = (stats, counts_before) {
            let ran = &measured.ran;
            let is_settled = |counts: &ServerCounts| match &ran.fan_out {
                Some(_) => counts.deliveries.is_none_or(|count| count >= ran.confirmed),
                None => counts.delivered.saturating_add(counts.refused) >= ran.offered,
            };
            let counts = before.and_then(|before| stats.read_settled(before, is_settled));
            match counts {
                Ok(counts) => measured.counts = Some(counts),
                Err(error) => measured.counts_error = Some(error.to_string()),
            }
        }
        Ok(measured)
    }

    /// Lets the connections do something that is no measurement.
    pub(crate) fn prepare(
        &mut self,
        fleet: &mut Fleet,
        activity: impl Fn(usize, usize) -> Activity,
    ) -> Result<Ran, RunError> {
        let progress = &mut *self.progress;
        let mut tick = |live: &Live| progress.tick(live);
        let mut watch = Watch {
            tick: &mut tick,
            stop: self.stop,
        };
        Ok(fleet.run(activity, StopRule::Count(0), &mut watch)?)
    }

    pub(crate) fn server_sample(&self) -> Option<ServerSample> {
        self.server.sample()
    }

    /// The server's memory with so many connections open that have said little. Its growth is theirs
    /// unless other work, or more connections, have made the server grow before.
    pub(crate) fn idle_memory(&self, server_rss_bytes: u64, connections: u64) -> Memory {
        let is_theirs = !self.is_loaded && connections >= self.connected_most.max(1);
        let growth = self
            .rss_bytes_empty
            .map(|empty| server_rss_bytes.saturating_sub(empty));
        Memory {
            server_rss_bytes,
            per_connection_bytes: growth
                .filter(|_| is_theirs)
                .map(|growth| growth as f64 / connections as f64),
            ..Memory::default()
        }
    }

    /// A result with what every test on these connections reports.
    pub(crate) fn result(&self, name: &str, asked: usize, opened: &Opened) -> TestResult {
        let mut result = TestResult::new(name, asked as u64);
        let layer = self.options.layer;
        result.extensions = layer
            .extensions()
            .iter()
            .map(|&name| name.to_owned())
            .collect();
        result.encryption_version = layer.encryption_version();
        result.connected = Some(opened.connected);
        result.failed = Some(opened.failures.total());
        if let Some(words) = opened.failures.in_words() {
            result
                .notes
                .push(format!("Connections that could not be opened: {words}."));
        }
        if opened.interrupted {
            result.notes.push(format!(
                "The run was interrupted while connections were being opened: {} of {asked} were \
                 tried.",
                opened.attempted
            ));
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
        result.connected = Some(ran.members);
        result.failed = Some(account.connections_failed);
        result.duration_s = Some(duration_s);
        result.messages = account.messages();
        if account.offered > 0 {
            result.rate_per_s = account.rate_per_s(duration_s);
            // When a message was refused is not known, so its second would count it as confirmed.
            if account.refused.unwrap_or(0) == 0 {
                result.rate_series = ran.per_second();
            }
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
            client_s: ran.cpu.total.as_secs_f64(),
            server_s: measured.server_cpu_s,
        });
        result.memory = measured.rss_bytes.map(|(_, server_rss_bytes)| Memory {
            server_rss_bytes,
            ..Memory::default()
        });
        result.bottleneck = measured.bottleneck();
        let noise = saturating
            .then(|| coefficient_of_variation(&ran.windows))
            .flatten();
        let (verdict, notes) = verdict(&account, result.bottleneck, saturating, noise);
        result.verdict = verdict;
        result.notes.extend(notes);
        self.add_refusal_notes(result, measured);
        add_notes(result, measured);
    }

    fn add_refusal_notes(&self, result: &mut TestResult, measured: &Measured) {
        let ran = &measured.ran;
        for (code, count) in &ran.errors {
            result.verdict = Verdict::Failed;
            result
                .notes
                .push(format!("The server refused {count} messages with {code}."));
        }
        if ran.rate_limited == 0 {
            return;
        }
        let ServerFacts {
            rate_limit_refill_per_s,
            rate_limit_capacity,
            ..
        } = &self.facts;
        if let Some((refill, capacity)) = rate_limit_refill_per_s.zip(*rate_limit_capacity) {
            result.notes.push(format!(
                "RATE_LIMITED: the server allows each connection {refill} messages a second and \
                 {capacity} at once."
            ));
        }
        if measured.counts.is_none() && are_refusals_in_doubt(ran, &self.facts) {
            result.verdict = Verdict::Failed;
            result.notes.push(format!(
                "The server told of {} refused messages, and it cannot be seen that these were all. \
                 Name its own counters with --stats-url, or raise its rate limit.",
                ran.rate_limited
            ));
        }
    }
}

/// Whether more messages may have been refused than the server told the connections: some have not
/// heard the last of it, its limit is not known, or its limit allows less than it claims to have taken.
fn are_refusals_in_doubt(ran: &Ran, facts: &ServerFacts) -> bool {
    let limit = facts.rate_limit_capacity.zip(facts.rate_limit_refill_per_s);
    let Some((capacity, refill_per_s)) = limit else {
        return true;
    };
    // A second more than it took, as the server's clock may count in steps.
    let refilled = refill_per_s as f64 * (ran.duration_s() + 1.0);
    let allowed = (capacity as f64 + refilled) * ran.members as f64;
    let refused_min = ran.offered as f64 - allowed;
    ran.broken.total() > 0 || (ran.refused() as f64) < refused_min
}

fn add_notes(result: &mut TestResult, measured: &Measured) {
    let ran = &measured.ran;
    let mut note = |text: String| result.notes.push(text);
    if let Some(words) = ran.broken_before.in_words() {
        note(format!("Connections that broke before the test: {words}."));
    }
    if let Some(words) = ran.broken.in_words() {
        note(format!("Connections that broke during the test: {words}."));
    }
    if ran.unsolicited > 0 {
        note(format!(
            "{} messages came that answer nothing.",
            ran.unsolicited
        ));
    }
    if ran.interrupted {
        note("The test was interrupted before its end.".into());
    }
    if ran.wrong_replies > 0 {
        note(format!(
            "{} replies had another kind, length or content than the message they answer: this server \
             does not echo.",
            ran.wrong_replies
        ));
        result.verdict = Verdict::Failed;
    }
    if let Some(error) = &measured.counts_error {
        result.verdict = Verdict::Failed;
        result.notes.push(format!(
            "The server's counters could not be compared: {error}."
        ));
    }
}

impl Measured {
    fn new(ran: Ran, before: Option<&ServerSample>, after: Option<&ServerSample>) -> Self {
        let both = before.zip(after);
        let duration_s = ran.duration_s();
        Self {
            ran,
            server_cpu_s: both
                .map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64()),
            server_share: both
                .filter(|_| duration_s > 0.0)
                .map(|(before, after)| after.busiest_since(before).as_secs_f64() / duration_s),
            rss_bytes_peak: None,
            rss_bytes: both.map(|(before, after)| (before.rss_bytes, after.rss_bytes)),
            counts: None,
            counts_error: None,
        }
    }

    /// Shows the round trips of a test whose pings are its measurement.
    pub(super) fn show_round_trips(&self, result: &mut TestResult) {
        let (pongs, duration_s) = (self.ran.pongs, self.ran.duration_s());
        result.rate_per_s = (pongs > 0 && duration_s > 0.0).then(|| pongs as f64 / duration_s);
        result.rate_series = self.ran.per_second();
    }

    fn account(&self, opened: &Opened) -> Accounting {
        let ran = &self.ran;
        if ran.fan_out.is_some() {
            return self.account_of_deliveries(opened);
        }
        let counts = self.counts.filter(|_| ran.offered > 0);
        // Without its counters, what the server told each connection is all that is known.
        let told = Some(ran.refused()).filter(|&refused| refused > 0 && ran.offered > 0);
        let refused = counts.map(|counts| counts.refused).or(told);
        Accounting {
            sends: ran.sends,
            offered: ran.offered,
            confirmed: ran.confirmed.saturating_sub(refused.unwrap_or(0)),
            delivered: counts.map(|counts| counts.delivered),
            refused,
            connections_attempted: opened.attempted,
            // Those that were not opened, that broke before this phase, and that broke in it.
            connections_failed: opened.attempted.saturating_sub(ran.members) + ran.broken.total(),
            pings_sent: ran.pings_sent,
            pongs_lost: ran.pongs_lost,
        }
    }

    /// The account of a fan-out, which is one of deliveries: so many publications to so many subscribers.
    fn account_of_deliveries(&self, opened: &Opened) -> Accounting {
        let ran = &self.ran;
        Accounting {
            sends: true,
            offered: ran.offered,
            confirmed: ran.confirmed,
            delivered: self.counts.and_then(|counts| counts.deliveries),
            connections_attempted: opened.attempted,
            connections_failed: opened.attempted.saturating_sub(ran.members) + ran.broken.total(),
            ..Accounting::default()
        }
    }

    fn bottleneck(&self) -> Bottleneck {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32;
        let (cpu, duration_s) = (self.ran.cpu, self.ran.duration_s());
        let client = cpu_share(cpu.busiest.as_secs_f64(), duration_s, 1);
        let found = bottleneck(client, self.server_share);
        let together_s = cpu.total.as_secs_f64() + self.server_cpu_s.unwrap_or(0.0);
        let is_machine_full = self.server_cpu_s.is_some()
            && bottleneck(cpu_share(together_s, duration_s, cores), None) != Bottleneck::None;
        if found == Bottleneck::None && is_machine_full {
            Bottleneck::Both
        } else {
            found
        }
    }
}

/// A rate that does not become steady is given up after so many times the usual duration.
const CONFIDENCE_DURATIONS_MAX: u32 = 10;

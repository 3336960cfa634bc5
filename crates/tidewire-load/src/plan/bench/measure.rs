//! Measurement of a phase on both sides, and its assessment, for all tests.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ending::Ending;
use super::kind::TestKind;
use super::measured::Measured;
use super::options::{BenchOptions, RunError};
use crate::accounting::generator::{GeneratorCores, Moment};
use crate::accounting::live::Live;
use crate::accounting::outcome::{Opened, Ran, ServerFacts};
use crate::accounting::sampler::ResourceSampler;
use crate::accounting::server::ServerWatch;
use crate::accounting::stats::{ServerCounts, StatsSource};
use crate::fleet::stop::{Confidence, StopRule};
use crate::fleet::{Fleet, FleetError, Part, Watch, Wish, preflight};
use crate::plan::memory::{self, EmptyMemory};
use crate::plan::observe::{Progress, RunLive};
use crate::report::model::{CONNECTION_STORM, SUSTAINED_HOLD};
use crate::report::number;
use crate::report::{Memory, ResourceSample, TestResult};
use crate::worker::order::{Activity, Again, Setup};
use crate::worker::pace::Share;
use crate::worker::rhythm::Rhythm;
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::payload::{Content, Encoding, Payload};
use crate::worker::websocket::ring::FrameRing;

/// The shared parts of every test of a run.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a BenchOptions,
    sources: Arc<[IpAddr]>,
    pub(super) server: ServerWatch,
    pub(super) cores: GeneratorCores,
    empty: EmptyMemory,
    /// Whether anything other than almost idle connections has made the server grow.
    is_loaded: bool,
    /// The most connections that were open at once.
    connected_most: u64,
    progress: &'a mut dyn Progress,
    stop: &'a AtomicBool,
    /// Workers that are processes, between two tests.
    kept: Option<Fleet>,
    /// One of them has ended by itself.
    has_lost_a_worker: bool,
    /// The version of the protocol's encryption that they use.
    encryption_version: Option<u32>,
    /// Their language.
    language: Option<String>,
    /// Their memory, when it was last known.
    workers_rss_bytes: u64,
    /// The current test.
    test: Option<TestKind>,
    /// The expectation that has ended the run early.
    pub(super) aborted_by: Option<String>,
    pub(super) facts: ServerFacts,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(
        options: &'a BenchOptions,
        sources: Arc<[IpAddr]>,
        server: ServerWatch,
        progress: &'a mut dyn Progress,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            options,
            sources,
            empty: EmptyMemory::of(&server),
            server,
            cores: GeneratorCores::find(),
            is_loaded: false,
            connected_most: 0,
            progress,
            stop,
            kept: None,
            has_lost_a_worker: false,
            encryption_version: None,
            language: None,
            workers_rss_bytes: 0,
            test: None,
            aborted_by: None,
            facts: ServerFacts::default(),
        }
    }

    /// The name and version of the server, once a connection has been open.
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

    /// The language of the workers that are processes.
    pub(crate) fn language(&self) -> Option<String> {
        self.language.clone()
    }

    /// Whether the run leaves out its remaining tests.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.aborted_by.is_some() || self.is_short_of_workers()
    }

    /// Whether the run ends because a worker has ended.
    pub(crate) fn is_short_of_workers(&self) -> bool {
        self.has_lost_a_worker && self.options.stops_with_worker
    }

    pub(crate) fn started(&mut self, name: &str, detail: &str, expected: Duration) {
        self.test = TestKind::parse(name);
        self.is_loaded |= !matches!(name, CONNECTION_STORM | SUSTAINED_HOLD);
        let expected = Some(expected).filter(|expected| !expected.is_zero());
        self.progress
            .phase_started(&format!("{name}, {detail}"), expected);
    }

    pub(crate) fn finished(&mut self, mut result: TestResult) -> TestResult {
        let has_rate = TestKind::parse(&result.test).is_none_or(TestKind::has_rate);
        if self.options.rate_per_s.is_some() && !has_rate {
            let note = "The given rate has no effect on this test, which sends no messages.";
            result.notes.push(note.to_owned());
        }
        self.progress.finished(&result);
        result
    }

    /// Workers without connections: threads, or the processes of the test before.
    pub(crate) fn fleet(&mut self) -> Result<Fleet, RunError> {
        let options = self.options;
        if let Some(mut fleet) = self.kept.take()
            && fleet.begin_again()
        {
            return Ok(fleet);
        }
        let mut setup = Setup::new(options.target.clone(), options.profile);
        setup.layer = options.layer;
        setup.timeouts = options.timeouts;
        setup.handshakes_in_flight_max = options.handshakes_in_flight_max;
        setup.sources = Arc::clone(&self.sources);
        setup.seed = options.seed;
        if options.workers.is_empty() {
            return Ok(Fleet::start(setup, options.threads)?);
        }
        let fleet = Fleet::start_processes(setup, &options.workers, self.stop)?;
        if self.workers_rss_bytes == 0 {
            self.workers_rss_bytes = fleet.live().processes.rss_bytes;
            self.empty.add_workers(self.workers_rss_bytes);
        }
        let mut versions = fleet.processes().iter();
        self.encryption_version = versions.find_map(|process| process.hello.encryption_version);
        let languages = fleet
            .processes()
            .iter()
            .map(|process| process.hello.language.clone());
        let languages: BTreeSet<String> = languages.collect();
        self.language = Some(languages.into_iter().collect::<Vec<_>>().join(", "));
        if let Some(cores) = fleet.cores_elsewhere() {
            self.cores = GeneratorCores::elsewhere(cores);
        }
        Ok(fleet)
    }

    /// The formats of a message that all workers have.
    pub(crate) fn encodings(&mut self) -> Result<Vec<Encoding>, RunError> {
        let fleet = self.fleet()?;
        let known = |encoding: &Encoding| {
            let mut processes = fleet.processes().iter();
            processes.all(|process| {
                process
                    .hello
                    .encodings
                    .iter()
                    .any(|name| name == encoding.as_str())
            })
        };
        let encodings = Encoding::ALL.into_iter().filter(known).collect();
        self.keep(fleet);
        Ok(encodings)
    }

    /// The connections that the workers may open at once.
    pub(crate) fn connections_room(&mut self) -> Result<usize, RunError> {
        if self.options.workers.is_empty() {
            return Ok(preflight::connections_room());
        }
        let fleet = self.fleet()?;
        let processes = fleet.processes().iter();
        let room: u64 = processes.map(|process| process.hello.connections_max).sum();
        self.keep(fleet);
        Ok(usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// Keeps workers that are processes for the next test.
    fn keep(&mut self, fleet: Fleet) {
        if !fleet.processes().is_empty() {
            self.kept = Some(fleet);
        }
    }

    /// The connections and the memory of each of the server's processes, where there are several.
    pub(crate) fn server_processes_in_words(&self) -> Option<String> {
        let processes = self.options.stats.as_ref()?.processes();
        let words: Vec<String> = processes
            .iter()
            .map(|process| {
                format!(
                    "process {} had {} and {}",
                    process.process_id,
                    number::connections(process.connections_open),
                    number::bytes(process.resident_bytes as f64)
                )
            })
            .collect();
        (words.len() > 1).then(|| format!("Of the server {}.", words.join(", ")))
    }

    /// What both sides have used so far.
    pub(crate) fn moment(&self, fleet: &Fleet) -> Moment {
        Moment::now(&self.cores, fleet.stopped()).with_workers(fleet.cpu_here())
    }

    pub(crate) fn open(&mut self, fleet: &mut Fleet, count: usize) -> Result<Opened, RunError> {
        self.open_for(fleet, count, Encoding::Json)
    }

    /// Opens connections that will send messages of this format.
    pub(crate) fn open_for(
        &mut self,
        fleet: &mut Fleet,
        count: usize,
        encoding: Encoding,
    ) -> Result<Opened, RunError> {
        self.connect(|watch| fleet.open(count, encoding, watch))
    }

    /// Opens connections, closes them and opens them again.
    pub(crate) fn reconnect(
        &mut self,
        fleet: &mut Fleet,
        count: usize,
        again: Again,
    ) -> Result<Opened, RunError> {
        self.connect(|watch| fleet.reconnect(count, again, watch))
    }

    fn connect(
        &mut self,
        open: impl FnOnce(&mut Watch<'_>) -> Result<Opened, FleetError>,
    ) -> Result<Opened, RunError> {
        let progress = &mut *self.progress;
        let mut tick = |live: &Live| {
            progress.tick(&RunLive::of_test(live, None));
            Wish::GoOn
        };
        let opened = open(&mut Watch {
            tick: &mut tick,
            stop: self.stop,
        })?;
        if opened.connected > 0 {
            self.facts = opened.facts.clone();
        }
        self.connected_most = self.connected_most.max(opened.connected);
        Ok(opened)
    }

    /// A message of N bytes with the content that the options ask for.
    pub(crate) fn payload(&self, json_bytes: usize) -> Payload {
        let compresses = self.options.layer == Layer::Deflate;
        let usual = if compresses {
            Content::Trades
        } else {
            Content::Trade
        };
        Payload::json(json_bytes).telling(self.options.content.unwrap_or(usual))
    }

    /// The frames of a test, whose messages are answered or not.
    pub(crate) fn ring(&self, payload: Payload, are_answered: bool) -> Arc<FrameRing> {
        let options = self.options;
        Arc::new(FrameRing::of(
            payload,
            options.layer,
            options.seed,
            are_answered,
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

    /// Sending as the options specify: as fast as the server accepts messages, or at the given rate.
    pub(crate) fn sending(
        &self,
        ring: &Arc<FrameRing>,
        replies: bool,
    ) -> impl Fn(Part<'_>) -> Activity + use<> {
        let rhythm = self.options.rhythm(self.options.rate_per_s);
        let in_flight = self.options.in_flight;
        let per_connection = self.options.messages.unwrap_or(u64::MAX);
        let ring = Arc::clone(ring);
        move |part| {
            let ring = Arc::clone(&ring);
            match &rhythm {
                Rhythm::Open { pace, per_s } => Activity::Paced {
                    ring,
                    pace: Share::of(pace.clone(), *per_s, part.members, part.index),
                    replies,
                },
                _ if replies => Activity::Window {
                    ring,
                    in_flight,
                    per_connection,
                },
                _ => Activity::Blast {
                    ring,
                    per_connection,
                },
            }
        }
    }

    /// When a sending test ends: after this time, or that of the options. One that ends by its messages may last longer.
    pub(crate) fn sending_stop(&self, duration: Option<Duration>) -> StopRule {
        if self.options.messages.is_some() {
            return StopRule::Duration(LONGEST_BY_MESSAGES);
        }
        let duration = duration.unwrap_or(self.options.duration);
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
        activity: impl Fn(Part<'_>) -> Activity,
        stop: StopRule,
    ) -> Result<Measured, RunError> {
        self.server.look(fleet.connected());
        let stats = self.options.stats.as_ref();
        let counts_before = stats.map(StatsSource::read);
        let before = self.server.sample();
        let started = self.moment(fleet);
        let (progress, server) = (&mut *self.progress, &self.server);
        let mut resources = ResourceSampler::new(server, &self.cores);
        let mut rss_bytes_peak = before.as_ref().map(|before| before.rss_bytes);
        let mut ending = Ending::of(self.options, self.test, &stop);
        let mut tick = |live: &Live| {
            rss_bytes_peak = rss_bytes_peak.max(server.rss_bytes());
            resources.look(live.elapsed, live.connected, &live.processes);
            progress.tick(&RunLive::of_test(live, resources.last()));
            ending
                .as_mut()
                .map_or(Wish::GoOn, |ending| ending.look(live))
        };
        let mut watch = Watch {
            tick: &mut tick,
            stop: self.stop,
        };
        let ran = fleet.run(activity, stop, &mut watch)?;
        self.aborted_by = ending.and_then(Ending::into_broken);
        let ended = self.moment(fleet);
        self.workers_rss_bytes = fleet.live().processes.rss_bytes;
        let after = self.server.sample();
        rss_bytes_peak = rss_bytes_peak.max(after.as_ref().map(|after| after.rss_bytes));
        if ran.facts != ServerFacts::default() {
            self.facts = ran.facts.clone();
        }
        let mut measured = Measured::new(ran, before.as_ref().zip(after.as_ref()));
        measured.rss_bytes_peak = rss_bytes_peak;
        measured.resources = resources.into_samples();
        measured.look_at_both(&self.cores, &self.server, &started, &ended);
        if let (Some(stats), Some(before)) = (stats, counts_before) {
            let ran = &measured.ran;
            let is_settled = |counts: &ServerCounts| match &ran.fan_out {
                _ if ran.interrupted => true,
                Some(_) => counts.deliveries.is_none_or(|count| count >= ran.confirmed),
                None => counts.delivered.saturating_add(counts.refused()) >= ran.offered,
            };
            let counts = before.and_then(|before| stats.read_settled(&before, is_settled));
            match counts {
                Ok(counts) => measured.counts = Some(counts),
                Err(error) => measured.counts_error = Some(error.to_string()),
            }
        }
        Ok(measured)
    }

    /// Holds the connections for a moment and asks each whether it lives: what a server ends right after it
    /// has made it ready is no connection.
    pub(crate) fn survive(&mut self, fleet: &mut Fleet) -> Result<Ran, RunError> {
        // No ping but the one at the end.
        let hold = |_: Part<'_>| Activity::Hold {
            ping_every_ms: u64::from(u32::MAX),
        };
        let progress = &mut *self.progress;
        let mut tick = |live: &Live| {
            progress.tick(&RunLive::of_test(live, None));
            Wish::GoOn
        };
        let mut watch = Watch {
            tick: &mut tick,
            stop: self.stop,
        };
        Ok(fleet.run(hold, StopRule::Duration(SETTLE), &mut watch)?)
    }

    /// Lets the connections do something that is no measurement.
    pub(crate) fn prepare(
        &mut self,
        fleet: &mut Fleet,
        activity: impl Fn(Part<'_>) -> Activity,
    ) -> Result<Ran, RunError> {
        let progress = &mut *self.progress;
        let mut tick = |live: &Live| {
            progress.tick(&RunLive::of_test(live, None));
            Wish::GoOn
        };
        let mut watch = Watch {
            tick: &mut tick,
            stop: self.stop,
        };
        Ok(fleet.run(activity, StopRule::Count(0), &mut watch)?)
    }

    /// The memory with N connections open that have sent little. The server's growth belongs to them unless
    /// other work, or more connections, have made the server grow before.
    pub(crate) fn idle_memory(
        &self,
        server_rss_bytes: u64,
        connections: u64,
        samples: &[ResourceSample],
    ) -> Memory {
        let is_theirs = !self.is_loaded && connections >= self.connected_most.max(1);
        let growth = memory::each(Some(server_rss_bytes), self.empty.server, connections);
        Memory {
            per_connection_bytes: growth.filter(|_| is_theirs),
            ..self.memory(server_rss_bytes, connections, samples)
        }
    }

    /// The memory with N connections open; of both sides and per connection if the plan asks for it.
    /// The growth per connection is that since the start of the run, so that it includes what these
    /// connections have sent; it is not known after a test with more connections.
    pub(crate) fn memory(
        &self,
        server_rss_bytes: u64,
        connections: u64,
        samples: &[ResourceSample],
    ) -> Memory {
        let server_only = Memory {
            server_rss_bytes,
            ..Memory::default()
        };
        if !self.options.memory {
            return server_only;
        }
        let open = self
            .empty
            .with_open(&self.server, samples, connections, self.workers_rss_bytes);
        let mut open = open.unwrap_or(server_only);
        open.server_rss_bytes = server_rss_bytes;
        if connections < self.connected_most {
            open.per_connection_bytes = None;
            open.client_per_connection_bytes = None;
        }
        open
    }

    /// Closes the connections. If the plan asks for memory, adds the server's memory afterwards.
    pub(crate) fn close(
        &mut self,
        mut fleet: Fleet,
        result: Option<&mut TestResult>,
    ) -> Result<(), RunError> {
        fleet.close()?;
        if let Some(result) = result.filter(|_| self.options.memory) {
            let workers_rss_bytes = || fleet.live().processes.rss_bytes;
            match &mut result.memory {
                Some(open) => {
                    *open = memory::after_closing(*open, &self.server, workers_rss_bytes);
                }
                None => result.notes.push(memory::NOT_KNOWN.to_owned()),
            }
        }
        self.has_lost_a_worker |= !fleet.is_whole();
        self.keep(fleet);
        Ok(())
    }

    /// How many addresses its connections come from.
    pub(crate) fn source_addresses(&self) -> u32 {
        self.sources.len().max(1) as u32
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
        let known = self.encryption_version.or(layer.encryption_version());
        result.encryption_version = known.filter(|_| layer == Layer::Encryption);
        result.connected = Some(opened.connected);
        result.failed = Some(opened.failures.total());
        if let Some(words) = opened.failures.in_words() {
            result
                .notes
                .push(format!("Connections that could not be opened: {words}."));
        }
        result.notes.extend(opened.notes.iter().cloned());
        if opened.untried > 0 {
            let why = if opened.interrupted {
                "the run was interrupted"
            } else {
                "this machine could open no more"
            };
            result.notes.push(format!(
                "{} of {} connections were tried before {why}.",
                number::grouped(opened.attempted),
                number::grouped(asked as u64)
            ));
        }
        result
    }
}

/// How long new connections are held before they are asked whether they live.
const SETTLE: Duration = Duration::from_millis(250);

/// The longest time of a test that ends by its messages.
const LONGEST_BY_MESSAGES: Duration = Duration::from_secs(600);

/// A rate that does not become steady is given up after this many times the usual duration.
const CONFIDENCE_DURATIONS_MAX: u32 = 10;

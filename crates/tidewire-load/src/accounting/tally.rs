//! Tally of a service load: all counts of one worker in a phase, merged into that of all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::connect_times::ConnectTimes;
use super::ended::EndedCounts;
use super::outcome::{CpuTime, WINDOW};
use super::recorder::Recorder;
use super::texts::Texts;
use super::waits::Waits;
use super::windows::{EndedWindow, WindowSeries};
use crate::report::model::{ByteCounts, Requests, Traffic};

/// A request and the times of its exchange, in nanoseconds since the run's epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The planned time of sending.
    pub intended_ns: u64,
    /// The time at which it was written to its socket.
    pub sent_ns: u64,
    /// The time at which the first byte of its response arrived; 0 before.
    pub first_byte_ns: u64,
    /// The index of the scenario's request.
    pub step: u32,
}

/// The counts of one phase of a service load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tally {
    /// The start of the phase, in nanoseconds since the run's epoch.
    pub start_ns: u64,
    /// Requests and their outcomes.
    pub requests: Requests,
    /// Complete responses by status, where there is one.
    pub statuses: StatusCounts,
    /// Failed requests and connections by the name of the error.
    #[serde(deserialize_with = "super::counts::by_name")]
    pub errors: BTreeMap<&'static str, u64>,
    /// Bytes in both directions.
    pub traffic: Traffic,
    /// From the planned time to the complete response, of successes.
    pub latency: Recorder,
    /// From the time of sending to the complete response, of successes.
    pub service: Recorder,
    /// From the time of sending to the first byte of the response.
    pub first_byte: Recorder,
    /// The age of every request without a success when it failed, or when the phase ended without an
    /// answer to it: from its planned time, also of those that were due and not sent.
    pub unsuccessful: Recorder,
    /// Latency of failures with a response.
    pub failed_latency: Recorder,
    /// From the creation time that a message of the server contains to its arrival.
    pub message_age: Recorder,
    /// The delay with which requests left although a connection was free; only at given times.
    pub late: Recorder,
    /// The waits of the threads for their cores.
    pub waits: Waits,
    /// The times until connections were ready.
    pub connect: ConnectTimes,
    /// Connections that became ready.
    pub opened: u64,
    /// Attempts to connect that failed.
    pub not_opened: u64,
    /// Connections that ended before the plan ended them.
    pub ended: EndedCounts,
    /// The reasons for which the server refused messages or sessions by messages.
    pub refusals: Texts,
    /// Messages of the server that a conversation counts by a name.
    pub counted: Texts,
    /// Connections that replaced one that had ended.
    pub reconnected: u64,
    /// The largest number of connections open at once, of this worker.
    pub peak: u64,
    /// Connection attempts of this worker.
    pub attempted: u64,
    /// Messages from the server that were not an answer.
    pub unsolicited: u64,
    /// All messages from the server.
    pub received: u64,
    /// Requests that were due in the phase, at given times.
    pub due: u64,
    /// Requests that were due and for which no connection was free when the phase ended, or whose
    /// own connection waited for a response.
    pub starved: u64,
    /// Successes in each quarter of a second since the start.
    pub quarters: Vec<u64>,
    /// Failures in each quarter of a second.
    pub failed_quarters: Vec<u64>,
    /// Successes, failures and latencies of each second.
    pub series: WindowSeries,
    /// The counts of each request of a scenario; empty if there is only one.
    pub steps: Vec<StepTally>,
    /// The times at which the last request was sent and the last response was complete, since the
    /// run's epoch.
    pub last_sent_ns: u64,
    /// See [`Self::last_sent_ns`].
    pub last_done_ns: u64,
    /// The end of sending, since the run's epoch.
    pub stopped_ns: u64,
    /// Processor time of the threads.
    pub cpu: CpuTime,
    /// The server's name for itself.
    pub server: Option<String>,
}

/// One request of a scenario.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StepTally {
    /// Its outcomes.
    pub requests: Requests,
    /// Complete responses by status.
    pub statuses: StatusCounts,
    /// Latency of successes.
    pub latency: Recorder,
    /// The age of the others.
    pub unsuccessful: Recorder,
    /// Successes, failures and latencies of each second.
    pub series: WindowSeries,
}

impl StepTally {
    /// Adds those of another worker, or of another request.
    pub fn merge(&mut self, other: &Self) {
        self.requests.add(&other.requests);
        self.statuses.merge(&other.statuses);
        self.latency.merge(&other.latency);
        self.unsuccessful.merge(&other.unsuccessful);
        self.series.merge(&other.series);
    }

    /// The latencies of all of its requests, as [`Tally::all_latencies`].
    #[must_use]
    pub fn all_latencies(&self) -> Recorder {
        let mut all = self.latency.clone();
        all.merge(&self.unsuccessful);
        all
    }
}

/// Responses by status, in a table for the three digits that a status has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub struct StatusCounts(Box<[u64; 1000]>);

impl From<Vec<(u16, u64)>> for StatusCounts {
    fn from(counts: Vec<(u16, u64)>) -> Self {
        let mut all = Self::default();
        for (status, count) in counts {
            if let Some(known) = all.0.get_mut(usize::from(status)) {
                *known = count;
            }
        }
        all
    }
}

impl From<StatusCounts> for Vec<(u16, u64)> {
    fn from(counts: StatusCounts) -> Self {
        counts.iter().collect()
    }
}

impl Default for StatusCounts {
    fn default() -> Self {
        Self(Box::new([0; 1000]))
    }
}

impl StatusCounts {
    /// Counts one response.
    #[inline]
    pub fn add(&mut self, status: u16) {
        if let Some(count) = self.0.get_mut(usize::from(status)) {
            *count += 1;
        }
    }

    /// The statuses that arrived, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let numbered = (0..).zip(self.0.iter().copied());
        numbered.filter(|(_, count)| *count > 0)
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0.iter()) {
            *mine += theirs;
        }
    }
}

impl Tally {
    /// An empty tally; several `steps` are counted separately.
    #[must_use]
    pub fn new(start_ns: u64, steps: usize) -> Self {
        let steps = if steps > 1 { steps } else { 0 };
        Self {
            start_ns,
            requests: Requests::default(),
            statuses: StatusCounts::default(),
            errors: BTreeMap::new(),
            traffic: Traffic::default(),
            latency: Recorder::new(),
            service: Recorder::new(),
            first_byte: Recorder::new(),
            unsuccessful: Recorder::new(),
            failed_latency: Recorder::new(),
            message_age: Recorder::new(),
            late: Recorder::new(),
            waits: Waits::default(),
            connect: ConnectTimes::new(),
            opened: 0,
            not_opened: 0,
            ended: EndedCounts::default(),
            refusals: Texts::default(),
            counted: Texts::default(),
            reconnected: 0,
            peak: 0,
            attempted: 0,
            unsolicited: 0,
            received: 0,
            due: 0,
            starved: 0,
            quarters: Vec::new(),
            failed_quarters: Vec::new(),
            series: WindowSeries::new(),
            steps: vec![StepTally::default(); steps],
            last_sent_ns: 0,
            last_done_ns: 0,
            stopped_ns: 0,
            cpu: CpuTime::default(),
            server: None,
        }
    }

    /// Counts a request that was written to its socket.
    #[inline]
    pub fn send(&mut self, exchange: &Exchange, bytes: ByteCounts) {
        self.requests.sent += 1;
        self.traffic.sent.add(&bytes);
        self.last_sent_ns = exchange.sent_ns;
        if let Some(step) = self.steps.get_mut(exchange.step as usize) {
            step.requests.sent += 1;
        }
    }

    /// Counts a request that is sent again, and not twice as sent.
    pub fn send_again(&mut self, exchange: &Exchange) {
        let step = self.steps.get_mut(exchange.step as usize);
        let of_step = step.map(|step| &mut step.requests);
        for requests in [Some(&mut self.requests), of_step].into_iter().flatten() {
            requests.retried += 1;
            requests.sent -= 1;
        }
    }

    /// Counts a complete response that passed every check.
    #[inline]
    pub fn succeed(&mut self, exchange: &Exchange, status: u16, bytes: u64, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(exchange.intended_ns);
        self.requests.succeeded += 1;
        self.latency.record_ns(latency_ns);
        self.service
            .record_ns(now_ns.saturating_sub(exchange.sent_ns));
        self.note_first_byte(exchange);
        let at_ns = now_ns.saturating_sub(self.start_ns);
        self.series.succeed(at_ns, latency_ns, bytes);
        count_quarter(&mut self.quarters, at_ns);
        if status > 0 {
            self.statuses.add(status);
        }
        self.last_done_ns = now_ns;
        if let Some(step) = self.steps.get_mut(exchange.step as usize) {
            step.requests.succeeded += 1;
            if status > 0 {
                step.statuses.add(status);
            }
            step.latency.record_ns(latency_ns);
            step.series.succeed(at_ns, latency_ns, bytes);
        }
    }

    /// Counts a request that failed, with the status of its response if that was complete.
    pub fn fail(&mut self, exchange: &Exchange, name: &'static str, status: u16, now_ns: u64) {
        self.requests.failed += 1;
        self.requests.timeouts += u64::from(name == TIMEOUT);
        self.add_error(name);
        self.note_age(exchange, now_ns, 1);
        count_quarter(
            &mut self.failed_quarters,
            now_ns.saturating_sub(self.start_ns),
        );
        self.last_done_ns = now_ns;
        if status > 0 {
            self.statuses.add(status);
            self.failed_latency
                .record_ns(now_ns.saturating_sub(exchange.intended_ns));
            self.note_first_byte(exchange);
        }
        if let Some(step) = self.steps.get_mut(exchange.step as usize) {
            step.requests.failed += 1;
            step.requests.timeouts += u64::from(name == TIMEOUT);
            if status > 0 {
                step.statuses.add(status);
            }
        }
    }

    /// Counts a request that was open when the phase ended, at its age so far.
    pub fn leave_unfinished(&mut self, exchange: &Exchange, now_ns: u64) {
        self.requests.unfinished += 1;
        self.note_age(exchange, now_ns, 1);
        if let Some(step) = self.steps.get_mut(exchange.step as usize) {
            step.requests.unfinished += 1;
        }
    }

    /// Counts requests that were due and not sent when the phase ended, at their age so far.
    pub fn leave_unsent(&mut self, intended_ns: u64, now_ns: u64, count: u64) {
        self.requests.unsent += count;
        let exchange = Exchange {
            intended_ns,
            // Which request of a scenario it would have been is not known.
            step: u32::MAX,
            ..Exchange::default()
        };
        self.note_age(&exchange, now_ns, count);
    }

    /// Requests that had no success and no answer, or were not sent, belong to the last moment of the
    /// sending; those that failed before it to the moment of their failure.
    fn note_age(&mut self, exchange: &Exchange, now_ns: u64, count: u64) {
        let age_ns = now_ns.saturating_sub(exchange.intended_ns);
        self.unsuccessful.record_many_ns(age_ns, count);
        let end_ns = match self.stopped_ns {
            0 => now_ns,
            stopped_ns => now_ns.min(stopped_ns.saturating_sub(1)),
        };
        let at_ns = end_ns.saturating_sub(self.start_ns);
        self.series.fail_at_age(at_ns, age_ns, count);
        if let Some(step) = self.steps.get_mut(exchange.step as usize) {
            step.unsuccessful.record_many_ns(age_ns, count);
            step.series.fail_at_age(at_ns, age_ns, count);
        }
    }

    /// Whether it is a tally of a scenario with this number of requests.
    #[must_use]
    pub fn has_steps(&self, steps: usize) -> bool {
        self.steps.len() == if steps > 1 { steps } else { 0 }
    }

    /// The window that ended last, for observers of a running phase; `None` in the first one.
    #[must_use]
    pub fn last_whole(&self, now: Duration) -> Option<EndedWindow> {
        let mut ended = self.series.last_whole(now)?;
        let steps = self.steps.iter();
        let steps = steps.filter_map(|step| step.series.last_whole(now));
        ended.steps = steps.map(|step| step.window).collect();
        Some(ended)
    }

    /// The latencies of all requests that were due: of successes until the response, of the others
    /// their age.
    #[must_use]
    pub fn all_latencies(&self) -> Recorder {
        let mut all = self.latency.clone();
        all.merge(&self.unsuccessful);
        all
    }

    /// Counts an error that belongs to no request.
    pub fn add_error(&mut self, name: &'static str) {
        *self.errors.entry(name).or_default() += 1;
    }

    fn note_first_byte(&mut self, exchange: &Exchange) {
        if exchange.first_byte_ns > 0 {
            let wait_ns = exchange.first_byte_ns.saturating_sub(exchange.sent_ns);
            self.first_byte.record_ns(wait_ns);
        }
    }

    /// The quarters of a second that were complete before the end of sending.
    #[must_use]
    pub fn whole_quarters(&self) -> Vec<u64> {
        let sending_ns = self.stopped_ns.saturating_sub(self.start_ns);
        let whole = (sending_ns / WINDOW.as_nanos() as u64) as usize;
        let mut quarters = self.quarters.clone();
        quarters.resize(whole.min(QUARTERS_MAX), 0);
        quarters
    }

    /// From the start to the end of the sending or to the last response, whichever is later.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let end_ns = self.stopped_ns.max(self.last_done_ns);
        Duration::from_nanos(end_ns.saturating_sub(self.start_ns))
    }

    /// From the start to the end of the sending.
    #[must_use]
    pub fn sending(&self) -> Duration {
        Duration::from_nanos(self.stopped_ns.saturating_sub(self.start_ns))
    }

    /// Adds the connections of the time before this phase, in which nothing was sent.
    pub fn keep_connections(&mut self, before: &Self) {
        self.attempted += before.attempted;
        self.opened += before.opened;
        self.not_opened += before.not_opened;
        self.reconnected += before.reconnected;
        self.ended.merge(&before.ended);
        self.refusals.merge(&before.refusals);
        self.counted.merge(&before.counted);
        self.connect.merge(&before.connect);
        for (name, count) in &before.errors {
            *self.errors.entry(name).or_default() += count;
        }
    }

    /// Adds the counts of another worker in the same phase.
    pub fn merge(&mut self, other: &Self) {
        self.requests.add(&other.requests);
        self.statuses.merge(&other.statuses);
        for (name, count) in &other.errors {
            *self.errors.entry(name).or_default() += count;
        }
        self.traffic.add(&other.traffic);
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.first_byte.merge(&other.first_byte);
        self.unsuccessful.merge(&other.unsuccessful);
        self.failed_latency.merge(&other.failed_latency);
        self.message_age.merge(&other.message_age);
        self.late.merge(&other.late);
        self.waits.merge(&other.waits);
        self.connect.merge(&other.connect);
        self.opened += other.opened;
        self.not_opened += other.not_opened;
        self.ended.merge(&other.ended);
        self.refusals.merge(&other.refusals);
        self.counted.merge(&other.counted);
        self.reconnected += other.reconnected;
        self.peak += other.peak;
        self.attempted += other.attempted;
        self.unsolicited += other.unsolicited;
        self.received += other.received;
        self.due += other.due;
        self.starved += other.starved;
        add_quarters(&mut self.quarters, &other.quarters);
        add_quarters(&mut self.failed_quarters, &other.failed_quarters);
        self.series.merge(&other.series);
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            mine.merge(theirs);
        }
        self.last_sent_ns = self.last_sent_ns.max(other.last_sent_ns);
        self.last_done_ns = self.last_done_ns.max(other.last_done_ns);
        self.stopped_ns = self.stopped_ns.max(other.stopped_ns);
        self.cpu.merge(other.cpu);
        if self.server.is_none() {
            self.server.clone_from(&other.server);
        }
    }
}

#[inline]
fn count_quarter(quarters: &mut Vec<u64>, at_ns: u64) {
    let quarter = (at_ns / WINDOW.as_nanos() as u64) as usize;
    if quarter >= quarters.len() {
        // A load of a day has 345,600.
        quarters.resize(quarter.min(QUARTERS_MAX) + 1, 0);
    }
    quarters[quarter.min(QUARTERS_MAX)] += 1;
}

fn add_quarters(mine: &mut Vec<u64>, theirs: &[u64]) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), 0);
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

/// The name of the error of a request that timed out.
pub const TIMEOUT: &str = "timeout";

/// The name of the error of data that answers no request.
pub const SURPLUS: &str = "surplus-data";

/// Quarters of a second in a week; later events are counted in the last one.
const QUARTERS_MAX: usize = 7 * 24 * 3600 * 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(step: u32) -> Exchange {
        Exchange {
            intended_ns: 1_000_000,
            sent_ns: 3_000_000,
            first_byte_ns: 4_000_000,
            step,
        }
    }

    #[test]
    fn latency_is_from_the_intended_time_and_service_from_sending() {
        let mut tally = Tally::new(0, 1);
        tally.succeed(&exchange(0), 200, 10, 5_000_000);
        let ms = |recorder: &Recorder| (recorder.percentile_ns(50.0) as f64 / 1e6).round();
        assert_eq!(ms(&tally.latency), 4.0);
        assert_eq!(ms(&tally.service), 2.0);
        assert_eq!(ms(&tally.first_byte), 1.0);
        assert!(tally.steps.is_empty());
    }

    /// As those of a worker in another process: nothing is averaged or rounded on the way.
    #[test]
    fn the_tally_of_another_process_is_merged_as_one_of_this_process() {
        let mut here = [Tally::new(0, 2), Tally::new(0, 2)];
        for number in 0..1_000_u64 {
            let tally = &mut here[usize::from(number % 3 == 0)];
            let (step, at_ns) = (
                u32::from(number % 2 == 0),
                2_000_000 + number * number * 7_919,
            );
            match number % 10 {
                0 => tally.fail(&exchange(step), "unexpected-status", 503, at_ns),
                1 => tally.leave_unsent(1_000_000, at_ns, 2),
                _ => tally.succeed(&exchange(step), 200, number, at_ns),
            }
            tally.connect.ready.record_ns(number);
        }
        let travelled = here.clone().map(|tally| {
            let line = serde_json::to_string(&tally).unwrap();
            serde_json::from_str::<Tally>(&line).unwrap()
        });
        let merged = |[first, second]: [Tally; 2]| {
            let mut all = first;
            all.merge(&second);
            all
        };
        let (here, travelled) = (merged(here), merged(travelled));
        let counts = |tally: &Tally| serde_json::to_string(tally).unwrap();
        assert!(counts(&travelled) == counts(&here));
        let all = here.all_latencies();
        assert_eq!(travelled.all_latencies().buckets(), all.buckets());
        assert!(all.count() > 900);
    }

    #[test]
    fn workers_add_up() {
        let mut all = Tally::new(0, 2);
        let mut other = Tally::new(0, 2);
        all.succeed(&exchange(0), 200, 10, 5_000_000);
        other.fail(&exchange(1), "unexpected-status", 503, 300_000_000);
        other.fail(&exchange(1), TIMEOUT, 0, 300_000_000);
        other.succeed(&exchange(1), 204, 0, 300_000_000);
        all.stopped_ns = 600_000_000;
        all.merge(&other);
        assert_eq!((all.requests.succeeded, all.requests.failed), (2, 2));
        assert_eq!(all.requests.timeouts, 1);
        let statuses: Vec<(u16, u64)> = all.statuses.iter().collect();
        assert_eq!(statuses, [(200, 1), (204, 1), (503, 1)]);
        assert_eq!(all.steps[1].requests.failed, 2);
        assert_eq!(all.whole_quarters(), [1, 1]);
        assert_eq!(all.failed_latency.count(), 1);
    }
}

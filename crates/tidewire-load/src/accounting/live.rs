//! Current figures that the workers publish during their work.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tally::Tally;
use super::windows::EndedWindow;
use crate::report::model::{Requests, Traffic};

/// One worker's figures; the worker writes them once per loop turn, and the thread that shows them
/// reads them.
#[derive(Debug, Default)]
pub(crate) struct LiveCell {
    pub(crate) connected: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) offered: AtomicU64,
    pub(crate) confirmed: AtomicU64,
    pub(crate) latency_p99_ns: AtomicU64,
    /// Of a worker in a process of its own; 0 for a thread of this one: the time for which it has not run, its
    /// processor time and its resident memory.
    pub(crate) stopped_ns: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    pub(crate) rss_bytes: AtomicU64,
}

impl LiveCell {
    /// Connections that are open now.
    pub(crate) fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }
}

/// The figures of all workers at one moment of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Live {
    /// Since the phase began.
    pub elapsed: Duration,
    /// Connections that are open now.
    pub connected: u64,
    /// Connections that failed since the fleet was started.
    pub failed: u64,
    /// Approximate number of messages written in this phase.
    pub offered: u64,
    /// Messages, round trips or connections that have been confirmed in this phase.
    pub confirmed: u64,
    /// Confirmed in the last second.
    pub rate_per_s: f64,
    /// The 99th percentile of the latency so far, in microseconds; `None` while nothing is known.
    pub latency_p99_us: Option<f64>,
    /// The workers that are processes of their own.
    pub processes: ProcessesLive,
}

/// The resources of workers that are processes of their own; zero without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessesLive {
    /// Their processor time so far.
    pub cpu: Duration,
    /// Their resident memory.
    pub rss_bytes: u64,
    /// The time for which they have not run so far, of the one that was stopped longest.
    pub stopped: Duration,
}

/// One worker's figures of a service load.
#[derive(Debug, Default)]
pub(crate) struct ServiceCell(Mutex<ServiceLive>);

/// The figures of a service load at one moment of a phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ServiceLive {
    /// Since the phase began.
    pub elapsed: Duration,
    /// Connections that are open now.
    pub connected: u64,
    /// Connections that could not be opened.
    pub not_opened: u64,
    /// Users whose connection has ended and is not replaced.
    pub gone: u64,
    /// Requests that currently wait for a response, or for a connection.
    pub outstanding: u64,
    /// Requests and their outcomes.
    pub requests: Requests,
    /// Bytes in both directions.
    pub traffic: Traffic,
    /// Messages from the server that answer nothing.
    pub unsolicited: u64,
    /// Complete responses by status.
    #[serde(deserialize_with = "super::counts::by_status")]
    pub statuses: BTreeMap<u16, u64>,
    /// Errors, by name.
    #[serde(deserialize_with = "super::counts::by_name")]
    pub errors: BTreeMap<&'static str, u64>,
    /// The window that ended last.
    pub window: Option<EndedWindow>,
    /// The workers that are processes of their own.
    #[serde(skip)]
    pub processes: ProcessesLive,
}

/// The users of one worker at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UsersLive {
    /// Those with an open connection.
    pub(crate) connected: u64,
    /// See [`ServiceLive::gone`].
    pub(crate) gone: u64,
    /// See [`ServiceLive::outstanding`].
    pub(crate) outstanding: u64,
}

impl ServiceCell {
    /// Replaces the figures.
    pub(crate) fn publish(&self, tally: &Tally, users: &UsersLive, since_ns: u64) {
        let elapsed = Duration::from_nanos(since_ns);
        let live = ServiceLive {
            elapsed,
            connected: users.connected,
            not_opened: tally.not_opened,
            gone: users.gone,
            outstanding: users.outstanding,
            requests: tally.requests,
            traffic: tally.traffic,
            unsolicited: tally.unsolicited,
            statuses: tally.statuses.iter().collect(),
            errors: tally.errors.clone(),
            window: tally.last_whole(elapsed),
            processes: ProcessesLive::default(),
        };
        self.set(live);
    }

    /// Replaces the figures by those that a worker in another process has published.
    pub(crate) fn set(&self, live: ServiceLive) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = live;
    }

    /// The figures of this moment.
    pub(crate) fn get(&self) -> ServiceLive {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.clone()
    }
}

/// The figures of all workers together.
pub(crate) fn sum_service(cells: &[Arc<ServiceCell>]) -> ServiceLive {
    let mut all = ServiceLive::default();
    for live in cells.iter().map(|cell| cell.get()) {
        all.elapsed = all.elapsed.max(live.elapsed);
        all.connected += live.connected;
        all.not_opened += live.not_opened;
        all.gone += live.gone;
        all.outstanding += live.outstanding;
        all.requests.add(&live.requests);
        all.traffic.add(&live.traffic);
        all.unsolicited += live.unsolicited;
        for (status, count) in live.statuses {
            *all.statuses.entry(status).or_default() += count;
        }
        for (name, count) in live.errors {
            *all.errors.entry(name).or_default() += count;
        }
        match (&mut all.window, live.window) {
            (Some(known), Some(more)) if known.end() == more.end() => {
                known.add(&more);
            }
            (Some(known), Some(older)) if known.end() > older.end() => {}
            (window, Some(newer)) => *window = Some(newer),
            (_, None) => {}
        }
    }
    all
}

/// The sum of the workers' figures. Only the slowest worker's percentile is known without a merge.
pub(crate) fn sum(cells: &[Arc<LiveCell>]) -> Live {
    let total = |figure: fn(&LiveCell) -> &AtomicU64| -> u64 {
        cells
            .iter()
            .map(|cell| figure(cell).load(Ordering::Relaxed))
            .sum()
    };
    let p99_ns = cells
        .iter()
        .map(|cell| cell.latency_p99_ns.load(Ordering::Relaxed))
        .max();
    Live {
        connected: total(|cell| &cell.connected),
        failed: total(|cell| &cell.failed),
        offered: total(|cell| &cell.offered),
        confirmed: total(|cell| &cell.confirmed),
        latency_p99_us: p99_ns.filter(|ns| *ns > 0).map(|ns| ns as f64 / 1000.0),
        processes: ProcessesLive {
            cpu: Duration::from_nanos(total(|cell| &cell.cpu_ns)),
            rss_bytes: total(|cell| &cell.rss_bytes),
            stopped: Duration::from_nanos(longest_stop(cells)),
        },
        ..Live::default()
    }
}

fn longest_stop(cells: &[Arc<LiveCell>]) -> u64 {
    let stops = cells
        .iter()
        .map(|cell| cell.stopped_ns.load(Ordering::Relaxed));
    stops.max().unwrap_or(0)
}

//! Workers that are processes, as a fleet knows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use tidewire_net::Waker;

use super::FleetError;
use super::crew::Hand;
use super::relay::Line;
use super::remote::{Clock, Listener, Remote};
use crate::accounting::live::LiveCell;
use crate::worker::contract::figures::LiveFigures;
use crate::worker::contract::orders::{Begin, Order};
use crate::worker::contract::words::{Hello, Word};
use crate::worker::order::{Command, Setup, WorkerReport};

/// A worker that is a process of its own.
#[derive(Debug)]
pub struct Process {
    /// Its name in reports.
    pub name: String,
    /// Its introduction, as received.
    pub hello: Hello,
    /// Whether it runs on this machine.
    pub is_here: bool,
    pub(super) clock: Arc<Clock>,
    pub(super) lines: Sender<Line>,
}

impl Process {
    /// A worker that has introduced itself. `here` is the name of this machine.
    pub(super) fn of(remote: &Remote, here: Option<&str>) -> Self {
        Self {
            name: remote.name.clone(),
            is_here: here == Some(&remote.hello.host),
            hello: remote.hello.clone(),
            clock: remote.clock(),
            lines: remote.lines(),
        }
    }

    /// Writes an order to it.
    pub(super) fn tell(&self, order: Order) {
        // The writer ends with the worker, whose end is reported.
        let _ = self.lines.send(Line::Order(Box::new(order)));
    }
}

/// The processor time so far of the processes of this machine.
pub(super) fn cpu_here(processes: &[Process], cells: &[Arc<LiveCell>]) -> Duration {
    let here = processes.iter().zip(cells);
    let here = here.filter(|(process, _)| process.is_here);
    here.map(|(_, cell)| Duration::from_nanos(cell.cpu_ns.load(Ordering::Relaxed)))
        .sum()
}

/// The cores of their machines; `None` if all of them are on this one.
pub(super) fn cores_elsewhere(processes: &[Process]) -> Option<f64> {
    let hosts: BTreeMap<&str, f64> = processes
        .iter()
        .map(|process| (process.hello.host.as_str(), process.hello.cores))
        .collect();
    let is_elsewhere = processes.iter().any(|process| !process.is_here);
    is_elsewhere.then(|| hosts.values().sum())
}

/// The most by which the clock of one of them may differ from what is known of it.
pub(super) fn clock_error(processes: &[Process]) -> Duration {
    let errors = processes.iter().map(|process| process.clock.error());
    errors.max().unwrap_or_default()
}

/// Publishes the figures that a process has reported about itself.
pub(super) fn publish(cell: &LiveCell, live: &LiveFigures) {
    let set = |figure: &AtomicU64, value: u64| figure.store(value, Ordering::Relaxed);
    set(&cell.connected, live.connected);
    set(&cell.failed, live.failed);
    set(&cell.offered, live.offered);
    set(&cell.confirmed, live.confirmed);
    set(&cell.latency_p99_ns, live.latency_p99_ns);
    set(&cell.stopped_ns, live.stopped_ns);
    set(&cell.cpu_ns, live.cpu_ns);
    set(&cell.rss_bytes, live.rss_bytes);
}

/// The way to a process that carries out the commands of a bench.
#[derive(Debug)]
pub(super) struct BenchHand {
    pub(super) remote: Remote,
    pub(super) setup: Arc<Setup>,
}

impl Hand<Command> for BenchHand {
    fn send(&self, command: Command) -> Result<(), FleetError> {
        self.remote.send(Order::of(command, &self.setup))
    }

    fn is_finished(&self) -> bool {
        self.remote.is_finished()
    }

    fn join(&mut self) {
        self.remote.join();
    }

    fn waker(&self) -> Option<Waker> {
        self.remote.waker()
    }
}

/// Receives the words of a process in a bench.
pub(super) struct BenchListener {
    pub(super) index: usize,
    pub(super) reports: Sender<(usize, WorkerReport)>,
    pub(super) cell: Arc<LiveCell>,
}

impl Listener for BenchListener {
    fn hear(&mut self, word: Word) -> Result<(), String> {
        let report = match word {
            Word::Live(live) => {
                publish(&self.cell, &live);
                return Ok(());
            }
            Word::Opened(opened) => {
                publish(&self.cell, &opened.live);
                WorkerReport::Opened(Box::new((*opened).into()))
            }
            Word::Ran(ran) => {
                publish(&self.cell, &ran.live);
                WorkerReport::Ran(Box::new((*ran).into()))
            }
            Word::Closed => {
                self.cell.connected.store(0, Ordering::Relaxed);
                WorkerReport::Closed
            }
            _ => return Err("it said a word of a service load in a bench".to_owned()),
        };
        // A fleet that has ended waits for no report.
        let _ = self.reports.send((self.index, report));
        Ok(())
    }

    fn end(&mut self, name: String, reason: String) {
        let report = WorkerReport::Ended { name, reason };
        let _ = self.reports.send((self.index, report));
    }
}

/// Checks that a worker can keep the terms of a test.
pub(super) fn suits(hello: &Hello, begin: &Begin) -> Result<(), String> {
    let lacks = |what: &str, given: &str, known: &[String]| {
        let known = known.join(", ");
        format!(
            "a {} client has no {what} `{given}`, only: {known}",
            hello.language
        )
    };
    if !hello.profiles.contains(&begin.profile) {
        return Err(lacks("profile", &begin.profile, &hello.profiles));
    }
    if !hello.layers.contains(&begin.layer) {
        return Err(lacks("layer", &begin.layer, &hello.layers));
    }
    let is_any = begin.authorities_pem.is_none() && begin.url.starts_with("wss:");
    if is_any && !hello.accepts_any_certificate {
        let language = &hello.language;
        return Err(format!(
            "a {language} client does not accept any certificate: name the authorities instead"
        ));
    }
    Ok(())
}

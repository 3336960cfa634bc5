//! The fleet: all workers together, which open connections, run phases and close.

mod crew;
pub mod preflight;
mod pulse;
pub mod service;
pub mod stop;
mod unconfirmed;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tidewire_net::ShardConfig;

use crate::accounting::live::{self, Live, LiveCell};
use crate::accounting::outcome::{Opened, Ran};
use crate::worker::order::{Activity, Command, ConnectOrder, PhaseOrder, Setup, WorkerReport};
use crate::worker::websocket::Worker;
pub use crew::Wish;
use crew::{Crew, Endings};
use pulse::Pulse;
use stop::StopRule;

/// Threads with event loops, and the connections that they hold.
#[derive(Debug)]
pub struct Fleet {
    setup: Arc<Setup>,
    workers: Crew<Command>,
    outcomes: Receiver<(usize, WorkerReport)>,
    cells: Vec<Arc<LiveCell>>,
    next_number: usize,
    pulse: Pulse,
    /// The run was interrupted: the remaining work is done at once.
    is_interrupted: bool,
}

/// A worker's position among the others.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The index of the worker, from 0.
    pub index: usize,
    /// The open connections of each worker.
    pub members: &'a [u64],
}

/// An observer of a working fleet, about ten times per second, and a flag that ends the work.
pub struct Watch<'a> {
    /// Called with the current figures; it decides whether the work goes on.
    pub tick: &'a mut dyn FnMut(&Live) -> Wish,
    /// Set to end the current work.
    pub stop: &'a AtomicBool,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

/// The end of a worker, which only a failure of this program or of the operating system's event
/// queue causes.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A thread or event queue could not be created.
    #[error("the generator's threads could not be started: {0}")]
    Start(io::Error),
    /// An event loop failed.
    #[error("an event loop of the generator failed: {0}")]
    Loop(io::Error),
    /// A worker ended without an answer.
    #[error("a thread of the generator ended unexpectedly")]
    Gone,
}

impl Fleet {
    /// Starts `threads` workers, at least one, without connections.
    ///
    /// # Errors
    /// [`FleetError::Start`].
    pub fn start(setup: Setup, threads: usize) -> Result<Self, FleetError> {
        let setup = Arc::new(setup);
        let (sender, outcomes) = channel();
        let mut fleet = Self {
            setup,
            workers: Crew::new(Endings {
                stop: || Command::Stop,
                abandon: || Command::Abandon,
                quit: || Command::Quit,
            }),
            outcomes,
            cells: Vec::new(),
            next_number: 0,
            pulse: Pulse::start(),
            is_interrupted: false,
        };
        for index in 0..threads.max(1) {
            fleet
                .start_worker(index, &sender)
                .map_err(FleetError::Start)?;
        }
        Ok(fleet)
    }

    fn start_worker(
        &mut self,
        index: usize,
        sender: &Sender<(usize, WorkerReport)>,
    ) -> io::Result<()> {
        let cell = Arc::new(LiveCell::default());
        let worker = Worker::new(
            Arc::clone(&self.setup),
            index,
            sender.clone(),
            Arc::clone(&cell),
        );
        let config = ShardConfig::default();
        self.workers
            .start(&config, worker, sender.clone(), WorkerReport::Died)?;
        self.cells.push(cell);
        Ok(())
    }

    /// The number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// The state that all workers share.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connected(&self) -> u64 {
        live::sum(&self.cells).connected
    }

    /// Opens `count` additional connections, as fast as the limit of concurrent handshakes allows,
    /// and waits until each is ready or has failed.
    ///
    /// # Errors
    /// [`FleetError`]; a connection that fails is counted, not an error.
    pub fn open(&mut self, count: usize, watch: &mut Watch<'_>) -> Result<Opened, FleetError> {
        preflight::make_room_for(self.next_number as u64 + count as u64);
        let workers = self.workers.len();
        let in_flight_max = (self.setup.handshakes_in_flight_max / workers).max(1);
        let (first, end) = (self.next_number, self.next_number + count);
        self.next_number = end;
        self.workers.order(|index| {
            let numbers = ((first + index).min(end)..end).step_by(workers);
            Command::Connect(ConnectOrder {
                numbers,
                in_flight_max,
            })
        })?;
        let mut opened = Opened::default();
        let was_interrupted = self.wait(watch, StopRule::Count(0), |outcome| {
            if let WorkerReport::Opened(one) = outcome {
                opened.merge(&one);
            }
        })?;
        self.is_interrupted |= was_interrupted;
        Ok(opened)
    }

    /// Runs an activity on the open connections until `stop`, and waits until all of it is
    /// confirmed or abandoned. `activity` creates each worker's share from its position among the
    /// others.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn run(
        &mut self,
        activity: impl Fn(Part<'_>) -> Activity,
        stop: StopRule,
        watch: &mut Watch<'_>,
    ) -> Result<Ran, FleetError> {
        let members: Vec<u64> = self.cells.iter().map(|cell| cell.connected()).collect();
        let unconfirmed_bytes_max = unconfirmed::bytes_each(members.iter().sum());
        let orders: Vec<PhaseOrder> = (0..self.workers.len())
            .map(|index| PhaseOrder {
                activity: activity(Part {
                    index,
                    members: &members,
                }),
                longest: stop.longest(),
                unconfirmed_bytes_max,
            })
            .collect();
        let sends = orders.iter().any(|order| order.activity.sends());
        for (order, mailbox) in orders.into_iter().zip(self.workers.mailboxes()) {
            if let (Activity::FanOut(fan_out), Some(first)) =
                (&order.activity, self.workers.mailboxes().next())
            {
                // The publisher is opened separately, which assigns it to the first worker.
                fan_out.set_waker(first.waker());
            }
            mailbox
                .send(Command::Run(Box::new(order)))
                .map_err(|_| FleetError::Gone)?;
        }
        let mut ran = Ran {
            sends,
            ..Ran::default()
        };
        ran.interrupted = self.wait(watch, stop, |outcome| {
            if let WorkerReport::Ran(one) = outcome {
                ran.merge(&one);
            }
        })?;
        self.is_interrupted |= ran.interrupted;
        Ok(ran)
    }

    /// The time for which the generator's process has not run since the start of the fleet.
    #[must_use]
    pub fn stopped(&self) -> Duration {
        self.pulse.stopped()
    }

    /// Closes all connections with a closing handshake, with little time after an interruption.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn close(&mut self) -> Result<(), FleetError> {
        self.workers.order(|_| Command::Close)?;
        let stop = AtomicBool::new(self.is_interrupted);
        let mut watch = Watch {
            tick: &mut |_| Wish::GoOn,
            stop: &stop,
        };
        self.wait(&mut watch, StopRule::Count(0), |_| {})?;
        Ok(())
    }

    /// Waits for one report of each worker; returns whether the phase was interrupted.
    fn wait(
        &self,
        watch: &mut Watch<'_>,
        stop: StopRule,
        mut take: impl FnMut(WorkerReport),
    ) -> Result<bool, FleetError> {
        let mut samples = Samples::new();
        let look = || {
            let live = samples.add(live::sum(&self.cells));
            let wish = (watch.tick)(&live);
            if watch.stop.load(Ordering::Relaxed) {
                Wish::Interrupt
            } else if stop.is_met(live.elapsed, &samples.rates) {
                Wish::Stop
            } else {
                wish
            }
        };
        self.workers
            .wait(&self.outcomes, TICK, look, |report| match report {
                WorkerReport::Died(error) => Err(FleetError::Loop(error)),
                report => {
                    take(report);
                    Ok(())
                }
            })
    }
}

/// Rates from samples of the confirmed count at every tick.
#[derive(Debug)]
struct Samples {
    start: Instant,
    last: (Duration, u64),
    /// Per second, for each tick.
    rates: Vec<f64>,
}

impl Samples {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            last: (Duration::ZERO, 0),
            rates: Vec::new(),
        }
    }

    /// Completes the figures with those that depend on the total time.
    fn add(&mut self, live: Live) -> Live {
        let elapsed = self.start.elapsed();
        let now = (elapsed, live.confirmed);
        self.rates.push(rate(self.last, now));
        self.last = now;
        let recent = &self.rates[self.rates.len().saturating_sub(TICKS_PER_S)..];
        let rate_per_s = recent.iter().sum::<f64>() / recent.len() as f64;
        Live {
            elapsed,
            rate_per_s,
            ..live
        }
    }
}

fn rate(before: (Duration, u64), now: (Duration, u64)) -> f64 {
    let seconds = (now.0 - before.0).as_secs_f64();
    if seconds > 0.0 {
        now.1.saturating_sub(before.1) as f64 / seconds
    } else {
        0.0
    }
}

const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_S: usize = 10;

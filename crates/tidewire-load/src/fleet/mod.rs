//! The fleet: all workers together, which open connections, run phases and close.

pub mod check;
mod crew;
mod error;
mod lost;
pub mod preflight;
mod process;
mod pulse;
mod relay;
mod remote;
mod samples;
pub mod serve;
pub mod service;
pub mod stop;
mod unconfirmed;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tidewire_net::ShardConfig;

use crate::accounting::failure::Failure;
use crate::accounting::live::{self, Live, LiveCell};
use crate::accounting::outcome::{CpuTime, Opened, Ran};
use crate::accounting::resources;
use crate::worker::contract::orders::{Begin, Order};
use crate::worker::order::{
    Activity, Again, Command, ConnectOrder, Numbers, PhaseOrder, Setup, WorkerReport,
};
use crate::worker::websocket::Worker;
use crate::worker::websocket::payload::Encoding;
pub use crew::Wish;
use crew::{Crew, Endings, Reported};
pub use error::FleetError;
use lost::{behind, capital, lost_share};
pub use process::Process;
use process::{BenchHand, BenchListener, suits};
use pulse::Pulse;
use relay::Relay;
use remote::{Ears, Remote};
use samples::{Samples, TICK};
use stop::StopRule;

/// Workers, and the connections that they hold. They are threads of this process, or processes that
/// speak the worker contract.
#[derive(Debug)]
pub struct Fleet {
    setup: Arc<Setup>,
    workers: Crew<Command>,
    outcomes: Receiver<(usize, WorkerReport)>,
    cells: Vec<Arc<LiveCell>>,
    /// The introduction of each worker that is a process.
    processes: Vec<Process>,
    /// The messages that these workers exchange.
    relay: Arc<Relay>,
    next_number: usize,
    /// The worker with the connection that was opened last by itself.
    owner: usize,
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

impl Fleet {
    /// Starts `threads` workers, at least one, without connections.
    ///
    /// # Errors
    /// [`FleetError::Start`].
    pub fn start(setup: Setup, threads: usize) -> Result<Self, FleetError> {
        let (mut fleet, sender) = Self::without_workers(setup);
        for index in 0..threads.max(1) {
            fleet
                .start_worker(index, &sender)
                .map_err(FleetError::Start)?;
        }
        Ok(fleet)
    }

    /// Starts a worker's process with each of these commands, without connections. `stop` ends the wait for them.
    ///
    /// # Errors
    /// [`FleetError::Worker`].
    pub fn start_processes(
        setup: Setup,
        commands: &[String],
        stop: &AtomicBool,
    ) -> Result<Self, FleetError> {
        let (mut fleet, sender) = Self::without_workers(setup);
        let here = resources::host_name();
        for (index, command) in commands.iter().enumerate() {
            let cell = Arc::new(LiveCell::default());
            let ears = Ears {
                index,
                relay: Arc::clone(&fleet.relay),
                epoch: fleet.setup.epoch,
                listener: Box::new(BenchListener {
                    index,
                    reports: sender.clone(),
                    cell: Arc::clone(&cell),
                }),
            };
            let begin = Begin::of(&fleet.setup, 0);
            let remote = Remote::start(command, ears, &|hello| suits(hello, &begin), stop)?;
            cell.rss_bytes
                .store(remote.hello.rss_bytes, Ordering::Relaxed);
            fleet.relay.add(remote.lines());
            fleet.processes.push(Process::of(&remote, here.as_deref()));
            fleet.workers.add(BenchHand {
                remote,
                setup: Arc::clone(&fleet.setup),
            });
            fleet.cells.push(cell);
        }
        fleet.tell_terms();
        Ok(fleet)
    }

    /// Sends the terms of the next test to the workers that are processes.
    fn tell_terms(&self) {
        for process in &self.processes {
            let begin = Begin::of(&self.setup, process.clock.zero_ns());
            process.tell(Order::Begin(Box::new(begin)));
        }
    }

    fn without_workers(setup: Setup) -> (Self, Sender<(usize, WorkerReport)>) {
        let (sender, outcomes) = channel();
        let fleet = Self {
            setup: Arc::new(setup),
            workers: Crew::new(Endings {
                stop: || Command::Stop,
                abandon: || Command::Abandon,
                quit: || Command::Quit,
            }),
            outcomes,
            cells: Vec::new(),
            processes: Vec::new(),
            relay: Arc::default(),
            next_number: 0,
            owner: 0,
            pulse: Pulse::start(),
            is_interrupted: false,
        };
        (fleet, sender)
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

    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The workers that are processes; empty if they are threads.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
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

    /// The processor time so far of the workers that are processes of this machine.
    #[must_use]
    pub fn cpu_here(&self) -> Duration {
        process::cpu_here(&self.processes, &self.cells)
    }

    /// The cores of the machines of the workers; `None` if all of them are on this one.
    #[must_use]
    pub fn cores_elsewhere(&self) -> Option<f64> {
        process::cores_elsewhere(&self.processes)
    }

    /// The figures of this moment.
    #[must_use]
    pub fn live(&self) -> Live {
        live::sum(&self.cells)
    }

    /// Makes a fleet whose connections are closed ready for another test; returns whether all of its
    /// workers live.
    pub fn begin_again(&mut self) -> bool {
        self.next_number = 0;
        self.tell_terms();
        self.is_whole()
    }

    /// Whether no worker has ended.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        (0..self.workers.len()).all(|index| !self.workers.is_gone(index))
    }

    /// Opens `count` additional connections, as fast as the limit of concurrent handshakes allows,
    /// and waits until each is ready or has failed.
    ///
    /// # Errors
    /// [`FleetError`]; a connection that fails is counted, not an error.
    pub fn open(
        &mut self,
        count: usize,
        encoding: Encoding,
        watch: &mut Watch<'_>,
    ) -> Result<Opened, FleetError> {
        self.connect(count, encoding, None, watch)
    }

    /// Opens `count` connections, closes each as soon as it is ready, and opens it again.
    ///
    /// # Errors
    /// [`FleetError`]; a connection that fails is counted, not an error.
    pub fn reconnect(
        &mut self,
        count: usize,
        again: Again,
        watch: &mut Watch<'_>,
    ) -> Result<Opened, FleetError> {
        self.connect(count, Encoding::Json, Some(again), watch)
    }

    fn connect(
        &mut self,
        count: usize,
        encoding: Encoding,
        again: Option<Again>,
        watch: &mut Watch<'_>,
    ) -> Result<Opened, FleetError> {
        let numbers = Numbers {
            first: self.next_number,
            end: self.next_number + count,
            step: 1,
        };
        self.next_number = numbers.end;
        let in_flight_max = match again {
            Some(_) => count,
            None => self.setup.handshakes_in_flight_max,
        };
        self.connect_numbers(numbers, in_flight_max, encoding, again, watch)
    }

    /// The same for given numbers.
    pub(crate) fn connect_numbers(
        &mut self,
        numbers: Numbers,
        in_flight_max: usize,
        encoding: Encoding,
        again: Option<Again>,
        watch: &mut Watch<'_>,
    ) -> Result<Opened, FleetError> {
        if self.processes.is_empty() {
            preflight::make_room_for(self.connected() + numbers.len() as u64);
        }
        let living = self.living();
        let open_before: Vec<u64> = self.cells.iter().map(|cell| cell.connected()).collect();
        let in_flight_max = in_flight_max.div_ceil(living.len().max(1)).max(1);
        let mut shares = vec![0; self.workers.len()];
        for (place, index) in living.iter().enumerate() {
            let numbers = numbers.part(place, living.len());
            shares[*index] = numbers.len() as u64;
            let order = ConnectOrder {
                numbers,
                in_flight_max,
                encoding,
                again,
            };
            self.workers.send(*index, Command::Connect(order))?;
        }
        self.owner = living.first().copied().unwrap_or(0);
        let mut opened = Opened::default();
        let was_interrupted =
            self.wait(watch, StopRule::Count(0), |index, outcome| match outcome {
                WorkerReport::Opened(one) => {
                    opened.merge(&one);
                }
                WorkerReport::Ended { name, reason } => {
                    // What it had opened is closed with it.
                    let lost = shares[index] + open_before[index];
                    let mut failed = Opened {
                        attempted: shares[index],
                        ..Opened::default()
                    };
                    failed.failures.add_many(Failure::WorkerEnded, lost);
                    let note = format!(
                        "{} ended: {reason}. Its {lost} connections are lost.",
                        capital(&name)
                    );
                    failed.notes.push(note);
                    opened.merge(&failed);
                }
                _ => {}
            })?;
        self.is_interrupted |= was_interrupted;
        Ok(opened)
    }

    /// The workers that have not ended.
    fn living(&self) -> Vec<usize> {
        let all = 0..self.workers.len();
        all.filter(|index| !self.workers.is_gone(*index)).collect()
    }

    /// The order of each worker to run its share of an activity.
    fn orders(&self, activity: impl Fn(Part<'_>) -> Activity, stop: &StopRule) -> Vec<PhaseOrder> {
        let members: Arc<[u64]> = (0..self.workers.len())
            .map(|index| match self.workers.is_gone(index) {
                true => 0,
                false => self.cells[index].connected(),
            })
            .collect();
        let unconfirmed_bytes_max = unconfirmed::bytes_each(members.iter().sum());
        let orders: Vec<PhaseOrder> = (0..self.workers.len())
            .map(|index| PhaseOrder {
                activity: activity(Part {
                    index,
                    members: &members,
                }),
                longest: stop.longest(),
                unconfirmed_bytes_max,
                members: Arc::clone(&members),
                index,
                publishes: index == self.owner,
            })
            .collect();
        if let Some(Activity::FanOut(fan_out)) = orders.first().map(|order| &order.activity) {
            if let Some(waker) = self.workers.waker(self.owner) {
                fan_out.set_waker(waker);
            }
            let others = members.iter().enumerate();
            let subscribers =
                others.map(|(index, count)| count.saturating_sub(u64::from(index == self.owner)));
            self.relay
                .begin(self.owner, &subscribers.collect::<Vec<u64>>());
        }
        orders
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
        let orders = self.orders(activity, &stop);
        let members: Vec<u64> = orders
            .first()
            .map_or_else(Vec::new, |first| first.members.to_vec());
        let sends = orders.iter().any(|order| order.activity.sends());
        let shares: Vec<Activity> = orders.iter().map(|order| order.activity.clone()).collect();
        for (index, order) in orders.into_iter().enumerate() {
            self.workers.send(index, Command::Run(Box::new(order)))?;
        }
        let mut ran = Ran {
            sends,
            ..Ran::default()
        };
        let cells = self.cells.clone();
        let names: Vec<String> = self
            .processes
            .iter()
            .map(|process| process.name.clone())
            .collect();
        let longest = stop.longest();
        let mut per_worker = vec![0.0; self.workers.len()];
        ran.interrupted = self.wait(watch, stop, |index, outcome| match outcome {
            WorkerReport::Ran(one) => {
                per_worker[index] = one.rate_per_s();
                ran.merge(&one);
                if let Some(name) = names.get(index) {
                    ran.notes.extend(behind(name, &one));
                }
            }
            WorkerReport::Ended { name, reason } => {
                let mut lost = lost_share(&shares[index], members[index], &cells[index], longest);
                let count = members[index];
                lost.notes.push(format!(
                    "{} ended during the test: {reason}. Its {count} connections are lost, and what it had \
                     not reported as confirmed counts as not sent.",
                    capital(&name)
                ));
                ran.merge(&lost);
            }
            _ => {}
        })?;
        if !self.processes.is_empty() {
            ran.per_worker = per_worker;
            if matches!(shares.first(), Some(Activity::FanOut(_))) {
                ran.notes.push(self.clocks_in_words());
            }
        }
        if ran.members == 0 {
            // Nobody has worked, and a share of no time means nothing.
            ran.cpu = CpuTime::default();
        }
        self.is_interrupted |= ran.interrupted;
        Ok(ran)
    }

    /// How exact a latency from one worker to another can be.
    fn clocks_in_words(&self) -> String {
        let error_us = process::clock_error(&self.processes).as_micros();
        format!(
            "Each worker's clock is known to within {error_us} us, and a delivery latency to within {} us.",
            2 * error_us
        )
    }

    /// The time for which the generator's process has not run since the start of the fleet.
    #[must_use]
    pub fn stopped(&self) -> Duration {
        self.pulse.stopped() + live::sum(&self.cells).processes.stopped
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
        self.wait(&mut watch, StopRule::Count(0), |_, _| {})?;
        Ok(())
    }

    /// Waits for one report of each worker; returns whether the phase was interrupted.
    fn wait(
        &mut self,
        watch: &mut Watch<'_>,
        stop: StopRule,
        mut take: impl FnMut(usize, WorkerReport),
    ) -> Result<bool, FleetError> {
        let mut samples = Samples::new();
        let cells = &self.cells;
        let look = || {
            let live = samples.add(live::sum(cells));
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
            .wait(&self.outcomes, TICK, look, |index, report| match report {
                WorkerReport::Died(error) => Err(FleetError::Loop(error)),
                WorkerReport::Ended { .. } => {
                    take(index, report);
                    let cell = &cells[index];
                    let connected = cell.connected.swap(0, Ordering::Relaxed);
                    cell.failed.fetch_add(connected, Ordering::Relaxed);
                    Ok(Reported::Gone)
                }
                report => {
                    take(index, report);
                    Ok(Reported::Done)
                }
            })
    }
}

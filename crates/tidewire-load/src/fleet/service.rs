//! The fleet of a service load: workers that are connected, driven through phases and observed.

mod processes;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tidewire_net::ShardConfig;

use super::crew::{Crew, Endings, Reported, Wish};
use super::pulse::Pulse;
use super::{FleetError, preflight};
use crate::accounting::live::{self, ProcessesLive, ServiceCell, ServiceLive};
use crate::accounting::tally::Tally;
use crate::worker::http::{Http, Http2};
use crate::worker::messages::Messages;
use crate::worker::mixed::Mixed;
use crate::worker::pace::Share;
use crate::worker::rhythm::Rhythm;
use crate::worker::service::order::{
    Budget, DialogueKind, ServiceCommand, ServicePhase, ServiceReport, ServiceSetup, Tempo,
};
use crate::worker::service::{Dialogue, ServiceWorker};
pub(crate) use processes::Processes;
pub use processes::Workers;

/// Workers and the users on them.
#[derive(Debug)]
pub struct ServiceFleet {
    setup: Arc<ServiceSetup>,
    workers: Crews,
    outcomes: Receiver<(usize, ServiceReport)>,
    cells: Vec<Arc<ServiceCell>>,
    pulse: Pulse,
}

/// The workers of a fleet: threads, or processes.
#[derive(Debug)]
enum Crews {
    /// Threads of this process, with these numbers among those of all workers.
    Threads(Crew<ServiceCommand>, Range<usize>),
    /// Processes that speak the worker contract.
    Processes(Processes),
}

/// The users of this fleet among those of other fleets of the same load.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The time at which all begin, in nanoseconds since the epoch.
    pub(super) begin_ns: u64,
    /// The users of each fleet.
    pub(super) members: Vec<u64>,
    /// The index of this one.
    pub(super) index: usize,
}

/// The parameters of a phase.
#[derive(Debug, Clone)]
pub struct PhasePlan {
    /// The rate.
    pub rhythm: Rhythm,
    /// The duration; `None` to continue until the requests are sent or the phase is stopped.
    pub longest: Option<Duration>,
    /// The largest number of requests.
    pub requests: Option<u64>,
    /// Connections that ended in an earlier phase are opened again.
    pub revives: bool,
    /// The load is over: users send only the steps of their teardown.
    pub is_teardown: bool,
}

impl ServiceFleet {
    /// Starts the workers, without connections: threads of this process.
    ///
    /// # Errors
    /// [`FleetError::Start`].
    pub fn start(setup: ServiceSetup) -> Result<Self, FleetError> {
        let threads = 0..setup.workers.max(1);
        Self::start_threads(setup, threads)
    }

    /// Starts only the threads with these numbers; `setup.workers` is the number of all.
    pub(super) fn start_threads(
        setup: ServiceSetup,
        threads: Range<usize>,
    ) -> Result<Self, FleetError> {
        let (sender, outcomes) = channel();
        let setup = Arc::new(setup);
        let crew = Crew::new(Endings {
            stop: || ServiceCommand::Stop,
            abandon: || ServiceCommand::Abandon,
            quit: || ServiceCommand::Quit,
        });
        let mut fleet = Self {
            setup: Arc::clone(&setup),
            workers: Crews::Threads(crew, threads.clone()),
            outcomes,
            cells: Vec::new(),
            pulse: Pulse::start(),
        };
        preflight::make_room_for(setup.connections_of(threads.clone()));
        for number in threads {
            let started = match &setup.own().dialogue {
                _ if setup.targets.len() > 1 => {
                    fleet.start_worker(number, Mixed::new(&setup), &sender)
                }
                DialogueKind::Http => fleet.start_worker(number, Http::default(), &sender),
                DialogueKind::Http2 => fleet.start_worker(number, Http2::new(&setup), &sender),
                DialogueKind::Messages(messages) => {
                    let dialogue = Messages::new(Arc::clone(messages));
                    fleet.start_worker(number, dialogue, &sender)
                }
            };
            started.map_err(FleetError::Start)?;
        }
        Ok(fleet)
    }

    /// Starts a process with each command of `workers`, without connections. `stop` ends the wait for them.
    ///
    /// # Errors
    /// [`FleetError::Worker`].
    pub fn start_processes(
        mut setup: ServiceSetup,
        workers: &Workers,
        stop: &AtomicBool,
    ) -> Result<Self, FleetError> {
        let (sender, outcomes) = channel();
        let cells: Vec<Arc<ServiceCell>> =
            workers.commands.iter().map(|_| Arc::default()).collect();
        let processes = Processes::start(&mut setup, workers, &cells, (&sender, stop))?;
        Ok(Self {
            setup: Arc::new(setup),
            workers: Crews::Processes(processes),
            outcomes,
            cells,
            pulse: Pulse::start(),
        })
    }

    fn start_worker<D: Dialogue>(
        &mut self,
        number: usize,
        dialogue: D,
        sender: &Sender<(usize, ServiceReport)>,
    ) -> io::Result<()> {
        let Crews::Threads(crew, threads) = &mut self.workers else {
            return Ok(());
        };
        let cell = Arc::new(ServiceCell::default());
        let worker = ServiceWorker::new(
            Arc::clone(&self.setup),
            (number, number - threads.start),
            dialogue,
            sender.clone(),
            Arc::clone(&cell),
        );
        let config = ShardConfig {
            // The waiting bytes are this program's own: the longest request, and a few of each
            // connection.
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            ..ShardConfig::default()
        };
        crew.start(&config, worker, sender.clone(), ServiceReport::Died)?;
        self.cells.push(cell);
        Ok(())
    }

    /// The state that all workers share.
    #[must_use]
    pub fn setup(&self) -> &ServiceSetup {
        &self.setup
    }

    /// The time for which the generator's processes have not run since the start of the fleet.
    #[must_use]
    pub fn stopped(&self) -> Duration {
        self.pulse.stopped() + self.processes_live().stopped
    }

    /// The resources of workers that are processes; zero without any.
    #[must_use]
    pub fn processes_live(&self) -> ProcessesLive {
        self.processes().map(Processes::live).unwrap_or_default()
    }

    /// The workers that are processes.
    pub(crate) fn processes(&self) -> Option<&Processes> {
        match &self.workers {
            Crews::Threads(..) => None,
            Crews::Processes(processes) => Some(processes),
        }
    }

    /// Opens the connections of all users, and waits until each is ready or has failed.
    ///
    /// # Errors
    /// [`FleetError`]; a connection that fails is counted, not an error.
    pub fn connect(
        &mut self,
        watch: &mut dyn FnMut(&ServiceLive) -> Wish,
    ) -> Result<Tally, FleetError> {
        match &mut self.workers {
            Crews::Threads(crew, _) => crew.order(|_| ServiceCommand::Connect)?,
            Crews::Processes(processes) => processes.connect()?,
        }
        self.wait(watch)
    }

    /// Runs a phase, and waits until all of it is answered or abandoned.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn run(
        &mut self,
        plan: &PhasePlan,
        watch: &mut dyn FnMut(&ServiceLive) -> Wish,
    ) -> Result<Tally, FleetError> {
        if let Crews::Processes(processes) = &mut self.workers {
            processes.run(plan, || self.setup.now_ns())?;
            return self.wait(watch);
        }
        let place = Place {
            begin_ns: self.setup.now_ns(),
            members: vec![self.setup.users as u64],
            index: 0,
        };
        self.run_part(plan, &place, watch)
    }

    /// Runs the part of a phase that belongs to this place.
    pub(super) fn run_part(
        &mut self,
        plan: &PhasePlan,
        place: &Place,
        watch: &mut dyn FnMut(&ServiceLive) -> Wish,
    ) -> Result<Tally, FleetError> {
        if let Crews::Threads(crew, threads) = &self.workers {
            let budget = plan
                .requests
                .map(|requests| Arc::new(Budget::new(requests)));
            // The workers' connections are distributed evenly, whether they are open yet or not.
            let numbers = threads.clone();
            let members: Vec<u64> = numbers
                .map(|number| self.setup.members(number..number + 1))
                .collect();
            crew.order(|index| {
                let tempo = match &plan.rhythm {
                    Rhythm::Closed => Tempo::Closed,
                    Rhythm::Each { per_s } => Tempo::Each { per_s: *per_s },
                    Rhythm::Open { pace, per_s } => {
                        let share = Share::of(pace.clone(), *per_s, &place.members, place.index);
                        Tempo::Open(share.among(&members, index))
                    }
                };
                ServiceCommand::Run(Box::new(ServicePhase {
                    tempo,
                    start_ns: place.begin_ns,
                    longest: plan.longest,
                    revives: plan.revives,
                    budget: budget.clone(),
                    is_teardown: plan.is_teardown,
                }))
            })?;
        }
        self.wait(watch)
    }

    /// Ends all connections.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn close(&mut self) -> Result<(), FleetError> {
        match &mut self.workers {
            Crews::Threads(crew, _) => crew.order(|_| ServiceCommand::Close)?,
            Crews::Processes(processes) => processes.close()?,
        }
        self.wait(&mut |_| Wish::GoOn).map(|_| ())
    }

    /// Waits for one outcome of each worker.
    fn wait(&mut self, watch: &mut dyn FnMut(&ServiceLive) -> Wish) -> Result<Tally, FleetError> {
        let mut all: Option<Tally> = None;
        let mut add = |tally: Tally| match &mut all {
            Some(all) => all.merge(&tally),
            None => all = Some(tally),
        };
        let cells = &self.cells;
        match &mut self.workers {
            Crews::Threads(crew, _) => {
                let look = || watch(&live::sum_service(cells));
                crew.wait(
                    &self.outcomes,
                    SERVICE_TICK,
                    look,
                    |_, report| match report {
                        ServiceReport::Died(error) => Err(FleetError::Loop(error)),
                        ServiceReport::Ended { .. } => Err(FleetError::Gone),
                        ServiceReport::Connected(tally)
                        | ServiceReport::Done(tally)
                        | ServiceReport::Closed(tally) => {
                            add(*tally);
                            Ok(Reported::Done)
                        }
                    },
                )?;
            }
            Crews::Processes(processes) => {
                processes.wait(&self.outcomes, cells, watch, &mut add)?;
            }
        }
        // Nobody is left to count anything.
        Ok(all.unwrap_or_else(|| Tally::new(self.setup.now_ns(), self.setup.script.steps.len())))
    }
}

const SERVICE_TICK: Duration = Duration::from_millis(50);

const OUTBOX_BYTES_MAX: usize = 1024 * 1024 * 1024;

//! The workers of a service load together: connected, driven through phases and watched.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tidewire_net::ShardConfig;

use super::crew::Crew;
use super::pulse::Pulse;
use super::{FleetError, preflight};
use crate::accounting::live::{self, ServiceCell, ServiceLive};
use crate::accounting::tally::Tally;
use crate::worker::http::Http;
use crate::worker::messages::Messages;
use crate::worker::pace::{Pace, Share};
use crate::worker::service::order::{
    Budget, DialogueKind, ServiceCommand, ServiceOutcome, ServicePhase, ServiceSetup, Tempo,
};
use crate::worker::service::{Dialogue, ServiceWorker};

/// Threads with event loops and the users on them.
#[derive(Debug)]
pub struct ServiceFleet {
    setup: Arc<ServiceSetup>,
    workers: Crew<ServiceCommand>,
    outcomes: Receiver<(usize, ServiceOutcome)>,
    cells: Vec<Arc<ServiceCell>>,
    pulse: Pulse,
}

/// How fast a phase sends, over all workers.
#[derive(Debug, Clone)]
pub enum Rhythm {
    /// Each user sends its next request when the one before is answered.
    Closed,
    /// At given times, on whoever is free.
    Open {
        /// The times.
        pace: Pace,
        /// Requests in a second on average, for the report.
        per_s: f64,
    },
    /// Each user at this rate.
    Each {
        /// Requests in a second on one connection.
        per_s: f64,
    },
}

/// What a phase is to do.
#[derive(Debug, Clone)]
pub struct PhasePlan {
    /// How fast it sends.
    pub rhythm: Rhythm,
    /// How long it sends; `None` to go on until the requests are sent or it is stopped.
    pub longest: Option<Duration>,
    /// How many requests it sends at most.
    pub requests: Option<u64>,
}

/// What the one who watches a phase wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// The phase goes on.
    GoOn,
    /// It ends as if its time had come.
    Stop,
    /// It ends at once, after a short time for what is on its way.
    Interrupt,
}

impl ServiceFleet {
    /// Starts the workers, without connections.
    ///
    /// # Errors
    /// [`FleetError::Start`].
    pub fn start(setup: ServiceSetup) -> Result<Self, FleetError> {
        let setup = Arc::new(setup);
        let (sender, outcomes) = channel();
        let mut fleet = Self {
            setup,
            workers: Crew::new(|| ServiceCommand::Quit),
            outcomes,
            cells: Vec::new(),
            pulse: Pulse::start(),
        };
        preflight::make_room_for(fleet.setup.users as u64);
        let setup = Arc::clone(&fleet.setup);
        for index in 0..setup.workers.max(1) {
            let started = match &setup.dialogue {
                DialogueKind::Http => fleet.start_worker(index, Http::default(), &sender),
                DialogueKind::Messages(messages) => {
                    let dialogue = Messages::new(Arc::clone(messages));
                    fleet.start_worker(index, dialogue, &sender)
                }
            };
            started.map_err(FleetError::Start)?;
        }
        Ok(fleet)
    }

    fn start_worker<D: Dialogue>(
        &mut self,
        index: usize,
        dialogue: D,
        sender: &Sender<(usize, ServiceOutcome)>,
    ) -> io::Result<()> {
        let cell = Arc::new(ServiceCell::default());
        let worker = ServiceWorker::new(
            Arc::clone(&self.setup),
            index,
            dialogue,
            sender.clone(),
            Arc::clone(&cell),
        );
        let config = ShardConfig {
            // What waits here is this program's own: the longest request, and some more of each connection.
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            ..ShardConfig::default()
        };
        self.workers
            .start(&config, worker, sender.clone(), ServiceOutcome::Died)?;
        self.cells.push(cell);
        Ok(())
    }

    /// What all workers share.
    #[must_use]
    pub fn setup(&self) -> &ServiceSetup {
        &self.setup
    }

    /// How long the generator's process has stood still since the fleet was started.
    #[must_use]
    pub fn stopped(&self) -> Duration {
        self.pulse.stopped()
    }

    /// Opens the connections of all users, and waits until each is ready or has failed.
    ///
    /// # Errors
    /// [`FleetError`]; a connection that fails is counted, not an error.
    pub fn connect(
        &mut self,
        watch: &mut dyn FnMut(&ServiceLive) -> Wish,
    ) -> Result<Tally, FleetError> {
        self.workers.order(|_| ServiceCommand::Connect)?;
        self.wait(watch)
    }

    /// Runs a phase, and waits until all of it is answered or given up.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn run(
        &mut self,
        plan: &PhasePlan,
        watch: &mut dyn FnMut(&ServiceLive) -> Wish,
    ) -> Result<Tally, FleetError> {
        let budget = plan
            .requests
            .map(|requests| Arc::new(Budget::new(requests)));
        let workers = self.workers.len();
        // The workers' connections are spread evenly, whether they are open yet or not.
        let members: Vec<u64> = (0..workers)
            .map(|index| (index..self.setup.users).step_by(workers).count() as u64)
            .collect();
        let start_ns = self.setup.now_ns();
        self.workers.order(|index| {
            let tempo = match &plan.rhythm {
                Rhythm::Closed => Tempo::Closed,
                Rhythm::Each { per_s } => Tempo::Each { per_s: *per_s },
                Rhythm::Open { pace, per_s } => {
                    Tempo::Open(Share::of(pace.clone(), *per_s, &members, index))
                }
            };
            ServiceCommand::Run(Box::new(ServicePhase {
                tempo,
                start_ns,
                longest: plan.longest,
                budget: budget.clone(),
            }))
        })?;
        self.wait(watch)
    }

    /// Ends all connections.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn close(&mut self) -> Result<(), FleetError> {
        self.workers.order(|_| ServiceCommand::Close)?;
        self.wait(&mut |_| Wish::GoOn).map(|_| ())
    }

    /// Waits for one outcome of each worker.
    fn wait(&self, watch: &mut dyn FnMut(&ServiceLive) -> Wish) -> Result<Tally, FleetError> {
        let mut all: Option<Tally> = None;
        let mut missing = self.workers.len();
        let mut is_stopped = false;
        let mut interrupted_at: Option<Instant> = None;
        let mut is_abandoned = false;
        let mut next_tick = Instant::now() + TICK;
        while missing > 0 {
            let wait = next_tick.saturating_duration_since(Instant::now());
            match self.outcomes.recv_timeout(wait) {
                Ok((_, ServiceOutcome::Died(error))) => return Err(FleetError::Loop(error)),
                Ok((
                    _,
                    ServiceOutcome::Connected(tally)
                    | ServiceOutcome::Done(tally)
                    | ServiceOutcome::Closed(tally),
                )) => {
                    missing -= 1;
                    match &mut all {
                        Some(all) => all.merge(&tally),
                        None => all = Some(*tally),
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(FleetError::Gone),
                Err(RecvTimeoutError::Timeout) => {
                    next_tick = Instant::now() + TICK;
                    let wish = watch(&live::sum_service(&self.cells));
                    if wish != Wish::GoOn && !is_stopped {
                        is_stopped = true;
                        self.workers.order(|_| ServiceCommand::Stop)?;
                    }
                    if wish == Wish::Interrupt {
                        let at = *interrupted_at.get_or_insert_with(Instant::now);
                        if !is_abandoned && at.elapsed() >= GRACE {
                            is_abandoned = true;
                            self.workers.order(|_| ServiceCommand::Abandon)?;
                        }
                    }
                    self.workers.check_alive()?;
                }
            }
        }
        all.ok_or(FleetError::Gone)
    }
}

/// After an interruption, what is on its way has so long.
const GRACE: Duration = Duration::from_millis(250);

const TICK: Duration = Duration::from_millis(50);

const OUTBOX_BYTES_MAX: usize = 1024 * 1024 * 1024;

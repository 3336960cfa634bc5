//! The fleet of a service load: workers that are connected, driven through phases and observed.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tidewire_net::ShardConfig;

use super::crew::{Crew, Endings, Reported, Wish};
use super::pulse::Pulse;
use super::{FleetError, preflight};
use crate::accounting::live::{self, ServiceCell, ServiceLive};
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

/// Threads with event loops and the users on them.
#[derive(Debug)]
pub struct ServiceFleet {
    setup: Arc<ServiceSetup>,
    workers: Crew<ServiceCommand>,
    outcomes: Receiver<(usize, ServiceReport)>,
    cells: Vec<Arc<ServiceCell>>,
    pulse: Pulse,
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
    /// Starts the workers, without connections.
    ///
    /// # Errors
    /// [`FleetError::Start`].
    pub fn start(setup: ServiceSetup) -> Result<Self, FleetError> {
        let setup = Arc::new(setup);
        let (sender, outcomes) = channel();
        let mut fleet = Self {
            setup,
            workers: Crew::new(Endings {
                stop: || ServiceCommand::Stop,
                abandon: || ServiceCommand::Abandon,
                quit: || ServiceCommand::Quit,
            }),
            outcomes,
            cells: Vec::new(),
            pulse: Pulse::start(),
        };
        preflight::make_room_for(fleet.setup.connections_max());
        let setup = Arc::clone(&fleet.setup);
        for index in 0..setup.workers.max(1) {
            let started = match &setup.own().dialogue {
                _ if setup.targets.len() > 1 => {
                    fleet.start_worker(index, Mixed::new(&setup), &sender)
                }
                DialogueKind::Http => fleet.start_worker(index, Http::default(), &sender),
                DialogueKind::Http2 => fleet.start_worker(index, Http2::new(&setup), &sender),
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
        sender: &Sender<(usize, ServiceReport)>,
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
            // The waiting bytes are this program's own: the longest request, and a few of each
            // connection.
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            ..ShardConfig::default()
        };
        self.workers
            .start(&config, worker, sender.clone(), ServiceReport::Died)?;
        self.cells.push(cell);
        Ok(())
    }

    /// The state that all workers share.
    #[must_use]
    pub fn setup(&self) -> &ServiceSetup {
        &self.setup
    }

    /// The time for which the generator's process has not run since the start of the fleet.
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

    /// Runs a phase, and waits until all of it is answered or abandoned.
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
        // The workers' connections are distributed evenly, whether they are open yet or not.
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
                revives: plan.revives,
                budget: budget.clone(),
                is_teardown: plan.is_teardown,
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
    fn wait(&mut self, watch: &mut dyn FnMut(&ServiceLive) -> Wish) -> Result<Tally, FleetError> {
        let mut all: Option<Tally> = None;
        let cells = &self.cells;
        let look = || watch(&live::sum_service(cells));
        self.workers.wait(
            &self.outcomes,
            SERVICE_TICK,
            look,
            |_, report| match report {
                ServiceReport::Died(error) => Err(FleetError::Loop(error)),
                ServiceReport::Connected(tally)
                | ServiceReport::Done(tally)
                | ServiceReport::Closed(tally) => {
                    match &mut all {
                        Some(all) => all.merge(&tally),
                        None => all = Some(*tally),
                    }
                    Ok(Reported::Done)
                }
            },
        )?;
        all.ok_or(FleetError::Gone)
    }
}

const SERVICE_TICK: Duration = Duration::from_millis(50);

const OUTBOX_BYTES_MAX: usize = 1024 * 1024 * 1024;

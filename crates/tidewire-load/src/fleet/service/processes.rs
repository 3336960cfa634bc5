//! The workers of a service load that are processes, on this or on other machines.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::super::crew::{Crew, Endings, Reported};
use super::super::lost::capital;
use super::super::process::{self, Process, publish};
use super::super::remote::{Ears, Listener, Remote};
use super::{FleetError, PhasePlan, SERVICE_TICK, Wish};
use crate::accounting::ended::Ended;
use crate::accounting::failure::Failure;
use crate::accounting::live::{self, LiveCell, ProcessesLive, ServiceCell, ServiceLive};
use crate::accounting::resources;
use crate::accounting::tally::Tally;
use crate::report::number;
use crate::worker::contract::CONTRACT;
use crate::worker::contract::load::{Load, Send, SendRhythm};
use crate::worker::contract::orders::Order;
use crate::worker::contract::words::{Hello, Word};
use crate::worker::pace::{Pace, Share, parts};
use crate::worker::rhythm::Rhythm;
use crate::worker::service::order::{ServiceReport, ServiceSetup};

/// The workers of a load that are processes, before they are started.
#[derive(Debug, Clone)]
pub struct Workers {
    /// The shell command that starts each.
    pub commands: Vec<String>,
    /// What all of them are told. The place of each is filled in for it.
    pub load: Load,
    /// Ends the load when a worker has ended; otherwise the others go on.
    pub stop_with_worker: bool,
}

/// Processes that carry out a load.
#[derive(Debug)]
pub(crate) struct Processes {
    crew: Crew<Order>,
    all: Vec<Process>,
    /// What each says about itself.
    cells: Vec<Arc<LiveCell>>,
    /// The users of each.
    users: Vec<u64>,
    steps: usize,
    /// What the current phase asks for.
    phase: Phase,
    notes: Vec<String>,
    stop_with_worker: bool,
}

/// The shares of the workers in a phase.
#[derive(Debug, Default)]
struct Phase {
    begin_ns: u64,
    longest_ns: Option<u64>,
    /// At given times: the share of each worker, and the most that it sends.
    shares: Vec<(Share, Option<u64>)>,
}

impl Processes {
    pub(super) fn start(
        setup: &mut ServiceSetup,
        workers: &Workers,
        figures: &[Arc<ServiceCell>],
        reports: &Sender<(usize, ServiceReport)>,
    ) -> Result<Self, FleetError> {
        let mut processes = Self {
            crew: Crew::new(Endings {
                stop: || Order::Stop,
                abandon: || Order::Abandon,
                quit: || Order::Quit,
            }),
            all: Vec::new(),
            cells: Vec::new(),
            users: Vec::new(),
            steps: setup.script.steps.len(),
            phase: Phase::default(),
            notes: Vec::new(),
            stop_with_worker: workers.stop_with_worker,
        };
        let here = resources::host_name();
        for (index, (command, figures)) in workers.commands.iter().zip(figures).enumerate() {
            let cell = Arc::new(LiveCell::default());
            let ears = Ears {
                index,
                relay: Arc::default(),
                epoch: setup.epoch,
                listener: Box::new(LoadListener {
                    index,
                    reports: reports.clone(),
                    cell: Arc::clone(&cell),
                    figures: Arc::clone(figures),
                }),
            };
            let remote = Remote::start(command, ears, &suits)?;
            let rss_bytes = remote.hello.rss_bytes;
            cell.rss_bytes.store(rss_bytes, Ordering::Relaxed);
            processes.all.push(Process::of(&remote, here.as_deref()));
            processes.crew.add(remote);
            processes.cells.push(cell);
        }
        processes.tell_terms(setup, &workers.load)?;
        Ok(processes)
    }

    /// Divides the users among the threads of all workers, and sends each its terms.
    fn tell_terms(&mut self, setup: &mut ServiceSetup, load: &Load) -> Result<(), FleetError> {
        let threads = self.all.iter().map(|process| process.hello.load_threads);
        setup.workers = threads.sum();
        let mut first_thread = 0;
        for process in &self.all {
            let own_threads = process.hello.load_threads;
            let users = setup.members(first_thread..first_thread + own_threads);
            let needed = users * setup.targets.len() as u64;
            if needed > process.hello.connections_max {
                return Err(FleetError::Worker {
                    name: process.name.clone(),
                    reason: format!(
                        "its share is {needed} connections, and its limit of open files allows {}: raise it \
                         (ulimit -n), or add a worker",
                        process.hello.connections_max
                    ),
                    is_mute: false,
                });
            }
            self.users.push(users);
            process.tell(Order::Load(Box::new(Load {
                contract: CONTRACT,
                zero_clock_ns: process.clock.zero_ns(),
                first_thread,
                own_threads,
                all_threads: setup.workers,
                ..load.clone()
            })));
            first_thread += own_threads;
        }
        Ok(())
    }

    pub(super) fn connect(&mut self) -> Result<(), FleetError> {
        self.phase = Phase::default();
        self.crew.order(|_| Order::Connect)
    }

    pub(super) fn close(&mut self) -> Result<(), FleetError> {
        self.phase = Phase::default();
        self.crew.order(|_| Order::Close)
    }

    pub(super) fn run(&mut self, plan: &PhasePlan, now_ns: u64) -> Result<(), FleetError> {
        let begin_ns = now_ns + HEAD_START.as_nanos() as u64;
        let members: Vec<u64> = (0..self.all.len())
            .map(|index| match self.crew.is_gone(index) {
                true => 0,
                false => self.users[index],
            })
            .collect();
        let requests = |index| plan.requests.map(|all| part_of(all, &members, index));
        let longest_ns = plan.longest.map(|longest| longest.as_nanos() as u64);
        self.phase = Phase {
            begin_ns,
            longest_ns,
            shares: Vec::new(),
        };
        let rhythm = match &plan.rhythm {
            Rhythm::Closed => SendRhythm::Closed,
            Rhythm::Open { pace, per_s } => {
                let share = |index| Share::of(pace.clone(), *per_s, &members, index);
                let all = 0..self.all.len();
                self.phase.shares = all.map(|index| (share(index), requests(index))).collect();
                match pace {
                    Pace::Stages(_) => SendRhythm::AsPlanned,
                    _ => SendRhythm::Open {
                        per_s: *per_s,
                        poisson: pace.is_random(),
                    },
                }
            }
            Rhythm::Each { .. } => SendRhythm::AsPlanned,
        };
        self.crew.order(|index| {
            Order::Send(Box::new(Send {
                begin_ns,
                longest_ns,
                requests: requests(index),
                members: members.clone(),
                index,
                rhythm,
                revives: plan.revives,
                is_teardown: plan.is_teardown,
            }))
        })
    }

    /// Waits for one outcome of each worker that has not ended.
    pub(super) fn wait(
        &mut self,
        reports: &Receiver<(usize, ServiceReport)>,
        figures: &[Arc<ServiceCell>],
        watch: &mut dyn FnMut(&ServiceLive) -> Wish,
        add: &mut dyn FnMut(Tally),
    ) -> Result<(), FleetError> {
        let has_lost = Cell::new((0..self.all.len()).any(|index| self.crew.is_gone(index)));
        let (all, cells, phase) = (&self.all, &self.cells, &self.phase);
        let (steps, users, notes) = (self.steps, &self.users, &mut self.notes);
        let stop_with_worker = self.stop_with_worker;
        let look = || {
            let mut live = live::sum_service(figures);
            live.processes = live::sum(cells).processes;
            match watch(&live) {
                Wish::GoOn if has_lost.get() && stop_with_worker => Wish::Stop,
                wish => wish,
            }
        };
        let take = |index: usize, report| match report {
            ServiceReport::Died(error) => Err(FleetError::Loop(error)),
            ServiceReport::Connected(tally)
            | ServiceReport::Done(tally)
            | ServiceReport::Closed(tally) => {
                let name = &all[index].name;
                notes.extend(phase.behind(name, index, &tally));
                add(*tally);
                Ok(Reported::Done)
            }
            ServiceReport::Ended { name, reason } => {
                has_lost.set(true);
                let connected = figures[index].get().connected;
                figures[index].set(ServiceLive::default());
                add(phase.lost(index, connected, steps));
                notes.push(format!(
                    "{} ended: {reason}. The load lacks its {} users since then; of this part of the load nothing \
                     that it had sent is counted, and all that was due from it counts as not sent.",
                    capital(&name),
                    users[index],
                ));
                Ok(Reported::Gone)
            }
        };
        self.crew.wait(reports, SERVICE_TICK, look, take)?;
        Ok(())
    }

    /// Whether the load ends, because a worker has ended, or all of them.
    pub(crate) fn is_short(&self) -> bool {
        let mut all = 0..self.all.len();
        match self.stop_with_worker {
            true => all.any(|index| self.crew.is_gone(index)),
            false => all.all(|index| self.crew.is_gone(index)),
        }
    }

    /// Their resources at this moment.
    pub(super) fn live(&self) -> ProcessesLive {
        live::sum(&self.cells).processes
    }

    /// The processor time so far of those on this machine.
    pub(crate) fn cpu_here(&self) -> Duration {
        process::cpu_here(&self.all, &self.cells)
    }

    /// The cores of their machines; `None` if all of them are on this one.
    pub(crate) fn cores_elsewhere(&self) -> Option<f64> {
        process::cores_elsewhere(&self.all)
    }

    /// Sentences for the report: who the workers are, and what happened to them.
    pub(crate) fn notes(&self) -> Vec<String> {
        let names: Vec<String> = self
            .all
            .iter()
            .zip(&self.users)
            .map(|(process, users)| format!("{} with {users} users", process.name))
            .collect();
        let about = format!(
            "The load came from {}. The clock of each is known to within {}.",
            names.join(", "),
            number::us(process::clock_error(&self.all).as_secs_f64() * 1e6)
        );
        std::iter::once(about)
            .chain(self.notes.iter().cloned())
            .collect()
    }
}

impl Phase {
    /// What was due from a worker by the end of the phase.
    fn due_from(&self, index: usize) -> Option<(&Share, u64, u64)> {
        let (share, most) = self.shares.get(index)?;
        let longest_ns = self.longest_ns?;
        let due = share.due_in(longest_ns);
        Some((share, due.min(most.unwrap_or(u64::MAX)), longest_ns))
    }

    /// The counts of a worker that has ended: its connections are lost, and its share was not sent.
    fn lost(&self, index: usize, connected: u64, steps: usize) -> Tally {
        let mut tally = Tally::new(self.begin_ns, steps);
        let ended = Ended {
            how: Failure::WorkerEnded.name(),
            was_ready: true,
            ..Ended::default()
        };
        if connected > 0 {
            tally.ended.add_many(ended, connected);
        }
        if let Some((share, due, longest_ns)) = self.due_from(index) {
            let end_ns = self.begin_ns + longest_ns;
            tally.due = due;
            tally.stopped_ns = end_ns;
            for (number, count) in parts(due) {
                let intended_ns = self.begin_ns.saturating_add(share.intended_ns(number));
                tally.leave_unsent(intended_ns, end_ns, count);
            }
        }
        tally
    }

    /// The note about a worker that did not send what was due, although it had connections for it.
    fn behind(&self, name: &str, index: usize, tally: &Tally) -> Option<String> {
        self.shares.get(index)?;
        let own_fault = tally.requests.unsent.saturating_sub(tally.starved);
        let is_behind = own_fault as f64 > tally.due as f64 * BEHIND_PART;
        is_behind.then(|| {
            format!(
                "{} fell behind: it sent {} of {} requests that were due.",
                capital(name),
                number::grouped(tally.requests.sent),
                number::grouped(tally.due)
            )
        })
    }
}

/// Whether a worker can carry out a load. Its options may mean something else in another version.
fn suits(hello: &Hello) -> Result<(), String> {
    if hello.load_threads == 0 {
        return Err(format!(
            "a {} worker opens connections of `tidewire bench` alone: use `tidewire worker` for a load",
            hello.language
        ));
    }
    let own = env!("CARGO_PKG_VERSION");
    match hello.version == own {
        true => Ok(()),
        false => Err(format!(
            "it is Tidewire {}, and this program is {own}: a load needs the same version on both sides",
            hello.version
        )),
    }
}

/// The part of a number that belongs to one of several members; all parts together are the whole.
fn part_of(all: u64, members: &[u64], index: usize) -> u64 {
    let sum = |members: &[u64]| members.iter().map(|count| u128::from(*count)).sum::<u128>();
    let (whole, before) = (sum(members).max(1), sum(&members[..index]));
    let up_to = |members: u128| u128::from(all) * members / whole;
    let part = up_to(before + u128::from(members[index])) - up_to(before);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// What hears the words of a worker of a load.
struct LoadListener {
    index: usize,
    reports: Sender<(usize, ServiceReport)>,
    cell: Arc<LiveCell>,
    figures: Arc<ServiceCell>,
}

impl Listener for LoadListener {
    fn hear(&mut self, word: Word) -> Result<(), String> {
        let report = match word {
            Word::Live(live) => {
                publish(&self.cell, &live);
                return Ok(());
            }
            Word::Loading(loading) => {
                publish(&self.cell, &loading.live);
                self.figures.set(loading.load);
                return Ok(());
            }
            Word::Counted(counted) => {
                publish(&self.cell, &counted.live);
                ServiceReport::Done(counted.tally)
            }
            Word::Closed => ServiceReport::Closed(Box::new(Tally::new(0, 1))),
            _ => return Err("it said a word of a bench in a service load".to_owned()),
        };
        // A fleet that has ended waits for no report.
        let _ = self.reports.send((self.index, report));
        Ok(())
    }

    fn end(&mut self, name: String, reason: String) {
        let report = ServiceReport::Ended { name, reason };
        let _ = self.reports.send((self.index, report));
    }
}

/// All workers begin together: this long after the order is written.
const HEAD_START: Duration = Duration::from_millis(100);

/// A worker that leaves out more than this part of its share is named.
const BEHIND_PART: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_exact_together() {
        for members in [vec![3, 3, 4], vec![1, 0, 5], vec![7], vec![1; 13]] {
            for all in [0, 1, 10, 1_001, u64::MAX] {
                let parts = (0..members.len()).map(|index| part_of(all, &members, index));
                assert_eq!(parts.map(u128::from).sum::<u128>(), u128::from(all));
            }
        }
        assert_eq!(part_of(5, &[0, 0], 1), 0);
    }

    #[test]
    fn what_was_due_from_a_lost_worker_was_not_sent() {
        let pace = Pace::Constant { per_s: 100.0 };
        let share = Share::of(pace, 100.0, &[3, 1], 1);
        let phase = Phase {
            begin_ns: 5,
            longest_ns: Some(2_000_000_000),
            shares: vec![(share.clone(), None), (share, Some(10))],
        };
        let lost = phase.lost(0, 7, 1);
        assert_eq!(
            (lost.due, lost.requests.unsent, lost.ended.ready()),
            (50, 50, 7)
        );
        assert_eq!(phase.lost(1, 0, 1).requests.unsent, 10);
        assert_eq!(Phase::default().lost(0, 1, 1).due, 0);
    }
}

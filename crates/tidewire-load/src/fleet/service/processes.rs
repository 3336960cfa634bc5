//! The workers of a service load that are processes, on this or on other machines.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use crate::accounting::windows::EndedWindow;
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
    /// The terms of all of them; the place of each worker is added when they are sent.
    pub load: Load,
    /// Ends the load when a worker has ended; otherwise the others go on.
    pub stop_with_worker: bool,
}

/// Processes that carry out a load.
#[derive(Debug)]
pub(crate) struct Processes {
    crew: Crew<Order>,
    all: Vec<Process>,
    /// The resources of each.
    cells: Vec<Arc<LiveCell>>,
    /// The users of each.
    users: Vec<u64>,
    steps: usize,
    /// The current order.
    asked: Asked,
    notes: Vec<String>,
    stop_with_worker: bool,
}

/// An order, as far as the outcome of a worker is compared with it.
#[derive(Debug, Default)]
struct Asked {
    /// The answer is that all connections are closed, not counts.
    is_close: bool,
    begin_ns: u64,
    longest_ns: Option<u64>,
    /// The share of each worker; empty for an order that sends no requests.
    shares: Vec<Due>,
}

/// A worker's share of the requests of a phase.
#[derive(Debug)]
struct Due {
    tempo: DueTempo,
    /// The most that it sends.
    most: Option<u64>,
}

/// When it is due.
#[derive(Debug)]
enum DueTempo {
    /// At no given time.
    Closed,
    /// At given times, on any connection.
    Open(Share),
    /// At given times on each of its connections.
    Each { per_s: f64, users: u64 },
}

impl Processes {
    pub(super) fn start(
        setup: &mut ServiceSetup,
        workers: &Workers,
        figures: &[Arc<ServiceCell>],
        (reports, stop): (&Sender<(usize, ServiceReport)>, &AtomicBool),
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
            asked: Asked::default(),
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
            let remote = Remote::start(command, ears, &suits, stop)?;
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
            let own = first_thread..first_thread + own_threads;
            let needed = setup.connections_of(own.clone());
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
            self.users.push(setup.members(own));
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
        self.asked = Asked::default();
        self.crew.order(|_| Order::Connect)
    }

    pub(super) fn close(&mut self) -> Result<(), FleetError> {
        self.asked = Asked {
            is_close: true,
            ..Asked::default()
        };
        self.crew.order(|_| Order::Close)
    }

    /// Orders a phase. `now_ns` is asked for when all of it has been computed.
    pub(super) fn run(
        &mut self,
        plan: &PhasePlan,
        now_ns: impl Fn() -> u64,
    ) -> Result<(), FleetError> {
        let members: Vec<u64> = (0..self.all.len())
            .map(|index| match self.crew.is_gone(index) {
                true => 0,
                false => self.users[index],
            })
            .collect();
        let due = |index: usize| Due {
            tempo: match &plan.rhythm {
                _ if plan.is_teardown => DueTempo::Closed,
                Rhythm::Closed => DueTempo::Closed,
                Rhythm::Open { pace, per_s } => {
                    DueTempo::Open(Share::of(pace.clone(), *per_s, &members, index))
                }
                Rhythm::Each { per_s } => DueTempo::Each {
                    per_s: *per_s,
                    users: members[index],
                },
            },
            most: plan.requests.map(|all| part_of(all, &members, index)),
        };
        let rhythm = match &plan.rhythm {
            Rhythm::Closed => SendRhythm::Closed,
            Rhythm::Open { pace, per_s } if !matches!(pace, Pace::Stages(_)) => SendRhythm::Open {
                per_s: *per_s,
                poisson: pace.is_random(),
            },
            Rhythm::Open { .. } | Rhythm::Each { .. } => SendRhythm::AsPlanned,
        };
        let shares: Vec<Due> = (0..self.all.len()).map(due).collect();
        let longest_ns = plan.longest.map(|longest| longest.as_nanos() as u64);
        // The order has to arrive before the beginning.
        let head_start = HEAD_START + 4 * process::clock_error(&self.all);
        let begin_ns = now_ns() + head_start.as_nanos() as u64;
        self.crew.order(|index| {
            Order::Send(Box::new(Send {
                begin_ns,
                longest_ns,
                requests: shares[index].most,
                members: members.clone(),
                index,
                rhythm,
                revives: plan.revives,
                is_teardown: plan.is_teardown,
            }))
        })?;
        self.asked = Asked {
            is_close: false,
            begin_ns,
            longest_ns,
            shares,
        };
        Ok(())
    }

    /// Waits for one outcome of each worker that has not ended.
    pub(super) fn wait(
        &mut self,
        reports: &Receiver<(usize, ServiceReport)>,
        figures: &[Arc<ServiceCell>],
        watch: &mut dyn FnMut(&ServiceLive) -> Wish,
        add: &mut dyn FnMut(Tally),
    ) -> Result<(), FleetError> {
        // The figures of the order before are not those of this one.
        for cell in figures {
            let connected = cell.get().connected;
            cell.set(ServiceLive {
                connected,
                ..ServiceLive::default()
            });
        }
        let gone = (0..self.all.len()).filter(|index| self.crew.is_gone(*index));
        let lost_users = Cell::new(gone.map(|index| self.users[index]).sum::<u64>());
        let (all, cells, asked) = (&self.all, &self.cells, &self.asked);
        let (steps, users, notes) = (self.steps, &self.users, &mut self.notes);
        let stop_with_worker = self.stop_with_worker;
        let look = || {
            let mut live = live::sum_service(figures);
            live.processes = live::sum(cells).processes;
            live.gone += lost_users.get();
            match watch(&live) {
                Wish::GoOn if lost_users.get() > 0 && stop_with_worker => Wish::Stop,
                wish => wish,
            }
        };
        let take = |index: usize, report| {
            let is_closed = matches!(report, ServiceReport::Closed(_));
            match report {
                ServiceReport::Died(error) => Err(FleetError::Loop(error)),
                ServiceReport::Connected(tally)
                | ServiceReport::Done(tally)
                | ServiceReport::Closed(tally)
                    if is_closed == asked.is_close && (is_closed || tally.has_steps(steps)) =>
                {
                    notes.extend(asked.behind(&all[index].name, index, &tally));
                    add(*tally);
                    Ok(Reported::Done)
                }
                ServiceReport::Ended { name, reason } => {
                    // One without users may be lost, too.
                    lost_users.set(lost_users.get() + users[index].max(1));
                    let connected = figures[index].get().connected;
                    figures[index].set(ServiceLive::default());
                    let name = capital(&name);
                    if asked.is_close {
                        notes.push(format!(
                            "{name} ended while it closed its connections: {reason}."
                        ));
                        return Ok(Reported::Gone);
                    }
                    add(asked.lost(index, connected, steps));
                    notes.push(format!(
                        "{name} ended: {reason}. The load lacks its {} since then. What it had sent since its last answer is \
                         not counted, and what it had to send in this time counts as not sent.",
                        number::users(users[index]),
                    ));
                    Ok(Reported::Gone)
                }
                _ => Err(FleetError::Worker {
                    name: all[index].name.clone(),
                    reason: "it gave an answer that does not belong to its order".to_owned(),
                    is_mute: false,
                }),
            }
        };
        self.crew.wait(reports, SERVICE_TICK, look, take)?;
        Ok(())
    }

    /// Workers that have ended.
    pub(crate) fn lost(&self) -> usize {
        let all = 0..self.all.len();
        all.filter(|index| self.crew.is_gone(*index)).count()
    }

    /// The most by which a round trip delays the figures of a worker.
    pub(crate) fn delay(&self) -> Duration {
        2 * process::clock_error(&self.all)
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
            .map(|(process, users)| format!("{} with {}", process.name, number::users(*users)))
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

impl Asked {
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
        let Some(share) = self.shares.get(index) else {
            return tally;
        };
        let due = share.count(self.longest_ns);
        match (&share.tempo, self.longest_ns) {
            (DueTempo::Open(times), Some(longest_ns)) => {
                let end_ns = self.begin_ns.saturating_add(longest_ns);
                tally.stopped_ns = end_ns;
                tally.due = due;
                for (number, count) in parts(due) {
                    let intended_ns = self.begin_ns.saturating_add(times.intended_ns(number));
                    tally.leave_unsent(intended_ns, end_ns, count);
                }
            }
            (DueTempo::Closed, _) => tally.requests.unsent = due,
            _ => (tally.due, tally.requests.unsent) = (due, due),
        }
        tally
    }

    /// The note about a worker that did not send what was due, although it had connections for it.
    fn behind(&self, name: &str, index: usize, tally: &Tally) -> Option<String> {
        self.shares
            .get(index)
            .filter(|due| matches!(due.tempo, DueTempo::Open(_)))?;
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

impl Due {
    /// The number of requests, as far as the plan says it.
    fn count(&self, longest_ns: Option<u64>) -> u64 {
        let planned = match (&self.tempo, longest_ns) {
            (DueTempo::Open(share), Some(longest_ns)) => Some(share.due_in(longest_ns)),
            (DueTempo::Each { per_s, users }, Some(longest_ns)) => {
                Some((*users as f64 * per_s * longest_ns as f64 / 1e9).round() as u64)
            }
            _ => None,
        };
        match (planned, self.most) {
            (Some(planned), Some(most)) => planned.min(most),
            (planned, most) => planned.or(most).unwrap_or(0),
        }
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
    if hello.load_threads > THREADS_MAX {
        return Err(format!(
            "it says that it has {} threads for a load; the most is {THREADS_MAX}",
            hello.load_threads
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

/// Receives the words of a process in a load.
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
                let mut load = loading.load;
                load.window = load.window.filter(EndedWindow::is_possible);
                self.figures.set(load);
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

/// Threads of a worker.
const THREADS_MAX: usize = 4_096;

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
        let share = || Share::of(Pace::Constant { per_s: 100.0 }, 100.0, &[3, 1], 1);
        let due = |tempo, most| Due { tempo, most };
        let asked = |longest_ns| Asked {
            begin_ns: 5,
            longest_ns,
            shares: vec![
                due(DueTempo::Open(share()), None),
                due(DueTempo::Open(share()), Some(10)),
                due(DueTempo::Closed, Some(7)),
                due(
                    DueTempo::Each {
                        per_s: 5.0,
                        users: 3,
                    },
                    None,
                ),
            ],
            ..Asked::default()
        };
        let unsent = |asked: &Asked| {
            let lost = (0..4).map(|index| asked.lost(index, 0, 1).requests.unsent);
            lost.collect::<Vec<u64>>()
        };
        let for_2_s = asked(Some(2_000_000_000));
        assert_eq!(unsent(&for_2_s), [50, 10, 7, 30]);
        assert_eq!(unsent(&asked(None)), [0, 10, 7, 0]);
        let lost = for_2_s.lost(0, 9, 1);
        assert_eq!((lost.due, lost.ended.ready()), (50, 9));
        assert_eq!(Asked::default().lost(0, 1, 1).due, 0);
    }
}

//! A service load in a worker's process: `tidewire load` with several workers.

use std::time::Duration;

use crate::accounting::live::{Live, ServiceLive};
use crate::accounting::tally::Tally;
use crate::fleet::Wish;
use crate::fleet::service::{PhasePlan, Place, ServiceFleet};
use crate::worker::contract::load::{Load, Send, SendRhythm};
use crate::worker::pace::Pace;
use crate::worker::rhythm::Rhythm;
use crate::worker::service::order::ServiceSetup;

/// Makes the plan of a load from its terms.
pub type Planner = fn(&Load) -> Result<Planned, String>;

/// A plan as far as a worker needs it.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The users, their target, and their requests.
    pub setup: ServiceSetup,
    /// The rate.
    pub rhythm: Rhythm,
}

/// Observes the figures of an order, and decides whether it goes on.
pub(super) type WatchLoad<'a> = &'a mut dyn FnMut(&ServiceLive) -> Wish;

/// The load of a worker.
#[derive(Debug)]
pub(super) struct LoadWork {
    fleet: ServiceFleet,
    rhythm: Rhythm,
    connected: u64,
}

impl LoadWork {
    pub(super) fn begin(planned: Planned, terms: &Load) -> Result<Self, String> {
        let Planned { mut setup, rhythm } = planned;
        setup.workers = terms.all_threads.max(1);
        let threads = terms.first_thread..terms.first_thread.saturating_add(terms.own_threads);
        let fleet = ServiceFleet::start_threads(setup, threads);
        Ok(Self {
            fleet: fleet.map_err(|error| error.to_string())?,
            rhythm,
            connected: 0,
        })
    }

    pub(super) fn connect(&mut self, watch: WatchLoad<'_>) -> Result<Tally, String> {
        let tally = self
            .fleet
            .connect(watch)
            .map_err(|error| error.to_string())?;
        self.connected = tally.opened.saturating_sub(tally.ended.ready());
        Ok(tally)
    }

    pub(super) fn send(&mut self, send: &Send, watch: WatchLoad<'_>) -> Result<Tally, String> {
        if send.index >= send.members.len() {
            return Err("the order names no members of this worker".to_owned());
        }
        let plan = PhasePlan {
            rhythm: match send.rhythm {
                SendRhythm::AsPlanned => self.rhythm.clone(),
                SendRhythm::Closed => Rhythm::Closed,
                SendRhythm::Open { per_s, poisson } => Rhythm::Open {
                    pace: Pace::at(per_s, poisson, self.fleet.setup().seed),
                    per_s,
                },
            },
            longest: send.longest_ns.map(Duration::from_nanos),
            requests: send.requests,
            revives: send.revives,
            is_teardown: send.is_teardown,
        };
        let place = Place {
            begin_ns: send.begin_ns,
            members: send.members.clone(),
            index: send.index,
        };
        let connected = &mut self.connected;
        let mut look = |now: &ServiceLive| {
            *connected = now.connected;
            watch(now)
        };
        let tally = self.fleet.run_part(&plan, &place, &mut look);
        tally.map_err(|error| error.to_string())
    }

    pub(super) fn close(&mut self) -> Result<(), String> {
        self.fleet.close().map_err(|error| error.to_string())
    }

    /// The figures between two orders.
    pub(super) fn live(&self) -> Live {
        Live {
            connected: self.connected,
            ..Live::default()
        }
    }
}

//! A fan-out over several workers, from the side of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::voice::{Voice, sleep_until};
use crate::fleet::relay::NOBODY;
use crate::worker::contract::orders::{Activity, Run};
use crate::worker::contract::words::Word;
use crate::worker::websocket::fan_out::{FanOut, UNKNOWN};

/// The other workers of a fan-out.
#[derive(Debug, Clone)]
pub(super) struct Others {
    pub(super) plan: Arc<FanOut>,
    /// The slot of their progress.
    pub(super) slot: usize,
}

/// The connection of a fan-out here with the other workers.
pub(super) struct FanOutLink {
    others: Others,
    is_over: Arc<AtomicBool>,
    teller: Option<std::thread::JoinHandle<()>>,
}

impl FanOutLink {
    /// Begins to report the progress of this worker for the other workers; `None` if the activity is no
    /// fan-out.
    pub(super) fn begin(
        plan: Option<&Arc<FanOut>>,
        run: &Run,
        voice: &Voice,
        begin_ns: i64,
    ) -> Option<Self> {
        let (Some(plan), Activity::FanOut { publishes, .. }) = (plan, &run.activity) else {
            return None;
        };
        let others = Others {
            plan: Arc::clone(plan),
            slot: plan.workers() - 1,
        };
        let members: u64 = run.members.iter().sum();
        let own = run.members.get(run.index).copied().unwrap_or(0);
        if !publishes || members == own {
            plan.set_received(others.slot, UNKNOWN);
        }
        if !publishes {
            plan.publish_elsewhere();
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let teller = std::thread::spawn({
            let (plan, voice) = (Arc::clone(plan), voice.clone());
            let (is_over, publishes) = (Arc::clone(&is_over), *publishes);
            move || tell(&plan, &voice, &is_over, publishes, begin_ns)
        });
        Some(Self {
            others,
            is_over,
            teller: Some(teller),
        })
    }

    pub(super) fn others(&self) -> Others {
        self.others.clone()
    }

    pub(super) fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(teller) = self.teller.take() {
            // The thread ends after its last report.
            let _ = teller.join();
        }
    }
}

/// Reports to the controller how far the subscribers here are; the publisher's worker reports the total
/// number of publications instead.
fn tell(plan: &FanOut, voice: &Voice, is_over: &AtomicBool, publishes: bool, begin_ns: i64) {
    sleep_until(begin_ns);
    // For the slot of the other workers.
    plan.add_ready();
    let (mut told, mut has_told_total) = (0, false);
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        if publishes {
            if let Some(publications) = plan.total().filter(|_| !has_told_total) {
                has_told_total = true;
                voice.say(&Word::Published { publications });
            }
        } else {
            let received = plan.received_by_all().min(NOBODY);
            if received > told {
                told = received;
                voice.say(&Word::Progress { received });
            }
        }
        if is_last {
            return;
        }
        std::thread::sleep(TELL_EVERY);
    }
}

/// Between two looks at the progress of a fan-out.
const TELL_EVERY: Duration = Duration::from_micros(500);

//! Workers that have ended or fallen behind: what counts of their share, and how a report names them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::accounting::failure::Failure;
use crate::accounting::live::LiveCell;
use crate::accounting::outcome::Ran;
use crate::report::number;
use crate::verdict::evidence::PaceKept;
use crate::worker::order::Activity;

/// The part of a worker that has ended during an activity: its connections are broken, and what it had
/// not reported as confirmed counts as not sent.
pub(super) fn lost_share(
    activity: &Activity,
    members: u64,
    cell: &LiveCell,
    longest: Option<Duration>,
) -> Ran {
    let known = cell.confirmed.load(Ordering::Relaxed);
    let known = if activity.sends() { known } else { 0 };
    let mut lost = Ran {
        members,
        offered: known,
        confirmed: known,
        answered: activity.expects_replies(),
        ..Ran::default()
    };
    lost.broken.add_many(Failure::WorkerEnded, members);
    if let (Activity::Paced { pace, .. }, Some(longest)) = (activity, longest) {
        lost.pace = Some(PaceKept {
            planned_per_s: pace.per_s(),
            poisson: pace.is_poisson(),
            planned: pace.due_in(longest.as_nanos() as u64),
            released: known,
            offered: known,
            window_s: longest.as_secs_f64(),
            ..PaceKept::default()
        });
    }
    lost
}

/// The note about a worker that did not keep its share of a rate.
pub(super) fn behind(name: &str, ran: &Ran) -> Option<String> {
    let pace = ran
        .pace
        .filter(|pace| !pace.is_kept_by(pace.offered, pace.offered_s))?;
    let (offered, planned) = (number::grouped(pace.offered), number::grouped(pace.planned));
    Some(format!(
        "{} fell behind: it sent {offered} of {planned} messages that were due.",
        capital(name)
    ))
}

pub(super) fn capital(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

//! Waiting on the caller's thread for what a broker answers later.

use crate::topics::broker::{BrokerAnswer, Done, Refusal, Ticket, TicketOutcome, Tickets};
use crate::topics::publication::Published;
use std::sync::mpsc;

/// The result of a question, converted from the outcome of its ticket.
pub(crate) trait FromDone: Sized {
    fn from_done(done: Done) -> Option<Self>;
}

impl FromDone for Published {
    fn from_done(done: Done) -> Option<Self> {
        match done {
            Done::Published(published) => Some(published),
            _ => None,
        }
    }
}

impl FromDone for bool {
    fn from_done(done: Done) -> Option<Self> {
        match done {
            Done::Forgotten(was_there) => Some(was_there),
            _ => None,
        }
    }
}

impl FromDone for () {
    fn from_done(done: Done) -> Option<Self> {
        matches!(done, Done::Prepared | Done::Told).then_some(())
    }
}

/// Asks a broker, and waits if it answers later. A ticket is always settled, so this ends.
pub(crate) fn wait<T: FromDone, E: From<Refusal>>(
    ask: impl FnOnce(Tickets<'_>) -> BrokerAnswer<Result<T, E>>,
) -> Result<T, E> {
    // An answer at once needs no channel.
    let mut channel = None;
    let mut tickets = || {
        let (sender, _) = channel.get_or_insert_with(mpsc::channel::<TicketOutcome>);
        let sender = sender.clone();
        Ticket::of_caller(move |outcome| {
            // Who asked waits for it.
            let _ = sender.send(outcome);
        })
    };
    if let BrokerAnswer::Now(result) = ask(&mut tickets) {
        return result;
    }
    let outcome = channel.and_then(|(_, outcomes)| outcomes.recv().ok());
    Ok(answer_of(outcome.unwrap_or(Err(Refusal::Unknown)))?)
}

/// The result of a caller's question, from the outcome of its ticket.
pub(crate) fn answer_of<T: FromDone>(outcome: TicketOutcome) -> Result<T, Refusal> {
    outcome.and_then(|done| T::from_done(done).ok_or(Refusal::Unknown))
}

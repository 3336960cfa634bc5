//! Waiting on the caller's thread for what a broker answers later.

use crate::topics::broker::{Answer, Done, Outcome, Refusal, Ticket, Tickets};
use crate::topics::publication::Published;
use std::sync::mpsc;

/// What a ticket brings for a question.
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
    ask: impl FnOnce(Tickets<'_>) -> Answer<Result<T, E>>,
) -> Result<T, E> {
    // An answer at once needs no channel.
    let mut channel = None;
    let mut tickets = || {
        let (sender, _) = channel.get_or_insert_with(mpsc::channel::<Outcome>);
        let sender = sender.clone();
        Ticket::of_caller(move |outcome| {
            // Who asked waits for it.
            let _ = sender.send(outcome);
        })
    };
    if let Answer::Now(result) = ask(&mut tickets) {
        return result;
    }
    let outcome = channel.and_then(|(_, outcomes)| outcomes.recv().ok());
    Ok(answer_of(outcome.unwrap_or(Err(Refusal::Unknown)))?)
}

/// What an outcome says to the question of a caller.
pub(crate) fn answer_of<T: FromDone>(outcome: Outcome) -> Result<T, Refusal> {
    outcome.and_then(|done| T::from_done(done).ok_or(Refusal::Unknown))
}

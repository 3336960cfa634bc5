//! Late answers: tickets, and the outcomes that settle them.

use crate::model::callback::call_back;
use crate::model::inbox::Inbox;
use crate::topics::broker::ProducerPlace;
use crate::topics::error::PublishError;
use crate::topics::publication::Published;
use std::fmt;
use std::sync::Arc;

/// The reaction of a broker to a question: the answer, or that the ticket receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokerAnswer<T> {
    Now(T),
    /// The ticket is settled with it, exactly once.
    Later,
}

/// Why a broker did not do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has too much to do; nothing was done.
    Busy,
    /// It does not answer; nothing was done.
    Unavailable,
    /// It was asked and has not answered: it may have been done.
    Unknown,
}

/// A late answer of a broker.
pub(crate) type TicketOutcome = Result<Done, Refusal>;

/// The result of a broker's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Published(Published),
    /// The topic is ready: asked again, the broker answers at once.
    Prepared,
    /// The other servers do it, or will.
    Told,
    /// Whether there was anything to forget.
    Forgotten(bool),
    /// A producer is this connection's.
    ProducerOpened(ProducerPlace),
    /// A later connection of the same client has opened the producer before.
    ProducerSuperseded,
    /// Whether the number is remembered; if not, the producer was opened again.
    ProducerKept(bool),
}

/// Makes the ticket of a question, if the answer follows later.
pub(crate) type Tickets<'a> = &'a mut dyn FnMut() -> Ticket;

/// The receiver of an answer: it is called once, also if the ticket is dropped.
pub(crate) struct Ticket {
    holder: Option<Holder>,
}

enum Holder {
    Shard(Arc<Inbox<(u64, TicketOutcome)>>, u64),
    Caller(Box<dyn FnOnce(TicketOutcome) + Send>),
}

impl Ticket {
    /// The ticket of an operation of a shard, which looks into its inbox in every turn.
    pub(crate) fn of_shard(inbox: &Arc<Inbox<(u64, TicketOutcome)>>, number: u64) -> Self {
        Self {
            holder: Some(Holder::Shard(Arc::clone(inbox), number)),
        }
    }

    /// The ticket of any thread. `done` is called on the broker's thread and must not block.
    pub(crate) fn of_caller(done: impl FnOnce(TicketOutcome) + Send + 'static) -> Self {
        Self {
            holder: Some(Holder::Caller(Box::new(done))),
        }
    }

    /// Reports the outcome to the holder.
    pub(crate) fn settle(mut self, outcome: TicketOutcome) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: TicketOutcome) {
        match self.holder.take() {
            Some(Holder::Shard(inbox, number)) => inbox.push((number, outcome)),
            Some(Holder::Caller(done)) => call_back(|| done(outcome)),
            None => {}
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.tell(Err(Refusal::Unknown));
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ticket(..)")
    }
}

impl From<Refusal> for PublishError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy => Self::Busy,
            Refusal::Unavailable => Self::Unavailable,
            Refusal::Unknown => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_ticket_is_settled_once_also_when_it_is_dropped() {
        let (sender, outcomes) = mpsc::channel();
        let ticket = |sender: mpsc::Sender<TicketOutcome>| {
            Ticket::of_caller(move |outcome| sender.send(outcome).expect("the test waits"))
        };
        ticket(sender.clone()).settle(Ok(Done::Prepared));
        drop(ticket(sender));
        let outcomes: Vec<TicketOutcome> = outcomes.iter().collect();
        assert_eq!(outcomes, [Ok(Done::Prepared), Err(Refusal::Unknown)]);
    }
}

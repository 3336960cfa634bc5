//! Tickets of connections that the application hands over.

use std::fmt;
use std::sync::Arc;

/// A number of the application's own for a connection that it hands over.
#[derive(Clone)]
pub struct AdoptionTicket(Arc<Ticket>);

struct Ticket {
    number: u64,
    on_end: Box<dyn Fn(u64) + Send + Sync>,
}

impl AdoptionTicket {
    /// Calls `on_end` with the number when the server needs the ticket no more: the connection was refused or lost before it became
    /// a session, or the session has ended and its last event was handled.
    pub fn new(number: u64, on_end: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Ticket {
            number,
            on_end: Box::new(on_end),
        }))
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        (self.on_end)(self.number);
    }
}

impl fmt::Debug for AdoptionTicket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("AdoptionTicket")
            .field(&self.0.number)
            .finish()
    }
}

impl PartialEq for AdoptionTicket {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for AdoptionTicket {}

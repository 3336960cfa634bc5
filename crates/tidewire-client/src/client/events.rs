//! Iteration over events, one at a time.

use crate::client::Client;
use crate::event::{Batch, Event};

/// The events of a client, one at a time.
#[derive(Debug)]
pub struct Events {
    client: Client,
    batch: Option<Batch>,
}

impl Events {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            batch: None,
        }
    }

    /// Waits for the next event; `None` when the client is closed and no event is left.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.batch.as_mut().and_then(Iterator::next) {
                return Some(event);
            }
            self.batch = Some(self.client.next_batch().await?);
        }
    }
}

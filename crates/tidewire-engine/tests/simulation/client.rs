//! One connection of a simulated client: JSON messages both ways.

use serde_json::Value;
use tidewire_testkit::simulation::ClientEnd;
use tidewire_testkit::websocket::{Said, SimulatedClient};

pub(crate) struct Connection {
    client: SimulatedClient,
    /// The server has ended it, well or not.
    pub(crate) is_over: bool,
}

impl Connection {
    /// Sends the upgrade request.
    pub(crate) fn open(end: ClientEnd) -> Self {
        Self {
            client: SimulatedClient::open(end, &[]),
            is_over: false,
        }
    }

    pub(crate) fn end(&self) -> &ClientEnd {
        &self.client.end
    }

    pub(crate) fn bytes_received(&self) -> u64 {
        self.client.bytes_received
    }

    pub(crate) fn send(&self, message: &Value) {
        self.client.send(message);
    }

    /// The messages that have arrived since the last call.
    pub(crate) fn receive(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        for said in self.client.receive() {
            match said {
                Said::Close(..) => self.is_over = true,
                Said::Ping(_) | Said::Pong(_) => {}
                message => messages.push(message.json()),
            }
        }
        self.is_over |= self.client.end.ended().is_some();
        messages
    }
}

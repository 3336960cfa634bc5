//! Somebody who sends the worst messages that the protocol allows.

use super::client::Connection;
use super::hostile::{FULL, worst};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::Value;
use std::rc::Rc;
use tidewire_testkit::simulation::ClientEnd;
use tidewire_wire::envelope::SystemType;

/// A message of more bytes takes too long in small pieces.
const MESSAGE_BYTES_MAX: usize = 100_000;

pub(crate) struct Intruder {
    messages: Rc<[Value]>,
    /// The one that it has now.
    connection: Option<Connection>,
}

impl Default for Intruder {
    fn default() -> Self {
        thread_local! {
            static MESSAGES: Rc<[Value]> = SystemType::ALL
                .iter()
                .flat_map(|system| worst(*system, FULL))
                .filter(|message| message.to_string().len() <= MESSAGE_BYTES_MAX)
                .collect();
        }
        Self {
            messages: MESSAGES.with(Rc::clone),
            connection: None,
        }
    }
}

impl Intruder {
    /// Does something, now and then, and ignores the answers.
    pub(crate) fn act(&mut self, rng: &mut StdRng, connect: impl FnOnce() -> ClientEnd) {
        let Some(connection) = &mut self.connection else {
            self.connection = Some(Connection::open(connect()));
            return;
        };
        drop(connection.receive());
        match rng.random_range(0..20) {
            0..2 => connection.send(self.messages.choose(rng).expect("messages")),
            2 => self.leave(),
            _ => {}
        }
    }

    pub(crate) fn leave(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.end().reset();
        }
    }
}

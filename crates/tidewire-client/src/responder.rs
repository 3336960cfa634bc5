//! Answers to the server's calls.

use crate::check::{check_payload, check_text};
use crate::command::Command;
use crate::error::Error;
use crate::outbox::Outbox;
use std::sync::Arc;
use tidewire_wire::session::{CallError, TYPE_BYTES_MAX};

/// Answers a call of the server's. Dropped without an answer it tells that the application failed.
#[derive(Debug)]
pub struct Responder {
    outbox: Arc<Outbox>,
    session: u32,
    correlation_id: Option<String>,
}

impl Responder {
    pub(crate) fn new(outbox: Arc<Outbox>, session: u32, correlation_id: String) -> Self {
        Self {
            outbox,
            session,
            correlation_id: Some(correlation_id),
        }
    }

    /// Answers with JSON text.
    ///
    /// # Errors
    /// It is not JSON, or there is no room: then the server is told that the application failed. A lost connection is
    /// no error: its calls ended with it.
    pub fn respond(mut self, payload: &str) -> Result<(), Error> {
        check_payload(payload)?;
        self.send(Ok(payload.as_bytes().to_vec()))
    }

    /// Answers that it did not work: one of the protocol's error codes or a word of the application's own.
    ///
    /// # Errors
    /// The code is empty or longer than 128 bytes, or there is no room: then the server is told that the application
    /// failed.
    pub fn fail(mut self, code: &str, message: &str) -> Result<(), Error> {
        check_text("the code", code, TYPE_BYTES_MAX)?;
        self.send(Err(CallError {
            code: code.to_owned(),
            message: message.to_owned(),
        }))
    }

    fn send(&mut self, result: Result<Vec<u8>, CallError>) -> Result<(), Error> {
        let Some(correlation_id) = self.correlation_id.take() else {
            return Ok(());
        };
        let command = Box::new(Command::Respond {
            session: self.session,
            correlation_id,
            result,
        });
        self.outbox.try_command(command).map_err(|(error, _)| error)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let error = CallError {
            code: "HANDLER_ERROR".to_owned(),
            message: "the application did not answer".to_owned(),
        };
        // Without room the server's own time-out tells it.
        let _ = self.send(Err(error));
    }
}

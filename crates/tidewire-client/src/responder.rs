//! Answers to calls of the server.

use crate::check::check_text;
use crate::command::Command;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::payload::Payload;
use std::sync::Arc;
use tidewire_wire::session::{CallAnswer, CallError, TYPE_BYTES_MAX};

/// Answers a call of the server. If it is dropped without an answer, the server receives `HANDLER_ERROR`.
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

    /// Answers with JSON text or [bytes](Payload::binary).
    ///
    /// # Errors
    /// The payload is not JSON, or the outbox is full; the server then receives `HANDLER_ERROR`. A lost connection is
    /// not an error, because it ends its calls.
    pub fn respond<'a>(mut self, payload: impl Into<Payload<'a>>) -> Result<(), Error> {
        let payload = payload.into();
        payload.check()?;
        self.send(Ok(CallAnswer {
            binary: payload.is_binary(),
            payload: payload.into_json().into_bytes(),
        }))
    }

    /// Answers with an error: an error code of the protocol, or a code of the application.
    ///
    /// # Errors
    /// The code is empty or longer than 128 bytes, or the outbox is full; the server then receives `HANDLER_ERROR`.
    pub fn fail(mut self, code: &str, message: &str) -> Result<(), Error> {
        check_text("the code", code, TYPE_BYTES_MAX)?;
        self.send(Err(CallError {
            code: code.to_owned(),
            message: message.to_owned(),
        }))
    }

    fn send(&mut self, result: Result<CallAnswer, CallError>) -> Result<(), Error> {
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
        // If the outbox is full, the call times out at the server.
        let _ = self.send(Err(error));
    }
}

//! Calls to clients from other threads.

use crate::handle::Handle;
use crate::model::ConnectionKey;
use crate::model::call_types::{CallFailure, CallOutcome, NewCall, TIMEOUT_MAX};
use crate::model::content::Content;
use crate::shard::mailbox::Mail;
use crate::state::open_calls::PostedCall;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tidewire_net::MailboxError;

impl Handle {
    /// Sends a request to a client. `done` is called with the answer or the reason why there is none,
    /// exactly once: on the connection's shard or, before this returns, on the calling thread. It
    /// must not block. With a broker the client may be one of another server.
    ///
    /// ```no_run
    /// # use tidewire_engine::{ConnectionKey, Handle, NewCall};
    /// # fn ask(handle: &Handle, connection: ConnectionKey) {
    /// handle.call(connection, NewCall::new("confirm", r#"{"order":17}"#), |answer| match answer {
    ///     Ok(answer) => println!("the client says {}", answer.as_json()),
    ///     Err(failure) => println!("no answer: {failure}"),
    /// });
    /// # }
    /// ```
    pub fn call(
        &self,
        connection: ConnectionKey,
        call: NewCall,
        done: impl FnOnce(Result<Content, CallFailure>) + Send + 'static,
    ) {
        let outcome = CallOutcome::new(done, CallFailure::Stopped);
        if let Err(failure) = call.check() {
            return outcome.end(Err(failure));
        }
        let hub = &self.shared.hub;
        if !hub.is_here(connection) {
            return match self.shared.is_stopped() {
                true => outcome.end(Err(CallFailure::Stopped)),
                false => hub.call(connection, call, outcome),
            };
        }
        let Some(mailbox) = self.mailboxes.get(connection.shard() as usize) else {
            return outcome.end(Err(CallFailure::Closed));
        };
        let posted = Box::new(PostedCall { call, outcome });
        if let Err(MailboxError::Full(Mail::Call(_, posted))) =
            mailbox.try_send(Mail::Call(connection.id, posted))
        {
            posted.outcome.end(Err(CallFailure::Busy));
        }
    }

    /// Asks a client something and waits for the answer. Never on a shard's own
    /// thread.
    ///
    /// # Errors
    /// [`CallFailure`].
    pub fn call_wait(
        &self,
        connection: ConnectionKey,
        call: NewCall,
    ) -> Result<Content, CallFailure> {
        let (answer, answers) = sync_channel(1);
        let wait = call.timeout.min(TIMEOUT_MAX) + SHARD_TIME_MAX;
        self.call(connection, call, move |outcome| {
            // Whoever asked has given up.
            let _ = answer.send(outcome);
        });
        answers
            .recv_timeout(wait)
            .unwrap_or(Err(CallFailure::TimedOut))
    }
}

/// How long after the end of a call's time its shard may report the outcome.
const SHARD_TIME_MAX: Duration = Duration::from_secs(2);

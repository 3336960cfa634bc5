//! Calls to clients of other servers, as JSON between two servers.

use crate::model::ConnectionKey;
use crate::model::call_types::{CallFailure, NewCall};
use crate::model::content::Content;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidewire_wire::session::CallError;

/// One server asks a client of another.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// Of the call at the server that asks.
    number: u64,
    connection: ConnectionKey,
    t: String,
    payload: String,
    /// An older server reads over it, here and in a reply: its client gets the base64 as a text.
    #[serde(default, skip_serializing_if = "is_false")]
    binary: bool,
    timeout_ms: u64,
}

/// The outcome of a call, as a parcel carries it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) number: u64,
    outcome: CallOutcome,
    #[serde(default, skip_serializing_if = "is_false")]
    binary: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallOutcome {
    Answered(String),
    Refused { code: String, message: String },
    Closed,
    TimedOut,
    Unsupported,
    Busy,
    Stopped,
}

impl Question {
    pub(super) fn write(number: u64, connection: ConnectionKey, call: NewCall) -> Vec<u8> {
        let question = Self {
            number,
            connection,
            t: call.t,
            binary: call.payload.is_binary(),
            payload: call.payload.into_json(),
            timeout_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
        };
        json(&question)
    }

    /// The number of the call, the connection it is for, and the question. `None` for bytes that cannot be
    /// read.
    pub(super) fn read(json: &[u8]) -> Option<(u64, ConnectionKey, NewCall)> {
        let question: Self = serde_json::from_slice(json).ok()?;
        let timeout = Duration::from_millis(question.timeout_ms);
        let payload = Content::read(&question.payload, question.binary)?;
        let call = NewCall::new(question.t, payload).with_timeout(timeout);
        Some((question.number, question.connection, call))
    }
}

impl Reply {
    pub(super) fn write(number: u64, outcome: Result<Content, CallFailure>) -> Vec<u8> {
        let binary = outcome.as_ref().is_ok_and(Content::is_binary);
        let outcome = match outcome {
            Ok(answer) => CallOutcome::Answered(answer.into_json()),
            Err(CallFailure::Refused(error)) => CallOutcome::Refused {
                code: error.code,
                message: error.message,
            },
            Err(CallFailure::Closed) => CallOutcome::Closed,
            Err(CallFailure::TimedOut) => CallOutcome::TimedOut,
            Err(CallFailure::Busy) => CallOutcome::Busy,
            Err(CallFailure::Stopped) => CallOutcome::Stopped,
            // The server that asks has checked the call.
            Err(CallFailure::Unsupported | CallFailure::Invalid(_)) => CallOutcome::Unsupported,
        };
        json(&Self {
            number,
            outcome,
            binary,
        })
    }

    pub(super) fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    pub(super) fn into_outcome(self) -> Result<Content, CallFailure> {
        Err(match self.outcome {
            CallOutcome::Answered(answer) => {
                return Ok(Content::checked(answer, self.binary));
            }
            CallOutcome::Refused { code, message } => {
                CallFailure::Refused(CallError { code, message })
            }
            // The server of the connection stops, and its connections end.
            CallOutcome::Closed | CallOutcome::Stopped => CallFailure::Closed,
            CallOutcome::TimedOut => CallFailure::TimedOut,
            CallOutcome::Unsupported => CallFailure::Unsupported,
            CallOutcome::Busy => CallFailure::Busy,
        })
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the serializer has it so"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Texts and numbers always have a JSON form.
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_net::ConnectionId;

    #[test]
    fn a_call_and_its_outcome_cross_servers_as_they_are() {
        let connection = ConnectionKey::new(1, 2, ConnectionId::from_u64(3));
        let call = NewCall::new("confirm", r#"{"a":"\u00e4"}"#);
        let bytes = NewCall::new("confirm", Content::binary([0, 1, 255]));
        for call in [call, bytes] {
            let json = Question::write(9, connection, call.clone());
            assert_eq!(Question::read(&json), Some((9, connection, call)));
        }
        let error = CallError {
            code: "NOPE".to_owned(),
            message: "not now".to_owned(),
        };
        for (outcome, expected) in [
            (Ok(Content::from("[1]")), Ok(Content::from("[1]"))),
            (
                Ok(Content::binary([0, 1, 255])),
                Ok(Content::binary([0, 1, 255])),
            ),
            (
                Err(CallFailure::Refused(error.clone())),
                Err(CallFailure::Refused(error)),
            ),
            (Err(CallFailure::Closed), Err(CallFailure::Closed)),
            (Err(CallFailure::TimedOut), Err(CallFailure::TimedOut)),
            (Err(CallFailure::Busy), Err(CallFailure::Busy)),
            (Err(CallFailure::Unsupported), Err(CallFailure::Unsupported)),
            (Err(CallFailure::Stopped), Err(CallFailure::Closed)),
        ] {
            let reply = Reply::read(&Reply::write(4, outcome)).expect("a reply");
            assert_eq!(reply.number, 4);
            assert_eq!(reply.into_outcome(), expected);
        }
        assert!(Reply::read(b"{}").is_none() && Question::read(b"[").is_none());
    }
}

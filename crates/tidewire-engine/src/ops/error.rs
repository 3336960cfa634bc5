//! Errors of the HTTP API, and the responses that report them.

use crate::model::SendError;
use crate::model::call_types::CallFailure;
use crate::ops::request::Response;
use crate::topics::error::{BrokerUnavailable, ManageError, PublishError};
use serde_json::json;
use std::time::Duration;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    code: &'static str,
    message: String,
    /// Methods that the path accepts, with status 405.
    pub(crate) allow: Option<String>,
    /// When to try again, in seconds, with status 429.
    retry_after_s: u64,
}

/// The result of a task.
pub(crate) type ApiResult = Result<Response, ApiError>;

impl ApiError {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            allow: None,
            retry_after_s: 0,
        }
    }

    /// Too many wrong keys have arrived from this sender.
    pub(crate) fn too_many_guesses(wait: Duration) -> Self {
        Self {
            retry_after_s: wait.as_secs() + 1,
            ..Self::new(429, "too_many_tries", TOO_MANY_TRIES)
        }
    }

    /// The content of the request is wrong or incomplete.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", message)
    }

    pub(crate) fn method(allow: String) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(
                405,
                "method_not_allowed",
                "this path does not take this method",
            )
        }
    }

    pub(crate) fn too_large(body_bytes_max: usize) -> Self {
        let message = format!("the body is longer than {body_bytes_max} bytes");
        Self::new(413, "too_large", message)
    }

    pub(crate) fn unknown_connection(text: &str) -> Self {
        Self::new(
            404,
            "unknown_connection",
            format!("there is no connection {text}"),
        )
    }

    /// As one of several results.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        json!({ "code": self.code, "message": self.message })
    }

    pub(crate) fn response(&self) -> Response {
        let body = format!("{}\n", json!({ "error": self.to_json() }));
        let response = Response::json(self.status, body);
        match (self.status, &self.allow) {
            (401, _) => response.with("WWW-Authenticate", "Bearer"),
            (405, Some(allow)) => response.with("Allow", allow.clone()),
            (429, _) => response.with("Retry-After", self.retry_after_s.to_string()),
            (503, _) => response.with("Retry-After", "1"),
            _ => response,
        }
    }
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        let code = match error {
            SendError::Busy => "busy",
            SendError::Unavailable => "broker_unavailable",
            SendError::Stopped => "stopped",
        };
        Self::new(503, code, error.to_string())
    }
}

impl From<PublishError> for ApiError {
    fn from(error: PublishError) -> Self {
        let (status, code) = match error {
            PublishError::Topic(_) => (400, "invalid_topic"),
            PublishError::Type => (400, "invalid_type"),
            PublishError::Payload => (400, "invalid_payload"),
            PublishError::Excluded | PublishError::Volatile => (400, "invalid_request"),
            PublishError::TooLarge { .. } => (413, "too_large"),
            PublishError::Busy => (503, "busy"),
            PublishError::Unavailable => (503, "broker_unavailable"),
            PublishError::Unknown => (504, "publish_unknown"),
            PublishError::Stopped => (503, "stopped"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<CallFailure> for ApiError {
    fn from(failure: CallFailure) -> Self {
        let (status, code) = match failure {
            CallFailure::Closed => (404, "unknown_connection"),
            CallFailure::TimedOut => (504, "no_answer"),
            CallFailure::Refused(_) => (502, "client_refused"),
            CallFailure::Unsupported => (409, "takes_no_requests"),
            CallFailure::Busy => (503, "busy"),
            CallFailure::Stopped => (503, "stopped"),
            CallFailure::Invalid(_) => (400, "invalid_request"),
        };
        Self::new(status, code, failure.to_string())
    }
}

impl From<BrokerUnavailable> for ApiError {
    fn from(error: BrokerUnavailable) -> Self {
        Self::new(503, "broker_unavailable", error.to_string())
    }
}

impl From<ManageError> for ApiError {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Topic(problem) => Self::new(400, "invalid_topic", problem.to_string()),
            ManageError::Access(problem) => Self::new(400, "invalid_rules", problem.to_string()),
            ManageError::Limit(words) => Self::new(409, "limit", words),
            ManageError::Send(error) => error.into(),
        }
    }
}

/// The longest body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

const TOO_MANY_TRIES: &str = "too many wrong keys have come from this address; this key was not looked at: try again after Retry-After seconds";

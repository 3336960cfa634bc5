//! Errors of the engine.

use super::{Failure, Fault};
use tidewire_engine::settings::SettingError;
use tidewire_engine::{
    BrokerUnavailable, CallFailure, ManageError, PublishError, SendError, StartError,
};

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::configuration(error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match &error {
            StartError::Listen { .. } => Self::new("AddressError", "ADDRESS", Fault::Caller, error),
            _ => Self::configuration(error),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Busy => Self::busy(error),
            SendError::Unavailable => Self::broker_unavailable(error),
            SendError::Stopped => Self::stopped(error),
        }
    }
}

impl From<BrokerUnavailable> for Failure {
    fn from(error: BrokerUnavailable) -> Self {
        Self::broker_unavailable(error)
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Busy => Self::busy(error),
            PublishError::Unavailable => Self::broker_unavailable(error),
            PublishError::Unknown => {
                Self::new("BusyError", "PUBLISH_UNKNOWN", Fault::Nobody, error)
            }
            PublishError::Stopped => Self::stopped(error),
            _ => Self::argument(error),
        }
    }
}

impl From<ManageError> for Failure {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Send(error) => error.into(),
            ManageError::Topic(_) | ManageError::Access(_) | ManageError::Limit(_) => {
                Self::argument(error)
            }
        }
    }
}

impl From<CallFailure> for Failure {
    fn from(failure: CallFailure) -> Self {
        let call = |class, code, fault| Self::new(class, code, fault, &failure);
        match &failure {
            CallFailure::Closed => call("ConnectionClosedError", "CONNECTION_CLOSED", Fault::Peer),
            CallFailure::TimedOut => call("CallTimeoutError", "TIMEOUT", Fault::Peer),
            CallFailure::Refused(_) => call("CallError", "REFUSED", Fault::Peer),
            CallFailure::Unsupported => call("CallError", "UNSUPPORTED", Fault::Peer),
            CallFailure::Busy => Self::busy(&failure),
            CallFailure::Stopped => Self::stopped(&failure),
            CallFailure::Invalid(problem) => Self::argument(problem),
        }
    }
}

//! Errors of the client.

use super::{Failure, Fault};
use tidewire_client::{Error, Fault as ClientFault};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let fault = match error.fault() {
            Some(ClientFault::Caller) => Fault::Caller,
            Some(ClientFault::Peer | ClientFault::Server) => Fault::Peer,
            None => Fault::Nobody,
        };
        let class = match &error {
            Error::Invalid(_) => return Self::argument(error),
            Error::Full => return Self::busy(error),
            Error::Closed(_) => "StoppedError",
            Error::Connect { .. } | Error::ConnectionLost | Error::Ended { .. } => {
                "ConnectionClosedError"
            }
            Error::Unauthorized(_) => "TokenError",
            Error::TimedOut => "CallTimeoutError",
            // The server has waited for as long as this side would have.
            Error::Refused { code, .. } if code == "TIMEOUT" => "CallTimeoutError",
            Error::Refused { .. } | Error::Unsupported(_) => "CallError",
            _ => "TidewireError",
        };
        let mut failure = Self::new(class, error.code().to_owned(), fault, &error);
        failure.retry_after = error.retry_after();
        failure
    }
}

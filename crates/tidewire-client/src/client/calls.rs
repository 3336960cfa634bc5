//! Calls of the server's application.

use crate::check::check_text;
use crate::client::Client;
use crate::command::Command;
use crate::error::Error;
use crate::payload::Payload;
use std::time::Duration;
use tidewire_wire::session::{Call as WireCall, TYPE_BYTES_MAX};

impl Client {
    /// Calls the server's application and returns its answer. `timeout` replaces the configured one.
    ///
    /// # Errors
    /// The server rejects the call or does not know its type. Or no answer arrived in time, or the connection was lost;
    /// the server may have executed the call.
    pub async fn request<'a>(
        &self,
        t: &str,
        payload: impl Into<Payload<'a>>,
        timeout: Option<Duration>,
    ) -> Result<Payload<'static>, Error> {
        let payload = payload.into();
        check_text("the type", t, TYPE_BYTES_MAX)?;
        payload.check()?;
        self.shared.check_binary(&payload)?;
        let limit = timeout.unwrap_or(self.shared.config.request_timeout);
        let call = WireCall {
            t: t.to_owned(),
            binary: payload.is_binary(),
            payload: payload.into_json().into_bytes(),
            timeout_ms: u64::try_from(limit.as_millis()).ok(),
        };
        let answer = self
            .send_command(limit, |reply| Command::Call { call, reply })
            .await?;
        let json = String::from_utf8(answer.payload).map_err(|_| Error::Refused {
            code: "INVALID_MESSAGE".to_owned(),
            message: "the answer is not UTF-8".to_owned(),
            retry_after: None,
        })?;
        Ok(Payload::checked(json, answer.binary))
    }
}

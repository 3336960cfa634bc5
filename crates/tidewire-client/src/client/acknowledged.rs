//! Acknowledged messages: the client stores them until the server acknowledges them.

use crate::check::{check_message, check_publication};
use crate::client::Client;
use crate::clock::steady_unix_ms;
use crate::error::Error;
use crate::payload::Payload;
use crate::priority_queue::Priority;
use crate::queue::Durable;
use crate::shared::Shared;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A message that waits for its acknowledgement.
pub struct Acknowledgement {
    receipt: oneshot::Receiver<Result<(), Error>>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acknowledgement").finish_non_exhaustive()
    }
}

impl Acknowledgement {
    /// Waits until the server has accepted the message.
    ///
    /// # Errors
    /// The server rejected the message, or it expired before it could be sent. Or the server has forgotten this client,
    /// and may have accepted the message. If the client is closed first, the message stays in the queue.
    pub async fn wait(self) -> Result<(), Error> {
        let kept = || Error::Closed("the message stays in the queue".to_owned());
        let receipt = async { self.receipt.await.unwrap_or_else(|_| Err(kept())) };
        let ended = self.shared.life.run(async { Ok(receipt.await) }).await;
        ended.unwrap_or_else(|_| Err(kept()))
    }
}

/// Options of a message in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueOptions {
    /// The priority. Default: normal.
    pub priority: Priority,
    /// The time to live; the client does not send the message later. Default: that of the queue.
    pub ttl: Option<Duration>,
    /// The conflation key of a publication. Default: none.
    pub key: Option<String>,
}

impl Client {
    /// Stores a message in the queue of unacknowledged messages ([`Config::queue`](crate::Config::queue)), and returns when it is stored. In a
    /// file it then survives a crash. The client sends stored messages by priority as soon as it has a session, and
    /// again until the server acknowledges them; the server accepts each message once. If the caller stops waiting
    /// early, the message may be stored or not. A message of bytes that meets a server without binary payloads fails.
    ///
    /// # Errors
    /// The client has no queue, the queue is full or fails, or the message is invalid.
    pub async fn send_acknowledged<'a>(
        &self,
        t: &str,
        payload: impl Into<Payload<'a>>,
        options: QueueOptions,
    ) -> Result<Acknowledgement, Error> {
        let payload = payload.into();
        check_message(t, &payload)?;
        self.enqueue(None, t, payload, options).await
    }

    /// [`Self::send_acknowledged`] for a publication.
    ///
    /// # Errors
    /// As [`Self::send_acknowledged`].
    pub async fn publish_acknowledged<'a>(
        &self,
        topic: &str,
        t: &str,
        payload: impl Into<Payload<'a>>,
        options: QueueOptions,
    ) -> Result<Acknowledgement, Error> {
        let payload = payload.into();
        check_publication(topic, t, &payload)?;
        self.enqueue(Some(topic), t, payload, options).await
    }

    async fn enqueue(
        &self,
        topic: Option<&str>,
        t: &str,
        payload: Payload<'_>,
        options: QueueOptions,
    ) -> Result<Acknowledgement, Error> {
        self.shared.check_binary(&payload)?;
        let store = self
            .store
            .as_ref()
            .ok_or_else(|| Error::invalid("this client has no queue: set Config::queue"))?;
        let ttl_ms = options
            .ttl
            .map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let now_ms = steady_unix_ms();
        let (stored, acknowledged) = store.push(Durable {
            topic: topic.map(str::to_owned),
            t: t.to_owned(),
            is_binary: payload.is_binary(),
            payload: payload.into_json().into_bytes(),
            priority: options.priority,
            key: options.key,
            expires_unix_ms: ttl_ms.map(|ttl_ms| now_ms.saturating_add(ttl_ms)),
        })?;
        let is_stored = async {
            let stored = stored.await;
            stored.unwrap_or_else(|_| Err(self.shared.closed_error()))
        };
        self.shared.life.run(is_stored).await?;
        Ok(Acknowledgement {
            receipt: acknowledged,
            shared: self.shared.clone(),
        })
    }
}

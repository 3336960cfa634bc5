//! Messages that are kept until the server has acknowledged them.

use crate::check::{check_message, check_publication};
use crate::client::Client;
use crate::clock::steady_unix_ms;
use crate::error::Error;
use crate::priority_queue::Priority;
use crate::queue::Durable;
use crate::shared::Shared;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A message that will be acknowledged: await it to know that the server has taken it.
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
    /// Returns when the server has taken the message.
    ///
    /// # Errors
    /// The server refused it; it was too old to be sent; or whether it was taken is not known, because the server
    /// has forgotten this client. If the client is closed first, the message stays in the queue.
    pub async fn wait(self) -> Result<(), Error> {
        let kept = || Error::Closed("the message stays in the queue".to_owned());
        let receipt = async { self.receipt.await.unwrap_or_else(|_| Err(kept())) };
        let ended = self.shared.life.run(async { Ok(receipt.await) }).await;
        ended.unwrap_or_else(|_| Err(kept()))
    }
}

/// How a message waits in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueOptions {
    /// What goes first. Default: normal.
    pub priority: Priority,
    /// For how long it is of use; it is not sent later. Default: as long as the queue keeps messages.
    pub ttl: Option<Duration>,
    /// The conflation key of a publication. Default: none.
    pub key: Option<String>,
}

impl Client {
    /// Puts a message into the queue of unacknowledged ones ([`Config::queue`]), and returns when it is stored there:
    /// with a file it then survives a crash. It is sent as soon as there is a session, the most urgent first, and
    /// sent again until the server has acknowledged it, which takes each once. Who gives up waiting before it is stored
    /// finds it stored or not.
    ///
    /// # Errors
    /// There is no queue or no room in it, it cannot be used, or the message cannot be sent.
    pub async fn send_acknowledged(
        &self,
        t: &str,
        payload: &str,
        options: QueueOptions,
    ) -> Result<Acknowledgement, Error> {
        check_message(t, payload)?;
        self.enqueue(None, t, payload, options).await
    }

    /// [`Self::send_acknowledged`] for a publication.
    ///
    /// # Errors
    /// As [`Self::send_acknowledged`].
    pub async fn publish_acknowledged(
        &self,
        topic: &str,
        t: &str,
        payload: &str,
        options: QueueOptions,
    ) -> Result<Acknowledgement, Error> {
        check_publication(topic, t, payload)?;
        self.enqueue(Some(topic), t, payload, options).await
    }

    async fn enqueue(
        &self,
        topic: Option<&str>,
        t: &str,
        payload: &str,
        options: QueueOptions,
    ) -> Result<Acknowledgement, Error> {
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
            payload: payload.as_bytes().to_vec(),
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

//! Life cycle of a client: its state, the request to close it, and its end.
//!
//! A client lives from [`Life::new`] to [`Life::end`]. Every call that waits for the server, for room or for the disk
//! waits inside [`Life::run`], so that the end of the client ends every call. No call outlives its client.

use crate::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidewire_wire::close::CloseCode;
use tokio::sync::watch;

/// The state of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientState {
    /// The client opens a connection.
    Connecting,
    /// A session is accepted by the server.
    Connected,
    /// The connection has ended, and the client waits before the next attempt.
    Waiting,
    /// The client has ended for this reason, and does not connect again.
    Closed(Error),
}

#[derive(Debug)]
pub(crate) struct Life {
    state: watch::Sender<ClientState>,
    /// True from the first session on. It becomes true before the state is [`ClientState::Connected`].
    has_connected: AtomicBool,
    /// Whether the application has requested the end.
    is_closing: watch::Sender<bool>,
    /// The close code and reason of that request.
    close: Mutex<Option<(CloseCode, String)>>,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self {
            state: watch::Sender::new(ClientState::Connecting),
            has_connected: AtomicBool::new(false),
            is_closing: watch::Sender::new(false),
            close: Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> ClientState {
        self.state.borrow().clone()
    }

    pub(crate) fn is_connected(&self) -> bool {
        *self.state.borrow() == ClientState::Connected
    }

    /// Changes the state. `Closed` is final.
    pub(crate) fn set_state(&self, state: ClientState) {
        self.state.send_if_modified(|current| {
            let changes = !matches!(current, ClientState::Closed(_)) && *current != state;
            if changes {
                if state == ClientState::Connected {
                    self.has_connected.store(true, Ordering::Release);
                }
                *current = state;
            }
            changes
        });
    }

    /// Ends the client and every call in [`Self::run`]. Only the first reason is stored.
    pub(crate) fn end(&self, reason: Error) {
        self.set_state(ClientState::Closed(reason));
    }

    /// The reason for the end of the client; `None` before its end.
    pub(crate) fn reason(&self) -> Option<Error> {
        match &*self.state.borrow() {
            ClientState::Closed(reason) => Some(reason.clone()),
            ClientState::Connecting | ClientState::Connected | ClientState::Waiting => None,
        }
    }

    /// Waits for the end of the client, and returns its reason.
    pub(crate) async fn ended(&self) -> Error {
        let mut state = self.state.subscribe();
        let reason = match state
            .wait_for(|state| matches!(state, ClientState::Closed(_)))
            .await
        {
            Ok(state) => match &*state {
                ClientState::Closed(reason) => Some(reason.clone()),
                ClientState::Connecting | ClientState::Connected | ClientState::Waiting => None,
            },
            // The sender is a field of this, and lives as long.
            Err(_) => None,
        };
        reason.unwrap_or_else(Error::closed_by_application)
    }

    /// Returns when a server has let the client in.
    pub(crate) async fn connected(&self) -> Result<(), Error> {
        let mut state = self.state.subscribe();
        let is_settled =
            |state: &ClientState| matches!(state, ClientState::Connected | ClientState::Closed(_));
        match state.wait_for(is_settled).await.as_deref() {
            Ok(ClientState::Closed(reason)) => Err(reason.clone()),
            Ok(_) => Ok(()),
            // The sender is a field of this, and lives as long.
            Err(_) => Err(Error::closed_by_application()),
        }
    }

    /// [`Self::connected`] for the first session: one that has ended since is no failure to connect.
    pub(crate) async fn first_connected(&self) -> Result<(), Error> {
        let connected = self.connected().await;
        match self.has_connected.load(Ordering::Acquire) {
            true => Ok(()),
            false => connected,
        }
    }

    /// Waits for `work`, but no longer than the client lives. The result of `work` itself has precedence.
    pub(crate) async fn run<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            result = work => result,
            reason = self.ended() => Err(reason.into_closed()),
        }
    }

    /// Asks for the end; the first request counts.
    pub(crate) fn request_close(&self, code: CloseCode, reason: &str) {
        self.close_request()
            .get_or_insert_with(|| (code, reason.to_owned()));
        self.is_closing.send_replace(true);
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.is_closing.borrow()
    }

    /// Returns when the application has asked for the end.
    pub(crate) async fn closing(&self) {
        let mut is_closing = self.is_closing.subscribe();
        // The sender is a field of this, and lives as long.
        let _ = is_closing.wait_for(|is_closing| *is_closing).await;
    }

    /// With what the application asked for the end.
    pub(crate) fn close_code_and_reason(&self) -> (CloseCode, String) {
        self.close_request()
            .clone()
            .unwrap_or((CloseCode::NORMAL, String::new()))
    }

    fn close_request(&self) -> MutexGuard<'_, Option<(CloseCode, String)>> {
        // A panic while it was held cannot have left it half changed.
        self.close.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn the_end_of_a_client_is_the_end_of_every_call() {
        let life = Arc::new(Life::new());
        let call = |life: Arc<Life>| async move {
            life.run(std::future::pending::<Result<(), _>>()).await
        };
        let calls: Vec<_> = (0..100).map(|_| tokio::spawn(call(life.clone()))).collect();
        tokio::task::yield_now().await;
        life.end(Error::closed_by_application());
        life.end(Error::Full);
        for ended in calls {
            assert_eq!(ended.await.unwrap(), Err(Error::closed_by_application()));
        }
        // A later call ends at once.
        assert!(call(life.clone()).await.is_err());
        assert_eq!(life.ended().await, Error::closed_by_application());
    }

    #[tokio::test]
    async fn an_answer_that_is_there_counts_more_than_the_end() {
        let life = Life::new();
        life.end(Error::closed_by_application());
        assert_eq!(life.run(async { Ok(17) }).await, Ok(17));
    }

    #[tokio::test]
    async fn a_session_that_has_ended_was_a_session() {
        let life = Life::new();
        life.set_state(ClientState::Connected);
        life.end(Error::Full);
        assert_eq!(life.connected().await, Err(Error::Full));
        assert_eq!(life.first_connected().await, Ok(()));
        let refused = Life::new();
        refused.end(Error::Full);
        assert_eq!(refused.first_connected().await, Err(Error::Full));
    }

    #[tokio::test]
    async fn nothing_comes_after_the_end() {
        let life = Life::new();
        life.end(Error::Full);
        life.set_state(ClientState::Connected);
        assert_eq!(life.state(), ClientState::Closed(Error::Full));
        assert_eq!(life.connected().await, Err(Error::Full));
    }
}

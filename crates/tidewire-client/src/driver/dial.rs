//! Opening a connection: the token, then the way to the server.

use crate::config::{Config, Token};
use crate::driver::connect::{Connector, Opened};
use crate::error::Error;
use rand::RngCore as _;
use rand::rngs::StdRng;
use std::pin::Pin;
use std::sync::Arc;

/// Opens the connections of one client.
pub(crate) struct Dialer {
    config: Arc<Config>,
    connector: Connector,
    random: StdRng,
    /// The application is asked for a token, and has not answered.
    asking: Option<Asking>,
}

/// The answer of a [`TokenProvider`](crate::config::TokenProvider).
type Asking = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

impl Dialer {
    pub(crate) fn new(config: Arc<Config>, connector: Connector, random: StdRng) -> Self {
        Self {
            config,
            connector,
            random,
            asking: None,
        }
    }

    /// Opens a connection. Who gives up waiting may call it again.
    pub(crate) async fn dial(&mut self, url: &str) -> Result<Opened, Error> {
        let token = self.token().await?;
        let mut key = [0; 16];
        self.random.fill_bytes(&mut key);
        self.connector
            .open(&self.config, url, token.as_deref(), &key)
            .await
    }

    /// A token for a connection or for its session. If the application's answer is slower than an attempt, the
    /// next attempt waits for the same answer, so that the application is asked once at a time. A caller that
    /// stops waiting may call again.
    pub(crate) async fn token(&mut self) -> Result<Option<String>, Error> {
        let provider = match &self.config.token {
            Token::None => return Ok(None),
            Token::Fixed(token) => return Ok(Some(token.clone())),
            Token::Provider(provider) => provider,
        };
        let asking = self.asking.get_or_insert_with(|| provider());
        let token = asking.as_mut().await;
        self.asking = None;
        let failed = |words| Error::connect(format!("no token: {words}"));
        token.map(Some).map_err(failed)
    }
}

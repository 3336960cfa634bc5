//! The client: the interface for applications.

pub(crate) mod acknowledged;
mod calls;
pub(crate) mod events;
mod history;

use crate::check::{check_message, check_publication, check_text};
use crate::client::events::Events;
use crate::command::Command;
use crate::config::Config;
use crate::driver::Driver;
use crate::driver::connect::Connector;
use crate::driver::dial::Dialer;
use crate::endpoints::EndpointHealth;
use crate::error::Error;
use crate::event::{Batch, Message};
use crate::payload::Payload;
use crate::priority_queue::Priority;
use crate::quality::Quality;
use crate::queue::QueueDepth;
use crate::queue::handle::StoreHandle;
use crate::request::{PresenceAnswer, Publication, Published, SubscribeOptions, Subscribed};
use crate::session::Session;
use crate::shared::Shared;
use crate::shared::inbox::Waker;
use crate::shared::life::ClientState;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidewire_wire::close::CloseCode;
use tidewire_wire::envelope::check_value;
use tidewire_wire::session::{
    DELIVERIES_PER_ACK_MAX, KEY_BYTES_MAX, TOPICS_PER_PRESENCE_REQUEST_MAX, TOPICS_PER_REQUEST_MAX,
};
use tidewire_wire::uuid::uuid_v7;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// A client of one server, or of several servers of one service, that reconnects by itself.
///
/// Cheap to clone. Dropping the last clone closes the connection. The application has to receive the events
/// ([`Self::next_batch`]): while more bytes wait than [`Config::inbox_bytes_max`], the client reads nothing from the
/// socket, neither publications nor answers.
///
/// ```no_run
/// use tidewire_client::{Client, Config, Event};
///
/// # async fn example() -> Result<(), tidewire_client::Error> {
/// let client = Client::connect(Config::new("ws://127.0.0.1:5006/ws").with_token("…")).await?;
/// client.subscribe(["orders.*"]).await?;
/// while let Some(batch) = client.next_batch().await {
///     for event in batch {
///         if let Event::Message(message) = event {
///             println!("{message:?}");
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store: Option<Arc<StoreHandle>>,
    _alive: Arc<Alive>,
}

/// Closes the connection when the last clone of the client is dropped.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.life.request_close(CloseCode::NORMAL, "");
    }
}

impl Client {
    /// Connects, and returns when a server has accepted the session. The client tries each endpoint once.
    ///
    /// It must be called in a tokio runtime, which runs the task of the client.
    ///
    /// # Errors
    /// The configuration is invalid, or every endpoint failed: the error of the last one.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let client = Self::start_once(config)?;
        client.first_connected().await?;
        Ok(client)
    }

    /// [`Self::connect`] without waiting: [`Self::first_connected`] returns its result.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start_once(config: Config) -> Result<Self, Error> {
        Self::spawn(config, Some(Vec::new()))
    }

    /// Starts to connect and returns at once. The client retries until it has a session. For clients that store
    /// messages in their queue while no server is reachable.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start(config: Config) -> Result<Self, Error> {
        Self::spawn(config, None)
    }

    /// `first_round` has the endpoints that were tried for the first session, if a caller waits for that session.
    fn spawn(config: Config, first_round: Option<Vec<usize>>) -> Result<Self, Error> {
        if config.endpoints.is_empty() {
            return Err(Error::invalid("a client needs an endpoint"));
        }
        let connector = Connector::new(&config)?;
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| Error::invalid("a client has to be made in a tokio runtime"))?;
        let config = Arc::new(config);
        let mut random = StdRng::from_os_rng();
        let shared = Arc::new(Shared::new(config.clone(), new_id(&mut random)));
        let session_random = StdRng::from_rng(&mut random);
        let mut session = Session::new(config.clone(), shared.outbox.clone(), session_random);
        let (store_events, store_receiver) = mpsc::unbounded_channel();
        let store = match &config.queue {
            None => None,
            Some(queue) => {
                let store = StoreHandle::start(queue, &new_id(&mut random), store_events)?;
                Some(Arc::new(store))
            }
        };
        if let Some(store) = &store {
            session.set_store(store.clone());
        }
        let dialer = Dialer::new(config, connector, StdRng::from_rng(&mut random));
        let driver = Driver {
            shared: shared.clone(),
            dialer,
            session,
            store: store_receiver,
            random,
            first_round,
        };
        runtime.spawn(driver.run());
        Ok(Self {
            _alive: Arc::new(Alive(shared.clone())),
            store,
            shared,
        })
    }

    /// Waits for the next events, and returns those that were received together; `None` when the client is closed and
    /// no event is left. If several tasks call this, each event is returned to one of them.
    pub async fn next_batch(&self) -> Option<Batch> {
        self.shared.inbox.next().await
    }

    /// [`Self::next_batch`] without waiting; `Ok(None)` if no event waits.
    ///
    /// # Errors
    /// The client is closed, and no event is left.
    pub fn try_next_batch(&self) -> Result<Option<Batch>, Error> {
        self.shared
            .inbox
            .try_take()
            .map_err(|()| self.shared.closed_error())
    }

    /// [`Self::next_batch`] that blocks this thread, which must not be a thread of the runtime, for at most `timeout`;
    /// `Ok(None)` if no event arrived.
    ///
    /// # Errors
    /// The client is closed, and no event is left.
    pub fn blocking_next_batch(&self, timeout: Duration) -> Result<Option<Batch>, Error> {
        self.shared
            .inbox
            .wait(timeout)
            .map_err(|()| self.shared.closed_error())
    }

    /// The events, one at a time.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(self.clone())
    }

    /// Sets a function that the client calls whenever events arrive in an empty inbox, and at its end; for event loops
    /// other than tokio's. The task of the client calls it, so it must not block.
    pub fn set_waker(&self, waker: Option<Arc<dyn Fn() + Send + Sync>>) {
        let waker: Option<Waker> = waker;
        self.shared.inbox.set_waker(waker);
    }

    /// Sends a message to the server's application: a type and a payload, which is JSON text or
    /// [bytes](Payload::binary). Waits while the outbox is full.
    ///
    /// The message is delivered at most once. Without a connection it waits in the outbox; a message in flight may be
    /// lost with its connection. Use [`Self::send_acknowledged`] for messages that must arrive.
    ///
    /// # Errors
    /// The type or the payload is invalid, the payload is binary and the server has no binary payloads, or the client
    /// is closed.
    pub async fn send<'a>(&self, t: &str, payload: impl Into<Payload<'a>>) -> Result<(), Error> {
        let payload = payload.into();
        check_message(t, &payload)?;
        self.shared.check_binary(&payload)?;
        let outbox = &self.shared.outbox;
        self.with_room(|| outbox.try_send(t, &payload, Priority::Normal))
            .await
    }

    /// [`Self::send`] without waiting.
    ///
    /// # Errors
    /// As [`Self::send`], and [`Error::Full`].
    pub fn try_send<'a>(
        &self,
        t: &str,
        payload: impl Into<Payload<'a>>,
        priority: Priority,
    ) -> Result<(), Error> {
        let payload = payload.into();
        check_message(t, &payload)?;
        self.shared.check_binary(&payload)?;
        self.shared.outbox.try_send(t, &payload, priority)
    }

    /// Sends a whole envelope unchanged, without waiting. It is a JSON object with a type in `t`, which this function
    /// does not check.
    ///
    /// # Errors
    /// [`Error::Full`], or the client is closed; with MessagePack also an envelope that is not JSON.
    pub fn try_send_envelope(&self, envelope: &str) -> Result<(), Error> {
        if self.shared.config.format == tidewire_wire::format::Format::MessagePack {
            check_value(envelope).map_err(|error| Error::invalid(error.to_string()))?;
        }
        self.shared.outbox.try_send_envelope(envelope.as_bytes())
    }

    /// Waits until the outbox may have room.
    ///
    /// # Errors
    /// The client is closed.
    pub async fn room(&self) -> Result<(), Error> {
        self.with_room(|| self.shared.outbox.check_room()).await
    }

    /// Subscribes to topics and patterns. The client recovers publications that it missed during a lost connection.
    ///
    /// # Errors
    /// The server rejects the whole request, or no answer arrived in time. The failure of single topics is not an
    /// error.
    pub async fn subscribe<I, S>(&self, topics: I) -> Result<Subscribed, Error>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        self.subscribe_with(topics, SubscribeOptions::default())
            .await
    }

    /// [`Self::subscribe`] with options.
    ///
    /// # Errors
    /// As [`Self::subscribe`].
    pub async fn subscribe_with<I, S>(
        &self,
        topics: I,
        options: SubscribeOptions,
    ) -> Result<Subscribed, Error>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let options = Arc::new(options);
        let size = options.topics_per_request();
        self.in_chunks(topics, size, |topics, reply| Command::Subscribe {
            topics,
            options: options.clone(),
            reply,
        })
        .await
    }

    /// Ends subscriptions. No publication of them arrives after this function returns.
    ///
    /// # Errors
    /// As [`Self::subscribe`].
    pub async fn unsubscribe<I, S>(&self, topics: I) -> Result<Subscribed, Error>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let command = |topics, reply| Command::Unsubscribe { topics, reply };
        self.in_chunks(topics, TOPICS_PER_REQUEST_MAX, command)
            .await
    }

    /// Sends requests of at most `size` topics each.
    async fn in_chunks<I, S>(
        &self,
        topics: I,
        size: usize,
        command: impl Fn(Vec<String>, oneshot::Sender<Result<Subscribed, Error>>) -> Command,
    ) -> Result<Subscribed, Error>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let topics: Vec<String> = topics.into_iter().map(Into::into).collect();
        if topics.is_empty() || topics.iter().any(String::is_empty) {
            return Err(Error::invalid("at least one topic, and none of them empty"));
        }
        let limit = self.shared.config.request_timeout;
        let mut all = Subscribed::default();
        for chunk in topics.chunks(size) {
            let part = self
                .send_command(limit, |reply| command(chunk.to_vec(), reply))
                .await?;
            all.topics.extend(part.topics);
            all.failed.extend(part.failed);
            all.failures.extend(part.failures);
            all.positions.extend(part.positions);
        }
        Ok(all)
    }

    /// Publishes, and returns when the server has accepted the publication. After a lost connection the client sends
    /// the publication again with the same id, and the server drops a duplicate.
    ///
    /// # Errors
    /// The server rejects the publication. Or no answer arrived in time; the server may have accepted it.
    pub async fn publish(&self, publication: Publication) -> Result<Published, Error> {
        let publication = self.identified(publication)?;
        let limit = self.shared.config.request_timeout;
        let command = |reply| Command::Publish {
            publication,
            reply: Some(reply),
        };
        self.send_command(limit, command).await
    }

    /// [`Self::publish`] without waiting. If the server rejects the publication, the client delivers an
    /// [`Event::Error`](crate::Event::Error).
    ///
    /// # Errors
    /// [`Error::Full`], or the publication is invalid.
    pub fn try_publish(&self, publication: Publication) -> Result<(), Error> {
        let publication = self.identified(publication)?;
        let reply = None;
        let command = Box::new(Command::Publish { publication, reply });
        self.shared
            .outbox
            .try_command(command)
            .map_err(|(error, _)| error)
    }

    fn identified(&self, mut publication: Publication) -> Result<Publication, Error> {
        check_publication(&publication.topic, &publication.t, &publication.payload)?;
        self.shared.check_binary(&publication.payload)?;
        for key in [&publication.id, &publication.key].into_iter().flatten() {
            check_text("an id or a key", key, KEY_BYTES_MAX)?;
        }
        if publication.ttl_ms == Some(0) {
            return Err(Error::invalid("ttl_ms is at least 1"));
        }
        if publication.id.is_none() {
            publication.id = Some(self.shared.next_id());
        }
        Ok(publication)
    }

    /// The users on these topics, of which there are at most 100.
    ///
    /// # Errors
    /// As [`Self::subscribe`].
    pub async fn presence<I, S>(&self, topics: I) -> Result<PresenceAnswer, Error>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let topics: Vec<String> = topics.into_iter().map(Into::into).collect();
        if topics.is_empty() || topics.len() > TOPICS_PER_PRESENCE_REQUEST_MAX {
            return Err(Error::invalid("1 to 100 topics"));
        }
        let command = |reply| Command::Presence {
            topics,
            counts_only: false,
            limit: None,
            reply,
        };
        self.send_command(self.shared.config.request_timeout, command)
            .await
    }

    /// Requests snapshots of these topics, or without any of all subscribed topics. They arrive as messages.
    ///
    /// # Errors
    /// The client is closed.
    pub async fn sync(&self, topics: Vec<String>) -> Result<(), Error> {
        self.command(Command::Sync { topics }).await
    }

    /// Acknowledges deliveries to a member of a queue group. Deliveries of another session are ignored, because the
    /// server has redelivered them.
    ///
    /// # Errors
    /// The client is closed.
    pub async fn acknowledge(&self, messages: &[Message]) -> Result<(), Error> {
        let Some(session) = messages.iter().map(Message::session).max() else {
            return Ok(());
        };
        let same = messages
            .iter()
            .filter(|message| message.session() == session);
        let deliveries: Vec<u64> = same
            .filter_map(|message| message.outline().ok()?.delivery)
            .collect();
        for chunk in deliveries.chunks(DELIVERIES_PER_ACK_MAX) {
            let deliveries = chunk.to_vec();
            let command = Command::Acknowledge {
                session,
                deliveries,
            };
            self.command(command).await?;
        }
        Ok(())
    }

    /// Measures the round-trip time.
    ///
    /// # Errors
    /// No answer arrived in time, or the connection was lost.
    pub async fn ping(&self) -> Result<Duration, Error> {
        self.send_command(self.shared.config.request_timeout, |reply| Command::Ping {
            reply,
        })
        .await
    }

    /// The quality of the connection, by the round trips of pings.
    #[must_use]
    pub fn quality(&self) -> Quality {
        self.shared.quality()
    }

    /// The state of the client.
    #[must_use]
    pub fn state(&self) -> ClientState {
        self.shared.life.state()
    }

    /// The health of each endpoint.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointHealth> {
        self.shared.endpoints()
    }

    /// The number and the bytes of the messages that wait for an acknowledgement.
    #[must_use]
    pub fn queue_depth(&self) -> QueueDepth {
        self.store
            .as_ref()
            .map(|store| store.depth())
            .unwrap_or_default()
    }

    /// The bytes in the outbox.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.shared.outbox.waiting_bytes()
    }

    /// Waits until a server has accepted the session and, with encryption, has sent its key.
    ///
    /// # Errors
    /// The client is closed, or does not retry any more.
    pub async fn connected(&self) -> Result<(), Error> {
        self.shared.life.connected().await
    }

    /// [`Self::connected`] for the first session. It succeeds if there was a session, also if that has ended since.
    ///
    /// # Errors
    /// The client is closed, or does not retry any more, and never had a session.
    pub async fn first_connected(&self) -> Result<(), Error> {
        self.shared.life.first_connected().await
    }

    /// Sends what waits in the outbox, waits for the answers, and closes the connection. It returns when the connection is
    /// closed, after 6 s at most. A server that is silent for a second is not waited for. Earlier events can still be
    /// received. The close continues if the caller stops waiting.
    pub async fn close(&self) {
        self.close_with(1000, "").await;
    }

    /// [`Self::close`] with a code of 1000, or 3000 to 4999, and a reason of up to 123 bytes. Another code counts as
    /// 1000.
    pub async fn close_with(&self, code: u16, reason: &str) {
        self.request_close(code, reason);
        self.closed().await;
    }

    /// [`Self::close_with`] without waiting: [`Self::closed`] waits for the end. Only the first request has an effect.
    pub fn request_close(&self, code: u16, reason: &str) {
        let code = CloseCode::from_wire(code).filter(|code| matches!(code.value(), 1000 | 3000..));
        let code = code.unwrap_or(CloseCode::NORMAL);
        self.shared.life.request_close(code, reason);
    }

    /// Waits for the end of the client and returns its reason: the client was closed, or does not retry any more.
    pub async fn closed(&self) -> Error {
        self.shared.life.ended().await
    }

    /// Repeats an operation until there is room for it.
    async fn with_room<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        match attempt() {
            Err(Error::Full) => {
                let attempts = self.shared.outbox.wait(attempt);
                self.shared.life.run(attempts).await
            }
            done => done,
        }
    }

    /// Appends a command to the outbox as soon as there is room.
    async fn command(&self, command: Command) -> Result<(), Error> {
        let mut kept = Some(Box::new(command));
        self.with_room(|| match kept.take() {
            None => Ok(()),
            Some(command) => {
                let put = self.shared.outbox.try_command(command);
                put.map_err(|(error, command)| {
                    kept = Some(command);
                    error
                })
            }
        })
        .await
    }

    /// Sends a command to the driver, and waits at most `limit` for the result.
    pub(crate) async fn send_command<T>(
        &self,
        limit: Duration,
        command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        let call = self.shared.calls.open()?;
        let (reply, answer) = oneshot::channel();
        let command = command(reply);
        let asked = async {
            self.command(command).await?;
            let answer = answer.await;
            answer.unwrap_or_else(|_| Err(self.shared.closed_error()))
        };
        let result = timeout(limit, self.shared.life.run(asked)).await;
        let result = result.map_err(|_| self.shared.handle_request_timeout())?;
        call.handle_answer();
        result
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &self.state())
            .field("quality", &self.quality().score)
            .finish_non_exhaustive()
    }
}

fn new_id(random: &mut impl rand::RngCore) -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut bytes = [0; 10];
    random.fill_bytes(&mut bytes);
    uuid_v7(since.as_millis() as u64, bytes).to_string()
}

//! A client's state machine: what it sends on a connection, and its events for what it receives. The input is
//! bytes, commands, the time and randomness; the output is bytes and events.

#[cfg(test)]
mod clock_tests;
mod codec;
mod granted;
mod pending;
mod publications;
mod receive;
mod refresh;
mod refusals;
mod requests;
mod send;
mod subscriptions;
#[cfg(test)]
mod tests;

pub(crate) use codec::Codec;

use crate::clock::Moment;
use crate::command::Reply;
use crate::config::{Config, Encryption};
use crate::error::Ending;
use crate::error::Error;
use crate::event::{BatchBuilder, Disconnected, Event, HeldMessage, ServerError};
use crate::outbox::Outbox;
use crate::quality::{Quality, QualityMeter};
use crate::queue::handle::StoreHandle;
use crate::queue::job::StoreEvent;
use crate::rate::RateLimit;
use crate::sequencer::{Sequencer, SequencerLimits};
use granted::Granted;
use pending::Pending;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _};
use refresh::TokenRefresh;
use send::report_binary;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use subscriptions::Subscriptions;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::deflate::DeflateParameters;
use tidewire_wire::secure::ExchangeKeyPair;
use tidewire_wire::session::{ClientSession, EncryptionVersion, ProducerAttempt, TimeoutAction};
use tidewire_wire::uuid::{Uuid, uuid_v7};

/// A client's state, across connections.
#[derive(Debug)]
pub(crate) struct Session {
    config: Arc<Config>,
    /// Where the answers to the server's calls are put.
    outbox: Arc<Outbox>,
    random: StdRng,
    subscriptions: Subscriptions,
    granted: Granted,
    sequencer: Sequencer<Option<HeldMessage>>,
    /// The size of the messages that the sequencer holds, in bytes.
    held_bytes: usize,
    pending: Pending,
    quality: QualityMeter,
    rate: RateLimit,
    queue: Option<NumberedMessages>,
    /// How many sessions there were.
    serial: u32,
    link: Option<Link>,
}

/// The state of one connection.
#[derive(Debug)]
struct Link {
    wire: ClientSession,
    codec: Codec,
    exchange: Option<(ExchangeKeyPair, EncryptionVersion)>,
    url: String,
    user: Option<String>,
    server_message_bytes_max: usize,
    /// The bytes of the last message, if it was not written because it exceeds the server's limit.
    too_large: Option<usize>,
    /// The delay that the server requested in `reconnect`.
    reconnect_after_ms: Option<u64>,
    /// The delay that the server requested in an error.
    retry_after_ms: Option<u64>,
    /// Pings on their way and who waits for them; when each was sent.
    pings: VecDeque<(u64, Option<Reply<Duration>>)>,
    last_ping_ms: u64,
    /// The connection is lost if nothing arrives until then: a request has timed out.
    silent_until_ms: Option<u64>,
    /// The time to repeat the open requests: the rate limit refused some of them, and which ones is not known.
    repeat_at_ms: Option<u64>,
    /// The server has accepted this client. The keys of an encryption may still have to be negotiated.
    is_accepted: bool,
    /// `server_hello` has been received; a second one changes nothing.
    is_greeted: bool,
    /// The server knows subscriptions of its own that a client asks for again.
    can_renew: bool,
    /// The token is about to expire.
    refresh: Option<TokenRefresh>,
}

/// Numbered messages on their way.
#[derive(Debug)]
struct NumberedMessages {
    store: Arc<StoreHandle>,
    /// This client and its connections so far.
    attempt: ProducerAttempt,
    /// The store knows which messages the server has accepted.
    is_ready: bool,
    /// The number of `resume` and `rewind` jobs that the store has not answered yet.
    resumes: u32,
    /// The store did not work; when it is asked again.
    paused_until_ms: u64,
    /// The store has been asked for messages.
    is_taking: bool,
    /// The store may hold more.
    has_more: bool,
    last_sent: u64,
    last_acknowledged: u64,
}

/// The hints of an ended connection for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hints {
    /// The server has given this client a time of its own.
    pub(crate) reconnect_after_ms: Option<u64>,
    /// The server asked for at least that long.
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) was_established: bool,
}

impl Session {
    pub(crate) fn new(config: Arc<Config>, outbox: Arc<Outbox>, random: StdRng) -> Self {
        let window_ms = u64::try_from(config.reorder_window.as_millis()).unwrap_or(u64::MAX);
        let limits = SequencerLimits {
            topics_max: TOPICS_MAX,
            window_ms,
            ..SequencerLimits::default()
        };
        Self {
            config,
            outbox,
            random,
            subscriptions: Subscriptions::default(),
            granted: Granted::default(),
            sequencer: Sequencer::new(limits),
            held_bytes: 0,
            pending: Pending::default(),
            quality: QualityMeter::default(),
            rate: RateLimit::unlimited(),
            queue: None,
            serial: 0,
            link: None,
        }
    }

    /// Messages that are to be acknowledged are in this store from now on.
    pub(crate) fn set_store(&mut self, store: Arc<StoreHandle>) {
        self.queue = Some(NumberedMessages {
            store,
            attempt: ProducerAttempt {
                instance: self.random.random(),
                number: 0,
            },
            is_ready: false,
            resumes: 0,
            paused_until_ms: 0,
            is_taking: false,
            has_more: true,
            last_sent: 0,
            last_acknowledged: 0,
        });
    }

    /// Starts the session of an upgraded connection. The server's next message is `server_ready`.
    pub(crate) fn handle_connected(
        &mut self,
        url: String,
        deflate: Option<DeflateParameters>,
        moment: Moment,
    ) -> Result<(), Error> {
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        let idle_ms = u64::try_from(self.config.idle_timeout.as_millis()).unwrap_or(u64::MAX);
        let wire = ClientSession::new(self.config.format, moment.now).with_idle_timeout_ms(idle_ms);
        let exchange = self.offer_encryption();
        self.link = Some(Link {
            wire,
            codec: Codec::new(&self.config, deflate, seed)?,
            exchange,
            url,
            user: None,
            server_message_bytes_max: 0,
            reconnect_after_ms: None,
            retry_after_ms: None,
            pings: VecDeque::new(),
            last_ping_ms: moment.ms(),
            silent_until_ms: None,
            too_large: None,
            repeat_at_ms: None,
            is_accepted: false,
            is_greeted: false,
            can_renew: false,
            refresh: None,
        });
        Ok(())
    }

    /// Ends the session of a lost connection; the hints of the session for the next one.
    pub(crate) fn handle_disconnected(&mut self) -> Hints {
        let Some(link) = self.link.take() else {
            return Hints::default();
        };
        self.quality.handle_disconnect();
        self.pending.handle_disconnect();
        self.granted.handle_disconnect();
        for (_, reply) in link.pings {
            let _ = reply.map(|reply| reply.send(Err(Error::ConnectionLost)));
        }
        if let Some(queue) = &mut self.queue {
            queue.is_ready = false;
            queue.is_taking = false;
        }
        Hints {
            reconnect_after_ms: link.reconnect_after_ms,
            retry_after_ms: link.retry_after_ms,
            was_established: link.is_greeted,
        }
    }

    /// Closes the store and its file, and returns when that is done.
    pub(crate) async fn close_store(&self) {
        if let Some(queue) = &self.queue {
            queue.store.close().await;
        }
    }

    /// Closes the store and its file without waiting for it.
    pub(crate) fn abandon_store(&self) {
        if let Some(queue) = &self.queue {
            queue.store.abandon();
        }
    }

    /// There will be no further connection.
    pub(crate) fn handle_over(&mut self, reason: &Error) {
        self.pending.fail_all(reason);
    }

    /// True if the server has accepted this client. Its next messages to the server wait until the session is
    /// established, one more round trip later.
    pub(crate) fn is_accepted(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_accepted)
    }

    pub(crate) fn is_established(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_greeted)
    }

    /// Whether something that was sent is not answered yet and somebody waits for it.
    pub(crate) fn awaits_answers(&self) -> bool {
        let is_unacknowledged =
            |queue: &NumberedMessages| queue.is_ready && queue.last_sent > queue.last_acknowledged;
        let is_pinging = |link: &Link| link.pings.iter().any(|(_, reply)| reply.is_some());
        self.pending.is_awaited()
            || self.queue.as_ref().is_some_and(is_unacknowledged)
            || self.link.as_ref().is_some_and(is_pinging)
    }

    pub(crate) fn has_connection(&self) -> bool {
        self.link.is_some()
    }

    /// The mask of the next control frame; `None` without a connection.
    pub(crate) fn mask(&mut self) -> Option<[u8; 4]> {
        self.link.as_mut().map(|link| link.codec.mask())
    }

    /// How many sessions there were.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    pub(crate) fn quality(&self, moment: Moment) -> Quality {
        self.quality.quality(moment.us)
    }

    /// Records that something has arrived, or that nothing was read, though something may have arrived.
    pub(crate) fn handle_heard(&mut self, moment: Moment) {
        if let Some(link) = &mut self.link {
            link.wire.handle_heard(moment.ms());
            link.silent_until_ms = None;
        }
    }

    /// When [`Self::handle_timeout`] wants to be called, on the monotonic clock.
    pub(crate) fn poll_deadline_ms(&self, moment: Moment) -> u64 {
        let mut deadline_ms = self.sequencer.poll_deadline_ms().unwrap_or(u64::MAX);
        if let Some(queue) = &self.queue
            && queue.is_ready
            && queue.has_more
            && !queue.is_taking
        {
            // Acknowledgements make room without a deadline; this is for the rate limit.
            let next_ms = self.rate.next_at_ms(moment.ms());
            if next_ms > moment.ms() {
                deadline_ms = deadline_ms.min(next_ms);
            }
        }
        if let Some(next_ms) = self.next_token_ms(moment) {
            deadline_ms = deadline_ms.min(next_ms);
        }
        if let Some(link) = &self.link {
            deadline_ms = deadline_ms.min(link.wire.poll_deadline_ms());
            deadline_ms = deadline_ms.min(self.granted.poll_deadline_ms());
            deadline_ms = deadline_ms.min(link.silent_until_ms.unwrap_or(u64::MAX));
            if let Some(next_ping_ms) = self.next_ping_ms(link) {
                deadline_ms = deadline_ms.min(next_ping_ms);
            }
        }
        deadline_ms
    }

    /// Does what the time calls for.
    pub(crate) fn handle_timeout(
        &mut self,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        self.pending.purge();
        let mut sequenced = Vec::new();
        self.sequencer.handle_timeout(moment.ms(), &mut sequenced);
        self.push_sequenced(sequenced, batch);
        self.end_granted(moment, batch);
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        if link
            .silent_until_ms
            .is_some_and(|until_ms| until_ms <= moment.ms())
        {
            let words = "the server was silent after a request had timed out";
            return Err(Ending::lost(words));
        }
        let mut pings = match link.wire.handle_timeout(moment.now) {
            TimeoutAction::None => false,
            TimeoutAction::SendPing => link.is_greeted,
            TimeoutAction::CloseIdle => {
                return Err(Ending::lost("the server has been silent for too long"));
            }
        };
        if let Some(link) = &self.link
            && self
                .next_ping_ms(link)
                .is_some_and(|next_ms| next_ms <= moment.ms())
        {
            pings = true;
        }
        if pings {
            self.ping(None, moment, out)?;
        }
        self.take_from_store(moment);
        self.repeat_requests(moment, out)
    }

    /// An event for the end of a connection.
    pub(crate) fn disconnected(ending: &Ending, retry_in: Option<Duration>) -> Event {
        Event::Disconnected(Box::new(Disconnected {
            code: ending.code.map(tidewire_wire::close::CloseCode::value),
            reason: ending.reason.clone(),
            retry_in,
        }))
    }

    /// Handles the events of the store, with or without a connection.
    pub(crate) fn handle_store(
        &mut self,
        event: StoreEvent,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        let is_established = self.is_established();
        let Some(queue) = &mut self.queue else {
            return Ok(());
        };
        match event {
            StoreEvent::Stored => queue.has_more = true,
            StoreEvent::Resumed => {
                // Others may be on their way, and this one that of an earlier connection.
                queue.resumes = queue.resumes.saturating_sub(1);
                queue.is_ready = is_established && queue.resumes == 0;
                queue.is_taking = false;
                queue.has_more = true;
                queue.last_sent = queue.last_acknowledged;
            }
            StoreEvent::Uncertain(uncertain) => batch.push(Event::Uncertain(uncertain)),
            StoreEvent::Expired(messages) => batch.push(Event::Expired(messages)),
            StoreEvent::NotResumed => queue.resumes = queue.resumes.saturating_sub(1),
            StoreEvent::TooLarge(messages) => {
                queue.has_more = true;
                batch.push(Event::Error(Box::new(ServerError {
                    code: ErrorCode::MessageTooLarge.as_str().to_owned(),
                    message: "queued messages are larger than the server takes".to_owned(),
                    recoverable: true,
                    retry_after: None,
                    refused: messages as u64,
                })));
            }
            StoreEvent::Unsupported(messages) => {
                queue.has_more = true;
                report_binary(messages as u64, batch);
            }
            StoreEvent::Failed(words) => batch.push(Event::QueueFailed(words)),
            StoreEvent::NotTaken => {
                queue.is_taking = false;
                queue.has_more = true;
                queue.paused_until_ms = moment.ms().saturating_add(STORE_PAUSE_MS);
            }
            StoreEvent::Taken(messages) => {
                if !queue.is_ready {
                    return Ok(());
                }
                queue.is_taking = false;
                queue.has_more = !messages.is_empty();
                self.send_numbered(messages, moment, out)?;
            }
        }
        self.take_from_store(moment);
        Ok(())
    }

    /// Asks the store for messages, if there may be some and they may be sent.
    fn take_from_store(&mut self, moment: Moment) {
        let window = self
            .config
            .queue
            .as_ref()
            .map_or(1, |queue| queue.window.max(1)) as u64;
        let Some(queue) = &mut self.queue else { return };
        let on_way = queue.last_sent.saturating_sub(queue.last_acknowledged);
        let is_paused = moment.ms() < queue.paused_until_ms;
        if is_paused || !queue.is_ready || queue.is_taking || !queue.has_more || on_way >= window {
            return;
        }
        let count = self.rate.take(window - on_way, moment.ms());
        self.rate.give_back(count);
        if count > 0 {
            queue.is_taking = true;
            queue.store.take(count as usize, QUEUE_TAKE_BYTES_MAX);
        }
    }

    /// When the client's own interval calls for the next ping.
    fn next_ping_ms(&self, link: &Link) -> Option<u64> {
        let interval = self.config.ping_interval?.max(PING_INTERVAL_MIN);
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let next_ms = link.last_ping_ms.saturating_add(interval_ms);
        link.is_greeted.then_some(next_ms)
    }

    fn offer_encryption(&mut self) -> Option<(ExchangeKeyPair, EncryptionVersion)> {
        let version = match self.config.encryption {
            Encryption::Off => return None,
            Encryption::VersionOne => EncryptionVersion::One,
            Encryption::On | Encryption::Pinned(_) => EncryptionVersion::Two,
        };
        loop {
            let mut seed = [0; 32];
            self.random.fill_bytes(&mut seed);
            // One in four billion is no key.
            if let Ok(pair) = ExchangeKeyPair::from_seed(&seed) {
                return Some((pair, version));
            }
        }
    }

    /// A new id for a message.
    fn id(&mut self, moment: Moment) -> Uuid {
        let mut random = [0; 10];
        self.random.fill_bytes(&mut random);
        uuid_v7(moment.now.unix_ms, random)
    }
}

/// Topics whose positions are remembered.
const TOPICS_MAX: usize = 100_000;

/// Bytes that are asked of the store at once.
const QUEUE_TAKE_BYTES_MAX: usize = 1024 * 1024;

/// For how long a store that did not work is left alone.
const STORE_PAUSE_MS: u64 = 5_000;

/// The shortest interval that the application can ask for.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(100);

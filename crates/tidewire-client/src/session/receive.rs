//! Messages of the server.

use super::Session;
use super::codec::{Signed, Unreadable};
use super::pending::{RequestKind, Waiting};
use crate::clock::Moment;
use crate::config::Encryption;
use crate::error::Ending;
use crate::error::Error;
use crate::event::{BatchBuilder, Call, Connected, Event, Presence, ServerError};
use crate::queue::MessageLimits;
use crate::rate::RateLimit;
use crate::request::{HistoryPage, PresenceAnswer, Subscribed};
use crate::responder::Responder;
use std::time::Duration;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{SystemType, correlation_id};
use tidewire_wire::format::Format;
use tidewire_wire::message;
use tidewire_wire::session::{
    self as wire, Action, CallResult, ClientEvent, ClientHello, Features, HelloEncryption,
    HelloProducer, ProducerState,
};

impl Session {
    /// Handles one event of the server's.
    pub(crate) fn handle_event(
        &mut self,
        event: message::Event<'_>,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        match event {
            message::Event::Text(text) if !self.is_encrypted() => {
                self.handle_message(Format::Json, text.as_bytes(), moment, out, batch)
            }
            message::Event::Text(text) => {
                self.handle_layered(true, text.as_bytes(), moment, out, batch)
            }
            message::Event::Binary(bytes) => self.handle_layered(false, bytes, moment, out, batch),
            message::Event::Compressed(compressed) => {
                let Some(link) = &mut self.link else {
                    return Ok(());
                };
                let inflated = link.codec.inflate(compressed)?;
                self.handle_layered(compressed.is_text, &inflated, moment, out, batch)
            }
            message::Event::Ping(_) | message::Event::Pong(_) => Ok(()),
            message::Event::Close(code, reason) => Err(Ending {
                code,
                reason: if reason.is_empty() {
                    "the server closed the connection".to_owned()
                } else {
                    reason.to_owned()
                },
                by_server: true,
            }),
        }
    }

    fn is_encrypted(&self) -> bool {
        self.link
            .as_ref()
            .is_some_and(|link| link.codec.is_encrypted())
    }

    fn handle_layered(
        &mut self,
        is_text: bool,
        bytes: &[u8],
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        let (mut opened, mut inflated) = (Vec::new(), Vec::new());
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        match link.codec.open(is_text, bytes, &mut opened, &mut inflated) {
            Ok((encoding, bytes)) => self.handle_message(encoding, bytes, moment, out, batch),
            Err(Unreadable::Over(ending)) => Err(ending),
            Err(Unreadable::Refused(words)) => {
                report_unreadable(words, batch);
                Ok(())
            }
        }
    }

    fn handle_message(
        &mut self,
        encoding: Format,
        bytes: &[u8],
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        match link.wire.handle_message(encoding, bytes, moment.now) {
            Ok(ClientEvent::Application) => {
                self.handle_application(encoding, bytes, moment, out, batch)
            }
            Ok(ClientEvent::Batch(messages)) => {
                for message in messages {
                    self.handle_message(encoding, &message, moment, out, batch)?;
                }
                Ok(())
            }
            Ok(event @ ClientEvent::Error { .. }) => {
                let cid = correlation_id(encoding, bytes).ok().flatten();
                self.handle_error(event, cid, moment, batch)
            }
            Ok(event) => self.handle_system(event, moment, out, batch),
            Err(error) => {
                report_unreadable(&error.to_string(), batch);
                Ok(())
            }
        }
    }

    fn handle_system(
        &mut self,
        event: ClientEvent,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        match event {
            ClientEvent::Ready {
                connection_id,
                server_version,
                user_id,
            } => {
                if self.handle_ready(user_id, moment, out)? {
                    self.begin_session(connection_id, server_version, batch);
                }
                Ok(())
            }
            ClientEvent::Established { .. } => self.handle_established(event, moment, out, batch),
            ClientEvent::KeyUpdate { request } => {
                let Some(link) = &mut self.link else {
                    return Ok(());
                };
                if !link.codec.update_opening_key() {
                    report_unreadable("a key_update without encryption version 2", batch);
                    return Ok(());
                }
                if request {
                    self.send_key_update(false, moment, out)
                } else {
                    Ok(())
                }
            }
            ClientEvent::ServerPing { timestamp_ms } => {
                let id = self.id(moment);
                let Some(link) = &mut self.link else {
                    return Ok(());
                };
                link.write_system(Signed::No, moment, out, |wire, out| {
                    wire.write_pong(timestamp_ms, id, moment.now, out)
                })
            }
            ClientEvent::Pong { .. } => {
                self.handle_pong(moment);
                Ok(())
            }
            ClientEvent::Reconnect { after_ms, .. } => {
                if let Some(link) = &mut self.link {
                    link.reconnect_after_ms = Some(after_ms);
                }
                Ok(())
            }
            // Before the server's hello it is not known what its numbers count.
            ClientEvent::MessageAck { .. } if !self.is_established() => Ok(()),
            ClientEvent::MessageAck { last } => {
                if let Some(queue) = &mut self.queue {
                    queue.last_acknowledged =
                        queue.last_acknowledged.max(last.min(queue.last_sent));
                    queue.store.acknowledge(last);
                }
                self.take_from_store(moment);
                Ok(())
            }
            event @ ClientEvent::SubscriptionUpdate { .. } => {
                self.handle_subscriptions(event, moment, out, batch)
            }
            event => {
                self.handle_answer(event, moment, batch);
                Ok(())
            }
        }
    }

    /// Answers to requests.
    fn handle_answer(&mut self, event: ClientEvent, moment: Moment, batch: &mut BatchBuilder) {
        let mut waiting = |cid: &Option<String>, kind| self.pending.answer(cid.as_deref()?, kind);
        match event {
            ClientEvent::PublishResponse {
                topic,
                duplicate,
                position,
                correlation_id,
            } => {
                let waiting = waiting(&correlation_id, RequestKind::Publish);
                self.handle_published(waiting, &topic, duplicate, position, moment, batch);
            }
            ClientEvent::PresenceResponse {
                topics,
                failed_topics,
                correlation_id,
            } => {
                if let Some(Waiting::Presence { reply, .. }) =
                    waiting(&correlation_id, RequestKind::Presence)
                {
                    let failed = failed_topics;
                    let _ = reply.send(Ok(PresenceAnswer { topics, failed }));
                }
            }
            ClientEvent::HistoryResponse {
                page,
                correlation_id,
            } => {
                let waiting = waiting(&correlation_id, RequestKind::History);
                self.handle_history(waiting, *page);
            }
            ClientEvent::CallResponse {
                result,
                correlation_id,
            } => {
                let waiting = waiting(&Some(correlation_id), RequestKind::Call);
                handle_call_result(waiting, result);
            }
            event => self.handle_news(event, moment, batch),
        }
    }

    /// Handles news of the server about subscriptions, requested or not.
    fn handle_subscriptions(
        &mut self,
        event: ClientEvent,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        match event {
            ClientEvent::SubscriptionUpdate {
                action: Some(Action::Unsubscribe),
                success_topics,
                failures,
                correlation_id: None,
                ..
            } => {
                // Nobody here asked for it.
                return self.handle_taken(success_topics, &failures, moment, out, batch);
            }
            ClientEvent::SubscriptionUpdate {
                action: Some(Action::Subscribe),
                success_topics,
                recovery,
                correlation_id: None,
                ..
            } => return self.handle_granted(success_topics, &recovery, moment, out),
            ClientEvent::SubscriptionUpdate {
                success_topics,
                failed_topics,
                failures,
                recovery,
                correlation_id,
                ..
            } => {
                let waiting = correlation_id
                    .as_deref()
                    .and_then(|cid| self.pending.answer(cid, RequestKind::Subscription));
                if let Some(waiting) = waiting {
                    let answer = Subscribed {
                        topics: success_topics,
                        failed: failed_topics,
                        failures,
                        positions: Vec::new(),
                    };
                    if matches!(waiting, Waiting::Renew { .. }) {
                        return self.handle_renewed(&answer, &recovery, moment, out, batch);
                    }
                    self.handle_subscribed(waiting, answer, &recovery, moment, batch);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn handle_history(&self, waiting: Option<Waiting>, page: wire::HistoryPage) {
        if let Some(Waiting::History { reply, .. }) = waiting {
            let _ = reply.send(Ok(HistoryPage::of(page, self.serial)));
        }
    }

    /// Handles messages that the server sends without a request.
    fn handle_news(&mut self, event: ClientEvent, moment: Moment, batch: &mut BatchBuilder) {
        match event {
            ClientEvent::Presence {
                change,
                topic,
                user_id,
                data,
            } => {
                let data = data.map(|data| data.to_string());
                let presence = Presence {
                    change,
                    topic,
                    user: user_id,
                    data,
                };
                batch.push(Event::Presence(Box::new(presence)));
            }
            ClientEvent::AuthExpiryWarning { ends_in_ms, .. } => {
                self.handle_expiry_warning(ends_in_ms, moment);
            }
            ClientEvent::AuthRefreshed { ends_in_ms, .. } => {
                self.handle_refreshed(ends_in_ms, moment);
            }
            ClientEvent::PublicationGap(gap) => self.handle_gap(gap, moment, batch),
            ClientEvent::Call {
                call,
                correlation_id,
            } => {
                let outbox = self.outbox.clone();
                batch.push(Event::Call(Box::new(Call {
                    t: call.t,
                    payload: String::from_utf8(call.payload).unwrap_or_default(),
                    is_binary: call.binary,
                    timeout: call.timeout_ms.map(Duration::from_millis),
                    responder: Responder::new(outbox, self.serial, correlation_id),
                })));
            }
            ClientEvent::System(SystemType::RateLimitWarning, envelope) => {
                self.handle_rate_limit_warning(&envelope, moment, batch);
            }
            // Unasked.
            ClientEvent::System(SystemType::HealthCheckResponse, envelope)
                if envelope.correlation_id.is_none() =>
            {
                if let Some(is_away) = envelope.payload["broker_away"].as_bool() {
                    batch.push(Event::BrokerUpdate { is_away });
                }
            }
            _ => {}
        }
    }

    fn handle_pong(&mut self, moment: Moment) {
        let latency_us = self.quality.handle_pong(moment.us);
        if let Some(link) = &mut self.link
            && let Some((sent_us, Some(reply))) = link.pings.pop_front()
        {
            let latency_us = latency_us.unwrap_or_else(|| moment.us.saturating_sub(sent_us));
            let _ = reply.send(Ok(Duration::from_micros(latency_us)));
        }
    }

    /// Sends the hello; true if nothing else must be agreed on. With encryption the server's key has not arrived yet.
    fn handle_ready(
        &mut self,
        user: Option<String>,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<bool, Ending> {
        let id = self.id(moment);
        let Some(link) = &mut self.link else {
            return Ok(false);
        };
        link.user = user;
        let encryption = link
            .exchange
            .as_ref()
            .map(|(pair, version)| pair.offer(*version));
        let producer = self.queue.as_mut().map(|queue| {
            queue.attempt.number += 1;
            HelloProducer {
                id: queue.store.producer().to_owned(),
                attempt: Some(queue.attempt),
            }
        });
        let hello = ClientHello {
            client_version: &self.config.client_version,
            features: Features {
                compression: self.config.compression == crate::config::Compression::Zlib,
                encryption: encryption.is_some(),
                batching: false,
                priority_queue: true,
                circuit_breaker: true,
                recovery: true,
                topics: true,
                presence: true,
                calls: true,
                history: true,
                server_subscriptions: true,
                binary: true,
                broker_updates: true,
            },
            encryption,
            producer: producer.as_ref(),
        };
        link.write_system(Signed::No, moment, out, |wire, out| {
            wire.write_hello(&hello, id, moment.now, out)
        })?;
        Ok(link.exchange.is_none())
    }

    fn handle_established(
        &mut self,
        event: ClientEvent,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        let ClientEvent::Established {
            server_version,
            connection_id,
            message_bytes_max,
            rate_limit_capacity,
            rate_limit_refill_per_s,
            encryption,
            producer,
            server_subscriptions,
            ..
        } = event
        else {
            return Ok(());
        };
        self.agree_on_key(encryption.as_deref(), &connection_id)?;
        let is_first = self.link.as_ref().is_some_and(|link| !link.is_greeted);
        if !is_first {
            return Ok(());
        }
        self.begin_session(connection_id, server_version, batch);
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        link.is_greeted = true;
        link.can_renew = server_subscriptions;
        link.server_message_bytes_max = usize::try_from(message_bytes_max).unwrap_or(usize::MAX);
        self.rate = if self.config.rate_limit {
            // Pings, hellos and subscriptions count at the server as well.
            let share = |all: u64| (all - all.div_ceil(10)).max(all.min(1));
            let (capacity, refill_per_s) =
                (share(rate_limit_capacity), share(rate_limit_refill_per_s));
            RateLimit::new(capacity, refill_per_s, moment.ms())
        } else {
            RateLimit::unlimited()
        };
        self.resume_queue(producer, batch);
        self.resume_requests(moment, out)?;
        self.renew_granted(moment, out)
    }

    /// The server has let this client in; once for each connection.
    fn begin_session(
        &mut self,
        connection_id: String,
        server_version: String,
        batch: &mut BatchBuilder,
    ) {
        let Some(link) = self.link.as_mut().filter(|link| !link.is_accepted) else {
            return;
        };
        link.is_accepted = true;
        self.serial += 1;
        batch.set_session(self.serial);
        batch.push(Event::Connected(Box::new(Connected {
            url: link.url.clone(),
            connection_id,
            user: link.user.clone(),
            server_version,
            session: self.serial,
            is_encrypted: link.codec.is_encrypted(),
            has_deflate: link.codec.has_deflate(),
        })));
    }

    /// Reports the server's position to the store.
    fn resume_queue(&mut self, producer: Option<ProducerState>, batch: &mut BatchBuilder) {
        let Some(queue) = &mut self.queue else { return };
        match producer {
            Some(state) => {
                queue.last_acknowledged = state.last;
                queue.last_sent = state.last;
                queue.resumes += 1;
                let bytes_max = self
                    .link
                    .as_ref()
                    .map_or(0, |link| link.server_message_bytes_max);
                let takes_binary = self
                    .link
                    .as_ref()
                    .is_some_and(|link| link.wire.server_takes_binary());
                let limits = MessageLimits {
                    bytes_max,
                    takes_binary,
                };
                queue.store.resume(state.epoch, state.last, limits);
            }
            None => batch.push(Event::QueueFailed(
                "the server does not acknowledge messages; they stay in the queue".to_owned(),
            )),
        }
    }

    fn agree_on_key(
        &mut self,
        encryption: Option<&HelloEncryption>,
        connection_id: &str,
    ) -> Result<(), Ending> {
        let iv_random = self.id(Moment::default()).0;
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let Some((pair, offered)) = link.exchange.take() else {
            return Ok(());
        };
        let Some(hello) = encryption else {
            return Err(Ending::ours(
                CloseCode::POLICY_VIOLATION,
                "the server does not encrypt, and this client asks for it",
            ));
        };
        let pinned = match &self.config.encryption {
            Encryption::Pinned(key) => Some(&**key),
            _ => None,
        };
        let iv = [iv_random[12], iv_random[13], iv_random[14], iv_random[15]];
        let cipher = pair
            .finish(offered, hello, connection_id, pinned, iv)
            .map_err(|error| Ending::ours(CloseCode::POLICY_VIOLATION, error.to_string()))?;
        link.codec.encrypt(cipher);
        Ok(())
    }
}

/// Answers a waiting call.
fn handle_call_result(waiting: Option<Waiting>, result: CallResult) {
    if let Some(Waiting::Call { reply }) = waiting {
        let _ = reply.send(result.map_err(|error| Error::Refused {
            code: error.code,
            message: error.message,
            retry_after: None,
        }));
    }
}

fn report_unreadable(words: &str, batch: &mut BatchBuilder) {
    batch.push(Event::Error(Box::new(ServerError {
        code: ErrorCode::InvalidMessage.as_str().to_owned(),
        message: format!("from the server: {words}"),
        recoverable: true,
        retry_after: None,
        refused: 0,
    })));
}

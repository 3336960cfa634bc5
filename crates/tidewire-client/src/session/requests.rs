//! Requests of the application: made, made again on another connection, and answered.

use super::codec::Signed;
use super::pending::{Waiting, correlation_id};
use super::send::{publish_request, report_binary};
use super::subscriptions::is_pattern;
use super::{Link, Session};
use crate::clock::Moment;
use crate::command::Command;
use crate::error::Ending;
use crate::error::Error;
use crate::event::{BatchBuilder, Event, Unrecovered};
use crate::payload::BINARY;
use crate::request::{SubscribeOptions, Subscribed, TopicPosition};
use crate::sequencer::Position;
use std::sync::Arc;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{Category, PublicationHeader, epoch_text, parse_epoch};
use tidewire_wire::format::{Format, json_to_msgpack};
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::{
    Action, CallError, CallResult, RecoveryPosition, SubscriptionRequest, TopicFailure,
    TopicRecovery,
};
use tidewire_wire::uuid::Uuid;

impl Session {
    pub(super) fn handle_command(
        &mut self,
        command: Command,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        if command.is_abandoned() {
            return Ok(());
        }
        if command.is_binary() && !self.takes_binary() {
            return self.refuse_binary(command, moment, out, batch);
        }
        let waiting = match command {
            Command::Subscribe {
                topics,
                options,
                reply,
            } => Waiting::Subscribe {
                topics,
                options,
                reply: Some(reply),
            },
            Command::Unsubscribe { topics, reply } => Waiting::Unsubscribe {
                topics,
                reply: Some(reply),
            },
            Command::Publish { publication, reply } => Waiting::Publish { publication, reply },
            Command::Presence {
                topics,
                counts_only,
                limit,
                reply,
            } => Waiting::Presence {
                topics,
                counts_only,
                limit,
                reply,
            },
            Command::History { query, reply } => Waiting::History { query, reply },
            command => return self.handle_direct(command, moment, out),
        };
        let number = self.pending.insert(waiting);
        self.transmit(number, moment, out)
    }

    /// Fails a command with a payload of bytes, which the server would read as a text.
    fn refuse_binary(
        &mut self,
        command: Command,
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        match command {
            Command::Respond {
                session,
                correlation_id,
                ..
            } => {
                report_binary(1, batch);
                let error = CallError {
                    code: ErrorCode::HandlerError.as_str().to_owned(),
                    message: "the answer is binary, and this server has no binary payloads"
                        .to_owned(),
                };
                let command = Command::Respond {
                    session,
                    correlation_id,
                    result: Err(error),
                };
                self.handle_direct(command, moment, out)
            }
            command => {
                if !command.is_awaited() {
                    report_binary(1, batch);
                }
                command.fail(&Error::Unsupported(BINARY));
                Ok(())
            }
        }
    }

    /// Ends the requests that are not repeated on another connection.
    fn handle_direct(
        &mut self,
        command: Command,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        match command {
            Command::Call { call, reply } => {
                let number = self.pending.insert(Waiting::Call { reply });
                let id = self.id(moment);
                let Some(link) = &mut self.link else {
                    return Ok(());
                };
                link.write_system(Signed::Yes, moment, out, |wire, out| {
                    wire.write_call_request(&call, &correlation_id(number), id, moment.now, out)
                })?;
                self.fail_too_large(number);
                Ok(())
            }
            Command::Respond {
                session,
                correlation_id,
                result,
            } => {
                let id = self.id(moment);
                // A call ends with its session.
                let Some(link) = self.link.as_mut().filter(|_| session == self.serial) else {
                    return Ok(());
                };
                let mut respond = |link: &mut Link, result: &CallResult| {
                    link.write_system(Signed::Yes, moment, out, |wire, out| {
                        wire.write_call_response(result, &correlation_id, id, moment.now, out)
                    })
                };
                respond(link, &result)?;
                if link.too_large.is_some() {
                    // The server waits for an answer.
                    let message = "the answer is larger than the server takes".to_owned();
                    let code = ErrorCode::MessageTooLarge.as_str().to_owned();
                    respond(link, &Err(CallError { code, message }))?;
                }
                Ok(())
            }
            Command::Acknowledge {
                session,
                deliveries,
            } => {
                let id = self.id(moment);
                let Some(link) = self.link.as_mut().filter(|_| session == self.serial) else {
                    return Ok(());
                };
                link.write_system(Signed::Yes, moment, out, |wire, out| {
                    wire.write_publication_ack(&deliveries, id, moment.now, out)
                })
            }
            Command::Sync { topics } => self.send_sync(&topics, moment, out),
            Command::Ping { reply } => self.ping(Some(reply), moment, out),
            Command::Probe => self.probe(moment, out),
            // The others are made again, and do not reach this place.
            other => {
                other.fail(&Error::ConnectionLost);
                Ok(())
            }
        }
    }

    /// Subscribes again and makes open requests again, on a connection that has just been established.
    pub(super) fn resume_requests(
        &mut self,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let open = self.pending.numbers();
        for (options, topics) in self.subscriptions.requests() {
            self.subscribe_again(topics, options, moment, out)?;
        }
        for number in open {
            self.transmit(number, moment, out)?;
        }
        Ok(())
    }

    /// Makes open requests again after the rate limit has refused some of them. Those that are on their way are
    /// answered twice, which does no harm.
    pub(super) fn repeat_requests(
        &mut self,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        if link.repeat_at_ms.is_none_or(|at_ms| at_ms > moment.ms()) {
            return Ok(());
        }
        link.repeat_at_ms = None;
        for number in self.pending.numbers() {
            if self.rate.take(1, moment.ms()) == 0 {
                let next_ms = self.rate.next_at_ms(moment.ms());
                if let Some(link) = &mut self.link {
                    link.repeat_at_ms = Some(next_ms);
                }
                break;
            }
            self.transmit(number, moment, out)?;
        }
        Ok(())
    }

    /// Requests missing publications of a topic: the subscription is made anew from the last position.
    pub(super) fn recover(
        &mut self,
        topic: &str,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let Some(options) = self.subscriptions.options(topic).cloned() else {
            return self.recover_granted(topic, moment, out);
        };
        let number = self.pending.insert(Waiting::Unsubscribe {
            topics: vec![topic.to_owned()],
            reply: None,
        });
        self.transmit(number, moment, out)?;
        self.subscribe_again(vec![topic.to_owned()], options, moment, out)
    }

    fn subscribe_again(
        &mut self,
        topics: Vec<String>,
        options: Arc<SubscribeOptions>,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let number = self.pending.insert(Waiting::Subscribe {
            topics,
            options,
            reply: None,
        });
        self.transmit(number, moment, out)
    }

    /// Ends the request with this number if it was larger than the server accepts. A request that nobody waits
    /// for is reported by the caller.
    fn fail_too_large(&mut self, number: u64) {
        let Some(link) = self.link.as_mut().filter(|link| link.too_large.is_some()) else {
            return;
        };
        match self.pending.remove(number) {
            Some(Waiting::Publish { reply: None, .. }) | None => {}
            Some(waiting) => {
                link.too_large = None;
                waiting.fail(&Error::too_large());
            }
        }
    }

    /// Writes the request with this number.
    pub(super) fn transmit(
        &mut self,
        number: u64,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        self.write_request(number, moment, out)?;
        self.fail_too_large(number);
        Ok(())
    }

    fn write_request(
        &mut self,
        number: u64,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let (id, cid) = (self.id(moment), correlation_id(number));
        let granted = match self.pending.get(number) {
            Some(Waiting::Renew { topics }) => self.granted_positions(topics),
            _ => Vec::new(),
        };
        let (Some(waiting), Some(link)) = (self.pending.get(number), &mut self.link) else {
            return Ok(());
        };
        match waiting {
            Waiting::Subscribe {
                topics,
                options,
                reply,
            } => {
                let known = |topic: &str| {
                    let seen = self.sequencer.position(topic);
                    seen.or_else(|| options.position_from(topic))
                };
                let positions = positions(topics, options, known);
                // The first subscription requests a replay; a later one only with positions, for topics that
                // are not recovered.
                let replays = reply.is_some() || !positions.is_empty();
                let request = subscription_request(options, &positions, replays);
                let names: Vec<&str> = topics.iter().map(String::as_str).collect();
                let tokens = options.tokens.as_ref();
                let tokens = tokens.map_or_else(Vec::new, |tokens| tokens.of(topics));
                let request = SubscriptionRequest {
                    topics: &names,
                    tokens: &tokens,
                    ..request
                };
                link.write_system(Signed::Yes, moment, out, |wire, out| {
                    wire.write_subscription(&request, Some(&cid), id, moment.now, out)
                })
            }
            Waiting::Unsubscribe { topics, .. } => {
                let names: Vec<&str> = topics.iter().map(String::as_str).collect();
                let request = SubscriptionRequest::new(Action::Unsubscribe, &names);
                link.write_system(Signed::Yes, moment, out, |wire, out| {
                    wire.write_subscription(&request, Some(&cid), id, moment.now, out)
                })
            }
            Waiting::Renew { topics } => {
                let names: Vec<&str> = topics.iter().map(String::as_str).collect();
                let request = SubscriptionRequest {
                    recover: !granted.is_empty(),
                    recovery: &granted,
                    renew: true,
                    ..SubscriptionRequest::new(Action::Subscribe, &names)
                };
                link.write_system(Signed::Yes, moment, out, |wire, out| {
                    wire.write_subscription(&request, Some(&cid), id, moment.now, out)
                })
            }
            Waiting::Publish { publication, .. } => {
                let request = publish_request(publication);
                link.write_system(Signed::Yes, moment, out, |wire, out| {
                    wire.write_publish(&request, Some(&cid), None, id, moment.now, out)
                        .unwrap_or(OpCode::Binary)
                })
            }
            waiting => write_query(waiting, link, (&cid, id), moment, out),
        }
    }

    fn send_sync(
        &mut self,
        topics: &[String],
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let topics = if topics.is_empty() {
            self.subscriptions.topics()
        } else {
            topics.to_vec()
        };
        let payload = serde_json::json!({"topics": topics, "include_snapshots": true}).to_string();
        let header = PublicationHeader {
            category: Category::Snapshot,
            t: "sync_request",
            topic: None,
            position: None,
            id: None,
            priority: Default::default(),
            delivery: None,
            correlation_id: Some(SYNC_CORRELATION_ID),
            binary: false,
        };
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        link.write(Signed::Yes, moment, out, |format, out| match format {
            Format::Json => header.write_json(payload.as_bytes(), out),
            Format::MessagePack => {
                let mut packed = Vec::new();
                let _ = json_to_msgpack(payload.as_bytes(), &mut packed);
                header.write_msgpack(&packed, out);
            }
        })
    }

    /// Handles the answer to a subscription.
    pub(super) fn handle_subscribed(
        &mut self,
        waiting: Waiting,
        mut answer: Subscribed,
        recovery: &[TopicRecovery],
        moment: Moment,
        batch: &mut BatchBuilder,
    ) {
        match waiting {
            Waiting::Subscribe { options, reply, .. } => {
                for topic in &answer.topics {
                    self.subscriptions.insert(topic, &options);
                    // From now on it is the application's own.
                    self.granted.remove(topic);
                }
                for recovered in recovery {
                    let positions = &mut answer.positions;
                    positions.extend(self.handle_position(recovered, &options, moment, batch));
                }
                let Some(reply) = reply else {
                    self.lose(answer.failed, batch);
                    return;
                };
                let _ = reply.send(Ok(answer));
            }
            Waiting::Unsubscribe {
                reply: Some(reply), ..
            } => {
                for topic in &answer.topics {
                    self.subscriptions.remove(topic);
                    self.granted.remove(topic);
                    self.forget(topic, batch);
                }
                let _ = reply.send(Ok(answer));
            }
            _ => {}
        }
    }

    /// Adopts the server's position of a topic, which may differ from the client's.
    pub(super) fn handle_position(
        &mut self,
        answer: &TopicRecovery,
        options: &SubscribeOptions,
        moment: Moment,
        batch: &mut BatchBuilder,
    ) -> Option<TopicPosition> {
        let epoch = parse_epoch(&answer.epoch)?;
        let position = Position {
            epoch,
            offset: answer.offset,
        };
        let known = self.sequencer.position(&answer.topic);
        if !answer.recovered {
            let last = known.or_else(|| options.position_from(&answer.topic));
            self.forget(&answer.topic, batch);
            if let Some(last) = last
                && options.recover
                && last != position
            {
                batch.push(Event::Unrecovered(Box::new(Unrecovered {
                    topic: answer.topic.clone(),
                    last,
                    now: position,
                })));
            }
        }
        if known.is_none() || !answer.recovered {
            // The publications that the server sends again have not arrived yet.
            let offset = answer.offset.saturating_sub(answer.count);
            let mut sequenced = Vec::new();
            let start = Position { epoch, offset };
            self.sequencer
                .advance(&answer.topic, start, moment.ms(), &mut sequenced);
        }
        Some(TopicPosition {
            topic: answer.topic.clone(),
            position,
            recovered: answer.recovered,
            count: answer.count,
        })
    }

    /// Handles topics that the server has ended: topics with expired tokens are subscribed again with other
    /// tokens, if the application provides some. Missed publications are recovered.
    pub(super) fn handle_taken(
        &mut self,
        topics: Vec<String>,
        failures: &[TopicFailure],
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        let (topics, granted): (Vec<_>, Vec<_>) = topics
            .into_iter()
            .partition(|topic| self.subscriptions.options(topic).is_some());
        self.lose_granted(granted, batch);
        let has_expired = |topic: &String| {
            let mut failures = failures.iter();
            failures.any(|failure| {
                failure.topic == *topic && failure.code == ErrorCode::TokenExpired.as_str()
            })
        };
        let (expired, mut lost): (Vec<_>, Vec<_>) = topics.into_iter().partition(has_expired);
        for topic in expired {
            match self.subscriptions.options(&topic).cloned() {
                Some(options) if options.tokens.is_some() => {
                    self.subscribe_again(vec![topic], options, moment, out)?;
                }
                _ => lost.push(topic),
            }
        }
        self.lose(lost, batch);
        Ok(())
    }

    /// The server does not give these topics again.
    pub(super) fn lose(&mut self, topics: Vec<String>, batch: &mut BatchBuilder) {
        if topics.is_empty() {
            return;
        }
        for topic in &topics {
            self.subscriptions.remove(topic);
            self.forget(topic, batch);
        }
        batch.push(Event::SubscriptionLost(topics));
    }

    pub(super) fn forget(&mut self, topic: &str, batch: &mut BatchBuilder) {
        let mut sequenced = Vec::new();
        self.sequencer.forget(topic, &mut sequenced);
        self.push_sequenced(sequenced, batch);
    }
}

/// Writes a question about topics.
fn write_query(
    waiting: &Waiting,
    link: &mut Link,
    (cid, id): (&str, Uuid),
    moment: Moment,
    out: &mut Vec<u8>,
) -> Result<(), Ending> {
    match waiting {
        Waiting::Presence {
            topics,
            counts_only,
            limit,
            ..
        } => {
            let names: Vec<&str> = topics.iter().map(String::as_str).collect();
            link.write_system(Signed::Yes, moment, out, |wire, out| {
                let (now, cid) = (moment.now, Some(cid));
                wire.write_presence_request(&names, *counts_only, *limit, cid, id, now, out)
            })
        }
        Waiting::History { query, .. } => {
            link.write_system(Signed::Yes, moment, out, |wire, out| {
                wire.write_history_request(query, Some(cid), id, moment.now, out)
            })
        }
        _ => Ok(()),
    }
}

/// The positions to recover from. Patterns and queue groups have none.
fn positions(
    topics: &[String],
    options: &SubscribeOptions,
    known: impl Fn(&str) -> Option<Position>,
) -> Vec<RecoveryPosition> {
    if options.queue_group.is_some() || (!options.recover && options.from.is_empty()) {
        return Vec::new();
    }
    let names = topics.iter().filter(|topic| !is_pattern(topic));
    names
        .filter_map(|topic| {
            let position = known(topic)?;
            Some(RecoveryPosition {
                topic: topic.clone(),
                epoch: epoch_text(position.epoch),
                offset: position.offset,
            })
        })
        .collect()
}

/// A request with these options, for topics that are still to be named.
fn subscription_request<'a>(
    options: &'a SubscribeOptions,
    positions: &'a [RecoveryPosition],
    replays: bool,
) -> SubscriptionRequest<'a> {
    SubscriptionRequest {
        recover: !positions.is_empty(),
        recovery: positions,
        replay: if replays { options.replay } else { 0 },
        presence: options.presence.as_ref(),
        queue_group: options.queue_group.as_deref(),
        acknowledge: options.acknowledge,
        window: options.window,
        filter: options.filter.as_ref(),
        overload: options.overload,
        ..SubscriptionRequest::new(Action::Subscribe, &[])
    }
}

/// The mark of requested snapshots, so that they are distinguished from publications.
const SYNC_CORRELATION_ID: &str = "sync";

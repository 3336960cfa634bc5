//! Snapshots: the state of topics, for clients that ask for it with `sync_request`.

use crate::model::is_payload;
use crate::model::queries::SyncRequest;
use crate::session::Session;
use crate::session::application::Application;
use crate::session::context::Context;
use crate::session::inbound::Inbound;
use crate::topics::broker::PageQuery;
use crate::topics::error::PublishError;
use crate::topics::name::{check_topic, check_topic_or_pattern};
use crate::topics::publication::Payload;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashSet;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{Category, Priority, PublicationHeader, SystemType};
use tidewire_wire::format::{Format, json_to_msgpack};
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::{Reply, Sync};

impl<A: Application> Inbound<'_, A> {
    /// `sync_request` from a client.
    pub(crate) fn handle_sync(&mut self, request: Sync, correlation_id: Option<String>) {
        if !self.session.state.is_open() {
            return;
        }
        self.session.core.counters.sync_requests.add(1);
        let topics = self.session.topics_to_sync(request.topics);
        let mut is_answered = false;
        if !topics.is_empty() {
            // The next turn is for the others, if these are many.
            self.session.core.fanout_bytes += topics.len() * TOPIC_COST_BYTES;
            let calls = self.session.state.calls.get_or_insert_default();
            calls.sync_id.clone_from(&correlation_id);
            let mut context = Context::new(&mut self.session);
            let request = SyncRequest {
                topics: &topics,
                include_snapshots: request.include_snapshots,
                last_sequence: request.last_sequence,
                correlation_id: correlation_id.as_deref(),
            };
            is_answered = self.app.on_sync(&mut context, &request);
            if let Some(calls) = &mut self.session.state.calls {
                calls.sync_id = None;
            }
        }
        if !is_answered {
            let reply = Reply::Error {
                code: ErrorCode::InvalidAction,
                message: "this server keeps no snapshots of these topics".into(),
                retry_after_s: None,
                refused: None,
                correlation_id,
            };
            self.session.reply(&reply);
        }
    }
}

impl Context<'_> {
    /// Answers with the state of a topic: a message of category `S` with this type and payload, one
    /// JSON value. While the application is called for a `sync_request`, it carries the request's
    /// `cid`.
    ///
    /// # Errors
    /// [`PublishError`]; nothing was sent.
    pub fn send_snapshot(
        &mut self,
        topic: &str,
        t: &str,
        payload: &str,
    ) -> Result<(), PublishError> {
        check(
            topic,
            t,
            payload,
            self.session
                .core
                .setup
                .config
                .topics
                .limits
                .payload_bytes_max,
        )?;
        let calls = self.session.state.calls.as_ref();
        let correlation_id = calls.and_then(|calls| calls.sync_id.clone());
        let json = write(
            topic,
            None,
            t,
            payload.as_bytes(),
            correlation_id.as_deref(),
        );
        self.session.send_snapshot(&json);
        Ok(())
    }

    /// Answers with the newest publication of each of the request's topics that keeps its last
    /// value, with its position, whatever the filters of subscriptions; gives whether there was
    /// any, and none if the request wants no snapshots. If they are more than may wait for the
    /// connection, the client is told by `LIMIT_EXCEEDED` which topic is the first that it did not
    /// get.
    pub fn send_newest(&mut self, request: &SyncRequest<'_>) -> bool {
        if !request.include_snapshots {
            return false;
        }
        let mut is_any = false;
        for topic in request.topics {
            let limits = &self.session.core.setup.config.limits;
            if self.session.io.queued_bytes(self.session.state.key.id) > limits.outbox_pause_bytes {
                let reply = Reply::Error {
                    code: ErrorCode::LimitExceeded,
                    message: format!("{topic}: from this topic on it is too much at once").into(),
                    retry_after_s: None,
                    refused: None,
                    correlation_id: request.correlation_id.map(str::to_owned),
                };
                self.session.reply(&reply);
                return true;
            }
            if let Some(json) = self.session.newest(topic, request.correlation_id) {
                self.session.send_snapshot(&json);
                is_any = true;
            }
        }
        is_any
    }
}

impl Session<'_> {
    /// The topics of a `sync_request` that the session may have, each once.
    fn topics_to_sync(&self, asked: Vec<String>) -> Vec<String> {
        let slots = self
            .state
            .topics
            .as_ref()
            .map_or(&[][..], |topics| &topics.slots);
        if asked.is_empty() {
            let names = slots
                .iter()
                .filter_map(|slot| self.core.topics.topic(*slot));
            return names.map(|topic| topic.name.to_string()).collect();
        }
        let may_have = |topic: &str| {
            let slot = self.core.topics.slot(topic);
            slot.is_some_and(|slot| self.core.topics.is_member(slot, self.state.key.id))
                || self.state.access.may_subscribe(topic)
        };
        let mut seen = HashSet::new();
        let mut topics = asked;
        topics.retain(|topic| {
            check_topic_or_pattern(topic).is_ok() && may_have(topic) && seen.insert(topic.clone())
        });
        topics
    }

    /// The newest publication of a topic that keeps its last value, as a snapshot.
    fn newest(&self, topic: &str, correlation_id: Option<&str>) -> Option<Vec<u8>> {
        let hub = &self.core.shared.hub;
        if check_topic(topic).is_err() || !hub.rules.get().of(topic).last_value {
            return None;
        }
        let query = PageQuery {
            since: None,
            limit: 1,
            newest_first: true,
        };
        let page = hub.history(&topic.into(), query, self.io.now().unix_ms);
        let page = page.ok()??;
        let newest = page.publications.first()?;
        if newest.is_expired(self.io.now().unix_ms) {
            return None;
        }
        let head: Head<'_> = serde_json::from_slice(newest.json()).ok()?;
        let position = newest.position.map(|at| (at.epoch, at.offset));
        Some(write(
            topic,
            position,
            &head.t,
            newest.content(),
            correlation_id,
        ))
    }

    fn send_snapshot(&mut self, json: &[u8]) {
        self.core.fanout_bytes += json.len();
        self.core.counters.snapshots_sent.add(1);
        match self.state.session.format() {
            Format::Json => self.send(Payload::new(OpCode::Text, json)),
            Format::MessagePack => {
                let mut packed = Vec::with_capacity(json.len());
                // The payload was checked to be JSON and not to be nested too deep.
                if let Err(error) = json_to_msgpack(json, &mut packed) {
                    return tracing::error!(%error, "a snapshot cannot be written as MessagePack");
                }
                self.send(Payload::messagepack(&packed));
            }
        }
    }
}

/// What else is needed of an envelope that was published.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
}

pub(crate) fn check(
    topic: &str,
    t: &str,
    payload: &str,
    bytes_max: usize,
) -> Result<(), PublishError> {
    check_topic(topic)?;
    if t.is_empty() || SystemType::parse(t).is_some() {
        return Err(PublishError::Type);
    }
    if payload.len() > bytes_max {
        return Err(PublishError::TooLarge { bytes_max });
    }
    if is_payload(payload) {
        Ok(())
    } else {
        Err(PublishError::Payload)
    }
}

/// A snapshot as JSON.
pub(crate) fn write(
    topic: &str,
    position: Option<(u32, u64)>,
    t: &str,
    payload: &[u8],
    correlation_id: Option<&str>,
) -> Vec<u8> {
    let header = PublicationHeader {
        category: Category::Snapshot,
        t,
        topic: Some(topic),
        position,
        id: None,
        priority: Priority::Normal,
        delivery: None,
        correlation_id,
    };
    let mut json = Vec::with_capacity(payload.len() + ENVELOPE_BYTES);
    header.write_json(payload, &mut json);
    json
}

/// What a topic of a request counts for against what clients may have published in a turn, in
/// bytes.
const TOPIC_COST_BYTES: usize = 1024;

/// What an envelope usually adds to its payload.
const ENVELOPE_BYTES: usize = 96;

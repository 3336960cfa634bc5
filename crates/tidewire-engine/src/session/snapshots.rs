//! Snapshots: the state of topics, for clients that ask for it with `sync_request`.

use crate::limits::work::cost;
use crate::model::content::Content;
use crate::model::queries::SyncRequest;
use crate::session::Session;
use crate::session::application::Application;
use crate::session::context::Context;
use crate::session::inbound::Inbound;
use crate::state::unfinished_jobs::{Job, SnapshotsJob, SyncJob};
use crate::topics::broker::{PageQuery, Prepare, Refusal};
use crate::topics::error::PublishError;
use crate::topics::hub::NotReady;
use crate::topics::name::{check_topic, check_topic_or_pattern, is_pattern};
use crate::topics::publication::{Payload, Publication};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashSet;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{Category, Priority, PublicationHeader, SystemType};
use tidewire_wire::format::{Format, envelope_to_msgpack};
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::{Reply, Sync};

impl<A: Application> Inbound<'_, A> {
    /// `sync_request` from a client.
    pub(crate) fn handle_sync_request(&mut self, request: Sync, correlation_id: Option<String>) {
        if !self.session.state.is_open() {
            return;
        }
        self.session.core.counters.sync_requests.add(1);
        let topics = self.session.topics_to_sync(request.topics);
        let named = topics.len() as u64 * cost::NAME;
        self.session.core.turn.meter.spend(named);
        let job = SyncJob {
            topics: topics.into_iter(),
            allowed: Vec::new(),
            include_snapshots: request.include_snapshots,
            last_sequence: request.last_sequence,
            correlation_id,
        };
        self.session.state.work.jobs.push(Job::Sync(Box::new(job)));
    }

    /// Checks some topics of a request and, when none is left, has it answered; returns the rest of the job.
    pub(crate) fn step_sync(&mut self, mut job: Box<SyncJob>) -> Option<Box<SyncJob>> {
        for topic in &mut job.topics {
            if self.session.may_sync(&topic) {
                job.allowed.push(topic);
            }
            if self.session.core.turn.meter.is_spent() {
                return Some(job);
            }
        }
        if !self.answer_sync(&job) {
            self.session.refuse_sync(job.correlation_id, None);
        }
        None
    }

    /// Whether the application answers, by itself or with what the topics keep.
    fn answer_sync(&mut self, job: &SyncJob) -> bool {
        if job.allowed.is_empty() {
            return false;
        }
        let calls = self.session.state.work.calls.get_or_insert_default();
        calls.sync_id.clone_from(&job.correlation_id);
        let mut context = Context::new(&mut self.session);
        let request = SyncRequest {
            topics: &job.allowed,
            include_snapshots: job.include_snapshots,
            last_sequence: job.last_sequence,
            correlation_id: job.correlation_id.as_deref(),
        };
        let is_answered = self.app.on_sync(&mut context, &request);
        if let Some(calls) = &mut self.session.state.work.calls {
            calls.sync_id = None;
        }
        is_answered
    }
}

impl Context<'_> {
    /// Answers with the state of a topic: a message of category `S` with this type and payload, a
    /// JSON text or the bytes of [`Content::binary`]. While the application is called for a `sync_request`, it carries the request's
    /// `cid`.
    ///
    /// # Errors
    /// [`PublishError`]; nothing was sent.
    pub fn send_snapshot(
        &mut self,
        topic: &str,
        t: &str,
        payload: impl Into<Content>,
    ) -> Result<(), PublishError> {
        let payload = payload.into();
        check(
            topic,
            t,
            &payload,
            self.session
                .core
                .setup
                .config
                .topics
                .limits
                .payload_bytes_max,
        )?;
        let calls = self.session.state.work.calls.as_ref();
        let correlation_id = calls.and_then(|calls| calls.sync_id.clone());
        let json = write(
            topic,
            None,
            t,
            (payload.as_json().as_bytes(), payload.is_binary()),
            correlation_id.as_deref(),
        );
        self.session.send_snapshot(&json);
        Ok(())
    }

    /// Answers with the newest publication of each of the request's topics that keeps its last
    /// value, with its position, whatever the filters of subscriptions. The answers follow one by
    /// one after this call, as fast as the client reads them and the work of the turn allows.
    ///
    /// Gives whether any of the topics keeps its last value; always false if the request wants no
    /// snapshots. If none of them has a value yet, the client receives `INVALID_ACTION`.
    pub fn send_newest(&mut self, request: &SyncRequest<'_>) -> bool {
        let rules = self.session.core.shared.hub.rules.get();
        let keeps = |topic: &&String| rules.of(topic).last_value;
        let kept = request.topics.iter().filter(keeps).cloned();
        let kept: Vec<String> = kept.filter(|_| request.include_snapshots).collect();
        let looked_at = request.topics.len() as u64 * cost::CHECK;
        self.session.core.turn.meter.spend(looked_at);
        let keeps_any = !kept.is_empty();
        if keeps_any {
            let job = SnapshotsJob {
                topics: kept.into_iter(),
                prepared: 0,
                is_asked_again: false,
                refusal: None,
                is_any: false,
                correlation_id: request.correlation_id.map(str::to_owned),
            };
            let job = Job::Snapshots(Box::new(job));
            self.session.state.work.jobs.push(job);
        }
        keeps_any
    }
}

impl Session<'_> {
    /// The topics of a `sync_request`, each once.
    fn topics_to_sync(&self, asked: Vec<String>) -> Vec<String> {
        if asked.is_empty() {
            let topics = self.state.topics.as_ref();
            let slots = topics.map_or(&[][..], |topics| &topics.slots);
            let topics = slots
                .iter()
                .filter_map(|slot| self.core.topics.topic(*slot));
            return topics.map(|topic| topic.name.to_string()).collect();
        }
        let mut seen = HashSet::new();
        let mut topics = asked;
        topics.retain(|topic| seen.insert(topic.clone()));
        topics
    }

    /// Whether the session may have the state of a topic.
    fn may_sync(&mut self, topic: &str) -> bool {
        self.core
            .turn
            .meter
            .spend(cost::CHECK + self.state.client.access.cost());
        let is_member = |slot| self.core.topics.is_member(slot, self.state.key.id);
        check_topic_or_pattern(topic).is_ok()
            && (self.core.topics.slot(topic).is_some_and(is_member)
                || self.state.client.access.may_subscribe(topic))
    }

    /// Sends the snapshot of one topic; returns the rest of the job.
    pub(crate) fn step_snapshots(
        &mut self,
        mut job: Box<SnapshotsJob>,
    ) -> Option<Box<SnapshotsJob>> {
        if job.prepared == 0 {
            job.prepared = self.prepare_snapshots(job.topics.as_slice());
            if self.state.awaits_broker() {
                return Some(job);
            }
        }
        let refused = self.take_refused();
        job.refusal = job.refusal.or(refused.first().map(|(_, refusal)| *refusal));
        let Some(topic) = job.topics.as_slice().first() else {
            if !job.is_any {
                self.refuse_sync(job.correlation_id, job.refusal);
            }
            return None;
        };
        self.core.turn.meter.spend(cost::SUBSCRIBE);
        // Its rights may have changed since the request was checked.
        if self.may_sync(topic) {
            match self.newest(topic, job.correlation_id.as_deref()) {
                Ok(Some(json)) => {
                    self.send_snapshot(&json);
                    job.is_any = true;
                }
                Ok(None) => {}
                // Other topics have displaced it since it was prepared, unless the broker refused.
                Err(NotReady) if !job.is_asked_again && job.refusal.is_none() => {
                    self.prepare_snapshots(std::slice::from_ref(topic));
                    job.is_asked_again = true;
                    return Some(job);
                }
                Err(NotReady) => {}
            }
        }
        job.topics.next();
        job.prepared -= 1;
        job.is_asked_again = false;
        Some(job)
    }

    /// Asks the broker for the newest publications of the next shared topics; the number of topics
    /// that can be read when it has answered.
    fn prepare_snapshots(&mut self, topics: &[String]) -> usize {
        let next = &topics[..topics.len().min(PREPARED_MAX)];
        if self.core.shared.hub.has_cluster() {
            let wanted = Prepare {
                since: None,
                newest: 1,
            };
            for topic in next {
                self.core.turn.meter.spend(cost::SUBSCRIBE);
                if self.core.shared.hub.is_shared(topic) && !is_pattern(topic) {
                    self.ask_for(&topic.as_str().into(), wanted);
                }
            }
        }
        next.len()
    }

    /// Answers a request for which nothing was sent, with the reason of the broker if it gave one.
    fn refuse_sync(&mut self, correlation_id: Option<String>, refusal: Option<Refusal>) {
        let words = "this server keeps no snapshots of these topics";
        let (code, message) = match refusal.map(PublishError::from) {
            Some(error) => (error.code(), error.to_string().into()),
            None => (ErrorCode::InvalidAction, words.into()),
        };
        let reply = Reply::Error {
            code,
            message,
            retry_after_s: None,
            refused: None,
            correlation_id,
        };
        self.reply(&reply);
    }

    /// The newest publication of a topic that keeps its last value, as a snapshot.
    fn newest(
        &self,
        topic: &str,
        correlation_id: Option<&str>,
    ) -> Result<Option<Vec<u8>>, NotReady> {
        let hub = &self.core.shared.hub;
        if check_topic(topic).is_err() || !hub.rules.get().of(topic).last_value {
            return Ok(None);
        }
        let query = PageQuery {
            since: None,
            limit: 1,
            newest_first: true,
        };
        let now_unix_ms = self.io.now().steady_unix_ms;
        let page = hub.history(&topic.into(), query, now_unix_ms)?;
        let newest = page.as_ref().and_then(|page| page.publications.first());
        Ok(newest
            .filter(|newest| !newest.is_expired(now_unix_ms))
            .and_then(|newest| snapshot_of(topic, newest, correlation_id)))
    }

    fn send_snapshot(&mut self, json: &[u8]) {
        self.core
            .turn
            .meter
            .spend(cost::SEND + cost::bytes(2 * json.len()));
        self.core.turn.published.charge(json.len(), 1);
        self.core.counters.snapshots_sent.add(1);
        match self.state.session.format() {
            Format::Json => self.send(Payload::new(OpCode::Text, json)),
            Format::MessagePack => {
                let mut packed = Vec::with_capacity(json.len());
                // The payload was checked to be JSON and not to be nested too deep.
                if let Err(error) = envelope_to_msgpack(json, &mut packed) {
                    return tracing::error!(%error, "a snapshot cannot be written as MessagePack");
                }
                self.send(Payload::messagepack(&packed));
            }
        }
    }
}

/// The type in the envelope of a publication.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
}

pub(crate) fn check(
    topic: &str,
    t: &str,
    payload: &Content,
    bytes_max: usize,
) -> Result<(), PublishError> {
    check_topic(topic)?;
    if t.is_empty() || SystemType::parse(t).is_some() {
        return Err(PublishError::Type);
    }
    if payload.as_json().len() > bytes_max {
        return Err(PublishError::TooLarge { bytes_max });
    }
    if payload.is_readable() {
        Ok(())
    } else {
        Err(PublishError::Payload)
    }
}

/// A publication of a topic as a snapshot.
fn snapshot_of(topic: &str, newest: &Publication, correlation_id: Option<&str>) -> Option<Vec<u8>> {
    let head: Head<'_> = serde_json::from_slice(newest.json()).ok()?;
    let position = newest.position.map(|at| (at.epoch, at.offset));
    Some(write(
        topic,
        position,
        &head.t,
        (newest.content(), newest.is_binary()),
        correlation_id,
    ))
}

/// A snapshot as JSON.
pub(crate) fn write(
    topic: &str,
    position: Option<(u32, u64)>,
    t: &str,
    (payload, binary): (&[u8], bool),
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
        binary,
    };
    let mut json = Vec::with_capacity(payload.len() + ENVELOPE_BYTES);
    header.write_json(payload, &mut json);
    json
}

/// The topics that the broker is asked for at a time.
const PREPARED_MAX: usize = 64;

/// The usual size of an envelope besides its payload.
const ENVELOPE_BYTES: usize = 96;

//! `history_request` from a client: the kept publications of a topic, for clients that were not
//! there.
//!
//! An answer is made page by page, so that a long history keeps nobody else waiting, and is bounded
//! in publications and in bytes.

use crate::limits::work::cost;
use crate::model::Position;
use crate::session::Session;
use crate::state::unfinished_jobs::{HistoryJob, Job};
use crate::topics::broker::{Missed, PageQuery, Prepare, Refusal};
use crate::topics::error::PublishError;
use crate::topics::history::Page;
use crate::topics::name::check_topic;
use crate::topics::publication::Publication;
use std::sync::Arc;
use std::time::Instant;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::format::Format;
use tidewire_wire::session::{HistoryQuery, Reply};

impl Session<'_> {
    /// `history_request` from a client.
    pub(crate) fn handle_history_request(
        &mut self,
        query: HistoryQuery,
        correlation_id: Option<String>,
    ) {
        self.core.counters.history_requests.add(1);
        let job = HistoryJob {
            name: query.topic.into(),
            since: query.since,
            limit: usize::try_from(query.limit).unwrap_or(usize::MAX),
            newest_first: query.newest_first,
            answer: None,
            bytes: 0,
            at: None,
            correlation_id,
            started: Instant::now(),
        };
        self.state.work.jobs.push(Job::History(Box::new(job)));
    }

    /// Does a part of a request, or answers it; returns the rest of the job.
    pub(crate) fn step_history(&mut self, mut job: Box<HistoryJob>) -> Option<Box<HistoryJob>> {
        if !self.state.can_subscribe() {
            return None;
        }
        if let Err(refusal) = self.check_history(&job) {
            self.reply(&refusal);
            return None;
        }
        match self.is_history_ready(&job) {
            Ok(true) => {}
            Ok(false) => return Some(job),
            Err(refusal) => {
                let error = PublishError::from(refusal);
                let refusal = job.refused(error.code(), error);
                self.reply(&refusal);
                return None;
            }
        }
        let Some((page, position)) = self.history_page(&job) else {
            let refusal = job.refused(ErrorCode::NotFound, "this topic keeps no history");
            self.reply(&refusal);
            return None;
        };
        if (job.answer.is_none() && !job.begin(&page, position)) || !job.joins(&page, position) {
            self.answer_history(*job);
            return None;
        }
        let now_ms = self.io.now().steady_unix_ms;
        for publication in &page.publications {
            if self.core.turn.meter.is_spent() {
                return Some(job);
            }
            if !self.take_kept(&mut job, publication, now_ms) {
                if let Some(answer) = &mut job.answer {
                    answer.more = true;
                }
                self.answer_history(*job);
                return None;
            }
        }
        if page.more && !page.publications.is_empty() {
            return Some(job);
        }
        self.answer_history(*job);
        None
    }

    /// Checks that the client may read the topic. The error is the answer to send.
    fn check_history(&mut self, job: &HistoryJob) -> Result<(), Box<Reply>> {
        self.core
            .turn
            .meter
            .spend(cost::CHECK + self.state.client.access.cost());
        if let Err(error) = check_topic(&job.name) {
            let refusal = job.refused(ErrorCode::InvalidSubscription, error);
            return Err(Box::new(refusal));
        }
        if !self.state.client.access.may_subscribe(&job.name) {
            self.core.counters.subscriptions_forbidden.add(1);
            let words = "this topic is not allowed";
            return Err(Box::new(job.refused(ErrorCode::TopicForbidden, words)));
        }
        Ok(())
    }

    /// Whether the broker has made the topic ready; if not, the job waits.
    fn is_history_ready(&mut self, job: &HistoryJob) -> Result<bool, Refusal> {
        if !self.core.shared.hub.is_shared(&job.name) {
            return Ok(true);
        }
        let wanted = Prepare {
            since: None,
            newest: u64::MAX,
        };
        self.is_ready(&job.name, wanted)
    }

    /// The next page and the current position of the topic; `None` for a topic that keeps no
    /// history.
    fn history_page(&mut self, job: &HistoryJob) -> Option<(Page<Arc<Publication>>, Position)> {
        self.core.turn.meter.spend(cost::SUBSCRIBE);
        let asked_from = job.since.as_ref().map(|since| since.offset);
        let query = PageQuery {
            since: job.at.or(asked_from),
            limit: PAGE,
            newest_first: job.newest_first,
        };
        let moment = self.core.moment(self.steady_now(), self.state.limits.owner);
        let hub = &self.core.shared.hub;
        let page = hub.history(&job.name, query, moment.now_ms).ok()??;
        let position = match page.position {
            Some(position) => position,
            // As for a subscriber: the topic has a position from now on.
            None => {
                let recovery = hub.recover(&job.name, Missed::default(), moment);
                recovery.ok()??.0.position
            }
        };
        Some((page, position))
    }

    /// Puts a publication into the answer, unless it has expired; false if there is no room for it.
    fn take_kept(&mut self, job: &mut HistoryJob, publication: &Publication, now_ms: u64) -> bool {
        self.core.turn.meter.spend(cost::ENTRY);
        let Some(position) = publication.position else {
            return true;
        };
        if !publication.is_expired(now_ms) {
            let json = publication.json();
            if !job.has_room(json.len()) {
                return false;
            }
            // Copied here and into the answer.
            self.core.turn.meter.spend(2 * cost::bytes(json.len()));
            job.bytes += json.len();
            if let Some(answer) = &mut job.answer {
                answer.publications.push(json.to_vec());
            }
        }
        job.at = Some(position.offset);
        true
    }

    fn answer_history(&mut self, job: HistoryJob) {
        let Some(mut page) = job.answer else { return };
        self.core.turn.meter.spend(cost::SEND);
        if self.state.session.format() == Format::MessagePack {
            self.core.turn.meter.spend(8 * cost::bytes(job.bytes));
        }
        // Publications that were published or dropped after the first page was read do not count.
        if page.publications.len() == job.limit {
            page.more = match (job.at, job.newest_first) {
                (Some(at), false) => at < page.offset,
                (Some(at), true) => at > page.oldest,
                (None, _) => false,
            };
        }
        let reply = Reply::HistoryResponse {
            page: Box::new(page),
            correlation_id: job.correlation_id,
        };
        self.reply(&reply);
        let timings = &self.core.counters.timings;
        timings.history_duration.record(job.started.elapsed());
    }
}

/// Publications that are read from a history at a time.
const PAGE: usize = 64;

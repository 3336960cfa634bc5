//! A broker for tests that answers late, out of turn, or not at all.

use super::memory::MemoryBroker;
use super::{
    Broker, BrokerAnswer, BrokerUsage, Done, Missed, Moment, Order, PageQuery, Prepare,
    TicketOutcome,
};
use super::{PresenceView, Refusal, Sink, Ticket, Tickets};
use crate::model::ConnectionKey;
use crate::model::content::Content;
use crate::topics::config::TopicRule;
use crate::topics::history::{HistoryLimits, Page, Recovery};
use crate::topics::new_publication::NewPublication;
use crate::topics::presence::PresenceChange;
use crate::topics::publication::{Draft, Publication};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Does in [`step`](Self::step) what it was asked before: in the order of the questions, but
/// answers in any order.
#[derive(Debug)]
pub(crate) struct LateBroker {
    inner: MemoryBroker,
    sink: OnceLock<Weak<dyn Delivers>>,
    state: Mutex<LateState>,
}

/// A [`Sink`] that outlives a call.
pub(crate) trait Delivers: Sink + Send + Sync + std::fmt::Debug {}

impl<T: Sink + Send + Sync + std::fmt::Debug> Delivers for T {}

/// The fate of the oldest question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done, and answered some time later.
    Done,
    /// It is done, and the answer is lost.
    Lost,
    /// It is not done, and that is the answer.
    Refused,
}

#[derive(Debug, Default)]
struct LateState {
    asked: VecDeque<(Question, Ticket)>,
    answers: Vec<(Ticket, TicketOutcome)>,
    ready: HashSet<Arc<str>>,
    questions: u64,
}

#[derive(Debug)]
enum Question {
    Publish(Box<OwnedOrder>),
    Prepare(Arc<str>),
    Forget(Arc<str>),
}

/// An [`Order`] that outlives its call.
#[derive(Debug)]
struct OwnedOrder {
    topic: Arc<str>,
    rule: TopicRule,
    publication: NewPublication,
    moment: Moment,
}

impl LateBroker {
    pub(crate) fn new(inner: MemoryBroker) -> Self {
        Self {
            inner,
            sink: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Delivers to this sink from now on.
    pub(crate) fn attach(&self, sink: Weak<dyn Delivers>) {
        // A broker has one server.
        let _ = self.sink.set(sink);
    }

    /// Handles the oldest question; false if there is none.
    pub(crate) fn act(&self, fate: Fate) -> bool {
        let Some((question, ticket)) = self.lock().asked.pop_front() else {
            return false;
        };
        let outcome = match fate {
            Fate::Refused => Err(Refusal::Unavailable),
            Fate::Done | Fate::Lost => Ok(self.answer(question)),
        };
        if fate != Fate::Lost {
            self.lock().answers.push((ticket, outcome));
        }
        true
    }

    /// Gives one of the answers, selected by `pick`; false if there is none.
    pub(crate) fn tell(&self, pick: usize) -> bool {
        let mut state = self.lock();
        if state.answers.is_empty() {
            return false;
        }
        let at = pick % state.answers.len();
        let (ticket, outcome) = state.answers.swap_remove(at);
        drop(state);
        ticket.settle(outcome);
        true
    }

    /// How many questions it was asked so far.
    pub(crate) fn questions(&self) -> u64 {
        self.lock().questions
    }

    /// Forgets that topics are ready, as a broker does whose connection was lost.
    pub(crate) fn cool_down(&self) {
        self.lock().ready.clear();
    }

    fn answer(&self, question: Question) -> Done {
        match question {
            Question::Publish(order) => {
                let sink = self.sink.get().and_then(Weak::upgrade);
                let draft: Draft<'_> = order.publication.draft();
                let order = Order {
                    topic: &order.topic,
                    rule: &order.rule,
                    draft: &draft,
                    moment: order.moment,
                };
                let published = match sink {
                    Some(sink) => self.inner.publish_now(&order, &*sink),
                    None => self.inner.publish_now(&order, &Nowhere),
                };
                Done::Published(published)
            }
            Question::Prepare(topic) => {
                self.lock().ready.insert(topic);
                Done::Prepared
            }
            Question::Forget(topic) => Done::Forgotten(self.inner.forget_now(&topic)),
        }
    }

    fn ask<T>(&self, question: Question, tickets: Tickets<'_>) -> BrokerAnswer<T> {
        let mut state = self.lock();
        state.questions += 1;
        state.asked.push_back((question, tickets()));
        BrokerAnswer::Later
    }

    fn is_ready(&self, topic: &str) -> bool {
        self.lock().ready.contains(topic)
    }

    fn lock(&self) -> MutexGuard<'_, LateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops publications that nobody waits for any more.
struct Nowhere;

impl Sink for Nowhere {
    fn deliver(&self, _: &Arc<str>, _: Arc<Publication>) {}
}

impl Broker for LateBroker {
    fn publish(
        &self,
        order: &Order<'_>,
        tickets: Tickets<'_>,
        _: &dyn Sink,
    ) -> BrokerAnswer<Result<super::Published, Refusal>> {
        let draft = order.draft;
        let publication = NewPublication {
            t: draft.t.to_owned(),
            payload: Content::checked(
                String::from_utf8_lossy(draft.payload).into_owned(),
                draft.is_binary,
            ),
            category: draft.category,
            priority: draft.priority,
            id: draft.id.map(str::to_owned),
            key: draft.key.map(str::to_owned),
            exclude: draft.exclude.clone(),
            ttl_ms: draft.ttl_ms,
            is_volatile: draft.is_volatile,
        };
        let order = OwnedOrder {
            topic: Arc::clone(order.topic),
            rule: order.rule.clone(),
            publication,
            moment: order.moment,
        };
        self.ask(Question::Publish(Box::new(order)), tickets)
    }

    fn prepare(
        &self,
        topic: &Arc<str>,
        _: &TopicRule,
        _: Prepare,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        if self.is_ready(topic) {
            return BrokerAnswer::Now(Ok(()));
        }
        self.ask(Question::Prepare(Arc::clone(topic)), tickets)
    }

    fn recover(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        moment: Moment,
        missed: Missed,
        locked: &mut dyn FnMut(),
    ) -> Option<Recovery<Arc<Publication>>> {
        self.is_ready(topic).then(|| {
            self.inner
                .recover_now(topic, limits, moment, missed, locked)
        })
    }

    fn page(
        &self,
        topic: &Arc<str>,
        limits: &HistoryLimits,
        now_ms: u64,
        query: PageQuery,
    ) -> Option<Page<Arc<Publication>>> {
        self.is_ready(topic)
            .then(|| self.inner.page_now(topic, limits, now_ms, query))
    }

    fn forget(
        &self,
        topic: &Arc<str>,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<bool, Refusal>> {
        self.ask(Question::Forget(Arc::clone(topic)), tickets)
    }

    fn add_interest(&self, _: &Arc<str>, _: &TopicRule) {}

    fn remove_interest(&self, _: &str) {}

    fn sweep(&self, now_ms: u64, limits_of: &dyn Fn(&str) -> HistoryLimits) {
        self.inner.sweep(now_ms, limits_of);
    }

    fn join(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> PresenceChange {
        self.inner.join(topic, who, connection, data)
    }

    fn leave(&self, topic: &Arc<str>, who: &Arc<str>, connection: ConnectionKey) -> PresenceChange {
        self.inner.leave(topic, who, connection)
    }

    fn present(&self, topic: &str, limit: usize) -> PresenceView {
        self.inner.present(topic, limit)
    }

    fn is_busy(&self) -> bool {
        self.lock().asked.len() > ASKED_MAX
    }

    fn usage(&self) -> BrokerUsage {
        self.inner.usage()
    }
}

/// Questions that may wait before publishers have to.
const ASKED_MAX: usize = 1_000;

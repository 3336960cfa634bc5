//! This server, as the other servers that share its broker need it.

use crate::cluster::{CallDone, Neighbour};
use crate::handle::Handle;
use crate::handle::cluster_queries::is_for_server;
use crate::model::ConnectionKey;
use crate::model::call_types::{CallFailure, CallOutcome, NewCall};
use crate::ops::stats_and_topics;
use crate::topics::broker::{ClusterNode, Control};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does what other servers want by the handle of this one.
#[derive(Clone)]
pub(crate) struct ThisServer {
    pub(crate) handle: Handle,
    /// Where it listens.
    pub(crate) address: String,
    /// Questions of other servers that are being answered.
    pub(crate) questions: Arc<AtomicUsize>,
}

impl Neighbour for ThisServer {
    fn obey(&self, control: Control, told_unix_ms: Option<u64>) -> bool {
        self.handle.obey(control, told_unix_ms)
    }

    fn call(&self, connection: ConnectionKey, call: NewCall, done: CallDone) {
        // It would go on to its server from here, maybe for ever.
        match self.handle.shared.hub.is_here(connection) {
            true if is_for_server(connection) => self.answer(call, done),
            true => self.handle.call(connection, call, done),
            false => done(Err(CallFailure::Closed)),
        }
    }

    fn describe(&self) -> ClusterNode {
        ClusterNode {
            address: self.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            connections: self.handle.connections() as u64,
            publications_received: self.handle.counters().publications_received,
            ..ClusterNode::default()
        }
    }

    fn limits(&self) -> String {
        let setup = self.handle.shared.setup.get();
        let (profile, topics) = (&setup.profile, &setup.config.topics.limits);
        let limits = [
            ("message_bytes_max", profile.message_bytes_max as u64),
            ("rate_limit_capacity", profile.rate_limit_capacity),
            ("rate_limit_refill_per_s", profile.rate_limit_refill_per_s),
            ("ping_interval_ms", profile.ping_interval_ms),
            ("idle_timeout_ms", profile.idle_timeout_ms),
            ("group_waiting_max", topics.group_waiting_max as u64),
            (
                "group_waiting_bytes_max",
                topics.group_waiting_bytes_max as u64,
            ),
            ("groups_per_topic_max", topics.groups_per_topic_max as u64),
        ];
        let limits = limits.map(|(name, value)| format!("{name}={value}"));
        limits.join(" ")
    }
}

impl ThisServer {
    /// Answers another server from a thread of its own: shards are waited for.
    fn answer(&self, call: NewCall, done: CallDone) {
        let (handle, questions) = (self.handle.clone(), Arc::clone(&self.questions));
        if questions.fetch_add(1, Ordering::Relaxed) >= QUESTIONS_MAX {
            questions.fetch_sub(1, Ordering::Relaxed);
            return done(Err(CallFailure::Busy));
        }
        let outcome = CallOutcome::new(done, CallFailure::Busy);
        let work = move || {
            let answer = handle.answer_server(&call.payload, || stats_and_topics(&handle));
            questions.fetch_sub(1, Ordering::Relaxed);
            outcome.end(answer);
        };
        let thread = thread::Builder::new().name("tidewire-query".to_owned());
        if thread.spawn(work).is_err() {
            self.questions.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Questions of other servers that are answered at once. Each looks at all sessions of this one.
const QUESTIONS_MAX: usize = 8;

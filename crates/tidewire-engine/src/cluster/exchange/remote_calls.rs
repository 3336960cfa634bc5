//! Calls to clients of other servers, and of other servers to clients of this one.

use super::Exchange;
use crate::cluster::call_messages::{Question, Reply};
use crate::cluster::commands::{Command, Receiver, call_bytes};
use crate::cluster::parcel;
use crate::model::ConnectionKey;
use crate::model::call_types::{CallFailure, CallOutcome, NewCall, TIMEOUT_MAX};
use crate::model::content::Content;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tidewire_redis::{Address, NodeId, Now, Refusal};

/// The calls of this server that other servers have not answered.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    open: HashMap<u64, OpenCall>,
    deadlines: BTreeSet<(u64, u64)>,
}

#[derive(Debug)]
struct OpenCall {
    node: NodeId,
    outcome: CallOutcome,
    since_ms: u64,
    deadline_ms: u64,
}

impl OpenCalls {
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(at_ms, _)| *at_ms)
    }

    fn end(&mut self, number: u64, outcome: Result<Content, CallFailure>) {
        // One that was answered before, or is too late, is dropped.
        if let Some(call) = self.open.remove(&number) {
            self.deadlines.remove(&(call.deadline_ms, number));
            call.outcome.end(outcome);
        }
    }
}

impl Exchange {
    /// Asks a client of another server.
    pub(super) fn ask(
        &mut self,
        connection: ConnectionKey,
        call: NewCall,
        mut outcome: CallOutcome,
        now: Now,
    ) {
        self.broker.commands.settle(call_bytes(&call));
        if self.calls.open.len() >= CALLS_MAX {
            return outcome.end(Err(CallFailure::Busy));
        }
        let number = self.next_number();
        let node = NodeId(connection.server());
        let timeout_ms = call.timeout.min(TIMEOUT_MAX).as_millis() as u64;
        let deadline_ms = now.ms + timeout_ms + ON_THE_WAY_MS;
        outcome.arrive();
        let open = OpenCall {
            node,
            outcome,
            since_ms: now.ms,
            deadline_ms,
        };
        self.calls.open.insert(number, open);
        self.calls.deadlines.insert((deadline_ms, number));
        let question = Question::write(number, connection, call);
        let parcel = parcel::write_json(self.link.node(), parcel::CALL, &question);
        self.link.send(number, Address::Node(node), &parcel, now);
    }

    /// A parcel was sent to N servers, or not. If it had a call, that may be over.
    pub(super) fn note_sent(&mut self, number: u64, outcome: Result<u64, Refusal>) {
        match outcome {
            Ok(0) => self.calls.end(number, Err(CallFailure::Closed)),
            Err(Refusal::Busy | Refusal::Unavailable) => {
                self.calls.end(number, Err(CallFailure::Busy));
            }
            // It may have arrived.
            Ok(_) | Err(_) => {}
        }
    }

    /// Another server asks a client of this one.
    pub(super) fn take_question(&self, node: NodeId, question: &[u8]) {
        let (Some((number, connection, call)), Some(server)) =
            (Question::read(question), &self.server)
        else {
            return tracing::error!("a call of another server cannot be read; update this server");
        };
        let (broker, own) = (Arc::clone(&self.broker), self.link.node());
        let done = move |outcome| {
            let reply = Reply::write(number, outcome);
            let parcel = parcel::write_json(own, parcel::ANSWER, &reply);
            broker
                .commands
                .push(Command::Send(Receiver::Node(node), parcel));
        };
        server.0.call(connection, call, Box::new(done));
    }

    pub(super) fn take_reply(&mut self, reply: &[u8]) {
        match Reply::read(reply) {
            Some(reply) => self.calls.end(reply.number, reply.into_outcome()),
            None => tracing::error!("an answer of another server cannot be read"),
        }
    }

    /// Ends the calls whose time is over.
    pub(super) fn end_calls(&mut self, now: Now) {
        while let Some(&(at_ms, number)) = self.calls.deadlines.first()
            && at_ms <= now.ms
        {
            self.calls.end(number, Err(CallFailure::TimedOut));
        }
    }

    /// Ends the calls to servers that are gone. A call that is new may be to a server that is new.
    pub(super) fn end_calls_to_gone(&mut self, living: &[NodeId], now: Now) {
        let is_gone =
            |call: &OpenCall| call.since_ms + LISTED_MS <= now.ms && !living.contains(&call.node);
        let calls = self.calls.open.iter();
        let gone = calls.filter(|(_, call)| is_gone(call));
        let numbers: Vec<u64> = gone.map(|(number, _)| *number).collect();
        for number in numbers {
            self.calls.end(number, Err(CallFailure::Closed));
        }
    }
}

/// Calls that other servers have not answered.
const CALLS_MAX: usize = 65_536;

/// How long the outcome of a call may be on the way after the end of the call's time, in milliseconds.
const ON_THE_WAY_MS: u64 = 1_000;

/// The longest time until a new server is listed, in milliseconds.
const LISTED_MS: u64 = 5_000;

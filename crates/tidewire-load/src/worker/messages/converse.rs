//! Conversing: what a session does with the messages of its server, by the rules of a conversation.

use std::sync::Arc;

use tidewire_net::Io;
use tidewire_wire::frame::OpCode;

use super::conversation::Conversation;
use super::framing::WrongLength;
use super::rules::{Meaning, Rule};
use super::view::View;
use super::{MESSAGE_BYTES_MAX, Messages, MessagesUser};
use crate::worker::service::Core;
use crate::worker::service::user::UserState;

impl Messages {
    /// Handles a frame of the server, which may contain several messages.
    pub(super) fn converse(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        (opcode, frame): (OpCode, &[u8]),
    ) {
        let setup = Arc::clone(&self.setup);
        let Some(conversation) = &setup.conversation else {
            return;
        };
        let framing = &conversation.framing;
        let mut kept = std::mem::take(&mut user.link.session.kept);
        if !kept.is_empty() {
            kept.extend_from_slice(frame);
        }
        let bytes = if kept.is_empty() { frame } else { &kept };
        let mut messages = framing.split(bytes);
        loop {
            let message = match messages.next(MESSAGE_BYTES_MAX) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(WrongLength) => return self.break_off(core, io, user, "bad-length"),
            };
            let is_binary = opcode == OpCode::Binary;
            let view = View::new(message, is_binary, &conversation.pointers);
            let view = view.with_content_at(framing.content_at(message));
            match conversation.rules.first(&view) {
                Some(rule) => self.apply(core, io, user, (rule, &view, message)),
                None if user.link.state == UserState::Open => self.take_in(core, user, message),
                None => {}
            }
            if user.link.socket.is_none() {
                return;
            }
        }
        let rest = messages.rest().len();
        if rest > 0 {
            user.link.session.kept = match kept.is_empty() {
                true => frame[frame.len() - rest..].to_vec(),
                false => {
                    kept.drain(..kept.len() - rest);
                    kept
                }
            };
        }
    }

    fn apply(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        (rule, view, message): (&Rule, &View<'_>, &[u8]),
    ) {
        for (variable, source) in &rule.captures {
            if let Some(value) = view.text(source)
                && let Some(place) = user.script.captured.get_mut(*variable)
            {
                *place = value;
            }
        }
        if !rule.captures.is_empty() && user.link.state == UserState::Open {
            self.plan_late_heartbeats(core, user);
        }
        if let Some(name) = &rule.count {
            core.tally.counted.add(name);
        }
        for answer in &rule.answers {
            self.send_template(core, io, user, answer);
        }
        if user.link.socket.is_none() {
            return;
        }
        match &rule.meaning {
            Meaning::Protocol => {}
            Meaning::Ready if user.link.state == UserState::Greeting => self.open(core, io, user),
            Meaning::Ready => {}
            Meaning::Message => self.take_in(core, user, message),
            Meaning::Event => self.take_event(core, message),
            Meaning::End(reason) => {
                let reason = reason.as_ref().map(|reason| view.reason(reason));
                if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
                    core.tally.refusals.add(&reason);
                }
                self.break_off(core, io, user, ENDED);
            }
            Meaning::Failure(reason) => {
                core.tally.refusals.add(&view.reason(reason));
                if user.link.state != UserState::Open {
                    return core.refuse(io, user, REFUSED);
                }
                match self.answered_by(user, message) {
                    Some(pending) => core.fail(user, &pending, REFUSED, 0),
                    None => core.tally.add_error(REFUSED),
                }
            }
        }
    }

    /// A session is ready: its heartbeats begin.
    pub(super) fn begin_heartbeats(&mut self, core: &mut Core, user: &mut MessagesUser) {
        let heartbeats = self.conversation().map_or(0, |all| all.heartbeats.len());
        user.link.session.heartbeats_ns = vec![0; heartbeats];
        for heartbeat in 0..heartbeats {
            self.plan_heartbeat(core, user, heartbeat);
        }
    }

    /// Begins the heartbeats whose interval was not known before.
    fn plan_late_heartbeats(&mut self, core: &mut Core, user: &mut MessagesUser) {
        for heartbeat in 0..user.link.session.heartbeats_ns.len() {
            if user.link.session.heartbeats_ns[heartbeat] == u64::MAX {
                self.plan_heartbeat(core, user, heartbeat);
            }
        }
    }

    /// Sends the heartbeats that are due. A user without any has none in its session.
    pub(super) fn heartbeat(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        let setup = Arc::clone(&self.setup);
        let heartbeats = setup.conversation.iter().flat_map(|all| &all.heartbeats);
        for (number, heartbeat) in heartbeats.enumerate() {
            let due_ns = user.link.session.heartbeats_ns.get(number);
            if due_ns.is_some_and(|due_ns| *due_ns <= core.now_ns()) {
                self.send_template(core, io, user, &heartbeat.message);
                if user.link.socket.is_none() {
                    return;
                }
                self.plan_heartbeat(core, user, number);
            }
        }
    }

    fn plan_heartbeat(&self, core: &mut Core, user: &mut MessagesUser, number: usize) {
        let every = self.conversation().map(|all| all.heartbeats[number].every);
        let every_ns = every.and_then(|every| every.ns(&user.script.captured));
        user.link.session.heartbeats_ns[number] = match every_ns {
            Some(every_ns) => core.now_ns().saturating_add(every_ns),
            // The interval is not known yet, or the server wants no heartbeat.
            None => u64::MAX,
        };
        if every_ns.is_some() {
            core.wake_at(user.link.session.heartbeats_ns[number], user.index);
        }
    }

    /// Plans the next heartbeats again, because a new phase has forgotten all times to wake.
    pub(super) fn plan_again(&self, core: &mut Core, user: &MessagesUser) {
        for due_ns in user
            .link
            .session
            .heartbeats_ns
            .iter()
            .filter(|due_ns| **due_ns < u64::MAX)
        {
            core.wake_at(*due_ns, user.index);
        }
    }

    fn conversation(&self) -> Option<&Conversation> {
        self.setup.conversation.as_ref()
    }
}

/// Names of errors: a message of the server refuses a message or the session, or ends the session.
const REFUSED: &str = "refused-by-server";
const ENDED: &str = "ended-by-message";

//! Conversing: what a session does with the messages of its server, by the rules of a conversation.

use std::sync::Arc;

use tidewire_net::Io;
use tidewire_wire::frame::OpCode;

use super::conversation::Conversation;
use super::rules::{Meaning, Rule};
use super::view::View;
use super::{Messages, MessagesUser};
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
        for message in conversation.messages(frame) {
            let is_binary = opcode == OpCode::Binary;
            let view = View::new(message, is_binary, &conversation.pointers);
            match conversation.rules.first(&view) {
                Some(rule) => self.apply(core, io, user, (rule, &view, message)),
                None if user.state == UserState::Open => self.take_in(core, user, message),
                None => {}
            }
            if user.socket.is_none() {
                return;
            }
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
        if !rule.captures.is_empty() && user.state == UserState::Open {
            self.plan_late_beats(core, user);
        }
        if let Some(name) = &rule.count {
            core.tally.counted.add(name);
        }
        for answer in &rule.answers {
            self.send_template(core, io, user, answer);
        }
        match &rule.meaning {
            Meaning::Protocol => {}
            Meaning::Ready if user.state == UserState::Greeting => self.open(core, io, user),
            Meaning::Ready => {}
            Meaning::Message => self.take_in(core, user, message),
            Meaning::Event => self.take_event(core, message),
            Meaning::End => self.break_off(core, io, user, ENDED),
            Meaning::Failure(reason) => {
                core.tally.refusals.add(&view.reason(reason));
                if user.state != UserState::Open {
                    return core.refuse(io, user, REFUSED);
                }
                match self.answered_by(user, message) {
                    Some(pending) => core.fail(user, &pending, REFUSED, 0),
                    None => core.tally.add_error(REFUSED),
                }
            }
        }
    }

    /// A session is ready: its beats begin.
    pub(super) fn begin_beats(&mut self, core: &mut Core, user: &mut MessagesUser) {
        let beats = self.conversation().map_or(0, |all| all.beats.len());
        user.session.beats_ns = vec![0; beats];
        for beat in 0..beats {
            self.plan_beat(core, user, beat);
        }
    }

    /// Begins the beats whose interval was not known before.
    fn plan_late_beats(&mut self, core: &mut Core, user: &mut MessagesUser) {
        for beat in 0..user.session.beats_ns.len() {
            if user.session.beats_ns[beat] == u64::MAX {
                self.plan_beat(core, user, beat);
            }
        }
    }

    /// Sends the beats that are due. A user without any has none in its session.
    pub(super) fn beat(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        let setup = Arc::clone(&self.setup);
        let beats = setup.conversation.iter().flat_map(|all| &all.beats);
        for (number, beat) in beats.enumerate() {
            let due_ns = user.session.beats_ns.get(number);
            if due_ns.is_some_and(|due_ns| *due_ns <= core.now_ns()) {
                self.send_template(core, io, user, &beat.message);
                self.plan_beat(core, user, number);
            }
        }
    }

    fn plan_beat(&self, core: &mut Core, user: &mut MessagesUser, number: usize) {
        let every = self.conversation().map(|all| all.beats[number].every);
        let every_ns = every.and_then(|every| every.ns(&user.script.captured));
        user.session.beats_ns[number] = match every_ns {
            Some(every_ns) => core.now_ns().saturating_add(every_ns),
            // The server asked for none, or has not said it yet.
            None => u64::MAX,
        };
        if every_ns.is_some() {
            core.wake_at(user.session.beats_ns[number], user.index);
        }
    }

    /// Plans the next beats again, after all times to wake were forgotten.
    pub(super) fn plan_again(&self, core: &mut Core, user: &MessagesUser) {
        for due_ns in user
            .session
            .beats_ns
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

/// Names of errors: the server has refused a message or a session by a message, or has ended the session so.
const REFUSED: &str = "refused-by-server";
const ENDED: &str = "ended-by-message";

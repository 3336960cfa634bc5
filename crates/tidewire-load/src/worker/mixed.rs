//! The dialogue of users that speak to several servers: with each in its own protocol.

use std::sync::Arc;

use tidewire_net::Io;

use super::http::{Http, Http2, Http2Session, HttpSession};
use super::messages::{Messages, MessagesSession};
use super::service::order::{DialogueKind, ServiceSetup};
use super::service::user::{Pending, User};
use super::service::{ConnectionEnd, Core, Dialogue};

/// The dialogues of all servers.
#[derive(Debug)]
pub(crate) struct Mixed {
    http: Http,
    http2: Http2,
    /// Those of the servers that speak WebSocket, at the places of the servers.
    messages: Vec<Option<Messages>>,
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) enum MixedSession {
    /// Its protocol has not begun.
    #[default]
    None,
    Http(HttpSession),
    Http2(Http2Session),
    Messages(MessagesSession),
}

type MixedUser = User<MixedSession>;

impl Mixed {
    pub(crate) fn new(setup: &ServiceSetup) -> Self {
        let messages = setup.targets.iter().map(|target| match &target.dialogue {
            DialogueKind::Messages(messages) => Some(Messages::new(Arc::clone(messages))),
            DialogueKind::Http | DialogueKind::Http2 => None,
        });
        Self {
            http: Http::default(),
            http2: Http2::new(setup),
            messages: messages.collect(),
        }
    }
}

/// Calls a method of a dialogue with the session of its type.
macro_rules! with {
    ($user:ident, $kind:ident, $of_kind:expr, |$dialogue:ident, $typed:ident| $call:expr) => {{
        let session = match std::mem::take(&mut $user.link.session) {
            MixedSession::$kind(session) => session,
            _ => Default::default(),
        };
        let $dialogue = $of_kind;
        let (session, result) = $user.with_session(session, |$typed| $call);
        $user.link.session = MixedSession::$kind(session);
        result
    }};
}

/// Calls a method of the dialogue with the user's server.
macro_rules! of_target {
    ($self:ident, $core:ident, $user:ident, $($call:tt)*) => {{
        let messages = &mut $self.messages[usize::from($user.link.target)];
        match (&$core.target($user).dialogue, messages) {
            (_, Some(messages)) => with!($user, Messages, messages, $($call)*),
            (DialogueKind::Http2, None) => with!($user, Http2, &mut $self.http2, $($call)*),
            (_, None) => with!($user, Http, &mut $self.http, $($call)*),
        }
    }};
}

impl Dialogue for Mixed {
    type Session = MixedSession;

    fn greet(&mut self, core: &mut Core, io: &mut Io, user: &mut MixedUser) {
        of_target!(self, core, user, |dialogue, user| dialogue
            .greet(core, io, user));
    }

    fn send(&mut self, core: &mut Core, io: &mut Io, user: &mut MixedUser, pending: Pending) {
        of_target!(self, core, user, |dialogue, user| dialogue
            .send(core, io, user, pending));
    }

    fn receive(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MixedUser,
        data: &mut [u8],
    ) -> usize {
        of_target!(self, core, user, |dialogue, user| dialogue
            .receive(core, io, user, data))
    }

    fn wake(&mut self, core: &mut Core, io: &mut Io, user: &mut MixedUser) {
        of_target!(self, core, user, |dialogue, user| dialogue
            .wake(core, io, user));
    }

    fn resume(&mut self, core: &mut Core, user: &mut MixedUser) {
        of_target!(self, core, user, |dialogue, user| dialogue
            .resume(core, user));
    }

    fn end(&mut self, core: &mut Core, user: &mut MixedUser, end: ConnectionEnd<'_>) {
        of_target!(self, core, user, |dialogue, user| dialogue
            .end(core, user, end));
    }

    fn time_out(&mut self, core: &mut Core, io: &mut Io, user: &mut MixedUser) {
        of_target!(self, core, user, |dialogue, user| dialogue
            .time_out(core, io, user));
    }

    fn part(&mut self, core: &mut Core, io: &mut Io, user: &mut MixedUser) {
        of_target!(self, core, user, |dialogue, user| dialogue
            .part(core, io, user));
    }
}

//! WebSocket as a user of a service load speaks it: messages that are answered, or confirmed by pongs.

mod answers;
mod coding;
pub mod conversation;
mod converse;
mod ends;
pub mod framing;
mod matching;
pub mod places;
pub mod pointers;
pub mod rules;
mod upgrade;
pub mod view;

use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use tidewire_net::{Closed, Io};
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::Control;
use tidewire_wire::frame::{OpCode, write_frame};
use tidewire_wire::message::{Compressed, Event, Input, MessageReader};

use super::control::ControlFrames;
use super::service::user::{Pending, User, UserState};
use super::service::{ConnectionEnd, Core, Dialogue};
use super::target::{TokenPlace, TokenSource};
use super::template::Template;
use super::websocket::channel::{Channel, KeyPair};
use super::websocket::layer::Layer;
use super::websocket::profile::{
    Profile, ServerMessage, classify, encryption_key, write_hello, write_key_hello, write_pong,
};
use crate::accounting::ended::Ended;
use crate::accounting::failure::Failure;
use crate::accounting::tally::TIMEOUT;
use coding::Coding;
use conversation::Conversation;
use ends::{end_session, note_ended};
use framing::Framing;
pub use matching::{Matching, Pattern, Pointer};
pub(crate) use matching::{unix_s, unix_us};
pub(crate) use view::first_group;

/// The shared parts of the sessions of a WebSocket service.
#[derive(Debug, Clone)]
pub struct MessagesSetup {
    /// The value of `Host`.
    pub host: String,
    /// Path and query.
    pub path: Template,
    /// Further headers of the upgrade.
    pub headers: Vec<(String, Template)>,
    /// The credential of a session.
    pub token: TokenSource,
    /// How it travels.
    pub token_place: TokenPlace,
    /// Subprotocols to offer; the server may choose one of them.
    pub protocols: Vec<String>,
    /// The other messages of a session.
    pub profile: Profile,
    /// Those of another protocol; the profile is then RFC 6455 alone.
    pub conversation: Option<Conversation>,
    /// The number of the variables that the conversation captures: those of a connection, the first ones.
    pub captured: usize,
    /// Sent once by each connection before anything else, such as subscriptions.
    pub first_messages: Vec<Template>,
    /// Messages are binary, and not text.
    pub is_binary: bool,
    /// The layer under messages: none, compression or encryption.
    pub layer: Layer,
    /// How a message is known to have arrived.
    pub matching: Matching,
    /// The place in a message from the server where the time of its creation stands, in milliseconds,
    /// microseconds or nanoseconds since 1970.
    pub stamp: Option<Pointer>,
}

/// The dialogue of WebSocket messages.
#[derive(Debug)]
pub(crate) struct Messages {
    setup: Arc<MessagesSetup>,
    /// A frame under construction; empty between two calls.
    frame: Vec<u8>,
    coding: Coding,
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct MessagesSession {
    reader: Option<MessageReader>,
    control: Control,
    key: [u8; 16],
    is_upgraded: bool,
    /// Messages that the ping on its way confirms; none is on its way if 0.
    pinged: usize,
    ping_token: u64,
    /// The key pair of this side, between `client_hello` and `server_hello`.
    key_pair: Option<KeyPair>,
    /// The encryption after the key exchange.
    channel: Option<Box<Channel>>,
    /// When each heartbeat of the conversation is due.
    heartbeats_ns: Vec<u64>,
    /// The beginning of a message whose rest is in the next frames.
    kept: Vec<u8>,
}

type MessagesUser = User<MessagesSession>;

impl Messages {
    pub(crate) fn new(setup: Arc<MessagesSetup>) -> Self {
        Self {
            coding: Coding::new(setup.layer),
            setup,
            frame: Vec::new(),
        }
    }

    /// Writes a frame of its own.
    fn write_frame(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        frame: Frame<'_>,
    ) {
        let Some(id) = user.link.socket else { return };
        let mask = core.draw();
        let channel = user.link.session.channel.as_deref_mut();
        let out = &mut self.frame;
        match frame {
            Frame::Ping(token) => write_frame(out, OpCode::Ping, token, Some(mask)),
            Frame::Message(opcode, message) => {
                let message = (opcode, message);
                self.coding
                    .write_frame(channel, &mut core.random, message, out);
            }
            Frame::Hello => write_hello(out, mask),
            Frame::KeyHello(public_key) => write_key_hello(out, public_key, mask),
            Frame::AppPong => write_pong(out, io.now().unix_ms, mask, channel),
        }
        core.tally.traffic.sent.wire += self.frame.len() as u64;
        io.send(id, &self.frame);
        self.frame.clear();
    }

    /// Sends the control frames that the connection has written, and clears the buffer.
    fn send_control_frames(&mut self, core: &mut Core, io: &mut Io, user: &MessagesUser) {
        if let Some(id) = user.link.socket
            && !self.frame.is_empty()
        {
            core.tally.traffic.sent.wire += self.frame.len() as u64;
            io.send(id, &self.frame);
        }
        self.frame.clear();
    }

    /// The connection is upgraded. Plain sessions are ready, others agree first.
    fn begin(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        let setup = Arc::clone(&self.setup);
        let conversation = setup.conversation.as_ref();
        for message in conversation.into_iter().flat_map(|all| &all.start) {
            self.send_template(core, io, user, message);
        }
        let waits = conversation.is_some_and(Conversation::waits);
        if setup.profile == Profile::Raw && !waits && user.link.socket.is_some() {
            self.open(core, io, user);
        }
    }

    /// Sends a message that the script does not contain. If it cannot be written, the session ends.
    fn send_template(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        template: &Template,
    ) {
        if user.link.socket.is_none() {
            return;
        }
        let mut message = Vec::new();
        if let Err(error) = core.render_template(user, template, &mut message) {
            return self.break_off(core, io, user, error.name());
        }
        let conversation = self.setup.conversation.as_ref();
        if let Some(Framing::Separator(separator)) = conversation.map(|all| &all.framing) {
            message.extend_from_slice(separator);
        }
        self.write_frame(core, io, user, Frame::Message(self.opcode(), &message));
    }

    /// The session has begun.
    fn open(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        core.ready(user);
        // An encrypted session has sent it with its key.
        if self.setup.profile == Profile::V1 && user.link.session.channel.is_none() {
            self.write_frame(core, io, user, Frame::Hello);
        }
        let setup = Arc::clone(&self.setup);
        for first in &setup.first_messages {
            self.send_template(core, io, user, first);
        }
        if user.link.socket.is_some() {
            self.begin_heartbeats(core, user);
        }
    }

    /// The server is ready: the session begins, or its key exchange.
    fn handle_ready(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        if self.setup.layer != Layer::Encryption {
            return self.open(core, io, user);
        }
        let pair = KeyPair::generate(&mut core.random);
        self.write_frame(core, io, user, Frame::KeyHello(pair.public_key()));
        user.link.session.key_pair = Some(pair);
    }

    /// Handles `server_hello`, or an error in its place, during a key exchange.
    fn handle_key(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        (pair, message): (KeyPair, &[u8]),
    ) {
        let channel = encryption_key(message).and_then(|key| pair.agree(&key, &mut core.random));
        match channel {
            Some(channel) => {
                user.link.session.channel = Some(Box::new(channel));
                self.open(core, io, user);
            }
            None => core.refuse(io, user, Failure::NoEncryption.name()),
        }
    }

    fn opcode(&self) -> OpCode {
        match self.setup.is_binary {
            true => OpCode::Binary,
            false => OpCode::Text,
        }
    }

    /// Asks by a ping whether everything so far was read, one at a time.
    fn ping(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        if user.link.session.pinged > 0 || user.link.pending.is_empty() {
            return;
        }
        user.link.session.pinged = user.link.pending.len();
        user.link.session.ping_token = core.random.random();
        let token = user.link.session.ping_token.to_be_bytes();
        self.write_frame(core, io, user, Frame::Ping(&token));
    }

    fn handle_pong(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser, token: &[u8]) {
        let session = &mut user.link.session;
        if session.pinged == 0 || token != session.ping_token.to_be_bytes() {
            return;
        }
        let now_ns = core.now_ns();
        for _ in 0..std::mem::take(&mut session.pinged) {
            let Some(pending) = user.link.pending.pop_front() else {
                break;
            };
            succeed(core, user, &pending, 0, now_ns);
        }
        self.ping(core, io, user);
    }

    fn handle_event(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        event: Event<'_>,
    ) {
        match event {
            // Everything to an encrypted connection is encrypted.
            Event::Text(_) if user.link.session.channel.is_some() => {
                self.break_off(core, io, user, "bad-encryption");
            }
            Event::Binary(bytes) if user.link.session.channel.is_some() => {
                self.handle_sealed(core, io, user, bytes);
            }
            Event::Text(text) => self.handle_message(core, io, user, OpCode::Text, text.as_bytes()),
            Event::Binary(bytes) => self.handle_message(core, io, user, OpCode::Binary, bytes),
            Event::Pong(payload) => self.handle_pong(core, io, user, payload),
            Event::Ping(_) => {}
            Event::Compressed(message) => self.handle_compressed(core, io, user, message),
            Event::Close(code, reason) => {
                let code = code.map(CloseCode::value);
                self.handle_close_frame(core, io, user, (code, reason));
            }
        }
    }

    fn handle_compressed(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        message: Compressed<'_>,
    ) {
        let Some(content) = self.coding.inflate(message.bytes) else {
            return self.break_off(core, io, user, "bad-deflate");
        };
        match message.event(&content) {
            Ok(event) => self.handle_event(core, io, user, event),
            Err(_) => self.break_off(core, io, user, "bad-frame"),
        }
        self.coding.give_back(content);
    }

    fn handle_sealed(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        message: &[u8],
    ) {
        let channel = user.link.session.channel.as_deref_mut();
        let content = channel.and_then(|channel| self.coding.open(channel, message));
        let Some(content) = content else {
            return self.break_off(core, io, user, "bad-encryption");
        };
        self.handle_message(core, io, user, OpCode::Binary, &content);
        self.coding.give_back(content);
    }

    fn handle_message(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        opcode: OpCode,
        message: &[u8],
    ) {
        if self.setup.conversation.is_some() {
            return self.converse(core, io, user, (opcode, message));
        }
        if self.setup.profile == Profile::V1 {
            match classify(opcode, message) {
                ServerMessage::Application => {}
                ServerMessage::Ready if user.link.state == UserState::Greeting => {
                    return self.handle_ready(core, io, user);
                }
                ServerMessage::Hello | ServerMessage::Error
                    if user.link.session.key_pair.is_some() =>
                {
                    if let Some(pair) = user.link.session.key_pair.take() {
                        self.handle_key(core, io, user, (pair, message));
                    }
                    return;
                }
                ServerMessage::Ping => return self.write_frame(core, io, user, Frame::AppPong),
                // The answers to requests such as `publish_request` are messages of the protocol itself.
                ServerMessage::Error => {
                    // Without a field nobody knows what it answers.
                    let place = self.place_of(user, message);
                    match place.and_then(|place| user.link.pending.remove(place)) {
                        Some(pending) => core.fail(user, &pending, "error-message", 0),
                        None => core.tally.add_error("error-message"),
                    }
                    return;
                }
                ServerMessage::OtherSystem | ServerMessage::Subscription
                    if self.is_answer(user, message) => {}
                _ => return,
            }
        }
        self.take_in(core, user, message);
    }

    /// A message of the load: the answer to one, or one that was not asked for.
    fn take_in(&mut self, core: &mut Core, user: &mut MessagesUser, message: &[u8]) {
        match self.answered_by(user, message) {
            Some(pending) => {
                self.note_received(core, message);
                let now_ns = core.now_ns();
                succeed(core, user, &pending, message.len() as u64, now_ns);
            }
            None => self.take_event(core, message),
        }
    }

    /// A message that was not asked for.
    fn take_event(&mut self, core: &mut Core, message: &[u8]) {
        self.note_received(core, message);
        core.tally.unsolicited += 1;
    }

    fn note_received(&self, core: &mut Core, message: &[u8]) {
        core.tally.received += 1;
        core.tally.traffic.received.body += message.len() as u64;
        let stamp = self.setup.stamp.as_ref();
        if let Some(made_us) = stamp.and_then(|stamp| stamp.time_us(message)) {
            let age_us = unix_us().saturating_sub(made_us);
            let age_ns = age_us.saturating_mul(1_000);
            core.tally.message_age.record_ns(age_ns);
        }
    }

    fn break_off(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        name: &'static str,
    ) {
        if user.link.state != UserState::Open {
            return core.refuse(io, user, name);
        }
        end_session(core, user, name);
        note_ended(core, user, name, (None, ""));
        core.drop_connection(io, user);
    }

    /// The server sends nothing after its close frame (RFC 6455, section 5.5.1), so that no message in
    /// flight is waited for.
    fn handle_close_frame(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        (code, reason): (Option<u16>, &str),
    ) {
        const NAME: &str = "closed-by-server";
        if user.link.state != UserState::Open {
            core.tally.ended.add(Ended {
                how: NAME,
                code,
                reason: reason.to_owned(),
                was_ready: false,
            });
            return core.refuse(io, user, NAME);
        }
        end_session(core, user, NAME);
        note_ended(core, user, NAME, (code, reason));
        core.close_connection(io, user);
    }
}

impl Dialogue for Messages {
    type Session = MessagesSession;

    fn greet(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        self.upgrade(core, io, user);
    }

    fn send(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        mut pending: Pending,
    ) {
        let opcode = self.opcode();
        let mut key = 0;
        let matching = &self.setup.matching;
        let coding = &mut self.coding;
        let mut channel = user.link.session.channel.take();
        let mut wrap =
            |random: &mut SmallRng, (number, message): (u64, &[u8]), out: &mut Vec<u8>| {
                key = matching.key_sent(number, message).unwrap_or_default();
                coding.write_frame(channel.as_deref_mut(), random, (opcode, message), out);
            };
        core.begin_request(user, &mut pending);
        let written = core.write_message(io, user, pending.exchange.step, &mut wrap);
        core.note_request(io, user, &pending, written.unwrap_or_default());
        user.link.session.channel = channel;
        pending.key = key;
        user.link.pending.push_back(pending);
        if let Err(error) = written {
            return self.break_off(core, io, user, error.name());
        }
        if self.setup.matching == Matching::None {
            self.ping(core, io, user);
        }
    }

    fn receive(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        data: &mut [u8],
    ) -> usize {
        core.tally.traffic.received.wire += data.len() as u64;
        let mut at = 0;
        if !user.link.session.is_upgraded {
            at = self.handle_response(core, io, user, data);
            if !user.link.session.is_upgraded {
                // The next call receives the incomplete rest again.
                core.tally.traffic.received.wire -= (data.len() - at) as u64;
                return at;
            }
        }
        let Some(mut reader) = user.link.session.reader.take() else {
            return data.len();
        };
        let mut input = Input::new(&mut data[at..]);
        loop {
            let mut frames = ControlFrames::new(&mut core.random, &mut self.frame);
            let control = &mut user.link.session.control;
            let event = control.receive(&mut reader, &mut input, &mut frames);
            self.send_control_frames(core, io, user);
            match event {
                Ok(Some(event)) => self.handle_event(core, io, user, event),
                Ok(None) => break,
                Err(_) => {
                    self.break_off(core, io, user, "bad-frame");
                    break;
                }
            }
            if user.link.socket.is_none() {
                break;
            }
        }
        at += input.consumed();
        core.tally.traffic.received.wire -= (data.len() - at) as u64;
        if user.link.socket.is_some() {
            user.link.session.reader = Some(reader);
        }
        at
    }

    fn wake(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        if !user.link.session.heartbeats_ns.is_empty() {
            self.heartbeat(core, io, user);
        }
    }

    fn resume(&mut self, core: &mut Core, user: &mut MessagesUser) {
        self.plan_again(core, user);
    }

    fn end(&mut self, core: &mut Core, user: &mut MessagesUser, end: ConnectionEnd<'_>) {
        let name = match end {
            ConnectionEnd::TimedOut => TIMEOUT,
            ConnectionEnd::Closed(Closed::ByPeer) => "closed-without-close-frame",
            ConnectionEnd::Closed(closed) => Failure::of_closed(closed).name(),
        };
        end_session(core, user, name);
        // After a timeout the generator itself replaces the connection.
        if matches!(end, ConnectionEnd::Closed(_)) {
            note_ended(core, user, name, (None, ""));
        }
    }

    fn part(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        let mut frames = ControlFrames::new(&mut core.random, &mut self.frame);
        let control = &mut user.link.session.control;
        control.close(Some(CloseCode::NORMAL), "", &mut frames);
        self.send_control_frames(core, io, user);
        if let Some(id) = user.link.socket {
            io.close(id);
        }
    }
}

/// A frame that is no message of the plan.
enum Frame<'a> {
    Message(OpCode, &'a [u8]),
    Ping(&'a [u8]),
    Hello,
    KeyHello(&'a [u8]),
    AppPong,
}

fn succeed(core: &mut Core, user: &mut MessagesUser, pending: &Pending, bytes: u64, now_ns: u64) {
    core.tally.succeed(&pending.exchange, 0, bytes, now_ns);
    core.settle(user, now_ns);
    core.think(user, pending.exchange.step, now_ns);
}

/// The largest message accepted from a server.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

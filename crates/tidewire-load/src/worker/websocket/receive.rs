//! What arrives on a connection.

use rand::Rng;
use tidewire_net::Io;
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::{OpCode, ProtocolError};
use tidewire_wire::message::{Compressed, Event, Input};

use super::Lab;
use super::pings::TOKEN_BYTES;
use crate::accounting::failure::Failure;
use crate::worker::control::ControlFrames;
use crate::worker::websocket::profile::{Heard, Profile, hear, learn, read_error, write_pong};
use crate::worker::websocket::session::{Session, State, Talk};

impl Lab {
    /// Reads everything in `data`; how many bytes were used.
    pub(super) fn handle_bytes(
        &mut self,
        io: &mut Io,
        session: &mut Session,
        data: &mut [u8],
    ) -> usize {
        let mut at = 0;
        if session.talk.state == State::Upgrading {
            at = self.handle_response(io, &mut session.talk, data);
            if !matches!(session.talk.state, State::Open | State::AwaitingReady) {
                return at;
            }
        }
        loop {
            if session.talk.reads_plainly {
                at += self.read_plainly(io, session, &mut data[at..]);
            }
            if session.talk.reads_plainly {
                break;
            }
            at += self.read_messages(io, session, &mut data[at..]);
            if !session.talk.reads_plainly || at == data.len() {
                break;
            }
        }
        self.handle_read_end(io, &mut session.talk);
        at
    }

    /// Reads with the least work, until something comes that is neither an expected reply nor a control
    /// frame. What is cut off stays unread and comes again whole.
    fn read_plainly(&mut self, io: &mut Io, session: &mut Session, data: &mut [u8]) -> usize {
        let Session { reader, talk } = session;
        let mut at = 0;
        loop {
            let (bytes, is_cut) = self.take_plain_replies(talk, &data[at..]);
            at += bytes;
            let rest = &mut data[at..];
            if is_cut || rest.is_empty() {
                return at;
            }
            if !is_control(rest) {
                talk.reads_plainly = false;
                return at;
            }
            let mut input = Input::new(rest);
            let mut frames = ControlFrames::new(&mut self.random, &mut talk.out.controls);
            match talk.control.receive(reader, &mut input, &mut frames) {
                Ok(Some(event)) => self.handle_event(io, talk, event),
                Ok(None) => return at,
                Err(error) => {
                    self.handle_protocol_error(io, talk, error);
                    return at;
                }
            }
            at += input.consumed();
        }
    }

    fn read_messages(&mut self, io: &mut Io, session: &mut Session, data: &mut [u8]) -> usize {
        let Session { reader, talk } = session;
        let all = data.len();
        let mut input = Input::new(data);
        loop {
            let mut frames = ControlFrames::new(&mut self.random, &mut talk.out.controls);
            match talk.control.receive(reader, &mut input, &mut frames) {
                Ok(Some(event)) => {
                    let ends_message =
                        !matches!(event, Event::Ping(_) | Event::Pong(_) | Event::Close(..));
                    self.handle_event(io, talk, event);
                    let is_fan_out = matches!(&self.phase, Some(phase) if phase.fan.is_some());
                    // What comes next may be what is looked for without the reader.
                    talk.reads_plainly = ends_message && (is_fan_out || input.consumed() == all);
                    if talk.reads_plainly {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.handle_protocol_error(io, talk, error);
                    break;
                }
            }
        }
        input.consumed()
    }

    fn handle_protocol_error(&mut self, io: &mut Io, talk: &mut Talk, error: ProtocolError) {
        self.end_by_fault(io, talk, error.close_code());
    }

    /// Ends a connection whose peer has broken the rules.
    fn end_by_fault(&mut self, io: &mut Io, talk: &mut Talk, code: CloseCode) {
        talk.fate = Some(Failure::Protocol);
        let mut frames = ControlFrames::new(&mut self.random, &mut talk.out.controls);
        talk.control.fail(code, "", &mut frames);
        talk.out.pump(io, talk.id, None, usize::MAX);
        io.close(talk.id);
    }

    #[inline]
    fn handle_event(&mut self, io: &mut Io, talk: &mut Talk, event: Event<'_>) {
        match event {
            Event::Text(text) if talk.channel.is_none() => {
                self.handle_message(io, talk, OpCode::Text, text.as_bytes());
            }
            Event::Binary(bytes) if talk.channel.is_none() => {
                self.handle_message(io, talk, OpCode::Binary, bytes);
            }
            Event::Binary(bytes) => self.handle_sealed(io, talk, bytes),
            // Everything to an encrypted connection is encrypted.
            Event::Text(_) => self.end_by_fault(io, talk, CloseCode::POLICY_VIOLATION),
            Event::Compressed(message) => self.handle_compressed(io, talk, message),
            // A heartbeat that RFC 6455, section 5.5.3, allows: it answers nothing, and cannot seem to.
            Event::Pong([]) => {}
            Event::Pong(payload) => self.handle_pong(io, talk, token_of(payload)),
            Event::Ping(_) => {}
            Event::Close(code, _) => self.handle_close_frame(io, talk, code),
        }
    }

    fn handle_compressed(&mut self, io: &mut Io, talk: &mut Talk, message: Compressed<'_>) {
        let content = match self.contents.inflate(message.bytes) {
            Ok(content) => content,
            Err(error) => return self.handle_protocol_error(io, talk, error),
        };
        match message.event(&content) {
            Ok(event) => self.handle_event(io, talk, event),
            Err(error) => self.handle_protocol_error(io, talk, error),
        }
        self.contents.give_back(content);
    }

    fn handle_sealed(&mut self, io: &mut Io, talk: &mut Talk, message: &[u8]) {
        let channel = talk.channel.as_deref_mut();
        match channel.and_then(|channel| self.contents.open(channel, message)) {
            Some(content) => {
                self.handle_message(io, talk, OpCode::Binary, &content);
                self.contents.give_back(content);
            }
            None => self.end_by_fault(io, talk, CloseCode::POLICY_VIOLATION),
        }
    }

    #[inline]
    fn handle_message(&mut self, io: &mut Io, talk: &mut Talk, opcode: OpCode, message: &[u8]) {
        if self.setup.profile == Profile::Raw {
            return self.handle_application(io, talk, opcode, message);
        }
        match hear(opcode, message) {
            Heard::Application => self.handle_application(io, talk, opcode, message),
            Heard::Pong(timestamp) => self.handle_pong(io, talk, timestamp),
            Heard::Ping => {
                let mask = self.random.random();
                let channel = talk.channel.as_deref_mut();
                write_pong(&mut talk.out.controls, io.now().unix_ms, mask, channel);
            }
            Heard::Ready => {
                if self.facts.rate_limit_capacity.is_none() {
                    learn(&mut self.facts, message);
                }
                if talk.state == State::AwaitingReady {
                    self.handle_ready(io, talk);
                }
            }
            Heard::Hello => {
                if self.facts.rate_limit_capacity.is_none() {
                    learn(&mut self.facts, message);
                }
                if talk.state == State::AwaitingKey {
                    self.handle_key(io, talk, message);
                }
            }
            Heard::Error if talk.state == State::AwaitingKey => self.handle_key(io, talk, message),
            Heard::Error if self.is_subscribing() => self.handle_subscription(io, talk, message),
            Heard::Error => {
                let (code, messages) = read_error(message);
                self.handle_refusal(talk, code, messages);
            }
            Heard::Subscription => self.handle_subscription(io, talk, message),
            Heard::OtherSystem => {}
        }
    }

    /// The peer ends the connection, or agrees to our wish to.
    fn handle_close_frame(&mut self, io: &mut Io, talk: &mut Talk, code: Option<CloseCode>) {
        if talk.state == State::Closing {
            // The server ends TCP first (RFC 6455, section 7.1.1), so that no port of ours has to
            // wait; one that does not is left soon.
            io.set_timer(talk.id, io.now().monotonic_ms + SERVER_END_MS);
            return;
        }
        talk.fate = Some(code.map_or(Failure::Closed, |code| Failure::ClosedWith(code.value())));
        talk.out.pump(io, talk.id, None, usize::MAX);
        io.close(talk.id);
    }
}

/// The token in the payload of a ping.
fn token_of(payload: &[u8]) -> Option<u64> {
    let payload: [u8; TOKEN_BYTES] = payload.try_into().ok()?;
    Some(u64::from_be_bytes(payload))
}

/// Whether a control frame is at the front.
fn is_control(bytes: &[u8]) -> bool {
    bytes
        .first()
        .and_then(|first| OpCode::from_bits(first & 0x0F))
        .is_some_and(OpCode::is_control)
}

/// How long a server that has answered our close frame may take to end TCP, in milliseconds.
const SERVER_END_MS: u64 = 500;

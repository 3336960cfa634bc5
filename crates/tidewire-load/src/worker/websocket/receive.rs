//! Receiving: the bytes and messages of a connection.

use rand::Rng;
use tidewire_net::Io;
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::{OpCode, ProtocolError};
use tidewire_wire::message::{Compressed, Event, Input};

use super::Core;
use super::pings::TOKEN_BYTES;
use crate::accounting::failure::Failure;
use crate::worker::control::ControlFrames;
use crate::worker::websocket::profile::{
    Profile, ServerMessage, classify, learn, read_error, write_pong,
};
use crate::worker::websocket::session::{Connection, ConnectionState, Session};

impl Core {
    /// Reads `data`, and returns the number of used bytes.
    pub(super) fn handle_bytes(
        &mut self,
        io: &mut Io,
        session: &mut Session,
        data: &mut [u8],
    ) -> usize {
        let mut at = 0;
        if session.connection.state == ConnectionState::Upgrading {
            at = self.handle_response(io, &mut session.connection, data);
            if !matches!(
                session.connection.state,
                ConnectionState::Open | ConnectionState::AwaitingReady
            ) {
                return at;
            }
        }
        loop {
            if session.connection.reads_plainly {
                at += self.read_plainly(io, session, &mut data[at..]);
            }
            if session.connection.reads_plainly {
                break;
            }
            at += self.read_messages(io, session, &mut data[at..]);
            if !session.connection.reads_plainly || at == data.len() {
                break;
            }
        }
        self.handle_read_end(io, &mut session.connection);
        at
    }

    /// The fast path: reads expected replies and control frames until there is another frame. An incomplete frame
    /// stays unread and is passed again with its rest.
    fn read_plainly(&mut self, io: &mut Io, session: &mut Session, data: &mut [u8]) -> usize {
        let Session { reader, connection } = session;
        let mut at = 0;
        loop {
            let (bytes, is_cut) = self.match_plain_replies(connection, &data[at..]);
            at += bytes;
            let rest = &mut data[at..];
            if is_cut || rest.is_empty() {
                return at;
            }
            if !is_control(rest) {
                connection.reads_plainly = false;
                return at;
            }
            let mut input = Input::new(rest);
            let mut frames = ControlFrames::new(&mut self.random, &mut connection.out.controls);
            match connection.control.receive(reader, &mut input, &mut frames) {
                Ok(Some(event)) => self.handle_event(io, connection, event),
                Ok(None) => return at,
                Err(error) => {
                    self.handle_protocol_error(io, connection, error);
                    return at;
                }
            }
            at += input.consumed();
        }
    }

    fn read_messages(&mut self, io: &mut Io, session: &mut Session, data: &mut [u8]) -> usize {
        let Session { reader, connection } = session;
        let all = data.len();
        let mut input = Input::new(data);
        loop {
            let mut frames = ControlFrames::new(&mut self.random, &mut connection.out.controls);
            match connection.control.receive(reader, &mut input, &mut frames) {
                Ok(Some(event)) => {
                    let ends_message =
                        !matches!(event, Event::Ping(_) | Event::Pong(_) | Event::Close(..));
                    self.handle_event(io, connection, event);
                    let is_fan_out = matches!(&self.phase, Some(phase) if phase.fan.is_some());
                    // The next bytes may be replies or publications, which are matched without the reader.
                    connection.reads_plainly =
                        ends_message && (is_fan_out || input.consumed() == all);
                    if connection.reads_plainly {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.handle_protocol_error(io, connection, error);
                    break;
                }
            }
        }
        input.consumed()
    }

    fn handle_protocol_error(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        error: ProtocolError,
    ) {
        self.end_by_fault(io, connection, error.close_code());
    }

    /// Ends a connection whose peer violated the protocol.
    fn end_by_fault(&mut self, io: &mut Io, connection: &mut Connection, code: CloseCode) {
        connection.failure = Some(Failure::Protocol);
        let mut frames = ControlFrames::new(&mut self.random, &mut connection.out.controls);
        connection.control.fail(code, "", &mut frames);
        connection.out.pump(io, connection.id, None, usize::MAX);
        io.close(connection.id);
    }

    #[inline]
    fn handle_event(&mut self, io: &mut Io, connection: &mut Connection, event: Event<'_>) {
        match event {
            Event::Text(text) if connection.channel.is_none() => {
                self.handle_message(io, connection, OpCode::Text, text.as_bytes());
            }
            Event::Binary(bytes) if connection.channel.is_none() => {
                self.handle_message(io, connection, OpCode::Binary, bytes);
            }
            Event::Binary(bytes) => self.handle_sealed(io, connection, bytes),
            // Everything to an encrypted connection is encrypted.
            Event::Text(_) => self.end_by_fault(io, connection, CloseCode::POLICY_VIOLATION),
            Event::Compressed(message) => self.handle_compressed(io, connection, message),
            // A heartbeat that RFC 6455, section 5.5.3, allows: it answers nothing, and cannot seem to.
            Event::Pong([]) => {}
            Event::Pong(payload) => self.handle_pong(io, connection, token_of(payload)),
            Event::Ping(_) => {}
            Event::Close(code, _) => self.handle_close_frame(io, connection, code),
        }
    }

    fn handle_compressed(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        message: Compressed<'_>,
    ) {
        let content = match self.contents.inflate(message.bytes) {
            Ok(content) => content,
            Err(error) => return self.handle_protocol_error(io, connection, error),
        };
        match message.event(&content) {
            Ok(event) => self.handle_event(io, connection, event),
            Err(error) => self.handle_protocol_error(io, connection, error),
        }
        self.contents.give_back(content);
    }

    fn handle_sealed(&mut self, io: &mut Io, connection: &mut Connection, message: &[u8]) {
        let channel = connection.channel.as_deref_mut();
        match channel.and_then(|channel| self.contents.open(channel, message)) {
            Some(content) => {
                self.handle_message(io, connection, OpCode::Binary, &content);
                self.contents.give_back(content);
            }
            None => self.end_by_fault(io, connection, CloseCode::POLICY_VIOLATION),
        }
    }

    #[inline]
    fn handle_message(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        opcode: OpCode,
        message: &[u8],
    ) {
        if self.setup.profile == Profile::Raw {
            return self.handle_application(io, connection, opcode, message);
        }
        match classify(opcode, message) {
            ServerMessage::Application => self.handle_application(io, connection, opcode, message),
            ServerMessage::Pong(timestamp) => self.handle_pong(io, connection, timestamp),
            ServerMessage::Ping => {
                let mask = self.random.random();
                let channel = connection.channel.as_deref_mut();
                write_pong(
                    &mut connection.out.controls,
                    io.now().unix_ms,
                    mask,
                    channel,
                );
            }
            ServerMessage::Ready => {
                if self.facts.rate_limit_capacity.is_none() {
                    learn(&mut self.facts, message);
                }
                if connection.state == ConnectionState::AwaitingReady {
                    self.handle_ready(io, connection);
                }
            }
            ServerMessage::Hello => {
                if self.facts.rate_limit_capacity.is_none() {
                    learn(&mut self.facts, message);
                }
                if connection.state == ConnectionState::AwaitingKey {
                    self.handle_key(io, connection, message);
                }
            }
            ServerMessage::Error if connection.state == ConnectionState::AwaitingKey => {
                self.handle_key(io, connection, message);
            }
            ServerMessage::Error if self.is_subscribing() => {
                self.handle_subscription(io, connection, message);
            }
            ServerMessage::Error => {
                let (code, messages) = read_error(message);
                self.handle_refusal(connection, code, messages);
            }
            ServerMessage::Subscription => self.handle_subscription(io, connection, message),
            ServerMessage::OtherSystem => {}
        }
    }

    /// Handles a close frame: the peer ends the connection, or answers our close frame.
    fn handle_close_frame(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        code: Option<CloseCode>,
    ) {
        if connection.state == ConnectionState::Closing {
            // The server ends TCP first (RFC 6455, section 7.1.1), so that no port of ours has to
            // wait; one that does not is left soon.
            io.set_timer(connection.id, io.now().monotonic_ms + SERVER_END_MS);
            return;
        }
        connection.failure =
            Some(code.map_or(Failure::Closed, |code| Failure::ClosedWith(code.value())));
        connection.out.pump(io, connection.id, None, usize::MAX);
        io.close(connection.id);
    }
}

/// The token in the payload of a ping.
fn token_of(payload: &[u8]) -> Option<u64> {
    let payload: [u8; TOKEN_BYTES] = payload.try_into().ok()?;
    Some(u64::from_be_bytes(payload))
}

/// Whether the first frame is a control frame.
fn is_control(bytes: &[u8]) -> bool {
    bytes
        .first()
        .and_then(|first| OpCode::from_bits(first & 0x0F))
        .is_some_and(OpCode::is_control)
}

/// The time that a server has to end TCP after it has answered our close frame, in milliseconds.
const SERVER_END_MS: u64 = 500;

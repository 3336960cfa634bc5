//! What users of the engine implement, and what it gives them to act with.

use crate::config::Protocol;
use crate::session::calls::{Call, Responder, call_error};
use crate::session::send::Payload;
use crate::session::snapshots::SyncRequest;
use crate::state::connection::State;
use crate::state::core::{Core, wire_now};
use std::sync::Arc;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::BATCH_MESSAGES_MAX;

/// The part of a server that is not the protocol. One value per shard, called on the shard's thread, so
/// that no call may block.
pub trait Application: Send + 'static {
    /// The shard starts. `shard` wakes it from other threads.
    fn on_start(&mut self, shard: crate::handle::ShardWaker) {
        let _ = shard;
    }

    /// A session is ready to receive.
    fn on_connect(&mut self, context: &mut Context<'_>, peer: &Peer) {
        let (_, _) = (context, peer);
    }

    /// A message that is not the protocol's own arrived.
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>);

    /// A client asks something and waits for the answer (`call_request`). It is answered by
    /// [`Context::respond`] at once, or by [`Responder::respond`] later from any thread. Default: `NOT_FOUND`.
    ///
    /// ```
    /// use tidewire_engine::{Application, Call, CallError, Context, Message, Responder};
    ///
    /// struct Clock;
    ///
    /// impl Application for Clock {
    ///     fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}
    ///
    ///     fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
    ///         match call.t {
    ///             "zone" => {
    ///                 context.respond(&responder, Ok(r#""UTC""#.into()));
    ///             }
    ///             // What takes long is done elsewhere.
    ///             "easter" => {
    ///                 std::thread::spawn(move || responder.respond(Ok(r#"{"month":4,"day":5}"#.into())));
    ///             }
    ///             _ => {
    ///                 let error = CallError { code: "NO_CLUE".into(), message: call.t.into() };
    ///                 context.respond(&responder, Err(error));
    ///             }
    ///         }
    ///     }
    /// }
    /// ```
    fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        let words = format!("nothing answers to {}", call.t);
        context.respond(&responder, Err(call_error(ErrorCode::NotFound, words)));
    }

    /// A client asks for the state of topics (`sync_request`). Gives whether it is or will be answered with
    /// snapshots; if not, the client gets `INVALID_ACTION`. Default: what the topics keep, by
    /// [`Context::send_newest`].
    fn on_sync(&mut self, context: &mut Context<'_>, request: &SyncRequest<'_>) -> bool {
        context.send_newest(request)
    }

    /// A session that was announced by [`on_connect`](Self::on_connect) is over.
    fn on_close(&mut self, connection: ConnectionKey, reason: CloseReason) {
        let (_, _) = (connection, reason);
    }

    /// Whether another message can be taken. While it is `false` the shard reads from no connection, so
    /// that TCP holds the senders back; up to one read buffer of messages still arrives. Asked before each
    /// read, and again when the shard is woken.
    fn is_ready(&self) -> bool {
        true
    }

    /// Once per turn of the event loop, after its messages.
    fn on_turn(&mut self) {}
}

/// A message as it was received. Compressed ones are given inflated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// How the bytes are to be read.
    pub encoding: Encoding,
    /// The message. JSON messages of version 1 are known to be UTF-8 and to be an object with a type,
    /// not to be valid JSON throughout, nor to be nested less deep than any limit: a parser has to see
    /// to that itself.
    pub bytes: &'a [u8],
}

/// How the bytes of a message are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8 text; in version 1, JSON.
    Text,
    /// Bytes without a meaning to the engine; only without version 1.
    Binary,
    /// MessagePack, without the prefix that marks it in a frame.
    MessagePack,
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    /// Text, sent as it is.
    Text(Arc<str>),
    /// Bytes, sent as they are.
    Binary(Arc<[u8]>),
}

/// Names a connection of a server, for as long as it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey {
    pub(crate) shard: u32,
    pub(crate) id: ConnectionId,
}

/// Who connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Names the connection in every later call.
    pub connection: ConnectionKey,
    /// The `sub` claim of the token; `None` without authentication.
    pub user: Option<String>,
    /// The other end of the TCP connection or, behind a [trusted proxy](crate::TrustedProxies), the client that it
    /// forwards; then the port is 0 if the proxy does not tell it.
    pub address: Option<std::net::SocketAddr>,
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed, with this code if it gave one.
    ByPeer(Option<CloseCode>),
    /// This side closed, with this code.
    ByUs(CloseCode),
    /// The connection broke without a closing handshake.
    Lost,
}

/// What an application can do while it is called for a connection.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) core: &'a mut Core,
    pub(crate) state: &'a mut State,
}

impl Context<'_> {
    /// The connection this call is about.
    #[must_use]
    pub fn connection(&self) -> ConnectionKey {
        self.state.key
    }

    /// Answers with a text message.
    pub fn send_text(&mut self, text: &str) {
        self.send(Message {
            encoding: Encoding::Text,
            bytes: text.as_bytes(),
        });
    }

    /// Answers with a binary message.
    pub fn send_binary(&mut self, bytes: &[u8]) {
        self.send(Message {
            encoding: Encoding::Binary,
            bytes,
        });
    }

    /// Answers with a message in its encoding; the bytes of a text must be UTF-8. Once this side has
    /// sent a close, nothing leaves any more.
    #[inline]
    pub fn send(&mut self, message: Message<'_>) {
        let payload = match message.encoding {
            Encoding::Text => Payload::new(OpCode::Text, message.bytes),
            Encoding::Binary => Payload::new(OpCode::Binary, message.bytes),
            Encoding::MessagePack => Payload::messagepack(message.bytes),
        };
        self.core.send(self.io, self.state, payload);
    }

    /// Answers with several messages of version 1, each an envelope in JSON: in a `batch` if the client's
    /// hello said that it takes them, else one by one.
    pub fn send_batch(&mut self, messages: &[&str]) {
        let is_v1 = self.core.shared.config.protocol == Protocol::V1;
        let takes_batches = is_v1 && self.state.session.client_takes_batches();
        if !takes_batches || messages.len() < 2 {
            return messages.iter().for_each(|text| self.send_text(text));
        }
        for messages in messages.chunks(BATCH_MESSAGES_MAX) {
            let now = wire_now(self.io);
            let id = self.core.new_id(now.unix_ms);
            let bytes: Vec<&[u8]> = messages.iter().map(|text| text.as_bytes()).collect();
            let mut batch = Vec::new();
            match self.state.session.encode_batch(&bytes, id, now, &mut batch) {
                Ok(opcode) => {
                    self.core
                        .send(self.io, self.state, Payload::new(opcode, &batch));
                }
                // A message that MessagePack cannot hold.
                Err(_) => messages.iter().for_each(|text| self.send_text(text)),
            }
        }
    }

    /// Ends the session of this call with a code and a reason.
    pub fn close(&mut self, code: CloseCode, reason: &'static str) {
        self.state.close = Some((code, reason));
    }
}

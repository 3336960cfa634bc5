//! The context of an application's call for a connection: sending, and closing.

use crate::config::Protocol;
use crate::model::{ConnectionKey, Encoding, Message};
use crate::session::Session;
use crate::topics::publication::Payload;
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::BATCH_MESSAGES_MAX;

/// The calls of an application while it is called for a connection.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) session: Session<'a>,
}

impl<'a> Context<'a> {
    #[inline]
    pub(crate) fn new(session: &'a mut Session<'_>) -> Self {
        Self {
            session: session.reborrow(),
        }
    }
}

impl Context<'_> {
    /// The connection this call is about.
    #[must_use]
    pub fn connection(&self) -> ConnectionKey {
        self.session.state.key
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

    /// Answers with a message in its encoding; the bytes of a text must be UTF-8. Once this side
    /// has sent a close, nothing leaves any more.
    #[inline]
    pub fn send(&mut self, message: Message<'_>) {
        let payload = match message.encoding {
            Encoding::Text => Payload::new(OpCode::Text, message.bytes),
            Encoding::Binary => Payload::new(OpCode::Binary, message.bytes),
            Encoding::MessagePack => Payload::messagepack(message.bytes),
        };
        self.session.send(payload);
    }

    /// Answers with several messages of version 1, each an envelope in JSON: in a `batch` if the
    /// client's hello announced support for it, else one by one.
    pub fn send_batch(&mut self, messages: &[&str]) {
        let is_v1 = self.session.core.setup.config.protocol == Protocol::V1;
        let takes_batches = is_v1 && self.session.state.session.client_takes_batches();
        if !takes_batches || messages.len() < 2 {
            return messages.iter().for_each(|text| self.send_text(text));
        }
        for messages in messages.chunks(BATCH_MESSAGES_MAX) {
            let now = self.session.now();
            let id = self.session.core.new_id(now.unix_ms);
            let bytes: Vec<&[u8]> = messages.iter().map(|text| text.as_bytes()).collect();
            let mut batch = Vec::new();
            match self
                .session
                .state
                .session
                .encode_batch(&bytes, id, now, &mut batch)
            {
                Ok(opcode) => {
                    self.session.send(Payload::new(opcode, &batch));
                }
                // A message that MessagePack cannot hold.
                Err(_) => messages.iter().for_each(|text| self.send_text(text)),
            }
        }
    }

    /// Ends the session of this call with a code and a reason.
    pub fn close(&mut self, code: CloseCode, reason: &'static str) {
        self.session.state.ending.close = Some(Box::new((code, reason)));
    }
}

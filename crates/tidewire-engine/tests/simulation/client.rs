//! One connection of a simulated client: bytes to messages and back.

use serde_json::Value;
use tidewire_testkit::simulation::ClientEnd;
use tidewire_wire::frame::{OpCode, Role, write_frame};
use tidewire_wire::handshake::client::{Offer, RequestHead, parse_response};
use tidewire_wire::message::{Event, Input, MessageReader};

pub(crate) struct Connection {
    pub(crate) end: ClientEnd,
    received: Vec<u8>,
    reader: MessageReader,
    is_open: bool,
    /// The server has ended it, well or not.
    pub(crate) is_over: bool,
    pub(crate) bytes_received: u64,
}

const OFFER: Offer<'static> = Offer {
    key: &[7; 16],
    protocols: &[],
    deflate: None,
};

impl Connection {
    /// Sends the upgrade request.
    pub(crate) fn open(end: ClientEnd, target: &str) -> Self {
        let mut head = Vec::new();
        let request = RequestHead {
            host: "sim",
            target,
            offer: OFFER,
            headers: &[],
        };
        request.write(&mut head).expect("a request");
        end.send(&head);
        Self {
            end,
            received: Vec::new(),
            reader: MessageReader::new(Role::Client, 1 << 20),
            is_open: false,
            is_over: false,
            bytes_received: 0,
        }
    }

    pub(crate) fn send(&self, message: &Value) {
        let mut frame = Vec::new();
        let text = message.to_string();
        write_frame(
            &mut frame,
            OpCode::Text,
            text.as_bytes(),
            Some([1, 2, 3, 4]),
        );
        self.end.send(&frame);
    }

    /// What has arrived since the last call.
    pub(crate) fn receive(&mut self) -> Vec<Value> {
        let new = self.end.receive();
        self.bytes_received += new.len() as u64;
        self.received.extend_from_slice(&new);
        if self.end.ended().is_some() {
            self.is_over = true;
        }
        if !self.is_open {
            let head = parse_response(&self.received, &OFFER, 4096).expect("an upgrade");
            let Some(response) = head else {
                return Vec::new();
            };
            self.received.drain(..response.head_bytes);
            self.is_open = true;
        }
        let mut messages = Vec::new();
        let mut input = Input::new(&mut self.received);
        loop {
            match self
                .reader
                .read(&mut input)
                .expect("a server that keeps the rules")
            {
                Some(Event::Text(text)) => {
                    messages.push(serde_json::from_str(text.as_str()).expect("JSON"));
                }
                Some(Event::Close(..)) => self.is_over = true,
                Some(Event::Ping(_) | Event::Pong(_)) => {}
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
        let consumed = input.consumed();
        self.received.drain(..consumed);
        messages
    }
}

//! A client on the simulated network: what it sends, and what it has received, in virtual time.

use super::{Incoming, Said, frame};
use serde_json::Value;
use tidewire_net::simulation::ClientEnd;
use tidewire_wire::frame::OpCode;
use tidewire_wire::handshake::client::{Offer, RequestHead, parse_response};

/// A connection to a simulated server, at `/ws`.
pub struct SimulatedClient {
    /// The client's end of the network, for bytes that are not frames.
    pub end: ClientEnd,
    /// Bytes of the response to the upgrade that have arrived, until it is whole.
    head: Vec<u8>,
    /// The bytes after the response.
    incoming: Option<Incoming>,
    /// Bytes that have arrived in all.
    pub bytes_received: u64,
}

impl SimulatedClient {
    /// Sends the upgrade request, with these headers besides its own.
    pub fn open(end: ClientEnd, headers: &[(&str, &str)]) -> Self {
        end.send(&upgrade(headers));
        Self {
            end,
            head: Vec::new(),
            incoming: None,
            bytes_received: 0,
        }
    }

    /// Sends a JSON message.
    pub fn send(&self, message: &Value) {
        self.send_frame(OpCode::Text, message.to_string().as_bytes());
    }

    /// Sends a frame.
    pub fn send_frame(&self, opcode: OpCode, payload: &[u8]) {
        self.end.send(&frame(opcode, payload));
    }

    /// The messages that have arrived since the last call.
    #[track_caller]
    pub fn receive(&mut self) -> Vec<Said> {
        let bytes = self.end.receive();
        self.bytes_received += bytes.len() as u64;
        match &mut self.incoming {
            Some(incoming) => incoming.push(&bytes),
            None => self.read_head(&bytes),
        }
        let incoming = self.incoming.as_mut();
        incoming.map_or_else(Vec::new, |incoming| {
            std::iter::from_fn(|| incoming.next()).collect()
        })
    }

    fn read_head(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
        let response = parse_response(&self.head, &OFFER, 4096).expect("an upgrade");
        if let Some(response) = response {
            let behind = self.head.split_off(response.head_bytes);
            self.incoming = Some(Incoming::of_server(None, behind));
        }
    }

    /// The JSON messages among what has arrived; nothing else may have.
    #[track_caller]
    pub fn receive_json(&mut self) -> Vec<Value> {
        self.receive().iter().map(Said::json).collect()
    }
}

/// An upgrade request with these headers besides its own.
pub fn upgrade(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = Vec::new();
    let request = RequestHead {
        host: "sim",
        target: "/ws",
        offer: OFFER,
        headers,
    };
    request.write(&mut head).expect("a request");
    head
}

const OFFER: Offer<'static> = Offer {
    key: &[7; 16],
    protocols: &[],
    deflate: None,
};

//! A client of a server on the simulated network: what it sends and what it has received, in virtual time.

use super::{MASK, Said};
use serde_json::Value;
use tidewire_engine::{Application, Config, Handle, simulation};
use tidewire_net::Handler;
use tidewire_testkit::simulation::{ClientEnd, Driver, Faults};
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::{OpCode, Role, write_frame};
use tidewire_wire::handshake::client::{Offer, RequestHead, parse_response};
use tidewire_wire::message::{Event, Input, MessageReader};

/// A server on a network without delays.
pub fn serve<A: Application>(
    config: Config,
    application: impl FnMut(usize) -> A,
) -> (Driver<impl Handler>, Handle) {
    let (shards, handle) = simulation::shards(config, application, 0).expect("a server");
    let mut driver = Driver::new(Faults {
        delay_ms: 0..=0,
        ..Faults::default()
    });
    for shard in shards {
        driver.add(shard);
    }
    (driver, handle)
}

/// A connection to a simulated server.
pub struct SimulatedClient {
    pub end: ClientEnd,
    received: Vec<u8>,
    reader: MessageReader,
    is_open: bool,
}

const OFFER: Offer<'static> = Offer {
    key: &[7; 16],
    protocols: &[],
    deflate: None,
};

impl SimulatedClient {
    /// Sends the upgrade request, with these headers besides its own.
    pub fn open(end: ClientEnd, headers: &[(&str, &str)]) -> Self {
        end.send(&upgrade(headers));
        Self {
            end,
            received: Vec::new(),
            reader: MessageReader::new(Role::Client, usize::MAX),
            is_open: false,
        }
    }

    pub fn send(&self, message: &Value) {
        self.send_frame(OpCode::Text, message.to_string().as_bytes());
    }

    pub fn send_frame(&self, opcode: OpCode, payload: &[u8]) {
        let mut frame = Vec::new();
        write_frame(&mut frame, opcode, payload, Some(MASK));
        self.end.send(&frame);
    }

    /// What has arrived since the last call, and at last how the connection has ended, if it has.
    pub fn receive(&mut self) -> Vec<Said> {
        self.received.extend_from_slice(&self.end.receive());
        let mut said = Vec::new();
        if !self.is_open {
            let head = parse_response(&self.received, &OFFER, 4096).expect("an upgrade");
            match head {
                Some(response) => self.received.drain(..response.head_bytes),
                None => return said,
            };
            self.is_open = true;
        }
        let mut input = Input::new(&mut self.received);
        let broken = "a server that keeps the rules";
        while let Some(event) = self.reader.read(&mut input).expect(broken) {
            said.push(match event {
                Event::Text(text) => Said::Text(text.as_str().to_owned()),
                Event::Binary(bytes) => Said::Binary(bytes.to_vec()),
                Event::Compressed(_) => panic!("compression was not offered"),
                Event::Ping(payload) => Said::Ping(payload.to_vec()),
                Event::Pong(payload) => Said::Pong(payload.to_vec()),
                Event::Close(code, reason) => {
                    Said::Close(code.map(CloseCode::value), reason.to_owned())
                }
            });
        }
        let consumed = input.consumed();
        self.received.drain(..consumed);
        said
    }

    /// The JSON messages among what has arrived; nothing else may have.
    #[track_caller]
    pub fn receive_json(&mut self) -> Vec<Value> {
        let message = |said| match said {
            Said::Text(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?}"),
        };
        self.receive().into_iter().map(message).collect()
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

//! A WebSocket client under test.
//!
//! ```text
//! autobahn_client cases URL AGENT   runs every case of Autobahn's fuzzing server at URL and echoes
//! autobahn_client echo URL          sends messages of many sizes to an echo server and checks each
//! ```
//!
//! URL is `ws://HOST:PORT[/PATH]`. permessage-deflate is offered. Ends with 1 if a connection could not be
//! made or, for `echo`, if a message came back otherwise than it was sent.

#![allow(clippy::print_stderr, clippy::print_stdout)]

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use tidewire_net::{Closed, Connect, ConnectionId, Handler, Io, Shard, ShardConfig, Usage};
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::{Connection as WebSocket, Masked};
use tidewire_wire::deflate::{Compressor, Decompressor, DeflateParameters};
use tidewire_wire::frame::{OpCode, ProtocolError, Role, write_compressed_frame, write_frame};
use tidewire_wire::handshake::client::{
    HEAD_BYTES_MAX, Offer, RequestHead, Response, parse_response,
};
use tidewire_wire::message::{Event, Input};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (url, tasks, agent) = match arguments[..] {
        ["cases", url, agent] => (url, vec![Task::Count], agent),
        ["echo", url] => (url, vec![Task::Check(messages())], ""),
        _ => {
            eprintln!("usage: autobahn_client cases URL AGENT | autobahn_client echo URL");
            return ExitCode::from(2);
        }
    };
    match run(url, tasks, agent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("autobahn_client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(url: &str, tasks: Vec<Task>, agent: &str) -> Result<(), String> {
    let rest = url.strip_prefix("ws://").ok_or("the URL is not ws://")?;
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let address = host.to_socket_addrs().map_err(|error| error.to_string())?;
    let client = Client {
        address: address
            .into_iter()
            .next()
            .ok_or("the host has no address")?,
        host: host.to_owned(),
        path: path.to_owned(),
        agent: agent.to_owned(),
        tasks: tasks.into(),
        connection: None,
        failure: None,
    };
    let config = ShardConfig {
        outbox_bytes_max: 4 * MESSAGE_BYTES_MAX,
        ..ShardConfig::default()
    };
    let (shard, mailbox) = Shard::new(&config, client).map_err(|error| error.to_string())?;
    mailbox.send(()).map_err(|error| format!("{error:?}"))?;
    let client = shard.run().map_err(|error| error.to_string())?;
    client.failure.map_or(Ok(()), Err)
}

/// Does the tasks one after another, each on a connection of its own.
struct Client {
    address: SocketAddr,
    host: String,
    path: String,
    agent: String,
    tasks: VecDeque<Task>,
    connection: Option<Connection>,
    failure: Option<String>,
}

/// The purpose of a connection.
enum Task {
    /// Ask for the number of cases.
    Count,
    /// Echo in the case of this number, from 1 on.
    Case(usize),
    /// Have the reports written.
    Report,
    /// Send these and check that they come back.
    Check(VecDeque<Message>),
}

#[derive(Debug, PartialEq, Eq)]
struct Message {
    opcode: OpCode,
    payload: Vec<u8>,
}

impl Client {
    fn start_next(&mut self, io: &mut Io) {
        let Some(task) = self.tasks.pop_front() else {
            return io.stop();
        };
        self.connection = Some(Connection::new(task));
        let connect = Connect {
            address: self.address.into(),
            source: None,
            tls: None,
            usage: Usage::WritesFirst,
        };
        if let Err(error) = io.connect(connect) {
            self.fail(io, error.to_string());
        }
    }

    fn fail(&mut self, io: &mut Io, failure: String) {
        self.failure.get_or_insert(failure);
        io.stop();
    }

    /// A fuzzing server's cases are chosen by path and query.
    fn target(&self, task: &Task) -> String {
        let agent = &self.agent;
        match task {
            Task::Count => "/getCaseCount".to_owned(),
            Task::Case(number) => format!("/runCase?case={number}&agent={agent}"),
            Task::Report => format!("/updateReports?agent={agent}"),
            Task::Check(_) => self.path.clone(),
        }
    }
}

impl Handler for Client {
    type Mail = ();

    fn handle_mail(&mut self, io: &mut Io, _start: ()) {
        self.start_next(io);
    }

    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        let Some(connection) = &self.connection else {
            return;
        };
        let head = RequestHead {
            host: &self.host,
            target: &self.target(&connection.task),
            offer: connection.offer(),
            headers: &[],
        };
        let mut out = Vec::new();
        match head.write(&mut out) {
            Ok(()) => drop(io.send(id, &out)),
            Err(error) => self.fail(io, error.to_string()),
        }
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let Some(connection) = &mut self.connection else {
            return data.len();
        };
        let mut out = Vec::new();
        let (used, result) = connection.handle_data(data, &mut out);
        io.send(id, &out);
        match result {
            Ok(progress) => {
                if let Some(count) = progress.cases {
                    self.tasks.extend((1..=count).map(Task::Case));
                    self.tasks.push_back(Task::Report);
                }
                if !progress.ended {
                    return used;
                }
            }
            Err(failure) => drop(self.failure.get_or_insert(failure)),
        }
        io.close(id);
        used
    }

    fn handle_close(&mut self, io: &mut Io, _id: ConnectionId, closed: Closed) {
        let left = match self.connection.take().map(|connection| connection.task) {
            Some(Task::Check(left)) => left.len(),
            Some(Task::Count) if self.tasks.is_empty() => 1,
            _ => 0,
        };
        if left > 0 || matches!(closed, Closed::NotConnected(_)) {
            self.failure
                .get_or_insert(format!("{left} messages did not come: {closed:?}"));
        }
        match self.failure {
            Some(_) => io.stop(),
            None => self.start_next(io),
        }
    }
}

/// One connection and its task.
struct Connection {
    task: Task,
    key: [u8; 16],
    /// `None` until the server has agreed to the upgrade.
    websocket: Option<WebSocket>,
    decompressor: Option<Decompressor>,
    sender: Sender,
}

/// How far a connection has come.
#[derive(Default)]
struct Progress {
    /// How many cases there are, if that is what came.
    cases: Option<usize>,
    ended: bool,
}

impl Connection {
    fn new(task: Task) -> Self {
        let random = RandomState::new();
        let mut key = [0; 16];
        key[..8].copy_from_slice(&random.hash_one(0).to_ne_bytes());
        key[8..].copy_from_slice(&random.hash_one(1).to_ne_bytes());
        Self {
            task,
            key,
            websocket: None,
            decompressor: None,
            sender: Sender {
                compressor: None,
                random,
                frames: 0,
            },
        }
    }

    fn offer(&self) -> Offer<'_> {
        Offer {
            key: &self.key,
            protocols: &[],
            deflate: Some(DeflateParameters::default()),
        }
    }

    /// How many bytes were used and what came of them; the answers go to `out`.
    fn handle_data(
        &mut self,
        data: &mut [u8],
        out: &mut Vec<u8>,
    ) -> (usize, Result<Progress, String>) {
        let mut used = 0;
        if self.websocket.is_none() {
            match parse_response(data, &self.offer(), HEAD_BYTES_MAX) {
                Ok(None) => return (0, Ok(Progress::default())),
                Ok(Some(response)) => {
                    used = response.head_bytes;
                    self.open(&response, out);
                }
                Err(error) => return (data.len(), Err(error.to_string())),
            }
        }
        let mut input = Input::new(&mut data[used..]);
        let result = match self.read_messages(&mut input, out) {
            Ok(result) => result,
            Err(error) => {
                if let Some(websocket) = &mut self.websocket {
                    let reason = error.to_string();
                    let mut output = self.sender.output(out);
                    let control = &mut websocket.control;
                    control.fail(error.close_code(), &reason, &mut output);
                }
                Ok(Progress {
                    cases: None,
                    ended: true,
                })
            }
        };
        (used + input.consumed(), result)
    }

    fn open(&mut self, response: &Response, out: &mut Vec<u8>) {
        let mut websocket = WebSocket::new(Role::Client, MESSAGE_BYTES_MAX);
        if let Some(agreed) = &response.deflate {
            websocket = websocket.with_compression();
            let keeps_context = !agreed.server_no_context_takeover;
            self.decompressor = Some(Decompressor::new(
                agreed.server_max_window_bits,
                keeps_context,
            ));
            let keeps_context = !agreed.client_no_context_takeover;
            let bits = agreed.client_max_window_bits;
            self.sender.compressor = Some(Compressor::new(LEVEL, bits, keeps_context));
        }
        self.websocket = Some(websocket);
        if let Task::Check(messages) = &self.task {
            for message in messages {
                self.sender.send(message.opcode, &message.payload, out);
            }
        }
    }

    /// The fault of the peer, or the result of its messages.
    fn read_messages(
        &mut self,
        input: &mut Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Result<Progress, String>, ProtocolError> {
        let (Some(websocket), sender) = (&mut self.websocket, &mut self.sender) else {
            return Ok(Ok(Progress::default()));
        };
        let WebSocket { reader, control } = websocket;
        let mut progress = Progress::default();
        let mut inflated = Vec::new();
        loop {
            let received = control.receive(reader, input, &mut sender.output(out))?;
            let Some(event) = received else {
                return Ok(Ok(progress));
            };
            let event = match event {
                Event::Compressed(message) => {
                    let Some(decompressor) = &mut self.decompressor else {
                        return Err(ProtocolError::ReservedBits);
                    };
                    inflated.clear();
                    decompressor.decompress(message.bytes, &mut inflated, MESSAGE_BYTES_MAX)?;
                    message.event(&inflated)?
                }
                event => event,
            };
            let (opcode, payload) = match event {
                Event::Text(text) => (OpCode::Text, text.as_bytes()),
                Event::Binary(bytes) => (OpCode::Binary, bytes),
                Event::Close(..) => {
                    progress.ended = true;
                    return Ok(Ok(progress));
                }
                Event::Ping(_) | Event::Pong(_) | Event::Compressed(_) => continue,
            };
            match &mut self.task {
                Task::Count => {
                    let count = std::str::from_utf8(payload)
                        .ok()
                        .and_then(|text| text.parse().ok());
                    progress.cases = Some(count.unwrap_or(0));
                }
                Task::Case(_) => sender.send(opcode, payload, out),
                Task::Report => {}
                Task::Check(messages) => {
                    let expected = messages.pop_front();
                    if !expected
                        .is_some_and(|sent| (sent.opcode, &*sent.payload) == (opcode, payload))
                    {
                        let length = payload.len();
                        return Ok(Err(format!(
                            "{length} bytes did not come back as they were sent"
                        )));
                    }
                    if messages.is_empty() {
                        let mut output = sender.output(out);
                        control.close(Some(CloseCode::NORMAL), "done", &mut output);
                    }
                }
            }
        }
    }
}

/// Writes frames as a client does, each with a mask of its own.
struct Sender {
    compressor: Option<Compressor>,
    random: RandomState,
    frames: u64,
}

impl Sender {
    fn send(&mut self, opcode: OpCode, payload: &[u8], out: &mut Vec<u8>) {
        let mask = Some(self.mask());
        match &mut self.compressor {
            Some(compressor) => {
                let mut deflated = Vec::new();
                compressor.compress(payload, &mut deflated);
                write_compressed_frame(out, opcode, &deflated, mask);
            }
            None => write_frame(out, opcode, payload, mask),
        }
    }

    fn output<'a>(&'a mut self, buffer: &'a mut Vec<u8>) -> Masked<'a, impl FnMut() -> [u8; 4]> {
        Masked {
            buffer,
            mask: || self.mask(),
        }
    }

    fn mask(&mut self) -> [u8; 4] {
        self.frames += 1;
        let [a, b, c, d, ..] = self.random.hash_one(self.frames).to_ne_bytes();
        [a, b, c, d]
    }
}

/// Texts and binaries of sizes on both sides of every form of a frame's length, and many small ones.
fn messages() -> VecDeque<Message> {
    let sizes = [0, 1, 125, 126, 127, 65_535, 65_536, 1 << 20, 5 << 20];
    let many = std::iter::repeat_n(20, 1000);
    let mut messages = VecDeque::new();
    for (index, size) in sizes.into_iter().chain(many).enumerate() {
        let noise = (0..size)
            .map(|at| (at * 31 + at / 251 * 7 + index) as u8)
            .collect();
        messages.push_back(Message {
            opcode: OpCode::Binary,
            payload: noise,
        });
        let text = "größe €\u{1F30A} ".repeat(size / 16 + usize::from(size > 0));
        messages.push_back(Message {
            opcode: OpCode::Text,
            payload: text.into_bytes(),
        });
    }
    messages
}

/// The message size of the largest cases.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

const LEVEL: u32 = 1;

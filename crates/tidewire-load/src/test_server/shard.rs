//! Event loop of a test server: bytes in, requests to their connection.

use super::connection::{Connection, Exchange, Shared};
use super::counts::Ledger;
use super::stalls::StallClock;
use super::streams::Streams;
use super::{Conduct, QUEUED_BYTES_MAX, Stop};
use std::sync::Arc;
use std::time::Instant;
use tidewire_http::server::{Event, Limits, RequestError, RequestHeads, ResponseHead};
use tidewire_http::{BodyLength, http2};
use tidewire_net::{Closed, ConnectionId, Handler, Io, ListenerId};

/// The connections of one thread.
#[derive(Debug)]
pub(super) struct TestShard {
    connections: Vec<Option<Connection>>,
    heads: RequestHeads,
    stream_heads: http2::Heads,
    shared: Shared,
    stalls: Option<StallClock>,
}

impl TestShard {
    pub(super) fn new(
        conduct: &Conduct,
        ledgers: &Arc<[Ledger]>,
        index: usize,
        started: Instant,
    ) -> Self {
        let limits = Limits {
            body_bytes_max: u64::MAX,
            ..Limits::default()
        };
        Self {
            connections: Vec::new(),
            heads: RequestHeads::new(limits),
            stream_heads: http2::Heads::default(),
            shared: Shared::new(conduct, ledgers, index),
            stalls: conduct
                .stalls
                .map(|stalls| StallClock::new(stalls, started)),
        }
    }
}

impl Handler for TestShard {
    type Mail = Stop;

    fn handle_accept(&mut self, _io: &mut Io, id: ConnectionId, _listener: ListenerId) {
        let index = id.index();
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Connection::default());
        self.shared.ledger().accepted.add(1);
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return data.len();
        };
        let mut consumed = 0;
        if !connection.is_known {
            match Streams::are_wanted(io, id, data) {
                None => return 0,
                Some(true) => {
                    connection.streams = Some(Box::new(Streams::new(self.shared.ledger(), io, id)));
                }
                Some(false) => {}
            }
            connection.is_known = true;
        }
        if let Some(streams) = &mut connection.streams {
            consumed = streams.read(&mut self.stream_heads, &mut self.shared, io, id, data);
        } else if connection.echo.is_none() {
            consumed = read_requests(connection, &mut self.heads, &mut self.shared, io, id, data);
        }
        let ledger = self.shared.ledger();
        if let Some(echo) = &mut connection.echo {
            consumed += echo.read(io, id, &mut data[consumed..], ledger);
        }
        ledger.bytes_received.add(consumed as u64);
        consumed
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return;
        };
        match &mut connection.streams {
            Some(streams) => streams.continue_responses(&self.shared, io, id),
            None => connection.continue_responses(&mut self.shared, io, id),
        }
    }

    fn handle_drained(&mut self, io: &mut Io, id: ConnectionId) {
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return;
        };
        if let Some(streams) = &mut connection.streams {
            streams.continue_responses(&self.shared, io, id);
        } else if !connection.is_full() {
            io.resume_reading(id);
        }
    }

    fn handle_close(&mut self, _io: &mut Io, id: ConnectionId, _closed: Closed) {
        if let Some(connection) = self.connections.get_mut(id.index()).and_then(Option::take) {
            connection.end(self.shared.ledger());
        }
    }

    fn handle_mail(&mut self, io: &mut Io, _stop: Stop) {
        io.stop();
    }

    fn handle_turn(&mut self, _io: &mut Io) {
        if let Some(stall) = self
            .stalls
            .as_mut()
            .and_then(|stalls| stalls.due(Instant::now()))
        {
            std::thread::sleep(stall);
        }
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.stalls.as_ref().map(StallClock::next)
    }
}

/// Reads requests until the data is used up, the connection is no longer HTTP, or too much waits
/// for the client.
fn read_requests(
    connection: &mut Connection,
    heads: &mut RequestHeads,
    shared: &mut Shared,
    io: &mut Io,
    id: ConnectionId,
    data: &[u8],
) -> usize {
    let mut consumed = 0;
    loop {
        if connection.is_ending {
            return data.len();
        }
        let step = match connection.reader.read(heads, &data[consumed..]) {
            Ok(step) => step,
            Err(error) => {
                refuse(connection, shared, io, id, error);
                return data.len();
            }
        };
        consumed += step.consumed;
        match step.event {
            Event::More => return consumed,
            Event::Head(request) => {
                // A client that still waits for an earlier response cannot distinguish this one
                // from it.
                if request.expects_continue && !connection.is_waiting() {
                    io.send(id, CONTINUE);
                    shared.ledger().bytes_sent.add(CONTINUE.len() as u64);
                }
                connection.exchange = Some(Exchange::of(&request));
            }
            Event::Body(_) => {}
            Event::Done(_) => {
                connection.request(shared, io, id);
                if connection.echo.is_some() {
                    return consumed;
                }
                if connection.is_full() || io.queued_bytes(id) > QUEUED_BYTES_MAX {
                    io.pause_reading(id);
                    io.await_drained(id);
                    return consumed;
                }
            }
        }
    }
}

/// Answers a malformed request with its error, and closes the connection.
fn refuse(
    connection: &mut Connection,
    shared: &Shared,
    io: &mut Io,
    id: ConnectionId,
    error: RequestError,
) {
    let ledger = shared.ledger();
    ledger.malformed.add(1);
    connection.is_ending = true;
    if connection.is_waiting() {
        // Here the client would confuse it with an earlier response, after which the connection is
        // closed.
        return;
    }
    let body = format!("{error}\n");
    let head = ResponseHead {
        status: error.status(),
        headers: &[("Content-Type", "text/plain")],
        body: BodyLength::Bytes(body.len() as u64),
        date: None,
        closes: true,
    };
    if let Some(out) = io.buffer(id) {
        let before = out.len();
        if head.write(out).is_ok() {
            out.extend_from_slice(body.as_bytes());
        }
        ledger.bytes_sent.add((out.len() - before) as u64);
    }
    ledger.count_status(error.status());
    io.close(id);
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

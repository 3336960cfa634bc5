//! One connection of HTTP/2: its requests, and the waiting responses.

use super::answers::{StreamAnswer, stream_json};
use super::connection::{Fate, Shared};
use super::counts::Ledger;
use super::{COUNTS_PATH, QUEUED_BYTES_MAX};
use std::sync::Arc;
use tidewire_http::http2::{Connection, ErrorCode, Event, Heads, Limits, PREFACE};
use tidewire_net::{ConnectionId, Io};

/// One connection.
#[derive(Debug)]
pub(super) struct Streams {
    connection: Connection,
    /// Requests of which the end has not arrived.
    requests: Vec<Exchange>,
    /// Responses that wait for their time.
    pending: Vec<Pending>,
    slow_due_ms: u64,
    is_ending: bool,
}

/// A request whose head was read.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    stream: u32,
    is_head: bool,
    is_for_counts: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    exchange: Exchange,
    due_ms: u64,
    fate: Fate,
}

impl Streams {
    /// Whether a new connection speaks HTTP/2; `None` if its first bytes do not show it yet.
    pub(super) fn are_wanted(io: &Io, id: ConnectionId, data: &[u8]) -> Option<bool> {
        if let Some(protocol) = io.application_protocol(id) {
            return Some(protocol == b"h2");
        }
        let start = &PREFACE[..PREFACE_START];
        match data.len() < start.len() {
            true if start.starts_with(data) => None,
            _ => Some(data.starts_with(start)),
        }
    }

    pub(super) fn new(ledger: &Ledger, io: &mut Io, id: ConnectionId) -> Self {
        let mut greeting = Vec::new();
        let connection = Connection::server(&Limits::default(), &mut greeting);
        io.send(id, &greeting);
        ledger.bytes_sent.add(greeting.len() as u64);
        Self {
            connection,
            requests: Vec::new(),
            pending: Vec::new(),
            slow_due_ms: 0,
            is_ending: false,
        }
    }

    /// Reads requests until the data is used up, or too much waits for the client.
    pub(super) fn read(
        &mut self,
        heads: &mut Heads,
        shared: &mut Shared,
        io: &mut Io,
        id: ConnectionId,
        data: &[u8],
    ) -> usize {
        let mut consumed = 0;
        while !self.is_ending {
            // An event that needs no more bytes would wait for bytes.
            if io.queued_bytes(id) > QUEUED_BYTES_MAX && !self.connection.has_event() {
                io.pause_reading(id);
                io.await_drained(id);
                break;
            }
            let now_ms = io.now().monotonic_ms;
            let Some(out) = io.buffer(id) else {
                return data.len();
            };
            let before = out.len();
            let read = self
                .connection
                .receive(heads, &data[consumed..], now_ms, out);
            shared.ledger().bytes_sent.add((out.len() - before) as u64);
            let Ok(step) = read else {
                shared.ledger().malformed.add(1);
                self.is_ending = true;
                io.close(id);
                return data.len();
            };
            consumed += step.consumed;
            match step.event {
                Event::More if step.consumed == 0 => break,
                Event::Head(head) => {
                    let (method, target) = head.request_line();
                    let path = target.split('?').next().unwrap_or_default();
                    self.requests.push(Exchange {
                        stream: head.stream,
                        is_head: method == "HEAD",
                        is_for_counts: path == COUNTS_PATH,
                    });
                }
                Event::Done { stream, .. } => self.request(shared, io, id, stream),
                Event::Reset { stream, .. } => self.forget(shared.ledger(), stream),
                Event::Broken { stream, .. } => {
                    shared.ledger().malformed.add(1);
                    self.forget(shared.ledger(), stream);
                }
                Event::More
                | Event::Ready
                | Event::Interim { .. }
                | Event::Body { .. }
                | Event::GoAway { .. } => {}
            }
        }
        self.send_more(shared, io, id);
        match self.is_ending {
            true => data.len(),
            false => consumed,
        }
    }

    /// A request is complete: its response leaves now or later.
    fn request(&mut self, shared: &mut Shared, io: &mut Io, id: ConnectionId, stream: u32) {
        let place = self.requests.iter().position(|one| one.stream == stream);
        let Some(place) = place else { return };
        let exchange = self.requests.swap_remove(place);
        let fate = match exchange.is_for_counts {
            true => Fate::Counts,
            false => {
                shared.ledger().requests.add(1);
                shared.draw()
            }
        };
        let delay_ms = match fate {
            Fate::Counts => 0,
            _ => shared.draw_delay_ms(),
        };
        let pending = Pending {
            exchange,
            due_ms: io.now().monotonic_ms + delay_ms,
            fate,
        };
        match delay_ms {
            0 => self.respond(shared, io, id, &pending),
            _ => {
                self.pending.push(pending);
                self.set_timer(shared, io, id);
            }
        }
    }

    /// Sends what is due. Called again when the timer is due, and when the client has taken what was sent.
    pub(super) fn continue_responses(&mut self, shared: &Shared, io: &mut Io, id: ConnectionId) {
        let now_ms = io.now().monotonic_ms;
        let due: Vec<Pending> = self
            .pending
            .extract_if(.., |pending| pending.due_ms <= now_ms)
            .collect();
        for pending in &due {
            self.respond(shared, io, id, pending);
        }
        self.send_more(shared, io, id);
        self.set_timer(shared, io, id);
        if io.queued_bytes(id) <= QUEUED_BYTES_MAX {
            io.resume_reading(id);
        }
    }

    fn set_timer(&self, shared: &Shared, io: &mut Io, id: ConnectionId) {
        let answer_due_ms = self.pending.iter().map(|pending| pending.due_ms).min();
        let is_slow = shared.slow.is_some() && self.connection.has_unsent();
        let slow_due_ms = is_slow.then_some(self.slow_due_ms);
        if let Some(due_ms) = answer_due_ms.into_iter().chain(slow_due_ms).min() {
            io.set_timer(id, due_ms);
        }
    }

    fn respond(&mut self, shared: &Shared, io: &mut Io, id: ConnectionId, pending: &Pending) {
        let room = match shared.slow {
            Some(_) => 0,
            None => QUEUED_BYTES_MAX.saturating_sub(io.queued_bytes(id)),
        };
        let Some(out) = io.buffer(id) else { return };
        let before = out.len();
        let Exchange {
            stream, is_head, ..
        } = pending.exchange;
        let ledger = shared.ledger();
        let mut send = |answer: &StreamAnswer| {
            let nothing: Arc<[u8]>;
            let body = match is_head {
                true => {
                    nothing = Arc::new([]);
                    &nothing
                }
                false => &answer.body,
            };
            self.connection
                .respond(stream, &answer.block, body, room, out);
        };
        match pending.fate {
            Fate::Good | Fate::Bad => {
                let answer = shared.answers.of_stream(pending.fate == Fate::Good);
                send(answer);
                ledger.answered.add(1);
                ledger.count_status(answer.status);
            }
            Fate::Counts => send(&stream_json(&shared.counts())),
            Fate::Close => {
                ledger.closed.add(1);
                self.connection
                    .reset(stream, ErrorCode::INTERNAL_ERROR, out);
            }
        }
        ledger.bytes_sent.add((out.len() - before) as u64);
    }

    /// Sends more of the bodies that the client's windows, or the rate of slow writes, had stopped.
    fn send_more(&mut self, shared: &Shared, io: &mut Io, id: ConnectionId) {
        let now_ms = io.now().monotonic_ms;
        let room = match shared.slow {
            Some(_) if now_ms < self.slow_due_ms => return self.set_timer(shared, io, id),
            Some(slow) => {
                self.slow_due_ms = now_ms + slow.every_ms;
                slow.piece_bytes
            }
            None => QUEUED_BYTES_MAX.saturating_sub(io.queued_bytes(id)),
        };
        let Some(out) = io.buffer(id) else { return };
        let before = out.len();
        let is_held_up = self.connection.pump(room, out);
        shared.ledger().bytes_sent.add((out.len() - before) as u64);
        match shared.slow {
            Some(_) => self.set_timer(shared, io, id),
            None if is_held_up => io.await_drained(id),
            None => {}
        }
    }

    /// A stream is over without its response.
    fn forget(&mut self, ledger: &Ledger, stream: u32) {
        let before = self.pending.len();
        self.pending
            .retain(|pending| pending.exchange.stream != stream);
        ledger.abandoned.add((before - self.pending.len()) as u64);
        let before = self.requests.len();
        self.requests.retain(|request| request.stream != stream);
        ledger.cut_off.add((before - self.requests.len()) as u64);
    }

    /// The connection has ended.
    pub(super) fn end(&self, ledger: &Ledger) {
        ledger.abandoned.add(self.pending.len() as u64);
        let is_between = self.requests.is_empty() && self.connection.is_between();
        if !self.is_ending && !is_between {
            ledger.cut_off.add(self.requests.len().max(1) as u64);
        }
    }
}

/// Bytes of the preface that no request of HTTP/1.1 begins with.
const PREFACE_START: usize = 14;

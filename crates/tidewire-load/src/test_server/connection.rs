//! One connection of a test server: the request that is being read, and the waiting responses.

use super::answers::{Answers, Ending, json};
use super::counts::{Counts, Ledger};
use super::delay::Delay;
use super::echo::Echo;
use super::streams::Streams;
use super::{COUNTS_PATH, Conduct, QUEUED_BYTES_MAX, WEBSOCKET_PATH};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;
use tidewire_http::server::{Request, RequestReader};
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::handshake::server::{self, parse_request, write_accept};

/// The state that all connections of a shard share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) answers: Answers,
    delay: Delay,
    /// Bounds in [0, 100) below which a draw closes the connection, or causes an error response.
    close_below: f64,
    bad_below: f64,
    pub(super) slow: Option<Slow>,
    random: SmallRng,
    ledgers: Arc<[Ledger]>,
    shard: usize,
}

/// Writing in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slow {
    pub(super) piece_bytes: usize,
    pub(super) every_ms: u64,
}

impl Slow {
    fn at(bytes_per_s: u64) -> Self {
        let piece_bytes = (bytes_per_s * PIECE_MS).div_ceil(1000).max(1);
        Self {
            piece_bytes: usize::try_from(piece_bytes).unwrap_or(usize::MAX),
            every_ms: (piece_bytes * 1000 / bytes_per_s).max(1),
        }
    }
}

impl Shared {
    pub(super) fn new(conduct: &Conduct, ledgers: &Arc<[Ledger]>, shard: usize) -> Self {
        Self {
            answers: Answers::new(conduct),
            delay: conduct.delay,
            close_below: conduct.close_percent,
            bad_below: conduct.close_percent + conduct.error_percent,
            slow: conduct.slow_write_bytes_per_s.map(Slow::at),
            random: SmallRng::from_os_rng(),
            ledgers: Arc::clone(ledgers),
            shard,
        }
    }

    #[inline]
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledgers[self.shard]
    }

    /// The counts of all shards, as JSON.
    pub(super) fn counts(&self) -> Vec<u8> {
        serde_json::to_vec(&Counts::of(&self.ledgers)).unwrap_or_default()
    }

    /// The delay of the next response.
    pub(super) fn draw_delay_ms(&mut self) -> u64 {
        self.delay.draw_ms(&mut self.random)
    }

    /// The treatment of the next request.
    pub(super) fn draw(&mut self) -> Fate {
        if self.bad_below == 0.0 {
            return Fate::Good;
        }
        match self.random.random::<f64>() * 100.0 {
            drawn if drawn < self.close_below => Fate::Close,
            drawn if drawn < self.bad_below => Fate::Bad,
            _ => Fate::Good,
        }
    }
}

/// The treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Good,
    Bad,
    Close,
    Counts,
}

/// A request whose head was read.
#[derive(Debug)]
pub(super) struct Exchange {
    route: Route,
    ending: Ending,
    is_head: bool,
}

#[derive(Debug)]
enum Route {
    Answer,
    Counts,
    /// The answer to the upgrade, and whether it accepts it.
    WebSocket(Vec<u8>, Option<u16>),
}

impl Exchange {
    pub(super) fn of(request: &Request<'_>) -> Self {
        // The two paths are compared only where a target can be one of them.
        let route = match request.target.len() {
            0..3 => Route::Answer,
            _ => match request.path() {
                WEBSOCKET_PATH => upgrade(request),
                COUNTS_PATH => Route::Counts,
                _ => Route::Answer,
            },
        };
        Self {
            route,
            ending: Ending::of(request),
            is_head: request.method == "HEAD",
        }
    }
}

fn upgrade(request: &Request<'_>) -> Route {
    let mut answer = Vec::new();
    let refused = match parse_request(request.raw(), &server::Limits::default()) {
        Ok(Some(request)) => {
            write_accept(request.key(), None, &[], &mut answer);
            None
        }
        // The head is complete.
        Ok(None) => Some(tidewire_http::server::RequestError::HeadTooLong.into()),
        Err(error) => Some(error),
    };
    if let Some(error) = &refused {
        error.write(&mut answer);
    }
    Route::WebSocket(answer, refused.map(|error| error.status()))
}

/// A response that waits for its time.
#[derive(Clone, Copy, Debug)]
struct Pending {
    due_ms: u64,
    fate: Fate,
    ending: Ending,
    is_head: bool,
}

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) reader: RequestReader,
    pub(super) exchange: Option<Exchange>,
    pub(super) echo: Option<Box<Echo>>,
    /// The connection speaks HTTP/2.
    pub(super) streams: Option<Box<Streams>>,
    /// Its first bytes have shown what it speaks.
    pub(super) is_known: bool,
    pending: VecDeque<Pending>,
    /// The bytes that are written in pieces, and the number of those written.
    slow_bytes: Vec<u8>,
    slow_sent: usize,
    slow_due_ms: u64,
    /// The last response closes the connection; the server reads no more.
    pub(super) is_ending: bool,
}

impl Connection {
    /// A request is complete: its response leaves now or later.
    #[inline]
    pub(super) fn request(&mut self, shared: &mut Shared, io: &mut Io, id: ConnectionId) {
        let Some(exchange) = self.exchange.take() else {
            return;
        };
        let fate = match exchange.route {
            Route::Answer => {
                shared.ledger().requests.add(1);
                shared.draw()
            }
            Route::Counts => Fate::Counts,
            Route::WebSocket(answer, refused) => {
                return self.upgrade(shared, io, id, &answer, refused);
            }
        };
        self.is_ending = fate == Fate::Close || exchange.ending.closes();
        let pending = Pending {
            due_ms: 0,
            fate,
            ending: exchange.ending,
            is_head: exchange.is_head,
        };
        if shared.delay == Delay::None && shared.slow.is_none() {
            self.respond(shared, io, id, pending);
        } else {
            self.respond_later(shared, io, id, pending);
        }
    }

    fn respond_later(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        id: ConnectionId,
        pending: Pending,
    ) {
        let delay_ms = match pending.fate {
            Fate::Counts => 0,
            _ => shared.draw_delay_ms(),
        };
        // Responses keep the order of their requests (RFC 9112, section 9.3.2).
        let before_ms = self.pending.back().map_or(0, |last| last.due_ms);
        let due_ms = (io.now().monotonic_ms + delay_ms).max(before_ms);
        self.pending.push_back(Pending { due_ms, ..pending });
        self.continue_responses(shared, io, id);
    }

    /// Sends the responses that are due and sets the timer for the others. Called again when the timer is
    /// due.
    pub(super) fn continue_responses(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        id: ConnectionId,
    ) {
        let now_ms = io.now().monotonic_ms;
        while let Some(pending) = self.pending.front().copied()
            && pending.due_ms <= now_ms
        {
            self.pending.pop_front();
            self.respond(shared, io, id, pending);
        }
        self.write_slowly(shared, io, id);
        let slow_due_ms = (!self.slow_bytes.is_empty()).then_some(self.slow_due_ms);
        let answer_due_ms = self.pending.front().map(|pending| pending.due_ms);
        if let Some(due_ms) = slow_due_ms.into_iter().chain(answer_due_ms).min() {
            io.set_timer(id, due_ms);
        }
        if !self.is_full() && io.queued_bytes(id) <= QUEUED_BYTES_MAX {
            io.resume_reading(id);
        }
    }

    /// Whether a response has yet to be written.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || !self.slow_bytes.is_empty()
    }

    /// Whether too many bytes wait here for the server to read a further request.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_MAX || self.slow_bytes.len() > QUEUED_BYTES_MAX
    }

    #[inline]
    fn respond(&mut self, shared: &Shared, io: &mut Io, id: ConnectionId, pending: Pending) {
        let ledger = shared.ledger();
        match pending.fate {
            Fate::Good | Fate::Bad => {
                let answer = shared
                    .answers
                    .get(pending.fate == Fate::Good, pending.ending);
                self.send(shared, io, id, answer.bytes(pending.is_head));
                ledger.answered.add(1);
                ledger.count_status(answer.status);
            }
            Fate::Close => ledger.closed.add(1),
            Fate::Counts => {
                let answer = json(&shared.counts(), pending.ending);
                self.send(shared, io, id, answer.bytes(pending.is_head));
            }
        }
        self.close_after_last(io, id);
    }

    fn send(&mut self, shared: &Shared, io: &mut Io, id: ConnectionId, bytes: &[u8]) {
        if shared.slow.is_some() {
            self.slow_bytes.extend_from_slice(bytes);
        } else {
            io.send(id, bytes);
            shared.ledger().bytes_sent.add(bytes.len() as u64);
        }
    }

    fn write_slowly(&mut self, shared: &Shared, io: &mut Io, id: ConnectionId) {
        let Some(slow) = shared.slow else {
            return;
        };
        let now_ms = io.now().monotonic_ms;
        if self.slow_bytes.is_empty() || now_ms < self.slow_due_ms {
            return;
        }
        let rest = &self.slow_bytes[self.slow_sent..];
        let piece = &rest[..rest.len().min(slow.piece_bytes)];
        io.send(id, piece);
        shared.ledger().bytes_sent.add(piece.len() as u64);
        self.slow_sent += piece.len();
        // Late pieces are not made up for: the client receives the rate or less.
        self.slow_due_ms = now_ms + slow.every_ms;
        if self.slow_sent == self.slow_bytes.len() {
            self.slow_bytes.clear();
            self.slow_sent = 0;
        }
        self.close_after_last(io, id);
    }

    fn close_after_last(&self, io: &mut Io, id: ConnectionId) {
        if self.is_ending && !self.is_waiting() {
            io.close(id);
        }
    }

    fn upgrade(
        &mut self,
        shared: &Shared,
        io: &mut Io,
        id: ConnectionId,
        answer: &[u8],
        refused: Option<u16>,
    ) {
        let ledger = shared.ledger();
        // A client waits for the responses before it requests another protocol; a client that does
        // not is cut.
        let is_first = !self.is_waiting();
        if is_first {
            io.send(id, answer);
            ledger.bytes_sent.add(answer.len() as u64);
            ledger.count_status(refused.unwrap_or(101));
        }
        if is_first && refused.is_none() {
            ledger.websockets.add(1);
            self.echo = Some(Box::new(Echo::new()));
        } else {
            ledger.malformed.add(1);
            self.is_ending = true;
            self.close_after_last(io, id);
        }
    }

    /// The connection has ended.
    pub(super) fn end(&self, ledger: &Ledger) {
        ledger.ended.add(1);
        if let Some(streams) = &self.streams {
            return streams.end(ledger);
        }
        let is_waiting = |pending: &&Pending| pending.fate != Fate::Counts;
        let waiting = self.pending.iter().filter(is_waiting).count();
        ledger.abandoned.add(waiting as u64);
        if self.echo.is_none() && !self.is_ending && self.reader.finish().is_err() {
            ledger.cut_off.add(1);
        }
    }
}

/// The largest number of waiting responses of a connection.
const PENDING_MAX: usize = 1024;

/// The interval of the pieces, if a piece has at least one byte.
const PIECE_MS: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_the_rate() {
        for bytes_per_s in [1, 3, 49, 50, 1000, 1_000_000] {
            let slow = Slow::at(bytes_per_s);
            let rate = slow.piece_bytes as f64 * 1000.0 / slow.every_ms as f64;
            let wanted = bytes_per_s as f64;
            assert!((wanted..wanted * 1.06).contains(&rate), "{slow:?}: {rate}");
        }
    }
}

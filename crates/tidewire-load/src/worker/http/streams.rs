//! The dialogue of HTTP/2: each request has a stream, and they are answered in any order.

use tidewire_http::http2::{
    Connection, ErrorCode, Event, Fault, Heads, Limits, Message, RepeatedBlocks, repeated_request,
    write_request,
};
use tidewire_http::response::{Expected, Response};
use tidewire_net::Io;

use super::answer::{self, CLOSED_BEFORE_RESPONSE, note_head, note_sent};
use super::inspect::{INSPECTED_BYTES_MAX, Inspection};
use crate::accounting::tally::TIMEOUT;
use crate::report::model::ByteCounts;
use crate::worker::script::{Encoded, Step};
use crate::worker::service::order::ServiceSetup;
use crate::worker::service::user::{Pending, User, UserState};
use crate::worker::service::{ConnectionEnd, Core, Dialogue};

/// The dialogue of HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2 {
    heads: Heads,
    limits: Limits,
    /// The header blocks of the steps without values.
    blocks: Vec<Option<Vec<u8>>>,
    /// Those of the only step, if there is one and it has no values.
    repeated: Option<RepeatedBlocks>,
    /// Room for a request with values, for its header block, and for frames.
    request: Vec<u8>,
    block: Vec<u8>,
    frames: Vec<u8>,
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Http2Session {
    connection: Option<Box<Connection>>,
    /// The kept parts of the responses that are not whole, by their streams.
    inspections: Vec<(u32, Box<Inspection>)>,
    /// The server keeps the headers of the repeated request.
    is_primed: bool,
    /// The reason for which the server accepts no more streams.
    goes_away: Option<ErrorCode>,
    /// Bytes that are kept of all responses for checks and captures.
    kept_bytes: usize,
    /// The time at which bytes last arrived.
    heard_ns: u64,
    /// The time at which a ping was sent, if nothing has arrived since.
    asked_ns: Option<u64>,
}

type Http2User = User<Http2Session>;

impl Http2 {
    pub(crate) fn new(setup: &ServiceSetup) -> Self {
        let scheme = |step: &Step| setup.targets[usize::from(step.target)].scheme();
        let block = |step: &Step| {
            let mut block = Vec::new();
            write_request(constant_head(step)?, scheme(step), &mut block).then_some(block)
        };
        let steps = &setup.script.steps;
        let repeated = match &steps[..] {
            [step] => constant_head(step).and_then(|head| repeated_request(head, scheme(step))),
            _ => None,
        };
        Self {
            heads: Heads::default(),
            limits: Limits::default(),
            blocks: steps.iter().map(block).collect(),
            repeated,
            request: Vec::new(),
            block: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Writes the frames that have been made.
    fn flush(&mut self, core: &mut Core, io: &mut Io, user: &Http2User) {
        if let Some(id) = user.link.socket
            && !self.frames.is_empty()
        {
            core.tally.traffic.sent.wire += self.frames.len() as u64;
            core.write(io, id, &self.frames);
        }
        self.frames.clear();
    }

    /// Reads the received bytes; returns how many of them are consumed.
    fn read(
        &mut self,
        core: &mut Core,
        user: &mut Http2User,
        connection: &mut Connection,
        data: &[u8],
    ) -> Result<usize, Fault> {
        let now_ns = core.now_ns();
        let mut at = 0;
        loop {
            let (heads, frames) = (&mut self.heads, &mut self.frames);
            let step = connection.receive(heads, &data[at..], now_ns / 1_000_000, frames)?;
            at += step.consumed;
            match step.event {
                Event::More if step.consumed == 0 => return Ok(at),
                Event::More | Event::Ready | Event::Interim { .. } => {}
                Event::Head(head) => {
                    let Some(pending) = pending_of(user, head.stream) else {
                        continue;
                    };
                    pending.exchange.first_byte_ns = now_ns;
                    let place = (pending.exchange.step, head.status, head.sets_cookies);
                    let fields = head.headers();
                    if let Some(inspection) = note_head(core, user, place, &fields) {
                        user.link
                            .session
                            .inspections
                            .push((head.stream, inspection));
                    }
                }
                Event::Body { stream, bytes } => user.link.session.keep(stream, bytes),
                Event::Done { stream, message } => finish(core, user, stream, &message, now_ns),
                Event::Reset { stream, code } => fail(core, user, stream, RESETS[code.index()]),
                Event::Broken { stream, fault } => fail(core, user, stream, fault.name()),
                Event::GoAway { last, code } => give_back(core, user, last, code),
            }
        }
    }
}

impl Dialogue for Http2 {
    type Session = Http2Session;

    const WAITS_FOR_MORE: bool = true;

    fn greet(&mut self, core: &mut Core, io: &mut Io, user: &mut Http2User) {
        let Some(id) = user.link.socket else { return };
        let is_offered = io.application_protocol(id) == Some(b"h2");
        if core.target(user).endpoint.tls.is_some() && !is_offered {
            return core.refuse(io, user, "http2-not-offered");
        }
        let connection = Connection::client(&self.limits, &mut self.frames);
        user.link.session.connection = Some(Box::new(connection));
        self.flush(core, io, user);
    }

    fn send(&mut self, core: &mut Core, io: &mut Io, user: &mut Http2User, mut pending: Pending) {
        let (Some(id), Some(mut connection)) =
            (user.link.socket, user.link.session.connection.take())
        else {
            return;
        };
        answer::begin(core, user, &mut pending);
        let step = pending.exchange.step;
        let is_head = core.setup.script.steps[step as usize].expected == Expected::Head;
        let constant = core.constant_request(user, step);
        let repeated = self
            .repeated
            .as_ref()
            .filter(|_| connection.peer_keeps_table());
        let (block, body) = match (constant, &self.blocks[step as usize], repeated) {
            (Some((bytes, head_bytes)), _, Some(blocks)) => {
                let is_primed = std::mem::replace(&mut user.link.session.is_primed, true);
                let block = match is_primed {
                    true => &blocks.later,
                    false => &blocks.first,
                };
                (block, &bytes[head_bytes..])
            }
            (Some((bytes, head_bytes)), Some(block), None) => (block, &bytes[head_bytes..]),
            _ => {
                let head_bytes = core.render_request(user, step, &mut self.request);
                let (head, body) = self.request.split_at(head_bytes);
                self.block.clear();
                // The script has checked its requests.
                let scheme = core.target(user).scheme();
                let _ = write_request(head, scheme, &mut self.block);
                (&self.block, body)
            }
        };
        let counts = ByteCounts {
            wire: 0,
            head: block.len() as u64,
            body: body.len() as u64,
        };
        // The user has room, see `receive`.
        let opened = connection.open(block, body, is_head, &mut self.frames);
        pending.key = opened.map_or(u64::MAX, u64::from);
        user.link.session.connection = Some(connection);
        core.write(io, id, &self.frames);
        let wire = self.frames.len() as u64;
        self.frames.clear();
        note_sent(core, io, user, pending, ByteCounts { wire, ..counts });
    }

    fn receive(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut Http2User,
        data: &mut [u8],
    ) -> usize {
        let Some(mut connection) = user.link.session.connection.take() else {
            return data.len();
        };
        user.link.session.heard_ns = core.now_ns();
        user.link.session.asked_ns = None;
        let read = self.read(core, user, &mut connection, data);
        let used = match read {
            Ok(used) => {
                connection.pump(usize::MAX, &mut self.frames);
                user.link.room = connection.streams_max();
                user.link.is_spent |= !connection.is_open();
                // Its settings have arrived, and allow a stream.
                if user.link.state == UserState::Greeting && user.link.room > 0 {
                    core.ready(user);
                }
                // A server that allows no more streams gets another connection.
                user.link.is_spent |= user.link.state == UserState::Open && user.link.room == 0;
                user.link.session.connection = Some(connection);
                self.flush(core, io, user);
                used
            }
            Err(fault) => {
                self.flush(core, io, user);
                match user.link.state {
                    UserState::Open => break_off(core, io, user, fault),
                    _ => core.refuse(io, user, fault.name()),
                }
                data.len()
            }
        };
        core.tally.traffic.received.wire += used as u64;
        used
    }

    fn time_out(&mut self, core: &mut Core, io: &mut Io, user: &mut Http2User) {
        let Some(pending) = user.link.pending.pop_front() else {
            return;
        };
        let session = &mut user.link.session;
        let stream = pending.key as u32;
        session.forget(stream);
        core.fail(user, &pending, TIMEOUT, 0);
        let (session, sent_ns) = (&mut user.link.session, pending.exchange.sent_ns);
        if session.asked_ns.is_some_and(|asked_ns| asked_ns <= sent_ns) {
            // Not even a pong has arrived: the connection does not work any more.
            self.end(core, user, ConnectionEnd::TimedOut);
            return core.drop_connection(io, user);
        }
        if let Some(connection) = &mut session.connection {
            connection.reset(stream, ErrorCode::CANCEL, &mut self.frames);
            if session.heard_ns <= sent_ns && session.asked_ns.is_none() {
                session.asked_ns = Some(core.now_ns());
                connection.ping(&mut self.frames);
            }
        }
        self.flush(core, io, user);
    }

    fn end(&mut self, core: &mut Core, user: &mut Http2User, end: ConnectionEnd<'_>) {
        let name = match (end, user.link.session.goes_away) {
            (ConnectionEnd::Closed(_), Some(code)) if code != ErrorCode::NO_ERROR => {
                GO_AWAYS[code.index()]
            }
            _ => answer::end_name(end),
        };
        give_up_all(core, user, name);
    }

    fn part(&mut self, core: &mut Core, io: &mut Io, user: &mut Http2User) {
        if let Some(connection) = &mut user.link.session.connection {
            connection.go_away(ErrorCode::NO_ERROR, &mut self.frames);
        }
        self.flush(core, io, user);
        core.close_connection(io, user);
    }
}

/// The head of a request without values.
fn constant_head(step: &Step) -> Option<&[u8]> {
    match &step.request {
        Encoded::Fixed { bytes, head_bytes } => bytes.get(..*head_bytes),
        _ => None,
    }
}

/// The request of a stream.
fn pending_of(user: &mut Http2User, stream: u32) -> Option<&mut Pending> {
    let place = place_of(user, stream)?;
    user.link.pending.get_mut(place)
}

/// Streams are numbered in the order of their requests.
#[inline]
fn place_of(user: &Http2User, stream: u32) -> Option<usize> {
    let key = u64::from(stream);
    user.link
        .pending
        .binary_search_by_key(&key, |one| one.key)
        .ok()
}

/// The request of a stream that is over, and what was kept of its response.
fn take(user: &mut Http2User, stream: u32) -> Option<(Pending, Option<Box<Inspection>>)> {
    let pending = user.link.pending.remove(place_of(user, stream)?)?;
    Some((pending, user.link.session.forget(stream)))
}

impl Http2Session {
    /// Keeps a piece of a body, if a check or a capture needs it.
    fn keep(&mut self, stream: u32, bytes: &[u8]) {
        let mut inspections = self.inspections.iter_mut();
        if let Some((_, inspection)) = inspections.find(|one| one.0 == stream) {
            let before = inspection.kept_bytes();
            inspection.add(bytes, INSPECTED_BYTES_MAX.saturating_sub(self.kept_bytes));
            self.kept_bytes += inspection.kept_bytes() - before;
        }
    }

    /// Removes what was kept of a response.
    fn forget(&mut self, stream: u32) -> Option<Box<Inspection>> {
        let place = self.inspections.iter().position(|one| one.0 == stream)?;
        let inspection = self.inspections.swap_remove(place).1;
        self.kept_bytes -= inspection.kept_bytes();
        Some(inspection)
    }
}

/// Handles a complete response.
fn finish(core: &mut Core, user: &mut Http2User, stream: u32, message: &Message, now_ns: u64) {
    let Some((pending, inspection)) = take(user, stream) else {
        return;
    };
    let response = Response {
        status: message.status,
        head_bytes: message.head_bytes,
        body_bytes: message.body_bytes,
        wire_bytes: message.wire_bytes,
        keeps_alive: true,
        ..Response::default()
    };
    answer::finish(core, user, (&pending, inspection), &response, now_ns);
}

/// A stream is over without its response.
fn fail(core: &mut Core, user: &mut Http2User, stream: u32, name: &'static str) {
    if let Some((pending, _)) = take(user, stream) {
        core.fail(user, &pending, name, 0);
    }
}

/// The server accepts no more streams, and has not looked at those after `last`: they are sent again on the next connection,
/// once, whatever their method (RFC 9113, section 6.8).
fn give_back(core: &mut Core, user: &mut Http2User, last: u32, code: ErrorCode) {
    user.link.is_spent = true;
    user.link.session.goes_away = Some(code);
    let name = GO_AWAYS[code.index()];
    if user.link.sent_here == 0 {
        core.tally.add_error(name);
    }
    let first = user
        .link
        .pending
        .partition_point(|one| one.key <= u64::from(last));
    for mut pending in user.link.pending.split_off(first) {
        user.link.session.forget(pending.key as u32);
        if pending.is_again {
            core.fail(user, &pending, name, 0);
        } else {
            pending.exchange.first_byte_ns = 0;
            core.send_again(user, pending);
        }
    }
}

/// The connection has ended with its requests. A request of which nothing was answered may be sent again, if the connection
/// had worked before.
fn give_up_all(core: &mut Core, user: &mut Http2User, name: &'static str) {
    let is_first = user.link.done_here == 0;
    while let Some(pending) = user.link.pending.pop_front() {
        match pending.exchange.first_byte_ns {
            0 if !is_first => answer::give_up(core, user, pending, name),
            _ => core.fail(user, &pending, name, 0),
        }
    }
}

/// The server breaks a rule of the connection: the oldest request has failed for that reason.
fn break_off(core: &mut Core, io: &mut Io, user: &mut Http2User, fault: Fault) {
    match user.link.pending.pop_front() {
        Some(pending) => core.fail(user, &pending, fault.name(), 0),
        None => core.tally.add_error(fault.name()),
    }
    give_up_all(core, user, CLOSED_BEFORE_RESPONSE);
    let is_unused = user.link.sent_here == 0;
    core.close_connection(io, user);
    if is_unused {
        core.rest_unused(user);
    }
}

/// The names of all codes behind a prefix, in the order of [`ErrorCode::NAMES`].
macro_rules! named {
    ($prefix:literal) => {
        named!($prefix, "no-error", "protocol-error", "internal-error", "flow-control-error", "settings-timeout", "stream-closed", "frame-size-error", "refused-stream", "cancel", "compression-error", "connect-error", "enhance-your-calm", "inadequate-security", "http-1-1-required", "unknown-error")
    };
    ($prefix:literal, $($name:literal),*) => {
        [$(concat!($prefix, $name)),*]
    };
}

/// The names of RST_STREAM and of GOAWAY.
const RESETS: [&str; ErrorCode::NAMES.len()] = named!("reset-");
const GO_AWAYS: [&str; ErrorCode::NAMES.len()] = named!("goaway-");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_name_behind_both_prefixes() {
        for (index, name) in ErrorCode::NAMES.iter().enumerate() {
            assert_eq!(RESETS[index], format!("reset-{name}"));
            assert_eq!(GO_AWAYS[index], format!("goaway-{name}"));
        }
    }
}

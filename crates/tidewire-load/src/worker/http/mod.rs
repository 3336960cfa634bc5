//! HTTP of a user of a service load: requests that are answered in their order, and those of HTTP/2 in any.

mod answer;
mod extract;
mod inspect;
mod redirect;
mod streams;

pub(crate) use streams::{Http2, Http2Session};

use tidewire_http::response::{
    Event, Response, ResponseHeads, ResponseReader, stray_line_end_bytes,
};
use tidewire_net::{Closed, Io};

use super::service::user::{Pending, User};
use super::service::{ConnectionEnd, Core, Dialogue};
use crate::accounting::tally::SURPLUS;
use crate::report::model::ByteCounts;
use answer::{CLOSED_BEFORE_RESPONSE, note_head, note_sent};
use inspect::{INSPECTED_BYTES_MAX, Inspection};

/// The dialogue of HTTP/1.1.
#[derive(Debug, Default)]
pub(crate) struct Http {
    heads: ResponseHeads,
    /// Room for a request with values.
    request: Vec<u8>,
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct HttpSession {
    reader: ResponseReader,
    /// The parts of the current response that a check or a capture needs.
    inspection: Option<Box<Inspection>>,
}

type HttpUser = User<HttpSession>;

impl Dialogue for Http {
    type Session = HttpSession;

    fn greet(&mut self, core: &mut Core, _io: &mut Io, user: &mut HttpUser) {
        core.ready(user);
    }

    fn send(&mut self, core: &mut Core, io: &mut Io, user: &mut HttpUser, mut pending: Pending) {
        let Some(id) = user.link.socket else { return };
        answer::begin(core, user, &mut pending);
        let step = pending.exchange.step;
        let sizes = if let Some((bytes, head_bytes)) = core.constant_request(user, step) {
            core.write(io, id, bytes);
            (bytes.len(), head_bytes)
        } else {
            let head_bytes = core.render_request(user, step, &mut self.request);
            core.write(io, id, &self.request);
            (self.request.len(), head_bytes)
        };
        note_sent(core, io, user, pending, counts_of(sizes));
    }

    fn receive(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut HttpUser,
        data: &mut [u8],
    ) -> usize {
        let used = self.read(core, io, user, data);
        // The rest is passed again.
        core.tally.traffic.received.wire += used as u64;
        used
    }

    fn end(&mut self, core: &mut Core, user: &mut HttpUser, end: ConnectionEnd<'_>) {
        let is_clean = matches!(end, ConnectionEnd::Closed(Closed::ByPeer));
        let name = answer::end_name(end);
        let now_ns = core.now_ns();
        let is_between = user.link.session.reader.is_between();
        let finished = user.link.session.reader.finish(is_clean);
        let is_first = user.link.done_here == 0;
        match (finished, end) {
            (_, ConnectionEnd::TimedOut) => fail_oldest(core, user, name),
            (Ok(Some(response)), _) => finish(core, user, &response, now_ns),
            (Err(error), _) => fail_oldest(core, user, error.name()),
            // If a connection was never usable, the server is responsible; a usable one may have
            // been closed while the request was in transit (RFC 9112, section 9.3.1).
            (Ok(None), _) if is_between && (is_first || !core.setup.retries) => {
                fail_oldest(core, user, name);
            }
            (Ok(None), _) => {}
        }
        give_up_rest(core, user, name);
    }
}

impl Http {
    /// Reads the received bytes; returns how many of them are consumed.
    #[inline]
    fn read(&mut self, core: &mut Core, io: &mut Io, user: &mut HttpUser, data: &[u8]) -> usize {
        let now_ns = core.now_ns();
        let mut at = 0;
        loop {
            let Some(pending) = user.link.pending.front_mut() else {
                return at + self.skip_stray(core, io, user, &data[at..]);
            };
            if pending.exchange.first_byte_ns == 0 && at < data.len() {
                pending.exchange.first_byte_ns = now_ns;
            }
            let step = &core.setup.script.steps[pending.exchange.step as usize];
            let reader = &mut user.link.session.reader;
            match reader.read(&mut self.heads, &data[at..], step.expected) {
                Ok(found) => {
                    at += found.consumed;
                    match found.event {
                        Event::More if found.consumed == 0 => return at,
                        Event::More | Event::Interim { .. } => {}
                        Event::Head(head) => {
                            let sets_cookies = head.sets_cookies;
                            let place = (pending.exchange.step, head.status, sets_cookies);
                            let fields = head.headers();
                            user.link.session.inspection = note_head(core, user, place, &fields);
                        }
                        Event::Body(bytes) => {
                            if let Some(inspection) = &mut user.link.session.inspection {
                                let kept_bytes = inspection.kept_bytes();
                                inspection.add(bytes, INSPECTED_BYTES_MAX - kept_bytes);
                            }
                        }
                        Event::Done(response) => finish(core, user, &response, now_ns),
                    }
                }
                Err(error) => {
                    self.break_off(core, io, user, error.name());
                    return data.len();
                }
            }
        }
    }

    /// Bytes that arrive while no response is awaited are at best the end of a line.
    fn skip_stray(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut HttpUser,
        data: &[u8],
    ) -> usize {
        if stray_line_end_bytes(data) < data.len() {
            // A server may state why it closes an idle connection (RFC 9110, section 15.5.9).
            let is_farewell = data.starts_with(b"HTTP/1.") && data.get(8..12) == Some(b" 408");
            if !is_farewell {
                core.tally.add_error(SURPLUS);
            }
            core.drop_connection(io, user);
        }
        data.len()
    }

    /// The response cannot be read, so that the start of the next one is not known.
    fn break_off(&mut self, core: &mut Core, io: &mut Io, user: &mut HttpUser, name: &'static str) {
        fail_oldest(core, user, name);
        give_up_rest(core, user, CLOSED_BEFORE_RESPONSE);
        core.drop_connection(io, user);
    }
}

/// Handles a complete response: it answers the oldest request.
#[inline]
fn finish(core: &mut Core, user: &mut HttpUser, response: &Response, now_ns: u64) {
    let Some(pending) = user.link.pending.pop_front() else {
        return;
    };
    user.link.is_spent |= !response.keeps_alive;
    let inspection = user.link.session.inspection.take();
    answer::finish(core, user, (&pending, inspection), response, now_ns);
}

/// The bytes of a request and of its head.
fn counts_of((bytes, head_bytes): (usize, usize)) -> ByteCounts {
    ByteCounts {
        wire: bytes as u64,
        head: head_bytes as u64,
        body: (bytes - head_bytes) as u64,
    }
}

fn fail_oldest(core: &mut Core, user: &mut HttpUser, name: &'static str) {
    if let Some(pending) = user.link.pending.pop_front() {
        core.fail(user, &pending, name, 0);
    }
}

/// Requests behind one that ended the connection, and those on a connection that was closed while
/// it was idle: each has failed, or is sent again if the user wants that and it does no harm.
fn give_up_rest(core: &mut Core, user: &mut HttpUser, name: &'static str) {
    while let Some(pending) = user.link.pending.pop_front() {
        answer::give_up(core, user, pending, name);
    }
}

//! HTTP of a user of a service load: requests that are answered in their order.

mod extract;
mod inspect;
mod redirect;

use tidewire_http::response::{
    Event, Head, Response, ResponseHeads, ResponseReader, stray_line_end_bytes,
};
use tidewire_net::{Closed, Io};

use super::service::user::{Pending, User};
use super::service::{ConnectionEnd, Core, Dialogue};
use crate::accounting::failure::Failure;
use crate::accounting::tally::{Exchange, SURPLUS};
use crate::worker::jar::CookieOrigin;
use crate::worker::messages::unix_s;
use crate::worker::script::Encoded;
use inspect::Inspection;
use redirect::Detour;

/// The dialogue of HTTP/1.1.
#[derive(Debug, Default)]
pub(crate) struct Http {
    heads: ResponseHeads,
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
        if pending.redirects == 0 {
            user.detour = None;
        }
        core.write_request(io, user, &mut pending, None);
        user.pending.push_back(pending);
        let setup = &core.setup;
        let is_last = setup
            .requests_per_connection
            .is_some_and(|most| user.sent_here >= most);
        user.is_spent |= is_last || !setup.keeps_alive;
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
        let name = match end {
            ConnectionEnd::TimedOut => crate::accounting::tally::TIMEOUT,
            ConnectionEnd::Closed(Closed::ByPeer) => "closed-before-response",
            ConnectionEnd::Closed(closed) => Failure::of_closed(closed).name(),
        };
        let now_ns = core.now_ns();
        let is_between = user.session.reader.is_between();
        let finished = user.session.reader.finish(is_clean);
        let is_first = user.done_here == 0;
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
            let Some(pending) = user.pending.front_mut() else {
                return at + self.skip_stray(core, io, user, &data[at..]);
            };
            if pending.exchange.first_byte_ns == 0 && at < data.len() {
                pending.exchange.first_byte_ns = now_ns;
            }
            let step = &core.setup.script.steps[pending.exchange.step as usize];
            let reader = &mut user.session.reader;
            match reader.read(&mut self.heads, &data[at..], step.expected) {
                Ok(found) => {
                    at += found.consumed;
                    match found.event {
                        Event::More if found.consumed == 0 => return at,
                        Event::More | Event::Interim { .. } => {}
                        Event::Head(head) => note_head(core, user, &head),
                        Event::Body(bytes) => {
                            if let Some(inspection) = &mut user.session.inspection {
                                inspection.add(bytes);
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
        give_up_rest(core, user, "closed-before-response");
        core.drop_connection(io, user);
    }
}

fn note_head(core: &mut Core, user: &mut HttpUser, head: &Head<'_>) {
    if core.tally.server.is_none()
        && let Some(name) = head.header("server")
    {
        core.tally.server = Some(String::from_utf8_lossy(name).into_owned());
    }
    if head.sets_cookies
        && let Some(origin) = &core.setup.cookies
    {
        keep_cookies(core, origin, user, head);
    }
    let Some(pending) = user.pending.front() else {
        return;
    };
    let step = &core.setup.script.steps[pending.exchange.step as usize];
    let follows = core.setup.redirects_max > 0 && (300..400).contains(&head.status);
    if step.needs_headers() || follows {
        user.session.inspection = Some(Box::new(Inspection::of(step, head)));
    }
}

/// Keeps the cookies that the response to the oldest request sets.
fn keep_cookies(core: &Core, origin: &CookieOrigin, user: &mut HttpUser, head: &Head<'_>) {
    let Some(pending) = user.pending.front() else {
        return;
    };
    let request = &core.setup.script.steps[pending.exchange.step as usize].request;
    let written = match (&user.detour, request) {
        (Some(detour), _) => &detour.bytes,
        (None, Encoded::Fixed { bytes, .. }) => bytes,
        (None, _) => &user.rendered.bytes,
    };
    for value in head.headers().values("set-cookie") {
        user.jar.store(value, written, origin, unix_s());
    }
}

/// Handles a complete response.
#[inline]
fn finish(core: &mut Core, user: &mut HttpUser, response: &Response, now_ns: u64) {
    let Some(pending) = user.pending.pop_front() else {
        return;
    };
    user.done_here += 1;
    let received = &mut core.tally.traffic.received;
    received.head += response.head_bytes;
    received.body += response.body_bytes;
    user.is_spent |= !response.keeps_alive;
    if core.setup.redirects_max > 0 && redirect::is_redirect(response.status) {
        if let Err(name) = detour(core, user, &pending, response, now_ns) {
            core.fail(user, &pending, name, response.status);
        }
        return;
    }
    let step_index = pending.exchange.step;
    let step = &core.setup.script.steps[step_index as usize];
    user.detour = None;
    let inspection = user.session.inspection.take();
    let problem = if !step.checks.accepts(response.status) {
        Some("unexpected-status")
    } else if step
        .checks
        .body_bytes
        .is_some_and(|bytes| bytes != response.body_bytes)
    {
        Some("unexpected-length")
    } else {
        inspection.and_then(|inspection| inspection.judge(step, &user.jar, &mut user.script))
    };
    match problem {
        Some(name) => core.fail(user, &pending, name, response.status),
        None => {
            let (exchange, status) = (&pending.exchange, response.status);
            core.tally
                .succeed(exchange, status, response.wire_bytes, now_ns);
            core.settle(user, now_ns);
            user.script.succeed(&core.setup.script);
            core.think(user, step_index, now_ns);
        }
    }
}

/// Follows a redirect; an error is the name of the reason against it.
fn detour(
    core: &mut Core,
    user: &mut HttpUser,
    pending: &Pending,
    response: &Response,
    now_ns: u64,
) -> Result<(), &'static str> {
    let inspection = user.session.inspection.take();
    if pending.redirects >= core.setup.redirects_max {
        return Err("too-many-redirects");
    }
    let location = inspection
        .and_then(|inspection| inspection.location)
        .ok_or("redirect-without-location")?;
    let step = &core.setup.script.steps[pending.exchange.step as usize];
    let (bytes, head_bytes) = match (&user.detour, &step.request) {
        (Some(request), _) => (&request.bytes, request.head_bytes),
        (None, Encoded::Fixed { bytes, head_bytes }) => (bytes, *head_bytes),
        (None, _) => (&user.rendered.bytes, user.rendered.head_bytes),
    };
    let is_secure = core.setup.endpoint.tls.is_some();
    let found = redirect::follow(bytes, head_bytes, (response.status, &location), is_secure);
    user.detour = None;
    let request = match found {
        Detour::Follow(request) => request,
        Detour::Elsewhere => return Err("redirect-to-another-server"),
        Detour::Impossible => return Err("redirect-not-possible"),
    };
    user.detour = Some(request);
    core.tally.requests.redirects += 1;
    let (exchange, status) = (&pending.exchange, response.status);
    core.tally
        .succeed(exchange, status, response.wire_bytes, now_ns);
    // The next hop is a request of its own, and begins now.
    user.owed.push_front(Pending {
        exchange: Exchange {
            intended_ns: now_ns,
            step: exchange.step,
            ..Exchange::default()
        },
        redirects: pending.redirects + 1,
        ..*pending
    });
    Ok(())
}

fn fail_oldest(core: &mut Core, user: &mut HttpUser, name: &'static str) {
    if let Some(pending) = user.pending.pop_front() {
        core.fail(user, &pending, name, 0);
    }
}

/// Requests behind one that ended the connection, and those on a connection that was closed while
/// it was idle: each has failed, or is sent again if the user wants that and it does no harm.
fn give_up_rest(core: &mut Core, user: &mut HttpUser, name: &'static str) {
    while let Some(mut pending) = user.pending.pop_front() {
        let step = &core.setup.script.steps[pending.exchange.step as usize];
        let is_idempotent = match &user.detour {
            Some(request) if pending.redirects > 0 => redirect::is_idempotent(request),
            _ => step.is_idempotent,
        };
        if core.setup.retries && is_idempotent && !pending.is_again {
            pending.exchange.first_byte_ns = 0;
            core.send_again(user, pending);
        } else {
            core.fail(user, &pending, name, 0);
        }
    }
}

//! Requests and answers of HTTP, whatever the version: what is counted, checked, kept and followed.

use tidewire_http::Fields;
use tidewire_http::response::Response;
use tidewire_net::{Closed, Io};

use super::inspect::Inspection;
use super::redirect::{self, Detour, Servers, with_port};
use crate::accounting::failure::Failure;
use crate::accounting::tally::{Exchange, TIMEOUT};
use crate::report::model::ByteCounts;
use crate::worker::jar::CookieOrigin;
use crate::worker::messages::unix_s;
use crate::worker::script::{Encoded, Script};
use crate::worker::service::order::DialogueKind;
use crate::worker::service::user::{Pending, User, WholeRequest};
use crate::worker::service::{ConnectionEnd, Core};

/// A request leaves now.
#[inline]
pub(super) fn begin<S: Default>(core: &mut Core, user: &mut User<S>, pending: &mut Pending) {
    if pending.redirects == 0 {
        user.detour = None;
    }
    core.begin_request(user, pending);
}

/// A request has left.
#[inline]
pub(super) fn note_sent<S: Default>(
    core: &mut Core,
    io: &mut Io,
    user: &mut User<S>,
    pending: Pending,
    counts: ByteCounts,
) {
    core.note_request(io, user, &pending, counts);
    user.link.pending.push_back(pending);
    let setup = &core.setup;
    let is_last = setup
        .requests_per_connection
        .is_some_and(|most| user.link.sent_here >= most);
    user.link.is_spent |= is_last || !setup.keeps_alive;
}

/// Takes from the head of a response what later requests, checks and captures need.
pub(super) fn note_head<S: Default>(
    core: &mut Core,
    user: &mut User<S>,
    (step, status, sets_cookies): (u32, u16, bool),
    fields: &Fields<'_>,
) -> Option<Box<Inspection>> {
    if core.tally.server.is_none()
        && user.link.target == 0
        && let Some(name) = fields.value("server")
    {
        core.tally.server = Some(String::from_utf8_lossy(name).into_owned());
    }
    if sets_cookies && let Some(origin) = &core.target(user).cookies {
        keep_cookies(core, origin, user, step, fields);
    }
    let step = &core.setup.script.steps[step as usize];
    let follows = core.setup.redirects_max > 0 && (300..400).contains(&status);
    (step.needs_headers() || follows).then(|| Box::new(Inspection::of(step, fields)))
}

/// Keeps the cookies that a response sets.
fn keep_cookies<S>(
    core: &Core,
    origin: &CookieOrigin,
    user: &mut User<S>,
    step: u32,
    fields: &Fields<'_>,
) {
    let Core { setup, .. } = core;
    let User {
        jar,
        detour,
        rendered,
        ..
    } = user;
    let (written, _) = written(&setup.script, detour.as_ref(), rendered, step);
    for value in fields.values("set-cookie") {
        jar.store(value, written, origin, unix_s());
    }
}

/// The last request of a user, as far as it was kept, and the length of its head.
fn written<'a>(
    script: &'a Script,
    detour: Option<&'a WholeRequest>,
    rendered: &'a WholeRequest,
    step: u32,
) -> (&'a [u8], usize) {
    match (detour, &script.steps[step as usize].request) {
        (Some(request), _) => (&request.bytes, request.head_bytes),
        (None, Encoded::Fixed { bytes, head_bytes }) => (bytes, *head_bytes),
        (None, _) => (&rendered.bytes, rendered.head_bytes),
    }
}

/// Judges a complete response, and counts it.
#[inline]
pub(super) fn finish<S: Default>(
    core: &mut Core,
    user: &mut User<S>,
    (pending, inspection): (&Pending, Option<Box<Inspection>>),
    response: &Response,
    now_ns: u64,
) {
    user.link.done_here += 1;
    let received = &mut core.tally.traffic.received;
    received.head += response.head_bytes;
    received.body += response.body_bytes;
    if core.setup.redirects_max > 0 && redirect::is_redirect(response.status) {
        if let Err(name) = detour(core, user, (pending, inspection), response, now_ns) {
            core.fail(user, pending, name, response.status);
        }
        return;
    }
    let step_index = pending.exchange.step;
    let step = &core.setup.script.steps[step_index as usize];
    user.detour = None;
    let problem = if !step.checks.accepts(response.status) {
        Some("unexpected-status")
    } else if step
        .checks
        .body_bytes
        .is_some_and(|bytes| bytes != response.body_bytes)
    {
        Some("unexpected-length")
    } else {
        let origin = core.target(user).cookies.as_ref();
        inspection
            .and_then(|inspection| inspection.judge(step, (&user.jar, origin), &mut user.script))
    };
    match problem {
        Some(name) => core.fail(user, pending, name, response.status),
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
fn detour<S>(
    core: &mut Core,
    user: &mut User<S>,
    (pending, inspection): (&Pending, Option<Box<Inspection>>),
    response: &Response,
    now_ns: u64,
) -> Result<(), &'static str> {
    if pending.redirects >= core.setup.redirects_max {
        return Err("too-many-redirects");
    }
    let location = inspection
        .and_then(|inspection| inspection.location)
        .ok_or("redirect-without-location")?;
    let (detour, step) = (user.detour.as_ref(), pending.exchange.step);
    let (bytes, head_bytes) = written(&core.setup.script, detour, &user.rendered, step);
    let targets = &core.setup.targets;
    let servers = Servers {
        is_secure: core.target(user).endpoint.tls.is_some(),
        find: &|is_secure, authority| {
            let mut all = (0..).zip(targets);
            let (number, target) = all.find(|(_, target)| {
                !matches!(target.dialogue, DialogueKind::Messages(_))
                    && target.endpoint.tls.is_some() == is_secure
                    && with_port(target.authority.as_bytes(), is_secure)
                        == with_port(authority, is_secure)
            })?;
            Some((number, &target.forwarding))
        },
    };
    let found = redirect::follow(bytes, head_bytes, (response.status, &location), servers);
    user.detour = None;
    let (target, request) = match found {
        Detour::Follow(target, request) => (target.unwrap_or(user.link.target), request),
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
        target,
        redirects: pending.redirects + 1,
        ..*pending
    });
    Ok(())
}

/// The name of the end of a connection, for the requests on it.
pub(super) fn end_name(end: ConnectionEnd<'_>) -> &'static str {
    match end {
        ConnectionEnd::TimedOut => TIMEOUT,
        ConnectionEnd::Closed(Closed::ByPeer) => CLOSED_BEFORE_RESPONSE,
        ConnectionEnd::Closed(closed) => Failure::of_closed(closed).name(),
    }
}

/// A request whose connection has ended before its answer: it has failed, or is sent again if the user wants that and
/// it does no harm.
pub(super) fn give_up<S: Default>(
    core: &mut Core,
    user: &mut User<S>,
    mut pending: Pending,
    name: &'static str,
) {
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

/// The connection has ended in order before the response.
pub(super) const CLOSED_BEFORE_RESPONSE: &str = "closed-before-response";

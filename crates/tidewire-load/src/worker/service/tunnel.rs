//! Tunnels through a proxy: CONNECT before TLS or the dialogue (RFC 9110, section 9.3.6).

use std::sync::Arc;

use tidewire_http::response::{Event, Expected, ResponseReader};
use tidewire_net::{Closed, ConnectionId, Io};

use super::Core;
use super::user::{Tunnel, User, UserState};
use crate::accounting::failure::Failure;

/// The meaning of the bytes of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyAnswer {
    /// Its response is incomplete; this many bytes of it are consumed.
    More(usize),
    /// The tunnel is open; the response had this many bytes.
    Open(usize),
    /// It opens no tunnel; the name of the error.
    Refused(&'static str),
}

impl Tunnel {
    pub(super) fn is_requested(&self) -> bool {
        matches!(self, Self::Requested(_))
    }
}

impl Core {
    /// Requests a tunnel, if the load uses a proxy and the connection has no tunnel yet; returns
    /// whether it did.
    pub(super) fn request_tunnel<S: Default>(&mut self, io: &mut Io, user: &mut User<S>) -> bool {
        let (Some(request), Some(id)) = (&self.target(user).endpoint.tunnel, user.link.socket)
        else {
            return false;
        };
        if matches!(user.link.tunnel, Tunnel::Open) {
            return false;
        }
        let request = Arc::clone(request);
        user.link.tunnel = Tunnel::Requested(ResponseReader::new());
        self.tally.traffic.sent.wire += request.len() as u64;
        self.tally.traffic.sent.head += request.len() as u64;
        io.send(id, &request);
        true
    }

    /// TLS begins, with received bytes that belong to the server's handshake.
    pub(super) fn begin_tls<S>(
        &mut self,
        io: &mut Io,
        user: &mut User<S>,
        id: ConnectionId,
        received: &[u8],
    ) {
        user.link.state = UserState::Securing;
        io.start_tls(id, received);
    }

    /// Reads the proxy's response.
    pub(super) fn receive_from_proxy<S: Default>(
        &mut self,
        user: &mut User<S>,
        data: &[u8],
    ) -> ProxyAnswer {
        let Tunnel::Requested(reader) = &mut user.link.tunnel else {
            return ProxyAnswer::Open(0);
        };
        let mut at = 0;
        loop {
            let read = reader.read(&mut self.proxy_heads, &data[at..], Expected::Connect);
            let Ok(found) = read else {
                return ProxyAnswer::Refused("bad-proxy-response");
            };
            at += found.consumed;
            self.tally.traffic.received.wire += found.consumed as u64;
            self.tally.traffic.received.head += found.consumed as u64;
            match found.event {
                Event::More if found.consumed == 0 => return ProxyAnswer::More(at),
                Event::More | Event::Interim { .. } | Event::Body(_) => {}
                Event::Head(head) => {
                    if let Some(name) = refusal(head.status) {
                        return ProxyAnswer::Refused(name);
                    }
                }
                Event::Done(_) => {
                    user.link.tunnel = Tunnel::Open;
                    return ProxyAnswer::Open(at);
                }
            }
        }
    }
}

/// The name of the reason for which a proxy opens no tunnel; `None` if it opens one.
fn refusal(status: u16) -> Option<&'static str> {
    Some(match status {
        200..=299 => return None,
        403 => "proxy-forbidden",
        407 => "proxy-authentication-required",
        502..=504 => "proxy-cannot-reach-server",
        _ => "proxy-refused",
    })
}

/// The name for a connection that ended before the proxy had answered.
pub(super) fn end_name(closed: &Closed) -> &'static str {
    match Failure::of_closed(closed) {
        Failure::Reset => "reset-by-proxy",
        _ => "closed-by-proxy",
    }
}

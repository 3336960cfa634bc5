//! Connections that a proxy hands on: the address that counts is that of whom it forwards.
//!
//! A connection from a trusted proxy may begin with a PROXY header; then the address in it counts,
//! also for the limit of pending handshakes. If the address that counts so far is that of a trusted
//! proxy, the header lines of the request are asked as well. Nobody else is believed.

use crate::config::TrustedProxies;
use crate::limits::lines::LineKind;
use crate::limits::source::Source;
use crate::session::application::Application;
use crate::shard::EngineShard;
use std::net::IpAddr;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::handshake::server::{Request, write_rejection};
use tidewire_wire::proxy::{ProxyHeader, ProxyHeaderError, parse};

impl TrustedProxies {
    /// Whether this address is a trusted proxy.
    pub(crate) fn is_trusted(&self, address: IpAddr) -> bool {
        self.networks
            .iter()
            .any(|network| network.contains(address))
    }

    /// The source of connections from an address as far as that is known.
    fn source(&self, address: IpAddr) -> Source {
        if self.is_trusted(address) {
            Source::Proxy(address.to_canonical())
        } else {
            Source::of(address)
        }
    }
}

impl<A: Application> EngineShard<A> {
    /// Begins the opening handshake of a connection that was just accepted.
    pub(crate) fn start_opening(&mut self, io: &mut Io, id: ConnectionId) {
        let connection = self.connection(id);
        let address = connection.and_then(|connection| connection.state.peer_address(io));
        let address = address.map(|address| address.ip());
        let proxies = &self.core.setup.config.proxies;
        let source = address.map_or(Source::Unknown, |address| proxies.source(address));
        if let Some(Some(connection)) = self.connections.get_mut(id.index()) {
            let is_adopted = connection.state.adopted().is_some();
            connection.state.awaits_proxy_header =
                matches!(source, Source::Proxy(_)) && !is_adopted;
        }
        self.start_pending(io, id, source);
    }

    /// Reads the bytes before a session: the header of a proxy, the beginning of TLS, the request.
    /// Returns how many bytes it was.
    pub(crate) fn receive_opening(&mut self, io: &mut Io, id: ConnectionId, data: &[u8]) -> usize {
        let Some(header_bytes) = self.receive_proxy_header(io, id, data) else {
            return 0;
        };
        let rest = &data[header_bytes..];
        let connection = self.connection(id);
        // Its request was read, and is read again once there is a decision.
        let is_asked =
            connection.is_some_and(|connection| connection.state.work.question.is_some());
        if rest.is_empty() || !is_asked && !self.pending.is_admitted(id) {
            return header_bytes;
        }
        if io.is_tls_held(id) {
            io.start_tls(id, rest);
            return data.len();
        }
        header_bytes + self.open(io, id, rest)
    }

    /// Reads the header of a proxy; how many bytes it is, `None` while that is not known.
    fn receive_proxy_header(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        data: &[u8],
    ) -> Option<usize> {
        let state = &mut self.connections.get_mut(id.index())?.as_mut()?.state;
        if !state.awaits_proxy_header {
            return Some(0);
        }
        let found = match parse(data) {
            Ok(found) => found?,
            Err(error) => {
                self.refuse_proxy_header(io, id, error);
                return Some(data.len());
            }
        };
        state.awaits_proxy_header = false;
        let ProxyHeader::Present { bytes, source } = found else {
            return Some(0);
        };
        if let Some(address) = source {
            state.set_forwarded(address);
            let source = self.core.setup.config.proxies.source(address.ip());
            self.start_pending(io, id, source);
        }
        Some(bytes)
    }

    fn refuse_proxy_header(&mut self, io: &mut Io, id: ConnectionId, error: ProxyHeaderError) {
        self.core.counters.proxy_headers_refused.add(1);
        if self.core.shared.lines.permit(
            LineKind::ProxyHeaderRefused,
            io.peer_address(id),
            io.now().unix_ms,
        ) {
            tracing::warn!(
                proxy = io.peer_address(id).map(tracing::field::display),
                %error,
                "a trusted proxy sends what is no PROXY header; the connection ends",
            );
        }
        if io.is_tls_held(id) {
            return io.abort(id);
        }
        if let Some(buffer) = io.buffer(id) {
            write_rejection(400, &[], &format!("{error}\n"), buffer);
        }
        self.reject(io, id);
    }

    /// Notes for whom a trusted proxy has sent a request.
    pub(crate) fn read_forwarded(&mut self, io: &Io, id: ConnectionId, request: &Request<'_>) {
        let proxies = &self.core.setup.config.proxies;
        if proxies.networks.is_empty() {
            return;
        }
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return;
        };
        let Some(peer) = connection.state.peer_address(io) else {
            return;
        };
        if !proxies.is_trusted(peer.ip()) {
            return;
        }
        // A value that is no text is one that is no address.
        let text = |value| std::str::from_utf8(value).unwrap_or_default();
        let lines: Vec<&str> = request.values(proxies.header.name()).map(text).collect();
        let is_trusted = |address| proxies.is_trusted(address);
        let client = proxies.header.client(lines.into_iter(), peer, is_trusted);
        if client != peer {
            connection.state.set_forwarded(client);
        }
    }
}

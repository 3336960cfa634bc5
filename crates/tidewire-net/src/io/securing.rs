//! TLS of a connection: its start where a handler holds it back, and its outcome.

use super::Io;
use crate::closed::Closed;
use crate::id::ConnectionId;
use crate::socket::Phase;

impl Io {
    /// Whether TLS was not started yet on this connection: its handler [holds it back](crate::Handler::holds_tls), or it was
    /// opened by [`connect_before_tls`](Self::connect_before_tls).
    #[must_use]
    pub fn is_tls_held(&self, id: ConnectionId) -> bool {
        self.live(id).is_some_and(|socket| socket.stream.is_held())
    }

    /// The application protocol (ALPN) that both sides of a TLS connection have agreed on.
    #[must_use]
    pub fn application_protocol(&self, id: ConnectionId) -> Option<&[u8]> {
        self.live(id)?.stream.application_protocol()
    }

    /// Starts TLS on a connection where it was held back. `received` has the received bytes that belong to the
    /// peer's handshake. The handler then receives plaintext. A violation of TLS ends the connection, and the handler
    /// is notified later. A client calls this when its earlier output was sent; its [`handle_connect`](crate::Handler::handle_connect) is called again when the handshake is done.
    pub fn start_tls(&mut self, id: ConnectionId, received: &[u8]) {
        let Some(socket) = self.live_mut(id) else {
            return;
        };
        if socket.stream.is_held_client() {
            socket.phase = Phase::Connecting;
        }
        match socket.stream.start_tls(received) {
            Ok(()) => self.write_after_tls_read(id),
            Err(error) => {
                let closed = match error.downcast::<rustls::Error>() {
                    Ok(error) => Closed::Tls(error),
                    Err(error) => Closed::Failed(error),
                };
                self.kill(id, closed);
            }
        }
    }
}

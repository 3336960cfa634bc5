//! The listener's connections.

use super::request::{Response, parse};
use super::{CONNECTIONS_MAX, OpsSource, REQUEST_TIMEOUT_MS, pages};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use tidewire_net::{Closed, ConnectionId, Handler, Io, ListenerId};

/// Ends the listener's thread.
#[derive(Debug)]
pub(crate) struct Stop;

/// Answers requests.
pub(crate) struct Listener {
    source: Arc<dyn OpsSource>,
    /// Connections of which a part of a request has come.
    partial: HashSet<ConnectionId>,
}

impl Listener {
    pub(crate) fn new(source: Arc<dyn OpsSource>) -> Self {
        Self {
            source,
            partial: HashSet::new(),
        }
    }

    /// Takes the request at the front of `data`; returns its length, or `None` while it is incomplete.
    fn answer(&mut self, io: &mut Io, id: ConnectionId, data: &[u8]) -> Option<usize> {
        match parse(data) {
            Ok(None) => None,
            Ok(Some(request)) => {
                let response = pages::respond(&request, &*self.source);
                let is_head = request.method == "HEAD";
                if let Some(buffer) = io.buffer(id) {
                    response.write(is_head, request.keep_alive, buffer);
                }
                if request.keep_alive {
                    wait(io, id);
                    return Some(request.bytes);
                }
                io.close(id);
                Some(data.len())
            }
            Err(error) => {
                end(io, id, &error.response());
                Some(data.len())
            }
        }
    }
}

impl Handler for Listener {
    type Mail = Stop;

    fn handle_accept(&mut self, io: &mut Io, id: ConnectionId, _listener: ListenerId) {
        if io.connections() <= CONNECTIONS_MAX {
            wait(io, id);
            return;
        }
        // Not closed with a wait for the peer's end, as those that wait would have no limit.
        let mut refusal = Vec::new();
        Response::text(503, "there are too many connections\n").write(false, false, &mut refusal);
        io.write_now(id, &refusal);
        io.abort(id);
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let mut used = 0;
        // A peer that asks without reading overflows its outbox: then the buffer is gone.
        while used < data.len() && io.buffer(id).is_some() {
            match self.answer(io, id, &data[used..]) {
                Some(bytes) => used += bytes,
                None => {
                    self.partial.insert(id);
                    return used;
                }
            }
        }
        self.partial.remove(&id);
        data.len()
    }

    fn handle_close(&mut self, _io: &mut Io, id: ConnectionId, _closed: Closed) {
        self.partial.remove(&id);
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        if io.queued_bytes(id) > 0 {
            // The peer does not read its answer.
            io.abort(id);
        } else if self.partial.contains(&id) {
            end(
                io,
                id,
                &Response::text(408, "the request did not come in time\n"),
            );
        } else {
            io.close(id);
        }
    }

    fn handle_mail(&mut self, io: &mut Io, _mail: Stop) {
        io.stop();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Listener")
            .field("partial", &self.partial)
            .finish_non_exhaustive()
    }
}

/// Gives the connection its time for the next request. Bytes do not extend it, whole requests do.
fn wait(io: &mut Io, id: ConnectionId) {
    io.set_timer(id, io.now().monotonic_ms + REQUEST_TIMEOUT_MS);
}

fn end(io: &mut Io, id: ConnectionId, response: &Response) {
    if let Some(buffer) = io.buffer(id) {
        response.write(false, false, buffer);
    }
    io.close(id);
}

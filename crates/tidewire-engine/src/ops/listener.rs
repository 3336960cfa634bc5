//! Connections of the operations listener.

use crate::ops::error::ApiError;
use crate::ops::feed::Feed;
use crate::ops::hosts::OpsHosts;
use crate::ops::places::{CONNECTIONS_MAX, Places};
use crate::ops::request::{Request, Response};
use crate::ops::routes::plan;
use crate::ops::source::OpsSource;
use crate::ops::task::{Plan, Task, TaskContext};
use crate::ops::workers::{Job, ListenerMail, Workers};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_http::server::{Event, Limits, RequestHeads, RequestReader};
use tidewire_net::{Closed, ConnectionId, Handler, Io, ListenerId};

/// Answers requests.
pub(crate) struct Listener {
    source: Arc<dyn OpsSource>,
    context: Option<Arc<TaskContext>>,
    hosts: OpsHosts,
    /// Threads for slow requests. Set before the listener runs, if it serves the API.
    pub(crate) workers: Option<Workers>,
    heads: RequestHeads,
    /// The reader of each connection that speaks HTTP.
    readers: HashMap<ConnectionId, RequestReader>,
    /// Connections with a request that is not answered yet.
    exchanges: HashMap<ConnectionId, Exchange>,
    places: Places,
    /// A descriptor to give up when the process has no other, so that a probe is answered then too.
    reserve: Option<File>,
    feed: Feed,
    /// Another process has the socket; who is connected is to connect anew.
    is_leaving: bool,
    /// When the shards are looked at next. A shard that waits is woken by it, and a later look knows whether it lives.
    beat_due: Option<Instant>,
}

/// How far a request is.
#[derive(Debug)]
enum Exchange {
    /// A part of its head has arrived.
    Head,
    /// Its body is on its way.
    Body {
        task: Task,
        bytes_max: usize,
        keep_alive: bool,
    },
    /// Its answer is being made; the connection is not read meanwhile.
    Answer { is_head: bool, keep_alive: bool },
}

impl Listener {
    pub(crate) fn new(
        source: Arc<dyn OpsSource>,
        context: Option<Arc<TaskContext>>,
        hosts: OpsHosts,
    ) -> Self {
        Self {
            source,
            context,
            hosts,
            workers: None,
            heads: RequestHeads::new(LIMITS),
            readers: HashMap::new(),
            exchanges: HashMap::new(),
            places: Places::default(),
            reserve: spare(),
            feed: Feed::default(),
            is_leaving: false,
            beat_due: None,
        }
    }

    /// Reads one step of `data`. Gives how much of it is used up, and whether there may be more to read in it.
    fn take(&mut self, io: &mut Io, id: ConnectionId, data: &[u8]) -> (usize, bool) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return (data.len(), false);
        };
        let step = match reader.read(&mut self.heads, data) {
            Ok(step) => step,
            Err(error) => {
                end(io, id, &Response::unreadable(error));
                return (data.len(), false);
            }
        };
        let goes_on = match step.event {
            Event::More => {
                match self.exchanges.get(&id) {
                    None if !reader.is_between() => {
                        self.exchanges.insert(id, Exchange::Head);
                    }
                    Some(Exchange::Head) if reader.is_between() => {
                        self.exchanges.remove(&id);
                    }
                    _ => {}
                }
                false
            }
            Event::Head(head) => {
                let mut request = Request::of(&head);
                let peer = io.peer_address(id);
                match &self.context {
                    Some(context) => context.note_peer(&mut request, peer),
                    None => request.peer = peer,
                }
                self.exchanges.remove(&id);
                if !self.begin(io, id, &request) {
                    return (data.len(), false);
                }
                true
            }
            Event::Body(bytes) => {
                if !self.take_body(io, id, bytes) {
                    return (data.len(), false);
                }
                true
            }
            Event::Done(_) => {
                if let Some(Exchange::Body {
                    task, keep_alive, ..
                }) = self.exchanges.remove(&id)
                {
                    self.submit(io, id, task, false, keep_alive);
                }
                true
            }
        };
        (step.consumed, goes_on)
    }

    /// Answers a request, or begins to; whether the connection goes on.
    fn begin(&mut self, io: &mut Io, id: ConnectionId, request: &Request<'_>) -> bool {
        self.places.touch(id);
        let is_head = request.method == "HEAD";
        let keep_alive = request.keep_alive && !self.is_leaving;
        // What follows a body that is not read cannot be found.
        let has_body = request.body_bytes != Some(0);
        let context = self.context.as_deref();
        match plan(request, &*self.source, context, &self.hosts) {
            Plan::Answer(response) => {
                let keep_alive = keep_alive && !has_body;
                answer(io, id, &response, is_head, keep_alive);
                return keep_alive;
            }
            Plan::Ask(task) => self.submit(io, id, task, is_head, keep_alive && !has_body),
            Plan::Read(task, bytes_max) => {
                if request.expects_continue
                    && let Some(buffer) = io.buffer(id)
                {
                    buffer.extend_from_slice(CONTINUE);
                }
                let exchange = Exchange::Body {
                    task,
                    bytes_max,
                    keep_alive,
                };
                self.exchanges.insert(id, exchange);
            }
            Plan::Feed(login) => {
                if let Err(refusal) = self.feed.open(io, id, login, request.head) {
                    io.send(id, &refusal);
                    io.close(id);
                    return false;
                }
                self.readers.remove(&id);
            }
        }
        true
    }

    /// Keeps a part of a body; whether the connection goes on.
    fn take_body(&mut self, io: &mut Io, id: ConnectionId, bytes: &[u8]) -> bool {
        let Some(Exchange::Body {
            task, bytes_max, ..
        }) = self.exchanges.get_mut(&id)
        else {
            // A worker answers already, and the connection ends then.
            return true;
        };
        if task.body.len() + bytes.len() > *bytes_max {
            let too_large = ApiError::too_large(*bytes_max);
            self.exchanges.remove(&id);
            end(io, id, &too_large.response());
            return false;
        }
        task.body.extend_from_slice(bytes);
        true
    }

    fn submit(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        task: Task,
        is_head: bool,
        keep_alive: bool,
    ) {
        if !self
            .workers
            .as_ref()
            .is_some_and(|workers| workers.submit(Job::Answer(id, task)))
        {
            let busy = Response::text(503, "there are too many requests\n");
            return end(io, id, &busy.with("Retry-After", "1"));
        }
        io.pause_reading(id);
        io.set_timer(id, io.now().monotonic_ms + ANSWER_TIMEOUT_MS);
        let exchange = Exchange::Answer {
            is_head,
            keep_alive,
        };
        self.exchanges.insert(id, exchange);
    }

    /// Ends a connection of which nobody waits for anything; whether there was one.
    fn end_idle(&mut self, io: &mut Io) -> bool {
        let (exchanges, feed) = (&self.exchanges, &self.feed);
        let is_idle = |id| match exchanges.get(&id) {
            _ if feed.has(id) => false,
            None | Some(Exchange::Head) => true,
            // Who has shown no key sends a login, or makes as if.
            Some(Exchange::Body { task, .. }) => task.who.is_empty(),
            Some(Exchange::Answer { .. }) => false,
        };
        self.places.make_room(io, is_idle)
    }

    fn is_waiting(&self, id: ConnectionId) -> bool {
        matches!(self.exchanges.get(&id), Some(Exchange::Answer { .. }))
    }
}

impl Handler for Listener {
    type Mail = ListenerMail;

    fn handle_accept(&mut self, io: &mut Io, id: ConnectionId, _listener: ListenerId) {
        if io.connections() <= CONNECTIONS_MAX || self.end_idle(io) {
            self.places.enter(id);
            self.readers.insert(id, RequestReader::new());
            wait(io, id);
            return;
        }
        // Not closed with a wait for the peer's end, as those that wait would have no limit.
        let mut refusal = Vec::new();
        Response::text(503, "there are too many connections\n")
            .with("Retry-After", "5")
            .write(false, false, &mut refusal);
        io.write_now(id, &refusal);
        io.abort(id);
    }

    /// Linux reports the lack even if no connection waits, so that none may end for one more.
    fn make_room(&mut self, _io: &mut Io) -> bool {
        self.reserve.take().is_some()
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let mut used = 0;
        // A request without a body is complete with the last byte of its head: the reader reports it when it
        // is asked again.
        while !self.is_waiting(id) {
            // The buffer of a connection that has ended is gone.
            let Some(unsent) = io.buffer(id).map(|buffer| buffer.len()) else {
                break;
            };
            if unsent + io.queued_bytes(id) > UNREAD_BYTES_MAX {
                io.abort(id);
                break;
            }
            if self.feed.has(id) {
                return used + self.feed.receive(io, id, &mut data[used..]);
            }
            let (bytes, goes_on) = self.take(io, id, &data[used..]);
            used += bytes;
            if !goes_on {
                break;
            }
        }
        used
    }

    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, _closed: Closed) {
        self.readers.remove(&id);
        self.exchanges.remove(&id);
        self.feed.remove(id);
        self.places.close(io, id);
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        if self.feed.has(id) {
            // The peer does not answer its ping or close.
            return io.abort(id);
        }
        let exchange = self.exchanges.remove(&id);
        if io.queued_bytes(id) > 0 || matches!(exchange, Some(Exchange::Answer { .. })) {
            // The peer does not read its answer, or will not get one.
            io.abort(id);
        } else if exchange.is_some() {
            let late = Response::text(408, "the request did not come in time\n");
            end(io, id, &late);
        } else {
            io.close(id);
        }
    }

    fn handle_mail(&mut self, io: &mut Io, word: ListenerMail) {
        let (id, response) = match word {
            ListenerMail::Answer(id, response) => (id, response),
            ListenerMail::Snapshot(snapshot) => return self.feed.send(io, &snapshot),
            ListenerMail::StopListening => {
                self.is_leaving = true;
                // Dashboards connect anew, to the other process.
                self.feed.end_all(io);
                return io.stop_listening();
            }
            ListenerMail::Stop => {
                self.feed.end_all(io);
                return io.stop();
            }
        };
        // It may have ended a login.
        if let Some(context) = &self.context {
            self.feed.look_at_logins(io, context);
        }
        let Some(Exchange::Answer {
            is_head,
            keep_alive,
        }) = self.exchanges.remove(&id)
        else {
            return;
        };
        answer(io, id, &response, is_head, keep_alive);
        if keep_alive {
            io.resume_reading(id);
        }
    }

    fn handle_turn(&mut self, io: &mut Io) {
        if self.reserve.is_none() {
            self.reserve = spare();
        }
        let now = io.turn_started();
        if self.beat_due.is_none_or(|due| due <= now) {
            self.beat_due = Some(now + BEAT_INTERVAL);
            self.source.shard_health();
        }
        let (Some(context), Some(workers)) = (&self.context, &self.workers) else {
            return;
        };
        if self.feed.turn(io, context) {
            self.feed.ask(workers.submit(Job::Snapshot));
        }
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.feed.deadline().into_iter().chain(self.beat_due).min()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Listener")
            .field("exchanges", &self.exchanges)
            .finish_non_exhaustive()
    }
}

/// Gives the connection its time for the next request. Bytes do not extend it, whole requests do.
fn wait(io: &mut Io, id: ConnectionId) {
    io.set_timer(id, io.now().monotonic_ms + REQUEST_TIMEOUT_MS);
}

/// A descriptor that means nothing; `None` if there is no other.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

fn answer(io: &mut Io, id: ConnectionId, response: &Response, is_head: bool, keep_alive: bool) {
    if let Some(buffer) = io.buffer(id) {
        response.write(is_head, keep_alive, buffer);
    }
    if keep_alive {
        wait(io, id);
    } else {
        io.close(id);
    }
}

fn end(io: &mut Io, id: ConnectionId, response: &Response) {
    answer(io, id, response, false, false);
}

/// The time for an answer, in milliseconds. After it the listener gives up the connection.
const ANSWER_TIMEOUT_MS: u64 = 30_000;

/// The limit of bytes that wait for a peer that asks and does not read; beyond it the connection ends.
const UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The time between two looks at the shards.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The limits of a request. The one of a body depends on the path.
pub(crate) const LIMITS: Limits = Limits {
    head_bytes_max: 8 * 1024,
    request_line_bytes_max: 8 * 1024,
    body_bytes_max: u64::MAX,
    trailer_bytes_max: 4096,
};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The time for one request of a connection, or for its wait for the next one, in milliseconds.
pub const REQUEST_TIMEOUT_MS: u64 = 5_000;

//! Connecting: TCP, TLS, the upgrade and, for version 1, `server_ready`.

use rand::Rng;
use tidewire_net::{Connect, Io, Usage, tls};
use tidewire_wire::frame::Role;
use tidewire_wire::handshake::client::{HEAD_BYTES_MAX, Offer, RequestHead, parse_response};
use tidewire_wire::message::MessageReader;

use super::{Core, Worker};
use crate::accounting::failure::Failure;
use crate::accounting::outcome::Opened;
use crate::worker::meter::Meter;
use crate::worker::order::{ConnectOrder, Numbers, WorkerReport};
use crate::worker::target::TokenPlace;
use crate::worker::websocket::channel::KeyPair;
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::profile::{Profile, encryption_key, write_hello, write_key_hello};
use crate::worker::websocket::session::{Connection, ConnectionState, PendingHandshake, Session};

/// The progress of an order to connect.
#[derive(Debug)]
pub(super) struct ConnectRun {
    /// The numbers of the connections that were not started.
    order: ConnectOrder,
    /// All of them, and how often they are opened once more; with [`ConnectOrder::again`].
    whole: Numbers,
    rounds_left: u64,
    until_ns: u64,
    in_flight: usize,
    /// Consecutive connections that this machine could not start.
    failed_here: usize,
    pub(super) meter: Meter,
    pub(super) result: Opened,
}

impl ConnectRun {
    pub(super) fn may_start(&self) -> bool {
        !self.order.numbers.is_empty() && self.in_flight < self.order.in_flight_max
    }

    fn is_done(&self) -> bool {
        self.order.numbers.is_empty() && self.in_flight == 0
    }

    /// Discards the connections that were not started, and returns their number.
    fn give_up(&mut self) -> u64 {
        let left = self.order.numbers.len() as u64;
        self.order.numbers.first = self.order.numbers.end;
        self.rounds_left = 0;
        left
    }

    /// Begins the next round, if there is one.
    fn begin_again(&mut self, now_ns: u64) {
        if !self.order.numbers.is_empty() || self.rounds_left == 0 {
            return;
        }
        self.rounds_left -= 1;
        if now_ns < self.until_ns {
            self.order.numbers = self.whole;
        } else {
            self.rounds_left = 0;
        }
    }
}

impl Worker {
    /// Starts connections up to the limit in flight, some of them each turn.
    pub(super) fn connect_more(&mut self, io: &mut Io, now_ns: u64) {
        for _ in 0..STARTS_PER_TURN {
            if let Some(run) = &mut self.core.connect_run {
                run.begin_again(now_ns);
            }
            let Some(run) = self.core.connect_run.as_mut().filter(|run| run.may_start()) else {
                return;
            };
            let Some(number) = run.order.numbers.next() else {
                return;
            };
            run.result.attempted += 1;
            match self.core.connect(io, number) {
                Ok(session) => self.insert(session),
                Err(error) => self.core.handle_not_started(Failure::of_io(&error)),
            }
        }
    }
}

impl Core {
    pub(super) fn begin_connecting(&mut self, order: ConnectOrder) {
        let now_ns = self.now_ns();
        let longest = order.again.and_then(|again| again.longest);
        let rounds = order
            .again
            .map_or(1, |again| again.rounds.unwrap_or(u64::MAX));
        self.connect_run = Some(ConnectRun {
            whole: order.numbers,
            rounds_left: rounds.saturating_sub(1),
            until_ns: longest.map_or(u64::MAX, |longest| {
                now_ns.saturating_add(longest.as_nanos() as u64)
            }),
            order,
            in_flight: 0,
            failed_here: 0,
            meter: Meter::start(self.spin.spun(), now_ns),
            result: Opened::default(),
        });
    }

    pub(super) fn stop_connecting(&mut self) {
        if let Some(run) = &mut self.connect_run {
            run.result.interrupted = true;
            run.result.untried += run.give_up();
        }
    }

    /// Reports the order when its last connection is ready or has failed.
    pub(super) fn end_connecting(&mut self) {
        let Some(mut run) = self.connect_run.take_if(|run| run.is_done()) else {
            return;
        };
        run.result.waits = run.meter.waits(self.now_ns());
        run.result.cpu = run.meter.stop(self.spin.spun());
        run.result.facts = self.facts.clone();
        self.report(WorkerReport::Opened(Box::new(run.result)));
    }

    fn connect(&mut self, io: &mut Io, number: usize) -> std::io::Result<Session> {
        let setup = &self.setup;
        let tls = match &setup.target.tls {
            Some(tls) => {
                let name = tls::server_name(&tls.host).map_err(std::io::Error::other)?;
                Some((tls.config.clone(), name))
            }
            None => None,
        };
        let source = match setup.sources.len() {
            0 => None,
            count => Some(setup.sources[number % count]),
        };
        let started_ns = setup.now_ns();
        let id = io.connect(Connect {
            address: setup.target.address.into(),
            source,
            tls,
            // The upgrade, or the greeting of TLS.
            usage: Usage::WritesFirst,
        })?;
        io.set_timer(id, io.now().monotonic_ms + setup.timeouts.connect_ms);
        if let Some(run) = &mut self.connect_run {
            run.in_flight += 1;
            run.failed_here = 0;
            if run.result.span_ns.is_none() {
                run.result.span_ns = Some((started_ns, started_ns));
            }
        }
        let opening = PendingHandshake {
            number,
            key: self.random.random(),
            started_ns,
            key_pair: None,
        };
        let mut reader = MessageReader::new(Role::Client, MESSAGE_BYTES_MAX);
        if self.setup.layer == Layer::Deflate {
            reader = reader.with_compression();
        }
        Ok(Session::new(id, opening, reader, self.setup.profile))
    }

    pub(super) fn send_upgrade(&self, io: &mut Io, connection: &mut Connection) {
        let Some(opening) = &connection.opening else {
            return;
        };
        let target = &self.setup.target;
        let token = target
            .token
            .token(opening.number)
            .map(|token| match &target.token_place {
                TokenPlace::Bearer => ("Authorization", format!("Bearer {token}")),
                TokenPlace::Cookie(name) => ("Cookie", format!("{name}={token}")),
            });
        let token = token.as_ref().map(|(name, value)| (*name, value.as_str()));
        let extensions = self.setup.layer.offer_header();
        let extensions = extensions.map(|value| ("Sec-WebSocket-Extensions", value));
        let headers: Vec<(&str, &str)> = token.into_iter().chain(extensions).collect();
        let head = RequestHead {
            host: &target.host_header,
            target: &target.path_and_query,
            offer: Offer {
                deflate: None,
                ..self.offer(&opening.key)
            },
            headers: &headers,
        };
        connection.state = ConnectionState::Upgrading;
        let written = io
            .buffer(connection.id)
            .is_some_and(|buffer| head.write(buffer).is_ok());
        if !written {
            connection.failure = Some(Failure::Other);
            io.abort(connection.id);
        }
    }

    /// Handles the response to the upgrade. Returns the number of used bytes, 0 while it is incomplete.
    pub(super) fn handle_response(
        &mut self,
        io: &mut Io,
        connection: &mut Connection,
        data: &[u8],
    ) -> usize {
        let Some(opening) = &connection.opening else {
            return 0;
        };
        match parse_response(data, &self.offer(&opening.key), HEAD_BYTES_MAX) {
            Ok(None) => 0,
            Ok(Some(response)) if !self.setup.layer.is_agreed(response.deflate) => {
                connection.failure = Some(Failure::NoDeflate);
                io.abort(connection.id);
                data.len()
            }
            Ok(Some(response)) => {
                if self.facts.server.is_none() {
                    self.facts.server = response.server;
                }
                match self.setup.profile {
                    Profile::Raw => self.handle_opened(io, connection),
                    Profile::V1 => connection.state = ConnectionState::AwaitingReady,
                }
                response.head_bytes
            }
            Err(error) => {
                connection.failure = Some(Failure::of_response(&error));
                io.abort(connection.id);
                data.len()
            }
        }
    }

    /// The offer, which the response to the upgrade has to match. permessage-deflate is among the headers.
    fn offer<'a>(&self, key: &'a [u8; 16]) -> Offer<'a> {
        Offer {
            key,
            protocols: &[],
            deflate: self.setup.layer.offer(),
        }
    }

    /// Handles `server_ready`.
    pub(super) fn handle_ready(&mut self, io: &mut Io, connection: &mut Connection) {
        if self.setup.layer != Layer::Encryption {
            return self.handle_opened(io, connection);
        }
        let pair = KeyPair::generate(&mut self.random);
        let mask = self.random.random();
        write_key_hello(&mut connection.out.controls, pair.public_key(), mask);
        if let Some(opening) = &mut connection.opening {
            opening.key_pair = Some(pair);
        }
        connection.state = ConnectionState::AwaitingKey;
        connection.out.pump(io, connection.id, None, usize::MAX);
    }

    /// Handles `server_hello`, or an error in its place, during a key exchange.
    pub(super) fn handle_key(&mut self, io: &mut Io, connection: &mut Connection, message: &[u8]) {
        let pair = connection
            .opening
            .as_mut()
            .and_then(|opening| opening.key_pair.take());
        let server_key = encryption_key(message);
        let channel = pair
            .zip(server_key)
            .and_then(|(pair, key)| pair.agree(&key, &mut self.random));
        let Some(channel) = channel else {
            connection.failure = Some(Failure::NoEncryption);
            return io.abort(connection.id);
        };
        connection.channel = Some(Box::new(channel));
        self.handle_opened(io, connection);
    }

    /// Counts a connection that is ready.
    fn handle_opened(&mut self, io: &mut Io, connection: &mut Connection) {
        let now_ns = self.now_ns();
        connection.state = ConnectionState::Open;
        io.clear_timer(connection.id);
        if self.setup.profile == Profile::V1 && connection.channel.is_none() {
            // Until the server's rate limit is known, the hello leaves at once. A later connection sends it
            // with its first message, as the protocol allows, so that a storm measures connections alone.
            connection.hello_is_due = true;
            if self.facts.rate_limit_capacity.is_none() {
                self.send_hello(connection);
                connection.out.pump(io, connection.id, None, usize::MAX);
            }
        }
        self.connected += 1;
        let opening = connection.opening.take();
        if let (Some(run), Some(opening)) = (&mut self.connect_run, opening) {
            if run.order.again.is_some() {
                // It is in flight until it is closed.
                connection.is_reopened = true;
            } else {
                run.in_flight -= 1;
            }
            run.result.connected += 1;
            run.result.latency.record_ns(now_ns - opening.started_ns);
            if let Some((_, last_ns)) = &mut run.result.span_ns {
                *last_ns = now_ns;
            }
        }
        if connection.is_reopened {
            self.begin_close(io, connection);
        }
    }

    /// Counts the end of a connection that is opened again.
    pub(super) fn handle_reopened_end(&mut self) {
        if let Some(run) = &mut self.connect_run {
            run.in_flight -= 1;
        }
    }

    /// Writes `client_hello` once, before the next message of the connection.
    pub(super) fn send_hello(&mut self, connection: &mut Connection) {
        if std::mem::take(&mut connection.hello_is_due) {
            let mask = self.random.random();
            write_hello(&mut connection.out.controls, mask);
        }
    }

    pub(super) fn handle_connect_failure(&mut self, failure: Failure) {
        if let Some(run) = &mut self.connect_run {
            run.in_flight -= 1;
        }
        self.count_not_opened(failure);
    }

    /// Counts a connection that could not be started. A machine without free files or ports has none for the next
    /// connection either.
    fn handle_not_started(&mut self, failure: Failure) {
        self.count_not_opened(failure);
        let Some(run) = &mut self.connect_run else {
            return;
        };
        run.failed_here += 1;
        if run.failed_here >= FAILED_HERE_MAX {
            run.result.untried += run.give_up();
        }
    }

    fn count_not_opened(&mut self, failure: Failure) {
        self.failed += 1;
        if let Some(run) = &mut self.connect_run {
            run.result.failures.add(failure);
        }
    }
}

/// The number of connections that are started before received data is read.
const STARTS_PER_TURN: usize = 32;

/// The number of consecutive connections that cannot be started, after which the rest of a plan is discarded.
const FAILED_HERE_MAX: usize = 1_000;

/// The maximum length of a message of a server.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

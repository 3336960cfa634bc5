//! The opening handshake: which connections are accepted, and how the others are rejected.

use crate::auth::hosts::HostCaller;
use crate::auth::{Claims, TokenError, Verifier, find_token};
use crate::backend::events::ConnectAnswer;
use crate::clock::wire_now;
use crate::config::backend::BackendEvent;
use crate::config::{Config, OriginPolicy, Protocol};
use crate::limits::lines::LineKind;
use crate::model::{CloseReason, ConnectionKey, Peer};
use crate::session::application::Application;
use crate::session::reply::write_message;
use crate::shard::backend_answers::Admission;
use crate::shard::refusal::write_refusal;
use crate::shard::{EngineShard, micros_of};
use crate::state::adoption::ConnectDecision;
use crate::state::connection::{Connection, ConnectionState};
use crate::state::core::Core;
use crate::state::layers::{self, Layers};
use crate::state::pending_questions::BackendAnswer;
use crate::topics::access::{Access, AccessRules, InvalidRules};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::connection::Control;
use tidewire_wire::deflate::DeflateParameters;
use tidewire_wire::format::Format;
use tidewire_wire::frame::{self, Role};
use tidewire_wire::handshake::server::{self as wire, Request, parse_request, write_accept};
use tidewire_wire::message::MessageReader;
use tidewire_wire::session::{Now, PROTOCOL_VERSION, Reply, ServerSession};

/// The result of the checks of a request.
enum Decision {
    /// The connection is accepted. `failure` is an error of its token, reported after the upgrade.
    Accept {
        guest: Guest,
        failure: Option<String>,
    },
    /// The backend has to be asked first, about this user.
    Ask { user: Option<String> },
    /// The application has to be asked first.
    AskApplication,
    Reject {
        status: u16,
        reason: String,
        retry_after_s: Option<u64>,
    },
}

/// A client that asks to be accepted.
struct Newcomer {
    key: ConnectionKey,
    address: Option<SocketAddr>,
    /// Whether a trusted proxy forwards the connection.
    is_forwarded: bool,
    /// The server that accepted it listens on a loopback address.
    is_local: bool,
    /// The decision of the application, if there is one.
    decision: Option<ConnectDecision>,
    /// The application decides, and was not asked.
    awaits_application: bool,
    unix_ms: u64,
}

/// An accepted client.
struct Guest {
    /// The `sub` of the token.
    user: Option<String>,
    access: Access,
    /// The `exp` of the token, in seconds since 1970.
    expires_at_s: Option<u64>,
    /// The backend has decided the access; a new token changes nothing of it.
    access_is_set: bool,
    /// The topics that the backend subscribes it to.
    subscriptions: Vec<String>,
}

impl Newcomer {
    /// The client of a connection, with the decision that the application has handed over.
    fn of(state: &mut ConnectionState, io: &Io, listens_locally: bool, app_decides: bool) -> Self {
        let address = state.peer_address(io);
        let by_proxy = state
            .client
            .forwarded
            .as_ref()
            .map(|client| client.by_proxy);
        let adopted = state.adopted();
        Self {
            address,
            is_forwarded: by_proxy.unwrap_or(false),
            is_local: adopted
                .as_ref()
                .map_or(listens_locally, |adopted| adopted.is_local),
            awaits_application: app_decides && adopted.is_none(),
            decision: adopted.and_then(|adopted| adopted.decision.take()),
            key: state.key,
            unix_ms: io.now().unix_ms,
        }
    }
}

impl Decision {
    fn reject(status: u16, reason: &str) -> Self {
        Self::Reject {
            status,
            reason: reason.to_owned(),
            retry_after_s: None,
        }
    }
}

impl<A: Application> EngineShard<A> {
    /// Handles the request at the front of `data`. Returns how many bytes it was, 0 while it is incomplete or
    /// waits for the backend.
    pub(crate) fn open(&mut self, io: &mut Io, id: ConnectionId, data: &[u8]) -> usize {
        let limits = wire::Limits {
            head_bytes_max: self.core.setup.config.limits.request_head_bytes_max,
        };
        let request = match parse_request(data, &limits) {
            Ok(Some(request)) => request,
            Ok(None) => return 0,
            Err(error) => {
                if let Some(buffer) = io.buffer(id) {
                    error.write(buffer);
                }
                self.reject(io, id);
                return data.len();
            }
        };
        self.read_forwarded(io, id, &request);
        let listens_locally = self.core.setup.config.listen.ip().is_loopback();
        let app_decides = self.app.decides_connections();
        let Some(Connection { state, .. }) = self.connection(id) else {
            return data.len();
        };
        if state.awaits_backend() {
            return 0;
        }
        let mut answer = state
            .work
            .question
            .take()
            .and_then(|question| question.answer);
        let decision = answer.take_if(|answer| matches!(answer, BackendAnswer::Decision(..)));
        if let Some(BackendAnswer::Decision(decision, ticket)) = decision {
            state.decide(decision, ticket, listens_locally);
        }
        let newcomer = Newcomer::of(state, io, listens_locally, app_decides);
        self.trace_handshake(io, id, &request);
        match self.core.decide(&request, newcomer, answer) {
            Decision::Ask { .. } | Decision::AskApplication if !self.start_undecided(io, id) => {
                data.len()
            }
            Decision::Ask { user } => {
                self.ask_connect(io, id, &request, user.as_deref());
                0
            }
            Decision::AskApplication => {
                self.ask_application(io, id, &request);
                0
            }
            Decision::Accept { guest, failure } => {
                let code = failure.as_ref().map(|_| ErrorCode::AuthFailed.as_str());
                self.end_handshake_span(id, 101, code);
                self.accept(io, id, &request, guest, failure);
                request.head_bytes()
            }
            Decision::Reject {
                status,
                reason,
                retry_after_s,
            } => {
                self.refuse(io, id, (status, &reason), retry_after_s);
                data.len()
            }
        }
    }

    /// Refuses a client for whose decision there is no room.
    pub(crate) fn refuse_undecided(&mut self, io: &mut Io, id: ConnectionId) {
        let retry_after_s = Some(self.core.setup.config.limits.retry_after_s);
        if let Some(mut session) = self.session(io, id) {
            session.end_question();
        }
        let words = "too many clients wait to be let in";
        self.refuse(io, id, (503, words), retry_after_s);
    }

    /// Answers a request with a status and a reason, and ends the connection.
    fn refuse(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        (status, reason): (u16, &str),
        retry_after_s: Option<u64>,
    ) {
        self.end_handshake_span(id, status, None);
        if let Some(buffer) = io.buffer(id) {
            write_refusal(status, reason, retry_after_s, buffer);
        }
        self.reject(io, id);
    }

    pub(crate) fn reject(&mut self, io: &mut Io, id: ConnectionId) {
        self.core.counters.handshakes_failed.add(1);
        if let Some(Some(connection)) = self.connections.get_mut(id.index()) {
            connection.state.ending.ended = Some(CloseReason::ByUs(CloseCode::POLICY_VIOLATION));
        }
        io.close(id);
    }

    fn accept(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        request: &Request<'_>,
        guest: Guest,
        failure: Option<String>,
    ) {
        let now = wire_now(io);
        let user = guest.user;
        let deflate = layers::wanted(&self.core.setup.config)
            .and_then(|wanted| DeflateParameters::accept(wanted, request.extensions()));
        let extensions = deflate
            .as_ref()
            .map(|agreed| ("Sec-WebSocket-Extensions", agreed.header_value.as_str()));
        let Some(buffer) = io.buffer(id) else { return };
        write_accept(
            request.key(),
            chosen_protocol(request, &self.core),
            extensions.as_slice(),
            buffer,
        );
        if let Some(failure) = failure {
            self.refuse_after_upgrade(io, id, &failure, now);
            return;
        }
        let mut session = session_of(request, now);
        self.end_pending(io, id);
        self.core.counters.handshakes_completed.add(1);
        self.time_handshake(io, id);
        self.core.counters.connections_open.add(1);
        let is_v1 = self.core.setup.config.protocol == Protocol::V1;
        if is_v1 {
            self.core.greet(io, id, &mut session, user.clone(), now);
        }
        let limit = self.core.setup.config.limits.message_bytes_max;
        let Some(Some(Connection { state, reader })) = self.connections.get_mut(id.index()) else {
            return;
        };
        if deflate.is_some() {
            *reader = MessageReader::new(Role::Server, limit).with_compression();
        }
        state.layers = Layers::new(deflate, is_v1 && session.compression());
        state.session = session;
        state.control = Some(Control::default());
        state.client.access = guest.access;
        state.client.access_is_set = guest.access_is_set;
        state.client.user = user.as_deref().map(Arc::from);
        state.client.expiry = guest
            .expires_at_s
            .and_then(|expires_at_s| self.core.expiry_at(expires_at_s, now));
        io.set_timer(id, state.due_ms(&self.core.setup.profile));
        let address = state.peer_address(io).map(|address| address.ip());
        state.limits.owner = self.core.shared.charges.owners.of(user.as_deref(), address);
        if let Some(user) = &state.client.user {
            self.core.users.add(user, id);
            self.core.shared.hub.add_user(user);
        }
        let peer = Peer {
            connection: state.key,
            user,
            address: state.peer_address(io),
            adoption: state.adopted().and_then(|adopted| adopted.ticket.take()),
        };
        self.with_inbound(io, id, |inbound| {
            inbound.announce_when_encrypted(peer);
            inbound.session.subscribe_first(&guest.subscriptions);
        });
    }

    /// Records the duration of a connection's handshake.
    fn time_handshake(&mut self, io: &Io, id: ConnectionId) {
        if let Some(connection) = self.connection(id) {
            let accepted_us = connection.state.accepted_us;
            let took_us = micros_of(io).wrapping_sub(accepted_us);
            let took = Duration::from_micros(took_us.into());
            self.core.counters.timings.handshake_duration.record(took);
        }
    }

    /// Sends an error and closes with code 4401. The upgrade was accepted only so that the client can read
    /// the error.
    fn refuse_after_upgrade(&mut self, io: &mut Io, id: ConnectionId, failure: &str, now: Now) {
        let message_id = self.core.new_id(now.unix_ms);
        let error = Reply::error(ErrorCode::AuthFailed, failure.to_owned());
        if let Some(buffer) = io.buffer(id) {
            if self.core.setup.config.protocol == Protocol::V1 {
                // In place of the greeting, and in its format.
                let mut session = ServerSession::new(Format::Json, false, now);
                let profile = &self.core.setup.profile;
                write_message(buffer, &mut session, profile, &error, message_id, now);
            }
            let code = CloseCode::NOT_AUTHENTICATED;
            frame::write_close(buffer, Some(code), failure, None);
        }
        self.reject(io, id);
    }
}

impl Core {
    /// Sends `server_ready`.
    fn greet(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        session: &mut ServerSession,
        user_id: Option<String>,
        now: Now,
    ) {
        let ready = Reply::Ready {
            // Commands to sessions are compared with the time in it.
            connection_id: self.new_id(io.now().steady_unix_ms),
            user_id,
        };
        let message_id = self.new_id(now.unix_ms);
        if let Some(buffer) = io.buffer(id) {
            let profile = &self.setup.profile;
            let bytes = write_message(buffer, session, profile, &ready, message_id, now);
            self.count_sent(bytes);
        }
    }

    /// The result for a request; `answer` is the backend's, once it was asked. Where the application has decided, neither the
    /// token nor the backend counts.
    fn decide(
        &self,
        request: &Request<'_>,
        mut newcomer: Newcomer,
        answer: Option<BackendAnswer>,
    ) -> Decision {
        let config = &self.setup.config;
        if let Some(rejection) = self.rejection(request, &newcomer) {
            return rejection;
        }
        if newcomer.awaits_application {
            return Decision::AskApplication;
        }
        let decision = newcomer.decision.take();
        let mut failure = None;
        let mut user = None;
        let mut expires_at_s = None;
        let mut rules = None;
        if let (Some(verifier), Some(auth), None) = (&self.setup.verifier, &config.auth, &decision)
        {
            if verifier.is_waiting() {
                return self.full("the server has no keys to check tokens with yet");
            }
            match self.verified(verifier, find_token(request, auth), &newcomer) {
                Ok((claims, own)) => {
                    rules = own;
                    user = Some(claims.subject);
                    expires_at_s = Some(claims.expires_at_s);
                }
                Err(error) if config.auth_failure_after_upgrade => failure = Some(error),
                Err(error) => return Decision::reject(401, &error),
            }
        }
        let backend = self.shared.backend.as_ref();
        let backend = backend.filter(|backend| backend.has(BackendEvent::Connect));
        let admission = match (decision, backend, &failure) {
            (Some(decision), ..) => Admission::by_application(decision),
            (None, Some(backend), None) => match answer {
                Some(answer) => Admission::of(answer, backend.config.away),
                None => return Decision::Ask { user },
            },
            _ => Admission::Admit(Box::default()),
        };
        let admitted = match admission {
            Admission::Admit(answer) => *answer,
            Admission::Refuse(reason) if config.auth_failure_after_upgrade => {
                failure = Some(reason);
                ConnectAnswer::default()
            }
            Admission::Refuse(reason) => return Decision::reject(403, &reason),
            Admission::Away(reason) => return self.full(reason),
        };
        if failure.is_none() && !self.take_place() {
            self.counters.connections_rejected_full.add(1);
            return self.full("the server has no room for another connection");
        }
        let access_is_set = admitted.access.is_some();
        let rules = admitted.access.or(rules);
        let rules = rules.map_or_else(|| Arc::clone(&self.setup.access), Arc::new);
        let user = admitted.user.or(user);
        let guest = Guest {
            access: Access::bind(&rules, user.as_deref()),
            user,
            expires_at_s: admitted.expires_at_s.or(expires_at_s),
            access_is_set,
            subscriptions: admitted.subscriptions,
        };
        Decision::Accept { guest, failure }
    }

    /// Why a request is rejected whoever sends it, if so.
    fn rejection(&self, request: &Request<'_>, newcomer: &Newcomer) -> Option<Decision> {
        let config = &self.setup.config;
        if let Some(reason) = self.turns_away() {
            return Some(self.full(reason));
        }
        let is_guarded = newcomer.is_local
            && !newcomer.is_forwarded
            && newcomer.decision.is_none()
            && !newcomer.awaits_application
            && is_open_to_page(config, request);
        let caller = HostCaller {
            connection: Some(newcomer.key),
            address: newcomer.address,
            unix_ms: newcomer.unix_ms,
        };
        if let Err(words) = self.shared.hosts.check(request.host(), is_guarded, caller) {
            self.counters.host_rejections.add(1);
            return Some(Decision::reject(421, &words));
        }
        if !config.paths.is_empty() && !config.paths.iter().any(|path| path == request.path()) {
            return Some(Decision::reject(404, "no WebSocket is served at this path"));
        }
        if !origin_is_allowed(&config.origins, request) {
            self.counters.origin_rejections.add(1);
            return Some(Decision::reject(
                403,
                &self.refuse_origin(request, newcomer),
            ));
        }
        None
    }

    fn full(&self, reason: &str) -> Decision {
        Decision::Reject {
            status: 503,
            reason: reason.to_owned(),
            retry_after_s: Some(self.setup.config.limits.retry_after_s),
        }
    }

    /// Reports a page that may not connect; the words to refuse it with.
    fn refuse_origin(&self, request: &Request<'_>, newcomer: &Newcomer) -> String {
        let origin = shown(request.origin().unwrap_or_default());
        let advice = self.setup.config.option_spelling.advice("origin", origin);
        let words = format!("origin {origin} is not allowed; {advice}");
        let Newcomer {
            address, unix_ms, ..
        } = *newcomer;
        let lines = &self.shared.lines;
        if lines.permit_named(LineKind::OriginRefused, origin, address, unix_ms) {
            tracing::warn!(
                connection = %newcomer.key,
                address = address.map(tracing::field::display),
                host = shown(request.host()),
                "{words}",
            );
        }
        words
    }

    /// The claims of a token with its access rules, or the reason why it is rejected.
    fn verified(
        &self,
        verifier: &Verifier,
        token: Option<Cow<'_, str>>,
        newcomer: &Newcomer,
    ) -> Result<(Claims, Option<AccessRules>), String> {
        let verified = token
            .ok_or(TokenError::Missing)
            .and_then(|token| verifier.verify(&token, newcomer.unix_ms / 1000));
        let claims = verified.map_err(|error| {
            self.counters.auth_failures.add(1);
            let code = ErrorCode::AuthFailed.as_str();
            if self
                .shared
                .lines
                .permit(LineKind::TokenRefused, newcomer.address, newcomer.unix_ms)
            {
                tracing::info!(
                    connection = %newcomer.key,
                    address = newcomer.address.map(tracing::field::display),
                    code,
                    %error,
                    "a token is not accepted",
                );
            }
            error.to_string()
        })?;
        let rules = self.rules_of(&claims).map_err(|error| error.to_string())?;
        Ok((claims, rules))
    }

    /// The reason why nobody is accepted now, if there is one.
    fn turns_away(&self) -> Option<&'static str> {
        if self.draining {
            return Some("the server is draining");
        }
        (!self.shared.is_admitting()).then_some("nobody answers at this server for now")
    }

    /// The access rules that a token brings along.
    pub(crate) fn rules_of(&self, claims: &Claims) -> Result<Option<AccessRules>, InvalidRules> {
        let name = self.setup.config.topics.access_claim.as_deref();
        name.and_then(|name| claims.rest.get(name))
            .map(AccessRules::from_claim)
            .transpose()
    }

    /// Counts one more session, if there is room.
    fn take_place(&self) -> bool {
        let limit = self.setup.config.limits.connections_max;
        let one_more = |sessions| (sessions < limit).then_some(sessions + 1);
        self.shared
            .sessions
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .is_ok()
    }
}

/// The session that the query asks for.
fn session_of(request: &Request<'_>, now: Now) -> ServerSession {
    let format = match request.query_value("format").as_deref() {
        Some("msgpack") => Format::MessagePack,
        _ => Format::Json,
    };
    let compression = request.query_value("compression").as_deref() == Some("true");
    let version = request
        .query_value("protocol_version")
        .and_then(|version| version.parse().ok())
        .unwrap_or(PROTOCOL_VERSION);
    ServerSession::new(format, compression, now).with_protocol_version(version)
}

/// The subprotocol to confirm.
fn chosen_protocol<'a>(request: &Request<'a>, core: &Core) -> Option<&'a str> {
    let config = &core.setup.config;
    let auth = config.auth.as_ref();
    let prefix = auth.and_then(|auth| auth.subprotocol_prefix.as_deref());
    request.chosen_protocol(&config.subprotocols, prefix)
}

/// The part of a name that a peer chooses that is repeated to it and in the log.
fn shown(name: &str) -> &str {
    match name.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => &name[..end],
        None => name,
    }
}

/// True if a server without authentication is called by a page that its options do not list.
fn is_open_to_page(config: &Config, request: &Request<'_>) -> bool {
    let is_expected = |origin: &str| match &config.origins {
        OriginPolicy::Any => true,
        OriginPolicy::SameHost => false,
        OriginPolicy::Listed(origins) => {
            let mut origins = origins.iter();
            origins.any(|allowed| allowed.eq_ignore_ascii_case(origin))
        }
    };
    config.auth.is_none() && request.origin().is_some_and(|origin| !is_expected(origin))
}

fn origin_is_allowed(policy: &OriginPolicy, request: &Request<'_>) -> bool {
    let Some(origin) = request.origin() else {
        return true;
    };
    let same_host = || {
        origin
            .split_once("://")
            .is_some_and(|(_, host)| host.eq_ignore_ascii_case(request.host()))
    };
    match policy {
        OriginPolicy::Any => true,
        OriginPolicy::SameHost => same_host(),
        OriginPolicy::Listed(origins) => {
            same_host()
                || origins
                    .iter()
                    .any(|allowed| allowed.eq_ignore_ascii_case(origin))
        }
    }
}

/// A scheme, a name of the longest kind, and a port.
const SHOWN_CHARS_MAX: usize = 300;

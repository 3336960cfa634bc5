//! Dispatch of the protocol's own messages to the part of the session that handles them.

use crate::config::backend::BackendEvent;
use crate::limits::work::{LONG_MESSAGE_BYTES, cost};
use crate::session::application::Application;
use crate::session::inbound::Inbound;
use crate::session::server_requests::answer;
use crate::state::broker_operations::Greeting;
use crate::state::unfinished_jobs::{BatchJob, Job, Refresh};
use tidewire_wire::close::CloseCode;
use tidewire_wire::envelope::SystemType;
use tidewire_wire::format::Format;
use tidewire_wire::session::{Reply, Request, RequestKind, SystemEvent};

impl<A: Application> Inbound<'_, A> {
    /// Handles one of the protocol's own messages.
    pub(crate) fn dispatch_system(&mut self, system: SystemType, format: Format, bytes: &[u8]) {
        let session = &mut self.session;
        session.core.counters.system_messages_received.add(1);
        let is_publication = system == SystemType::PublishRequest;
        let is_light = is_publication || matches!(system, SystemType::Ping | SystemType::Pong);
        if !is_light || bytes.len() >= LONG_MESSAGE_BYTES {
            let cost = cost::read(format, bytes.len(), is_publication);
            session.core.turn.meter.spend(cost);
        }
        let profile = &session.core.setup.profile;
        match session
            .state
            .session
            .handle_system(profile, system, format, bytes)
        {
            SystemEvent::Hello {
                correlation_id,
                producer,
            } => self.handle_hello(Greeting {
                offer: None,
                correlation_id,
                producer,
            }),
            SystemEvent::Reply(reply) => {
                session.reply(&reply);
                if matches!(reply, Reply::Error { code, .. } if !code.recoverable()) {
                    session.start_close(CloseCode::POLICY_VIOLATION, "the session cannot go on");
                }
            }
            SystemEvent::KeyExchange {
                offer,
                correlation_id,
                producer,
            } => self.handle_hello(Greeting {
                offer: Some(offer),
                correlation_id,
                producer,
            }),
            SystemEvent::KeyUpdate { request } => session.update_keys(request, (format, bytes)),
            SystemEvent::Publish
                if self.app.decides_about(format, bytes)
                    || session.core.shared.backend.is_some()
                        && session.backend(BackendEvent::Publish).is_some() =>
            {
                session.ask_publish(format, bytes);
            }
            SystemEvent::Publish if session.state.producer.is_some() => {
                session.publish_once(format, bytes, None);
            }
            SystemEvent::Publish => {
                session.handle_publish(format, bytes, None, None);
            }
            SystemEvent::Ignore => {}
            SystemEvent::Request(request) => self.dispatch_request(request, format, bytes),
            SystemEvent::Batch(messages) => {
                let batch = BatchJob::new(messages, format);
                session.state.work.jobs.push(Job::Batch(batch));
            }
        }
    }

    fn dispatch_request(&mut self, request: Request, format: Format, bytes: &[u8]) {
        let Request {
            kind,
            correlation_id,
        } = request;
        let session = &mut self.session;
        session.core.turn.meter.spend(cost::MESSAGE);
        match kind {
            RequestKind::Subscription(subscription) => {
                session.handle_subscription(subscription, correlation_id);
            }
            RequestKind::Call(call) => {
                let parent = session.message_trace(format, bytes);
                self.handle_call(&call, correlation_id.unwrap_or_default(), parent);
            }
            RequestKind::CallResponse(result) => {
                session.handle_call_response(result, &correlation_id.unwrap_or_default());
            }
            RequestKind::Sync(request) => self.handle_sync_request(request, correlation_id),
            RequestKind::Acknowledge(deliveries) => session.acknowledge(&deliveries),
            RequestKind::AuthRefresh(token) => {
                let refresh = Refresh::new(token, correlation_id);
                session
                    .state
                    .work
                    .jobs
                    .push(Job::Refresh(Box::new(refresh)));
            }
            RequestKind::History(query) => session.handle_history_request(query, correlation_id),
            RequestKind::Presence(request) => {
                session.handle_presence_request(request, correlation_id);
            }
            kind => {
                session.core.turn.meter.spend(cost::ANSWER);
                let reply = answer(&session.core.shared, kind, correlation_id);
                session.reply(&reply);
            }
        }
    }
}

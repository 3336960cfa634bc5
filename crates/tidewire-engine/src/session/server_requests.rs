//! Answers to requests about the server itself: health, metrics and settings. The server also sends its health without a
//! request, when the broker goes away and when it is back.

use crate::counters::Counters;
use crate::session::Session;
use crate::state::shared::Shared;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Reply, RequestKind};

/// The reply to `request`.
pub(crate) fn answer(shared: &Shared, kind: RequestKind, correlation_id: Option<String>) -> Reply {
    let setup = shared.setup.get();
    let limits = &setup.config.limits;
    match kind {
        RequestKind::HealthCheck => health(shared, correlation_id),
        RequestKind::MetricsRequest => {
            // The two reported counters, without a copy of all of them.
            let sum = |read: fn(&Counters) -> u64| {
                shared.counters.iter().map(|each| read(each)).sum::<u64>()
            };
            Reply::MetricsResponse {
                payload: json!({
                    "messages_received": sum(|counters| counters.messages_received.load()),
                    "messages_sent": sum(|counters| counters.messages_sent.load()),
                    "connections": shared.sessions.load(Ordering::Acquire),
                }),
                correlation_id,
            }
        }
        // Clients may ask for settings; this server reports those that hold.
        RequestKind::ConfigUpdate => Reply::ConfigResponse {
            payload: json!({
                "max_message_size": limits.message_bytes_max,
                "rate_limit_capacity": limits.rate_limit_capacity,
                "rate_limit_refill": limits.rate_limit_refill_per_s,
                "ping_interval": limits.ping_interval_ms,
            }),
            correlation_id,
        },
        _ => Reply::Error {
            code: ErrorCode::InvalidAction,
            message: "this server does not do that".into(),
            retry_after_s: None,
            refused: None,
            correlation_id,
        },
    }
}

fn health(shared: &Shared, correlation_id: Option<String>) -> Reply {
    let mut payload = json!({
        "status": if shared.is_ready() { "healthy" } else { "draining" },
        "uptime_s": shared.uptime_s(),
        "connections": shared.sessions.load(Ordering::Acquire),
    });
    if shared.setup.get().profile.features.broker_updates {
        payload["broker_away"] = shared.is_broker_away().into();
    }
    Reply::HealthCheckResponse {
        payload,
        correlation_id,
    }
}

impl Session<'_> {
    /// Sends a client with `broker_updates` the health of the server, if the state of the broker has changed for it.
    pub(crate) fn tell_broker_update(&mut self) {
        let shared = &self.core.shared;
        let is_away = shared.is_broker_away();
        let takes = self.state.session.client_takes_broker_updates();
        if takes && self.state.is_told_away != is_away {
            self.state.is_told_away = is_away;
            let reply = health(&Arc::clone(shared), None);
            self.reply(&reply);
        }
    }
}

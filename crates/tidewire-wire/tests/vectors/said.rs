//! Messages of the dialogues about topics, calls and producers, as the vectors describe them.

use super::server::{NOW, id};
use serde_json::{Value, json};
use tidewire_testkit::vectors::dialogue::{self, Publish, Say, Subscribe};
use tidewire_wire::envelope::{Category, Priority, parse_epoch};
use tidewire_wire::session::{
    Action, Call, CallAnswer, CallError, CallResult, ClientEvent, ClientSession, GapRange,
    GapReason, HISTORY_LIMIT, HistoryPage, HistoryPosition, HistoryQuery, Overload, PresenceChange,
    PresenceMember, PublicationGap, PublishRequest, RecoveryPosition, Reply, SubscriptionRequest,
    Token, TopicFailure, TopicPresence, TopicRecovery,
};

/// A message of a server.
pub(crate) fn reply(say: Say) -> Reply {
    match say {
        Say::PublishResponse {
            topic,
            duplicate,
            position,
            cid,
        } => Reply::PublishResponse {
            topic,
            duplicate,
            position: position.map(|position| (epoch(&position.epoch), position.offset)),
            correlation_id: cid,
        },
        Say::PresenceResponse {
            topics,
            failed_topics,
            cid,
        } => Reply::PresenceResponse {
            topics: topics.into_iter().map(topic_presence).collect(),
            failed_topics,
            correlation_id: cid,
        },
        Say::HistoryResponse(said) => history_response(said),
        Say::PublicationGap {
            topic,
            reason,
            count,
            range,
        } => Reply::PublicationGap(PublicationGap {
            topic,
            reason: GapReason::parse(&reason).expect("a reason"),
            count,
            range: range.map(|range| GapRange {
                epoch: epoch(&range.epoch),
                from: range.from,
                to: range.to,
            }),
        }),
        Say::MessageAck { last } => Reply::MessageAck { last },
        Say::Reconnect { after_ms, reason } => Reply::Reconnect {
            after_ms,
            reason: reason.into(),
        },
        Say::AuthExpiryWarning {
            expires_in_ms,
            ends_in_ms,
        } => Reply::AuthExpiryWarning {
            expires_in_ms,
            ends_in_ms,
        },
        Say::AuthRefreshResponse {
            expires_in_ms,
            ends_in_ms,
            cid,
        } => Reply::AuthRefreshResponse {
            expires_in_ms,
            ends_in_ms,
            correlation_id: cid,
        },
        Say::CallRequest(said) => Reply::CallRequest {
            call: call(&said),
            correlation_id: said.cid,
        },
        Say::CallResponse(said) => Reply::CallResponse {
            result: call_result(&said),
            correlation_id: said.cid,
        },
        other => panic!("a server does not say {other:?} by itself"),
    }
}

fn history_response(said: dialogue::HistoryPage) -> Reply {
    let page = HistoryPage {
        topic: said.topic,
        epoch: epoch(&said.epoch),
        offset: said.offset,
        oldest: said.oldest,
        publications: said.publications.iter().map(json_text).collect(),
        more: said.more,
        complete: said.complete,
    };
    Reply::HistoryResponse {
        page: Box::new(page),
        correlation_id: said.cid,
    }
}

/// Writes what a client says.
pub(crate) fn write(name: &str, session: &mut ClientSession, say: &Say, out: &mut Vec<u8>) {
    let id = id("0193501a-6a5e-7000-8000-0000000000f1");
    match say {
        Say::Subscribe(said) => write_subscription(session, said, out),
        Say::Publish(said) => write_publish(session, said, out),
        Say::PublicationAck { deliveries } => {
            session.write_publication_ack(deliveries, id, NOW, out);
        }
        Say::PresenceRequest {
            topics,
            counts_only,
            limit,
            cid,
        } => {
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            let cid = cid.as_deref();
            session.write_presence_request(&topics, *counts_only, *limit, cid, id, NOW, out);
        }
        Say::HistoryRequest(said) => {
            let since = said.since.as_ref().map(|since| HistoryPosition {
                epoch: since.epoch.clone(),
                offset: since.offset,
            });
            let query = HistoryQuery {
                since,
                limit: said.limit.unwrap_or(HISTORY_LIMIT),
                newest_first: said.order.as_deref() == Some("newest"),
                ..HistoryQuery::new(&*said.topic)
            };
            session.write_history_request(&query, said.cid.as_deref(), id, NOW, out);
        }
        Say::AuthRefresh { token, cid } => {
            session.write_auth_refresh(token, cid.as_deref(), id, NOW, out);
        }
        Say::CallRequest(said) => {
            session.write_call_request(&call(said), &said.cid, id, NOW, out);
        }
        Say::CallResponse(said) => {
            session.write_call_response(&call_result(said), &said.cid, id, NOW, out);
        }
        other => panic!("{name}: a client does not say {other:?}"),
    }
}

/// The event of a client; `None` if that is described elsewhere.
pub(crate) fn describe(event: &ClientEvent) -> Option<Value> {
    Some(match event {
        ClientEvent::SubscriptionUpdate {
            action,
            success_topics,
            failed_topics,
            failures,
            recovery,
            correlation_id,
        } => {
            let mut described = json!({
                "action": action.map(Action::as_str),
                "success_topics": success_topics,
                "failed_topics": failed_topics,
                "recovery": recovery.iter().map(describe_recovery).collect::<Vec<_>>(),
                "cid": correlation_id,
            });
            if !failures.is_empty() {
                described["failures"] = failures.iter().map(describe_failure).collect();
            }
            json!({ "subscription_update": described })
        }
        ClientEvent::PublishResponse {
            topic,
            duplicate,
            position,
            correlation_id,
        } => {
            let position = position
                .map(|(epoch, offset)| json!({"epoch": format!("{epoch:08x}"), "offset": offset}));
            json!({"publish_response": {
                "topic": topic, "duplicate": duplicate, "position": position, "cid": correlation_id,
            }})
        }
        ClientEvent::PresenceResponse {
            topics,
            failed_topics,
            correlation_id,
        } => json!({"presence_response": {
            "topics": topics.iter().map(describe_presence).collect::<Vec<_>>(),
            "failed_topics": failed_topics,
            "cid": correlation_id,
        }}),
        ClientEvent::HistoryResponse {
            page,
            correlation_id,
        } => json!({"history_response": {
            "topic": page.topic,
            "epoch": format!("{:08x}", page.epoch),
            "offset": page.offset,
            "oldest": page.oldest,
            "publications": page.publications.iter().map(|json| json_value(json)).collect::<Vec<_>>(),
            "more": page.more,
            "complete": page.complete,
            "cid": correlation_id,
        }}),
        other => return describe_news(other),
    })
}

/// The same of what is no answer.
fn describe_news(event: &ClientEvent) -> Option<Value> {
    Some(match event {
        ClientEvent::Presence {
            change,
            topic,
            user_id,
            data,
        } => {
            let change = match change {
                PresenceChange::Join => "join",
                PresenceChange::Leave => "leave",
                PresenceChange::Update => "update",
            };
            json!({"presence": {
                "change": change, "topic": topic, "user_id": user_id, "data": data,
            }})
        }
        ClientEvent::PublicationGap(gap) => {
            let range = gap.range.map(|range| {
                let epoch = format!("{:08x}", range.epoch);
                json!({"epoch": epoch, "from": range.from, "to": range.to})
            });
            json!({"publication_gap": {
                "topic": gap.topic, "reason": gap.reason.as_str(), "count": gap.count, "range": range,
            }})
        }
        ClientEvent::MessageAck { last } => json!({"message_ack": {"last": last}}),
        ClientEvent::Call {
            call,
            correlation_id,
        } => {
            let mut described = describe_call(call);
            described["cid"] = correlation_id.as_str().into();
            json!({"call": described})
        }
        ClientEvent::CallResponse {
            result,
            correlation_id,
        } => {
            let mut described = describe_result(result);
            described["cid"] = correlation_id.as_str().into();
            json!({"call_response": described})
        }
        ClientEvent::Reconnect { after_ms, reason } => {
            json!({"reconnect": {"after_ms": after_ms, "reason": reason}})
        }
        ClientEvent::AuthExpiryWarning {
            expires_in_ms,
            ends_in_ms,
        } => json!({"auth_expiry_warning": {
            "expires_in_ms": expires_in_ms, "ends_in_ms": ends_in_ms,
        }}),
        ClientEvent::AuthRefreshed {
            expires_in_ms,
            ends_in_ms,
            correlation_id,
        } => json!({"auth_refreshed": {
            "expires_in_ms": expires_in_ms, "ends_in_ms": ends_in_ms, "cid": correlation_id,
        }}),
        _ => return None,
    })
}

pub(crate) fn describe_call(call: &Call) -> Value {
    json!({
        "type": call.t,
        "payload": json_value(&call.payload),
        "timeout_ms": call.timeout_ms,
    })
}

pub(crate) fn describe_result(result: &CallResult) -> Value {
    match result {
        Ok(answer) => json!({"payload": json_value(&answer.payload)}),
        Err(error) => json!({"error": {"code": error.code, "message": error.message}}),
    }
}

fn describe_failure(failure: &TopicFailure) -> Value {
    json!({"topic": failure.topic, "code": failure.code, "message": failure.message})
}

fn describe_recovery(topic: &TopicRecovery) -> Value {
    json!({
        "topic": topic.topic,
        "epoch": topic.epoch,
        "offset": topic.offset,
        "recovered": topic.recovered,
        "count": topic.count,
    })
}

fn describe_presence(topic: &TopicPresence) -> Value {
    let member = |member: &PresenceMember| {
        json!({
            "user": member.user,
            "connections": member.connections,
            "data": member.data.as_ref().map(|data| json_value(data.as_bytes())),
        })
    };
    let members = topic.members.as_ref();
    json!({
        "topic": topic.topic,
        "users": topic.users,
        "connections": topic.connections,
        "truncated": topic.truncated,
        "members": members.map(|members| members.iter().map(member).collect::<Vec<_>>()),
    })
}

fn topic_presence(topic: dialogue::TopicPresence) -> TopicPresence {
    let member = |member: dialogue::Member| PresenceMember {
        user: member.user,
        connections: member.connections,
        data: member.data.map(|data| data.to_string()),
    };
    let members = topic.members;
    TopicPresence {
        topic: topic.topic,
        users: topic.users,
        connections: topic.connections,
        truncated: topic.truncated,
        members: members.map(|members| members.into_iter().map(member).collect()),
    }
}

fn write_subscription(session: &mut ClientSession, said: &Subscribe, out: &mut Vec<u8>) {
    let topics: Vec<&str> = said.topics.iter().map(String::as_str).collect();
    let position = |position: &dialogue::RecoveryPosition| RecoveryPosition {
        topic: position.topic.clone(),
        epoch: position.epoch.clone(),
        offset: position.offset,
    };
    let recovery: Vec<_> = said.recovery.iter().map(position).collect();
    let tokens = said.tokens.iter();
    let tokens: Vec<_> = tokens
        .map(|(topic, token)| (topic.clone(), Token(token.clone())))
        .collect();
    let parse_overload = |policy: &str| Overload::parse(policy).expect("a policy");
    let request = SubscriptionRequest {
        action: Action::parse(&said.action).expect("an action"),
        topics: &topics,
        presence: said.presence.as_ref(),
        recover: said.recover,
        recovery: &recovery,
        replay: said.replay,
        queue_group: said.queue_group.as_deref(),
        filter: said.filter.as_ref(),
        overload: said.overload.as_deref().map(parse_overload),
        acknowledge: said.acknowledge,
        window: said.window,
        tokens: &tokens,
        renew: said.renew,
    };
    let id = id("0193501a-6a5e-7000-8000-0000000000f1");
    session.write_subscription(&request, said.cid.as_deref(), id, NOW, out);
}

fn write_publish(session: &mut ClientSession, said: &Publish, out: &mut Vec<u8>) {
    let category = said.category.as_deref().unwrap_or("U");
    let parse_priority = |number| Priority::from_number(number).expect("a priority");
    let payload = said.payload.to_string();
    let request = PublishRequest {
        category: Category::parse(category).expect("a category"),
        priority: said.priority.map(parse_priority),
        id: said.id.as_deref().map(Into::into),
        key: said.key.as_deref().map(Into::into),
        ttl_ms: said.ttl_ms,
        exclude_self: said.exclude_self,
        ..PublishRequest::new(&said.topic, &said.t, payload.as_bytes())
    };
    let id = id("0193501a-6a5e-7000-8000-0000000000f1");
    let cid = said.cid.as_deref();
    let written = session.write_publish(&request, cid, said.n, id, NOW, out);
    written.expect("a payload that is JSON");
}

fn call(said: &dialogue::Call) -> Call {
    Call {
        t: said.t.clone(),
        payload: said.payload.to_string().into_bytes(),
        binary: false,
        timeout_ms: said.timeout_ms,
    }
}

fn call_result(said: &dialogue::CallResponse) -> CallResult {
    match (&said.payload, &said.error) {
        (Some(payload), None) => Ok(CallAnswer {
            payload: payload.to_string().into_bytes(),
            binary: false,
        }),
        (None, Some(error)) => Err(CallError {
            code: error.code.clone(),
            message: error.message.clone(),
        }),
        other => panic!("either of the two: {other:?}"),
    }
}

fn epoch(text: &str) -> u32 {
    parse_epoch(text).expect("8 hexadecimal digits")
}

fn json_text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn json_value(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("JSON")
}

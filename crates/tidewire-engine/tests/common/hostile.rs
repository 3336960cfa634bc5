//! The worst legal instances of the protocol's messages, for whoever has to stand them: the test of budgets, the
//! simulation and, as `protocol/hostile.json`, the fuzzers.

use serde_json::{Value, json};
use tidewire_engine::auth::KeyMaterial;
use tidewire_engine::token::{SigningKey, sign};
use tidewire_wire::envelope::SystemType;

/// How large the instances are.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Topics of a request, and messages of a batch.
    pub topics: usize,
    /// Of the longest payload.
    pub bytes: usize,
}

/// As large as the protocol allows.
pub const FULL: Scale = Scale {
    topics: 1_000,
    bytes: 1024 * 1024 - 1_000,
};

/// Small enough for a fuzzer to vary.
pub const SMALL: Scale = Scale {
    topics: 4,
    bytes: 500,
};

impl Scale {
    fn share(self, full: usize) -> usize {
        (full * self.topics / FULL.topics).max(2)
    }

    fn names(self, prefix: &str) -> Vec<String> {
        let name = |number| format!("{prefix}.{number}");
        (0..self.topics).map(name).collect()
    }
}

fn worst_refreshes(scale: Scale) -> Vec<Value> {
    let (good, bytes) = (worst_token(scale), scale.bytes.min(8 * 1024));
    let long = format!("{good}.{}", "x".repeat(bytes));
    [good, long[..bytes].to_owned()]
        .map(|token| json!({"t": "auth_refresh", "cid": "r", "p": {"token": token}}))
        .to_vec()
}

/// A token with as many access rules as one may have, each of which is looked at for every subscription. It holds for
/// decades, and is the same each time that it is made.
fn worst_token(scale: Scale) -> String {
    let deny = |number| format!("no.{number}.*.x");
    let deny: Vec<String> = (0..scale.share(255)).map(deny).collect();
    let rules = json!({"subscribe": {"allow": [">"], "deny": deny}});
    signed(&json!({"sub": "user-1", "exp": 4_000_000_000_u64, "access": rules}))
}

/// As many subscription tokens as a request may have, as long as they may be, for a client whose own token allows
/// nothing.
fn worst_topic_tokens(scale: Scale) -> [Value; 2] {
    let closed = json!({"sub": "user-1", "exp": 4_000_000_000_u64, "access": {}});
    let refresh = json!({"t": "auth_refresh", "cid": "r", "p": {"token": signed(&closed)}});
    let filling = "x".repeat(scale.bytes.min(5_800));
    let token = |topic: String| {
        let claims = json!({
            "use": "subscription", "sub": "user-1", "topic": topic, "filling": filling,
        });
        let token = signed(&claims);
        (topic, Value::String(token))
    };
    let topics = scale.names("kept");
    let count = scale.share(100);
    let tokens = topics.iter().take(count).cloned().map(token);
    let tokens: serde_json::Map<_, _> = tokens.collect();
    [refresh, update(json!({"topics": topics, "tokens": tokens}))]
}

fn signed(claims: &Value) -> String {
    let key = KeyMaterial::Hs256(b"a secret of more than thirty-two bytes".to_vec());
    let key = SigningKey::new(&key).expect("a good key");
    sign(claims, &key, None).expect("a good key signs")
}

/// Four regular expressions and twelve other searches, on one long text.
pub fn worst_filter() -> Value {
    let regexes = [
        "a[ab]{3}c",
        "(a|aa)+b$",
        "^(([a-z])+.)+[A-Z]",
        "[a-f]+[0-9]{8}",
    ];
    let regexes = regexes.map(|regex| json!({"text": {"$regex": regex}}));
    let searches = (0..12).map(|number| json!({"text": {"$contains": format!("aaab{number}")}}));
    let all: Vec<Value> = regexes.into_iter().chain(searches).collect();
    json!({ "$or": all })
}

fn deep_patterns(scale: Scale) -> Vec<String> {
    let pattern = |number: usize| {
        let star = |bit: usize| {
            if number >> (bit % 8) & 1 == 1 {
                "*"
            } else {
                "s"
            }
        };
        let mut segments: Vec<String> = (0..30).map(|bit| star(bit).to_owned()).collect();
        let mut stars = 0;
        for segment in &mut segments {
            stars += usize::from(segment == "*");
            if stars > 8 {
                *segment = "s".to_owned();
            }
        }
        segments.push(format!("n{number}"));
        segments.push(">".to_owned());
        segments.join(".")
    };
    (0..scale.topics).map(pattern).collect()
}

pub fn update(payload: Value) -> Value {
    let mut message = json!({"t": "subscription_update", "p": payload});
    message["p"]["action"] = json!("subscribe");
    message
}

/// The worst instances of a type, as a client sends them; none of a type that only the server sends, which is refused.
pub fn worst(system: SystemType, scale: Scale) -> Vec<Value> {
    let t = system.as_str();
    match system {
        SystemType::Ping
        | SystemType::Pong
        | SystemType::ClientHello
        | SystemType::ConfigUpdate
        | SystemType::HealthCheck
        | SystemType::MetricsRequest
        | SystemType::KeyUpdate => {
            let filler = json!({"filler": vec![vec!["x"; scale.topics]; scale.share(100)]});
            vec![json!({ "t": t }), json!({"t": t, "p": filler})]
        }
        SystemType::SubscriptionUpdate => worst_subscriptions(scale),
        SystemType::SyncRequest => {
            let payload = json!({"topics": scale.names("kept"), "include_snapshots": true});
            vec![json!({"t": t, "p": payload})]
        }
        SystemType::Batch => worst_batches(scale),
        SystemType::PublishRequest => {
            let text = "a".repeat(scale.bytes);
            ["public", "kept.long", "s.s.s"]
                .map(|topic| {
                    let payload = json!({"text": text});
                    json!({"t": t, "p": {"topic": topic, "type": "x", "payload": payload}})
                })
                .to_vec()
        }
        SystemType::PublicationAck => {
            let deliveries: Vec<u64> = (0..scale.topics as u64)
                .map(|number| number << 40)
                .collect();
            vec![json!({"t": t, "p": {"deliveries": deliveries}})]
        }
        SystemType::PresenceRequest => worst_presence(t, scale),
        SystemType::HistoryRequest => ["oldest", "newest"]
            .map(|order| {
                let payload = json!({"topic": "kept.long", "limit": 1000, "order": order});
                json!({"t": t, "cid": "h", "p": payload})
            })
            .to_vec(),
        SystemType::AuthRefresh => worst_refreshes(scale),
        SystemType::CallRequest => {
            let payload = json!({"type": "x", "payload": "x".repeat(scale.bytes)});
            vec![json!({"t": t, "cid": "c", "p": payload})]
        }
        SystemType::CallResponse => vec![json!({"t": t, "cid": "c", "p": {"result": 1}})],
        SystemType::ServerReady
        | SystemType::ServerHello
        | SystemType::ConfigResponse
        | SystemType::HealthCheckResponse
        | SystemType::MetricsResponse
        | SystemType::PresenceJoin
        | SystemType::PresenceLeave
        | SystemType::PresenceUpdate
        | SystemType::RateLimitWarning
        | SystemType::Error
        | SystemType::PublishResponse
        | SystemType::PublicationGap
        | SystemType::PresenceResponse
        | SystemType::HistoryResponse
        | SystemType::MessageAck
        | SystemType::AuthExpiryWarning
        | SystemType::AuthRefreshResponse
        | SystemType::Reconnect => vec![json!({ "t": t })],
    }
}

fn worst_presence(t: &str, scale: Scale) -> Vec<Value> {
    let same = vec!["present.0"; scale.share(100)];
    let many: Vec<String> = (0..scale.share(100))
        .map(|number| format!("present.{number}"))
        .collect();
    vec![
        json!({"t": t, "cid": "p", "p": {"topics": same}}),
        json!({"t": t, "cid": "p", "p": {"topics": many}}),
    ]
}

fn worst_subscriptions(scale: Scale) -> Vec<Value> {
    let epoch = json!({"epoch": "00000000", "offset": 0});
    let recovery = |topics: &[String]| -> Value {
        topics
            .iter()
            .map(|topic| (topic.clone(), epoch.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let kept = scale.names("kept");
    let data = json!({"says": "x".repeat(scale.bytes.min(4_000))});
    let mut unsubscribe = update(json!({"topics": scale.names("present")}));
    unsubscribe["p"]["action"] = json!("unsubscribe");
    vec![
        update(json!({"topics": ["kept.long"], "filter": worst_filter()})),
        update(json!({"topics": kept, "recover": true, "recovery": recovery(&kept)})),
        update(json!({"topics": ["kept.long"], "replay": u64::MAX, "filter": worst_filter()})),
        update(json!({"topics": kept, "replay": 1_000_000})),
        update(json!({"topics": deep_patterns(scale)})),
        update(json!({"topics": scale.names("plain"), "filter": worst_filter()})),
        update(json!({"topics": scale.names("lossy"), "overload": "conflate"})),
        update(json!({"topics": scale.names("present"), "presence": data})),
        update(
            json!({"topics": scale.names("jobs"), "queue_group": "x".repeat(scale.bytes.min(255))}),
        ),
        worst_topic_tokens(scale)[1].clone(),
        unsubscribe,
    ]
}

fn worst_batches(scale: Scale) -> Vec<Value> {
    let batch = |messages: Vec<Value>| json!({"t": "batch", "p": {"messages": messages}});
    let filters = (0..scale.share(300)).map(|number| {
        let mut filter = worst_filter();
        filter["n"] = json!(number);
        update(json!({"topics": [format!("filtered.{number}")], "filter": filter}))
    });
    let publications = (0..scale.topics).map(|number| {
        let payload = json!({"topic": "public", "type": "x", "payload": {"text": number}});
        json!({"t": "publish_request", "p": payload})
    });
    let refresh = worst(SystemType::AuthRefresh, scale)[0].clone();
    let refreshes = [update(json!({"topics": deep_patterns(scale)}))]
        .into_iter()
        .chain((0..scale.share(30)).map(|_| refresh.clone()));
    let presence =
        (0..scale.share(200)).map(|_| worst(SystemType::PresenceRequest, scale)[1].clone());
    let histories =
        (0..scale.share(200)).map(|_| worst(SystemType::HistoryRequest, scale)[1].clone());
    vec![
        batch(histories.collect()),
        batch(filters.collect()),
        batch(publications.collect()),
        batch(presence.collect()),
        batch(refreshes.collect()),
        batch(worst_topic_tokens(scale).to_vec()),
        batch(vec![json!({"t": "ping"}); scale.topics]),
    ]
}

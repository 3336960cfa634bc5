//! The worst legal instance of every message type: each takes no more of a turn than the budget, in metered work, and
//! the server keeps at most the documented memory for it. The types are the protocol's: a new one without a case here
//! does not compile.

mod common;

use common::topics::{open_topics, subscribe};
use common::{Client, Opening, SECRET, start, token, wait_until};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{Config, HistoryLimits, NewPublication, Server, TopicRule};
use tidewire_wire::envelope::SystemType;

/// What one connection may have done in a turn (docs/limits.md), and one step more: a filter is compiled in one.
const WORK_US_MAX: u64 = 4_000 + 6_000;
/// What a shard delivers in a turn, and one publication more to one group of subscribers with a filter.
const DELIVERY_US_MAX: u64 = 30_000 + 3_000;

const TOPICS_MAX: usize = 1_000;
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

fn config() -> Config {
    let mut config = Config {
        shards: 1,
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
        ..open_topics()
    };
    config.topics.access_claim = Some("access".to_owned());
    let history = HistoryLimits {
        publications_max: 1_000,
        bytes_max: 16 << 20,
        age_max_ms: 0,
    };
    config.topics.rules = vec![
        TopicRule {
            history: Some(history),
            last_value: true,
            presence: true,
            ..TopicRule::new("kept.>")
        },
        TopicRule {
            presence: true,
            ..TopicRule::new("present.>")
        },
    ];
    config
}

/// A connection of the one user.
fn connect(server: &Server) -> Client {
    let bearer = format!("Bearer {}", token(json!({})));
    let opening = Opening::new(server.address()).header("Authorization", bearer);
    let mut client = opening.open();
    assert_eq!(client.next_json()["t"], "server_ready");
    client
}

/// A token with as many access rules as one may have, each of which is looked at for every subscription.
fn worst_token() -> String {
    let deny: Vec<String> = (0..255).map(|number| format!("no.{number}.*.x")).collect();
    token(json!({"access": {"subscribe": {"allow": [">"], "deny": deny}}}))
}

/// A server with a long history, many present users, and subscribers with costly filters.
fn world() -> (Server, Vec<Client>) {
    let server = start(config(), Sink);
    let handle = server.handle();
    let text = "a".repeat(4_000);
    for number in 0..1_000 {
        let payload = json!({"text": text, "n": number}).to_string();
        let publication = NewPublication::new("entry", payload);
        handle.publish("kept.long", &publication).expect("room");
    }
    for topic in 0..TOPICS_MAX {
        let publication = NewPublication::new("entry", r#"{"n":0}"#);
        handle
            .publish(&format!("kept.{topic}"), &publication)
            .expect("room");
    }
    let mut others: Vec<Client> = (0..20).map(|_| connect(&server)).collect();
    for (number, client) in others.iter_mut().enumerate() {
        let topics: Vec<String> = (0..10).map(|topic| format!("present.{topic}")).collect();
        let data = json!({"says": "x".repeat(4_000)});
        let payload = json!({"action": "subscribe", "topics": topics, "presence": data});
        client.send_text(&json!({"t": "subscription_update", "p": payload}).to_string());
        let mut filter = worst_filter();
        filter["n"] = json!({"$ne": number});
        let payload = json!({"action": "subscribe", "topics": ["public"], "filter": filter});
        client.send_text(&json!({"t": "subscription_update", "p": payload}).to_string());
    }
    wait_until("everyone subscribed", || {
        handle.counters().subscriptions == 20 * 11
    });
    (server, others)
}

/// Four regular expressions and twelve other searches, on one long text.
fn worst_filter() -> Value {
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

fn deep_patterns() -> Vec<String> {
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
    (0..TOPICS_MAX).map(pattern).collect()
}

fn names(prefix: &str) -> Vec<String> {
    (0..TOPICS_MAX)
        .map(|number| format!("{prefix}.{number}"))
        .collect()
}

fn update(payload: Value) -> Value {
    let mut message = json!({"t": "subscription_update", "p": payload});
    message["p"]["action"] = json!("subscribe");
    message
}

/// The worst instances of a type, as a client sends them; none of a type that only the server sends, which is refused.
fn worst(system: SystemType) -> Vec<Value> {
    let t = system.as_str();
    match system {
        SystemType::Ping
        | SystemType::Pong
        | SystemType::ClientHello
        | SystemType::ConfigUpdate
        | SystemType::HealthCheck
        | SystemType::MetricsRequest
        | SystemType::KeyUpdate => {
            let filler = json!({"filler": vec![vec!["x"; 1_000]; 100]});
            vec![json!({ "t": t }), json!({"t": t, "p": filler})]
        }
        SystemType::SubscriptionUpdate => worst_subscriptions(),
        SystemType::SyncRequest => {
            let payload = json!({"topics": names("kept"), "include_snapshots": true});
            vec![json!({"t": t, "p": payload})]
        }
        SystemType::Batch => worst_batches(),
        SystemType::PublishRequest => {
            let text = "a".repeat(MESSAGE_BYTES_MAX - 1_000);
            ["public", "kept.long", "s.s.s"]
                .map(|topic| {
                    let payload = json!({"text": text});
                    json!({"t": t, "p": {"topic": topic, "type": "x", "payload": payload}})
                })
                .to_vec()
        }
        SystemType::PublicationAck => {
            let deliveries: Vec<u64> = (0..1_000).map(|number| number << 40).collect();
            vec![json!({"t": t, "p": {"deliveries": deliveries}})]
        }
        SystemType::PresenceRequest => {
            let same = vec!["present.0"; 100];
            let many: Vec<String> = (0..100).map(|number| format!("present.{number}")).collect();
            vec![
                json!({"t": t, "cid": "p", "p": {"topics": same}}),
                json!({"t": t, "cid": "p", "p": {"topics": many}}),
            ]
        }
        SystemType::AuthRefresh => {
            let long = format!("{}.{}", worst_token(), "x".repeat(8 * 1024));
            [worst_token(), long[..8 * 1024].to_owned()]
                .map(|token| json!({"t": t, "cid": "r", "p": {"token": token}}))
                .to_vec()
        }
        SystemType::CallRequest => {
            let payload = json!({"type": "x", "payload": "x".repeat(MESSAGE_BYTES_MAX - 1_000)});
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
        | SystemType::MessageAck
        | SystemType::AuthExpiryWarning
        | SystemType::AuthRefreshResponse
        | SystemType::Reconnect => vec![json!({ "t": t })],
    }
}

fn worst_subscriptions() -> Vec<Value> {
    let epoch = json!({"epoch": "00000000", "offset": 0});
    let recovery = |topics: &[String]| -> Value {
        topics
            .iter()
            .map(|topic| (topic.clone(), epoch.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let kept = names("kept");
    let data = json!({"says": "x".repeat(4_000)});
    let mut unsubscribe = update(json!({"topics": names("present")}));
    unsubscribe["p"]["action"] = json!("unsubscribe");
    vec![
        update(json!({"topics": ["kept.long"], "filter": worst_filter()})),
        update(json!({"topics": kept, "recover": true, "recovery": recovery(&kept)})),
        update(json!({"topics": deep_patterns()})),
        update(json!({"topics": names("plain"), "filter": worst_filter()})),
        update(json!({"topics": names("lossy"), "overload": "conflate"})),
        update(json!({"topics": names("present"), "presence": data})),
        update(json!({"topics": names("jobs"), "queue_group": "x".repeat(255)})),
        unsubscribe,
    ]
}

fn worst_batches() -> Vec<Value> {
    let batch = |messages: Vec<Value>| json!({"t": "batch", "p": {"messages": messages}});
    let filters = (0..300).map(|number| {
        let mut filter = worst_filter();
        filter["n"] = json!(number);
        update(json!({"topics": [format!("filtered.{number}")], "filter": filter}))
    });
    let publications = (0..1_000).map(|number| {
        let payload = json!({"topic": "public", "type": "x", "payload": {"text": number}});
        json!({"t": "publish_request", "p": payload})
    });
    let refresh = worst(SystemType::AuthRefresh)[0].clone();
    let refreshes = [update(json!({"topics": deep_patterns()}))]
        .into_iter()
        .chain((0..30).map(|_| refresh.clone()));
    let presence = (0..200).map(|_| worst(SystemType::PresenceRequest)[1].clone());
    vec![
        batch(filters.collect()),
        batch(publications.collect()),
        batch(presence.collect()),
        batch(refreshes.collect()),
        batch(vec![json!({"t": "ping"}); 1_000]),
    ]
}

/// Sends a message on a connection of its own, reading what comes, until the server has done all of it: it answers the
/// call behind it.
fn play(server: &Server, message: &Value) {
    let mut client = connect(server);
    let text = message.to_string();
    assert!(text.len() <= MESSAGE_BYTES_MAX, "not a legal message");
    client.send_text(&text);
    client.send_text(
        &json!({"t": "presence_request", "cid": "end", "p": {"topics": ["x"]}}).to_string(),
    );
    while client.next_json()["cid"] != "end" {}
}

#[test]
fn the_worst_of_every_type_stays_within_the_budget_of_a_turn() {
    for system in SystemType::ALL {
        for message in worst(system) {
            let (server, others) = world();
            play(&server, &message);
            let counters = server.handle().counters();
            let shown: String = message.to_string().chars().take(120).collect();
            assert!(
                counters.work_peak_us <= WORK_US_MAX,
                "{} us for {shown}",
                counters.work_peak_us
            );
            assert!(
                counters.delivery_peak_us <= DELIVERY_US_MAX,
                "{} us delivered for {shown}",
                counters.delivery_peak_us
            );
            drop(others);
        }
    }
}

/// The 5-second stall of old: a small request for a long history through a costly filter is answered in slices, and
/// somebody else is served between them.
#[test]
fn a_filtered_recovery_is_sliced_and_complete() {
    let (server, _others) = world();
    let mut client = connect(&server);
    subscribe(&mut client, json!(["kept.long"]));
    let position = loop {
        let message = client.next_json();
        if message["tp"] == "kept.long" {
            break message;
        }
    };
    drop(client);
    let mut client = connect(&server);
    let mut filter = worst_filter();
    // Holds for every other entry.
    filter = json!({"$or": [filter, {"n": {"$gte": 500}}]});
    let since = json!({"kept.long": {"epoch": position["e"], "offset": 0}});
    let request = update(json!({
        "topics": ["kept.long"], "recover": true, "recovery": since, "filter": filter,
    }));
    let answer = client.ask(&request);
    assert_eq!(
        answer["p"]["recovery"]["kept.long"]["count"], 1_000,
        "{answer}"
    );
    let mut expected = 500;
    while expected < 1_000 {
        let message = client.next_json();
        if message["t"] == "entry" {
            assert_eq!(message["p"]["n"], expected);
            expected += 1;
        }
    }
    let counters = server.handle().counters();
    assert!(counters.jobs_deferred > 0);
    assert_eq!(counters.recoveries_complete, 1);
}

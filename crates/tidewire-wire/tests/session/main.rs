//! Both sides of a version 1 session against each other and against odd peers.

mod batches;
mod encryption;
mod publish;
mod topics;

use serde_json::{Value, json};
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{
    Category, EnvelopeError, Kind, SystemType, classify_json, parse_json, parse_msgpack,
};
use tidewire_wire::format::{Format, json_to_msgpack};
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::*;
use tidewire_wire::uuid::{Uuid, uuid_v7};

const NOW: Now = Now {
    monotonic_ms: 1000,
    unix_ms: 1_732_212_345_678,
};
const BOTH: [Format; 2] = [Format::Json, Format::MessagePack];

fn profile() -> ServerProfile {
    let features = Features {
        compression: true,
        batching: true,
        ..Features::default()
    };
    ServerProfile {
        server_version: "test/1".into(),
        features,
        ..ServerProfile::default()
    }
}

fn id() -> Uuid {
    uuid_v7(NOW.unix_ms, [9; 10])
}

/// The content of a message as its receiver sees it, without the prefix.
fn content(format: Format, op_code: OpCode, message: &[u8]) -> &[u8] {
    match format {
        Format::Json => {
            assert_eq!(op_code, OpCode::Text);
            message
        }
        Format::MessagePack => {
            assert_eq!(op_code, OpCode::Binary);
            message.strip_prefix(b"M:").expect("the prefix")
        }
    }
}

/// Gives JSON to a fresh session as the type its own `t` says.
fn handle(session: &mut ServerSession, text: &str) -> SystemEvent {
    let Ok(Kind::System(system)) = classify_json(text.as_bytes()) else {
        panic!("not a system message: {text}")
    };
    let event = session.handle_system(&profile(), system, Format::Json, text.as_bytes());
    let mut packed = Vec::new();
    if json_to_msgpack(text.as_bytes(), &mut packed).is_ok() {
        let mut twin = session.clone();
        let same = twin.handle_system(&profile(), system, Format::MessagePack, &packed);
        if !matches!(event, SystemEvent::Batch(_)) {
            assert_eq!(same, event, "{text}");
        }
    }
    event
}

fn fresh(format: Format) -> ServerSession {
    ServerSession::new(format, false, NOW)
}

fn encoded(session: &mut ServerSession, reply: &Reply) -> Value {
    let mut out = Vec::new();
    let op_code = session.encode(&profile(), reply, id(), NOW, &mut out);
    let bytes = content(session.format(), op_code, &out);
    let envelope = match session.format() {
        Format::Json => parse_json(bytes),
        Format::MessagePack => parse_msgpack(bytes),
    };
    let envelope = envelope.expect("an envelope");
    assert_eq!(envelope.id, Some(id().to_string()));
    assert_eq!(envelope.ts.as_deref(), Some("2024-11-21T18:05:45.678Z"));
    json!({
        "t": envelope.t, "p": envelope.payload, "seq": envelope.seq, "v": envelope.version,
        "cid": envelope.correlation_id, "c": envelope.category.map(Category::as_str),
    })
}

fn error_code(event: SystemEvent) -> ErrorCode {
    match event {
        SystemEvent::Reply(Reply::Error { code, .. }) => code,
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn a_session_is_small() {
    assert!(
        size_of::<ServerSession>() <= 64,
        "{}",
        size_of::<ServerSession>()
    );
}

#[test]
fn opening_from_both_sides() {
    for format in BOTH {
        let (mut server, mut client) = (fresh(format), ClientSession::new(format, NOW));
        let mut out = Vec::new();
        let ready = Reply::Ready {
            connection_id: id(),
            user_id: Some("u\"1".into()),
        };
        let op_code = server.encode(&profile(), &ready, id(), NOW, &mut out);
        // JSON in either format.
        let event = client.handle_message(Format::Json, content(Format::Json, op_code, &out), NOW);
        let expected = ClientEvent::Ready {
            connection_id: id().to_string(),
            server_version: "test/1".into(),
            user_id: Some("u\"1".into()),
        };
        assert_eq!(event, Ok(expected));
        assert!(client.is_ready() && !client.is_established() && !server.is_established());

        out.clear();
        let features = Features {
            batching: true,
            recovery: true,
            ..Features::default()
        };
        let producer = HelloProducer {
            id: "p1".to_owned(),
            attempt: Some(ProducerAttempt {
                instance: 0x00c0_ffee,
                number: 3,
            }),
        };
        let hello = ClientHello {
            client_version: "c/1",
            features,
            encryption: None,
            producer: Some(&producer),
        };
        let op_code = client.write_hello(&hello, id(), NOW, &mut out);
        let hello = content(format, op_code, &out).to_vec();
        let system = SystemType::ClientHello;
        let event = server.handle_system(&profile(), system, format, &hello);
        let expected = SystemEvent::Hello {
            correlation_id: None,
            producer: Some(producer),
        };
        assert_eq!(event, expected);
        assert!(server.is_established());
        assert_eq!(
            server.features(),
            Features {
                batching: true,
                ..Features::default()
            }
        );

        establish(server, client, format);
    }
}

/// The server's hello, and the client's event.
fn establish(mut server: ServerSession, mut client: ClientSession, format: Format) {
    let mut out = Vec::new();
    let producer = ProducerState {
        id: "p1".to_owned(),
        epoch: 0x0bad_cafe,
        last: 9,
    };
    let reply = Reply::Hello {
        correlation_id: None,
        encryption: None,
        producer: Some(producer.clone()),
    };
    let op_code = server.encode(&profile(), &reply, id(), NOW, &mut out);
    let event = client.handle_message(format, content(format, op_code, &out), NOW);
    let expected = ClientEvent::Established {
        server_version: "test/1".into(),
        protocol_version: 1,
        connection_id: id().to_string(),
        message_bytes_max: 1_048_576,
        rate_limit_capacity: 100_000,
        rate_limit_refill_per_s: 10_000,
        ping_interval_ms: 25_000,
        encryption: None,
        producer: Some(producer),
        server_subscriptions: false,
    };
    assert_eq!(event, Ok(expected));
    assert!(client.is_established());
}

#[test]
fn pings_both_ways() {
    for format in BOTH {
        let (mut server, mut client) = (fresh(format), ClientSession::new(format, NOW));
        let later = Now {
            unix_ms: NOW.unix_ms + 5,
            ..NOW
        };
        let mut out = Vec::new();
        let op_code = client.write_ping(id(), NOW, &mut out);
        let ping = content(format, op_code, &out).to_vec();
        let event = server.handle_system(&profile(), SystemType::Ping, format, &ping);
        let SystemEvent::Reply(reply) = event else {
            panic!("{event:?}")
        };
        out.clear();
        let op_code = server.encode(&profile(), &reply, id(), later, &mut out);
        let last = Now {
            unix_ms: NOW.unix_ms + 8,
            ..NOW
        };
        let event = client.handle_message(format, content(format, op_code, &out), last);
        let expected = ClientEvent::Pong {
            client_timestamp_ms: Some(NOW.unix_ms),
            server_timestamp_ms: Some(later.unix_ms),
            latency_ms: Some(8),
        };
        assert_eq!(event, Ok(expected));

        out.clear();
        let op_code = server.encode(&profile(), &Reply::Ping, id(), NOW, &mut out);
        let event = client.handle_message(format, content(format, op_code, &out), later);
        let timestamp_ms = Some(NOW.unix_ms);
        assert_eq!(event, Ok(ClientEvent::ServerPing { timestamp_ms }));
        out.clear();
        let op_code = client.write_pong(timestamp_ms, id(), later, &mut out);
        let pong = content(format, op_code, &out);
        let event = server.handle_system(&profile(), SystemType::Pong, format, pong);
        assert_eq!(event, SystemEvent::Ignore);
    }
}

#[test]
fn pong_on_the_wire() {
    for format in BOTH {
        let mut server = fresh(format);
        let pong = encoded(
            &mut server,
            &Reply::Pong {
                client_timestamp_ms: Some(1_732_212_345_000),
            },
        );
        let payload = json!({"client_timestamp": 1_732_212_345_000u64,
            "server_timestamp": 1_732_212_345_678u64, "latency": 678});
        let expected =
            json!({"t": "PONG", "p": payload, "seq": 1, "v": 1, "cid": null, "c": "WSE"});
        assert_eq!(pong, expected);
        let pong = encoded(
            &mut server,
            &Reply::Pong {
                client_timestamp_ms: None,
            },
        );
        assert_eq!(pong["p"]["client_timestamp"], Value::Null);
        assert_eq!(pong["seq"], 2);
    }
}

#[test]
fn a_second_hello_is_answered_and_changes_nothing() {
    let mut session = fresh(Format::Json);
    let hello =
        |features| format!(r#"{{"t":"client_hello","cid":"k","p":{{"features":{features}}}}}"#);
    let first = handle(&mut session, &hello(r#"{"compression":false}"#));
    let agreed = session.features();
    assert!(!agreed.compression && agreed.batching);
    assert_eq!(
        handle(
            &mut session,
            &hello(r#"{"compression":true,"batching":false}"#)
        ),
        first
    );
    assert_eq!(session.features(), agreed);
    assert_eq!(
        handle(&mut session, r#"{"t":"client_hello","cid":"k","p":5}"#),
        first
    );
    let SystemEvent::Hello { correlation_id, .. } = first else {
        panic!("{first:?}")
    };
    let reply = Reply::Hello {
        correlation_id,
        encryption: None,
        producer: None,
    };
    let answer = encoded(&mut session, &reply);
    assert_eq!(
        (&answer["cid"], &answer["t"]),
        (&json!("k"), &json!("server_hello"))
    );
    assert_eq!(answer["p"]["features"]["compression"], json!(false));
}

#[test]
fn versions_in_hello() {
    for (version, fine) in [
        ("1", true),
        ("9", true),
        ("null", true),
        ("300", true),
        ("0", false),
        ("-1", false),
        ("\"1\"", false),
    ] {
        let mut session = fresh(Format::Json);
        let text = format!(r#"{{"t":"client_hello","p":{{"protocol_version":{version}}}}}"#);
        let event = handle(&mut session, &text);
        assert_eq!(
            matches!(event, SystemEvent::Hello { .. }),
            fine,
            "{version}"
        );
        assert_eq!(session.is_established(), fine, "{version}");
        assert_eq!(session.protocol_version(), 1);
    }
}

#[test]
fn requests_reach_the_engine() {
    let mut session = fresh(Format::Json);
    let event = handle(
        &mut session,
        r#"{"c":"WSE","t":"subscription","cid":"7","p":{
        "action":"subscribe","topics":["a","b"],"presence":{"n":1},"recover":true,
        "recovery":{"a":{"epoch":"0badcafe","offset":5}},"queue_group":"g","filter":{"x":{"$gt":1}},
        "overload":"drop_oldest","acknowledge":true,"window":8}}"#,
    );
    let position = RecoveryPosition {
        topic: "a".into(),
        epoch: "0badcafe".into(),
        offset: 5,
    };
    let kind = RequestKind::Subscription(Subscription {
        action: Action::Subscribe,
        topics: vec!["a".into(), "b".into()],
        presence: Some(r#"{"n":1}"#.to_owned()),
        recover: true,
        recovery: vec![position],
        replay: 0,
        queue_group: Some("g".into()),
        filter: Some(r#"{"x":{"$gt":1}}"#.to_owned()),
        overload: Some(Overload::DropOldest),
        acknowledge: true,
        window: Some(8),
        tokens: Vec::new(),
        renew: false,
        unreadable: Vec::new(),
    });
    assert_eq!(
        event,
        SystemEvent::Request(Request {
            kind,
            correlation_id: Some("7".into())
        })
    );

    let request = |kind| {
        SystemEvent::Request(Request {
            kind,
            correlation_id: None,
        })
    };
    assert_eq!(
        handle(&mut session, r#"{"t":"health_check"}"#),
        request(RequestKind::HealthCheck)
    );
    let event = handle(&mut session, r#"{"t":"metrics_request","p":null}"#);
    assert_eq!(event, request(RequestKind::MetricsRequest));
    let event = handle(&mut session, r#"{"t":"config_update","p":{"a":1}}"#);
    assert_eq!(event, request(RequestKind::ConfigUpdate));
    let event = handle(
        &mut session,
        r#"S{"t":"sync_request","p":{"topics":["a"],
        "include_snapshots":true,"last_sequence":4}}"#,
    );
    let sync = Sync {
        topics: vec!["a".into()],
        include_snapshots: true,
        last_sequence: Some(4),
    };
    assert_eq!(event, request(RequestKind::Sync(sync)));
}

#[test]
fn what_is_refused() {
    use ErrorCode::{InvalidAction, InvalidMessage, InvalidSubscription};
    let many = vec!["\"a\""; TOPICS_PER_REQUEST_MAX + 1].join(",");
    let subscribe = |fields: &str| {
        format!(r#"{{"t":"subscription_update","p":{{"action":"subscribe",{fields}}}}}"#)
    };
    let cases = [
        (r#"{"t":"server_ready","p":{}}"#.to_owned(), InvalidMessage),
        (r#"{"t":"error","p":{}}"#.to_owned(), InvalidMessage),
        (r#"{"t":"presence_join","p":{}}"#.to_owned(), InvalidMessage),
        (r#"{"t":"health_check","p":[]}"#.to_owned(), InvalidMessage),
        (r#"{"t":"health_check","p":{"#.to_owned(), InvalidMessage),
        (r#"{"t":"ping",]"#.to_owned(), InvalidMessage),
        (
            r#"{"t":"subscription_update","p":{"topics":["a"]}}"#.to_owned(),
            InvalidAction,
        ),
        (
            r#"{"t":"subscription_update","p":{"action":"x","topics":["a"]}}"#.to_owned(),
            InvalidAction,
        ),
        (subscribe(r#""topics":[]"#), InvalidSubscription),
        (subscribe(r#""topics":"a""#), InvalidSubscription),
        (subscribe(r#""topics":[""]"#), InvalidSubscription),
        (subscribe(r#""topics":[1]"#), InvalidSubscription),
        (
            subscribe(&format!("\"topics\":[{many}]")),
            InvalidSubscription,
        ),
        (
            subscribe(r#""topics":["a"],"presence":1"#),
            InvalidSubscription,
        ),
        (
            subscribe(r#""topics":["a"],"recover":1"#),
            InvalidSubscription,
        ),
        (
            subscribe(r#""topics":["a"],"recovery":{"a":{"offset":1}}"#),
            InvalidSubscription,
        ),
        (
            subscribe(r#""topics":["a"],"queue_group":"""#),
            InvalidSubscription,
        ),
    ];
    for (text, code) in cases {
        assert_eq!(
            error_code(handle(&mut fresh(Format::Json), &text)),
            code,
            "{text}"
        );
    }
}

#[test]
fn an_error_names_the_request_and_reaches_the_client() {
    for format in BOTH {
        let mut session = fresh(format);
        let event = handle(&mut session, r#"{"t":"server_hello","cid":"9"}"#);
        let SystemEvent::Reply(reply) = event else {
            panic!("{event:?}")
        };
        assert_eq!(encoded(&mut session, &reply)["cid"], json!("9"));

        let reply = Reply::Error {
            code: ErrorCode::AuthFailed,
            message: "expired".into(),
            retry_after_s: Some(3),
            refused: Some(Refused {
                count: 4,
                correlation_ids: vec!["a".into(), "b".into()],
            }),
            correlation_id: None,
        };
        let mut out = Vec::new();
        let op_code = session.encode(&profile(), &reply, id(), NOW, &mut out);
        let mut client = ClientSession::new(format, NOW);
        let event = client.handle_message(format, content(format, op_code, &out), NOW);
        let expected = ClientEvent::Error {
            code: "AUTH_FAILED".into(),
            known: Some(ErrorCode::AuthFailed),
            message: "expired".into(),
            recoverable: false,
            retry_after_s: Some(3),
            refused: 4,
            refused_ids: vec!["a".into(), "b".into()],
        };
        assert_eq!(event, Ok(expected));
    }
}

#[test]
fn other_replies() {
    for format in BOTH {
        let mut session = fresh(format);
        let recovery = TopicRecovery {
            topic: "a\"".into(),
            epoch: "0badcafe".into(),
            offset: 3,
            recovered: true,
            count: 2,
        };
        let update = encoded(
            &mut session,
            &Reply::SubscriptionUpdate {
                action: Action::Unsubscribe,
                success_topics: vec!["a\"".into(), "b".into()],
                failed_topics: vec![],
                failures: vec![],
                recovery: vec![recovery],
                correlation_id: Some("k".into()),
            },
        );
        assert_eq!(
            update["p"],
            json!({
                "action": "unsubscribe", "success_topics": ["a\"", "b"], "failed_topics": [],
                "recovery": {"a\"": {"epoch": "0badcafe", "offset": 3, "recovered": true, "count": 2}},
            })
        );
        assert_eq!(update["cid"], json!("k"));
        let payload = json!({"status": "ok"});
        let health = Reply::HealthCheckResponse {
            payload: payload.clone(),
            correlation_id: None,
        };
        let health = encoded(&mut session, &health);
        assert_eq!(
            (&health["t"], &health["p"]),
            (&json!("health_check_response"), &payload)
        );
        let warning = Reply::RateLimitWarning {
            current_rate: 1,
            limit: 2,
            remaining: 3,
            retry_after_s: 4,
        };
        let expected = json!({"current_rate": 1, "limit": 2, "remaining": 3, "retry_after": 4});
        assert_eq!(encoded(&mut session, &warning)["p"], expected);
    }
}

#[test]
fn a_client_meets_other_servers() {
    let mut client = ClientSession::new(Format::Json, NOW);
    let mut event = |text: &str| client.handle_message(Format::Json, text.as_bytes(), NOW);
    assert_eq!(
        event(r#"{"t":"trade","p":{}}"#),
        Ok(ClientEvent::Application)
    );
    let expected = ClientEvent::Ready {
        connection_id: String::new(),
        server_version: String::new(),
        user_id: None,
    };
    assert_eq!(event(r#"{"t":"server_ready"}"#), Ok(expected));
    let error = event(r#"{"t":"error","p":{"code":"NEW_CODE","retry_after":1.2}}"#);
    let expected = ClientEvent::Error {
        code: "NEW_CODE".into(),
        known: None,
        message: String::new(),
        recoverable: true,
        retry_after_s: Some(2),
        refused: 1,
        refused_ids: Vec::new(),
    };
    assert_eq!(error, Ok(expected));
    let expected = ClientEvent::Presence {
        change: PresenceChange::Join,
        topic: "a".to_owned(),
        user_id: String::new(),
        data: None,
    };
    let join = event(r#"{"t":"presence_join","p":{"topic":"a"}}"#);
    assert_eq!(join, Ok(expected));
    let answer = event(r#"{"t":"config_response","p":{"a":1}}"#);
    let Ok(ClientEvent::System(SystemType::ConfigResponse, envelope)) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(envelope.payload, json!({"a": 1}));
    assert!(event("hello").is_err());
    assert!(event(r#"{"t":"server_hello","p":{"#).is_err());
}

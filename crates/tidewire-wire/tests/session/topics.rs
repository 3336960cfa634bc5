//! Topics, calls and producers: each side's writer against the other side's reader.

use super::{BOTH, NOW, content, error_code, fresh, handle, id, profile};
use serde_json::json;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{EnvelopeError, SystemType};
use tidewire_wire::format::Format;
use tidewire_wire::frame::OpCode;
use tidewire_wire::session::*;

/// The request that a server reads from a client's message.
fn heard_by_server(
    system: SystemType,
    write: impl Fn(&mut ClientSession, &mut Vec<u8>) -> OpCode,
) -> SystemEvent {
    let [json, packed] = BOTH.map(|format| {
        let mut out = Vec::new();
        let op_code = write(&mut ClientSession::new(format, NOW), &mut out);
        let message = content(format, op_code, &out);
        fresh(format).handle_system(&profile(), system, format, message)
    });
    assert_eq!(json, packed);
    json
}

/// The event that a client reads from a server's message.
fn heard_by_client(reply: &Reply) -> ClientEvent {
    let [json, packed] = BOTH.map(|format| {
        let mut out = Vec::new();
        let op_code = fresh(format).encode(&profile(), reply, id(), NOW, &mut out);
        let message = content(format, op_code, &out);
        let event = ClientSession::new(format, NOW).handle_message(format, message, NOW);
        event.unwrap_or_else(|error| panic!("{error}: {reply:?}"))
    });
    assert_eq!(json, packed);
    json
}

fn request(kind: RequestKind, correlation_id: Option<&str>) -> SystemEvent {
    SystemEvent::Request(Request {
        kind,
        correlation_id: correlation_id.map(str::to_owned),
    })
}

#[test]
fn subscriptions_to_the_server() {
    let position = RecoveryPosition {
        topic: "a".to_owned(),
        epoch: "0badcafe".to_owned(),
        offset: 3,
    };
    let (presence, filter) = (json!({"name": "x"}), json!({"price": {"$gt": 5}}));
    let tokens = [("b.*".to_owned(), Token("a.b.c".to_owned()))];
    let full = SubscriptionRequest {
        presence: Some(&presence),
        recover: true,
        recovery: std::slice::from_ref(&position),
        queue_group: Some("g"),
        filter: Some(&filter),
        overload: Some(Overload::Conflate),
        acknowledge: true,
        window: Some(16),
        tokens: &tokens,
        ..SubscriptionRequest::new(Action::Subscribe, &["a", "b.*"])
    };
    let event = heard_by_server(SystemType::SubscriptionUpdate, |client, out| {
        client.write_subscription(&full, Some("1"), id(), NOW, out)
    });
    let expected = Subscription {
        action: Action::Subscribe,
        topics: vec!["a".to_owned(), "b.*".to_owned()],
        presence: Some(presence.to_string()),
        recover: true,
        recovery: vec![position.clone()],
        replay: 0,
        queue_group: Some("g".to_owned()),
        filter: Some(filter.to_string()),
        overload: Some(Overload::Conflate),
        acknowledge: true,
        window: Some(16),
        tokens: tokens.to_vec(),
        renew: false,
        unreadable: Vec::new(),
    };
    assert_eq!(
        event,
        request(RequestKind::Subscription(expected), Some("1"))
    );

    let bare = SubscriptionRequest::new(Action::Unsubscribe, &["a"]);
    let event = heard_by_server(SystemType::SubscriptionUpdate, |client, out| {
        client.write_subscription(&bare, None, id(), NOW, out)
    });
    let expected = Subscription {
        action: Action::Unsubscribe,
        topics: vec!["a".to_owned()],
        presence: None,
        recover: false,
        recovery: Vec::new(),
        replay: 0,
        queue_group: None,
        filter: None,
        overload: None,
        acknowledge: false,
        window: None,
        tokens: Vec::new(),
        renew: false,
        unreadable: Vec::new(),
    };
    assert_eq!(event, request(RequestKind::Subscription(expected), None));
}

#[test]
fn subscriptions_with_wrong_fields() {
    for fields in [
        r#""filter":[]"#,
        r#""filter":"x""#,
        r#""overload":"drop""#,
        r#""overload":1"#,
        r#""acknowledge":"yes""#,
        r#""window":0"#,
        r#""window":-1"#,
        r#""window":"8""#,
    ] {
        let text = format!(
            r#"{{"t":"subscription_update","p":{{"action":"subscribe","topics":["a"],{fields}}}}}"#
        );
        let event = handle(&mut fresh(Format::Json), &text);
        assert_eq!(
            error_code(event),
            ErrorCode::InvalidSubscription,
            "{fields}"
        );
    }
}

#[test]
fn other_requests() {
    let event = heard_by_server(SystemType::PresenceRequest, |client, out| {
        client.write_presence_request(&["a", "b"], true, Some(5), Some("2"), id(), NOW, out)
    });
    let query = PresenceQuery {
        topics: vec!["a".to_owned(), "b".to_owned()],
        counts_only: true,
        limit: Some(5),
    };
    assert_eq!(event, request(RequestKind::Presence(query), Some("2")));
    let event = heard_by_server(SystemType::PublicationAck, |client, out| {
        client.write_publication_ack(&[1, u64::MAX], id(), NOW, out)
    });
    assert_eq!(
        event,
        request(RequestKind::Acknowledge(vec![1, u64::MAX]), None)
    );

    let array = |count| vec!["\"a\""; count].join(",");
    let presence = |count| {
        format!(
            r#"{{"t":"presence_request","p":{{"topics":[{}]}}}}"#,
            array(count)
        )
    };
    let ack = |count| {
        let numbers = vec!["1"; count].join(",");
        format!(r#"{{"t":"publication_ack","p":{{"deliveries":[{numbers}]}}}}"#)
    };
    let is_request = |text: &str| {
        let event = handle(&mut fresh(Format::Json), text);
        matches!(event, SystemEvent::Request(_))
    };
    assert!(is_request(&presence(TOPICS_PER_PRESENCE_REQUEST_MAX)));
    assert!(is_request(&ack(DELIVERIES_PER_ACK_MAX)));
    for text in [
        presence(TOPICS_PER_PRESENCE_REQUEST_MAX + 1),
        presence(0),
        ack(DELIVERIES_PER_ACK_MAX + 1),
        ack(0),
        r#"{"t":"presence_request"}"#.to_owned(),
        r#"{"t":"presence_request","p":{"topics":["a"],"limit":"x"}}"#.to_owned(),
        r#"{"t":"publication_ack","p":{"deliveries":[-1]}}"#.to_owned(),
        r#"{"t":"publication_ack","p":{"deliveries":1}}"#.to_owned(),
    ] {
        assert!(!is_request(&text), "{text}");
    }
}

#[test]
fn calls_both_ways() {
    for (payload, binary) in [
        (r#"{"x":[1.5]}"#, false),
        (r#""AAH/""#, true),
        (r#""AAH/""#, false),
    ] {
        call_both_ways(&Call {
            t: "quote".to_owned(),
            payload: payload.into(),
            binary,
            timeout_ms: Some(250),
        });
    }
}

fn call_both_ways(call: &Call) {
    let failed = CallError {
        code: "TIMEOUT".to_owned(),
        message: "too \"late\"".to_owned(),
    };
    let event = heard_by_server(SystemType::CallRequest, |client, out| {
        client.write_call_request(call, "9", id(), NOW, out)
    });
    assert_eq!(event, request(RequestKind::Call(call.clone()), Some("9")));
    let said = Reply::CallRequest {
        call: call.clone(),
        correlation_id: "9".to_owned(),
    };
    let expected = ClientEvent::Call {
        call: call.clone(),
        correlation_id: "9".to_owned(),
    };
    assert_eq!(heard_by_client(&said), expected);
    for result in [
        Ok(CallAnswer::json("[null]")),
        Ok(CallAnswer::json("null")),
        Ok(CallAnswer::binary(b"\0\x01\xff")),
        Ok(CallAnswer::json(r#""AAH/""#)),
        Err(failed),
    ] {
        let event = heard_by_server(SystemType::CallResponse, |client, out| {
            client.write_call_response(&result, "9", id(), NOW, out)
        });
        let kind = RequestKind::CallResponse(result.clone());
        assert_eq!(event, request(kind, Some("9")));
        let said = Reply::CallResponse {
            result: result.clone(),
            correlation_id: "9".to_owned(),
        };
        let expected = ClientEvent::CallResponse {
            result,
            correlation_id: "9".to_owned(),
        };
        assert_eq!(heard_by_client(&said), expected);
    }
}

#[test]
fn calls_that_are_refused() {
    let long = "x".repeat(129);
    for text in [
        r#"{"t":"call_request","p":{"type":"a"}}"#.to_owned(),
        r#"{"t":"call_request","cid":"","p":{"type":"a"}}"#.to_owned(),
        format!(r#"{{"t":"call_request","cid":"{long}","p":{{"type":"a"}}}}"#),
        r#"{"t":"call_request","cid":5,"p":{"type":"a"}}"#.to_owned(),
        r#"{"t":"call_request","cid":"1"}"#.to_owned(),
        r#"{"t":"call_request","cid":"1","p":{"type":""}}"#.to_owned(),
        r#"{"t":"call_request","cid":"1","p":{"type":"a","timeout_ms":"1"}}"#.to_owned(),
        r#"{"t":"call_request","cid":"1","p":{"type":"a","payload":[1,]}}"#.to_owned(),
        r#"{"t":"call_response","p":{"payload":1}}"#.to_owned(),
        r#"{"t":"call_response","cid":"1","p":{"error":"TIMEOUT"}}"#.to_owned(),
        r#"{"t":"call_response","cid":"1","p":{"error":{"code":1}}}"#.to_owned(),
        r#"{"t":"call_response","cid":"1","p":[]}"#.to_owned(),
    ] {
        let event = handle(&mut fresh(Format::Json), &text);
        assert_eq!(error_code(event), ErrorCode::InvalidMessage, "{text}");
        let mut client = ClientSession::new(Format::Json, NOW);
        let heard = client.handle_message(Format::Json, text.as_bytes(), NOW);
        assert!(heard.is_err(), "{text}");
    }
    let mut client = ClientSession::new(Format::Json, NOW);
    let no_type = br#"{"t":"call_request","cid":"1","p":{}}"#;
    let error = EnvelopeError::InvalidField("p");
    assert_eq!(
        client.handle_message(Format::Json, no_type, NOW),
        Err(error)
    );
}

#[test]
fn answers_to_the_client() {
    let correlation_id = || Some("3".to_owned());
    let topics = || {
        let member = |user: &str, data: Option<&str>| PresenceMember {
            user: user.to_owned(),
            connections: 2,
            data: data.map(str::to_owned),
        };
        let topic = |topic: &str, members| TopicPresence {
            topic: topic.to_owned(),
            users: 3,
            connections: 4,
            truncated: true,
            members,
        };
        let members = vec![member("u\"1", Some(r#"{"n":1}"#)), member("u2", None)];
        vec![topic("a", Some(members)), topic("b", None)]
    };
    let said = Reply::PresenceResponse {
        topics: topics(),
        failed_topics: vec!["c".to_owned()],
        correlation_id: correlation_id(),
    };
    let expected = ClientEvent::PresenceResponse {
        topics: topics(),
        failed_topics: vec!["c".to_owned()],
        correlation_id: correlation_id(),
    };
    assert_eq!(heard_by_client(&said), expected);
    for position in [None, Some((0, 0)), Some((u32::MAX, u64::MAX))] {
        let said = Reply::PublishResponse {
            topic: "a".to_owned(),
            duplicate: position.is_none(),
            position,
            correlation_id: correlation_id(),
        };
        let expected = ClientEvent::PublishResponse {
            topic: "a".to_owned(),
            duplicate: position.is_none(),
            position,
            correlation_id: correlation_id(),
        };
        assert_eq!(heard_by_client(&said), expected);
    }
}

#[test]
fn the_answer_to_a_subscription() {
    let correlation_id = || Some("3".to_owned());
    let recovery = vec![TopicRecovery {
        topic: "a".to_owned(),
        epoch: "0badcafe".to_owned(),
        offset: 9,
        recovered: true,
        count: 4,
    }];
    let failure = TopicFailure {
        topic: "b".to_owned(),
        code: "TOPIC_FORBIDDEN".to_owned(),
        message: "\"b\" is not allowed".to_owned(),
    };
    let said = Reply::SubscriptionUpdate {
        action: Action::Subscribe,
        success_topics: vec!["a".to_owned()],
        failed_topics: vec!["b".to_owned()],
        failures: vec![failure.clone()],
        recovery: recovery.clone(),
        correlation_id: correlation_id(),
    };
    let expected = ClientEvent::SubscriptionUpdate {
        action: Some(Action::Subscribe),
        success_topics: vec!["a".to_owned()],
        failed_topics: vec!["b".to_owned()],
        failures: vec![failure.clone()],
        recovery,
        correlation_id: correlation_id(),
    };
    assert_eq!(heard_by_client(&said), expected);
}

#[test]
fn gaps_acknowledgements_and_reconnects() {
    for (reason, range) in [
        (GapReason::Dropped, None),
        (
            GapReason::Conflated,
            Some(GapRange {
                epoch: 0x0bad_cafe,
                from: 5,
                to: 9,
            }),
        ),
        (GapReason::Expired, None),
    ] {
        let gap = PublicationGap {
            topic: "a".to_owned(),
            reason,
            count: 4,
            range,
        };
        let said = Reply::PublicationGap(gap.clone());
        assert_eq!(heard_by_client(&said), ClientEvent::PublicationGap(gap));
    }
    let event = heard_by_client(&Reply::MessageAck { last: 77 });
    assert_eq!(event, ClientEvent::MessageAck { last: 77 });
    let said = Reply::Reconnect {
        after_ms: 1500,
        reason: "draining".into(),
    };
    let expected = ClientEvent::Reconnect {
        after_ms: 1500,
        reason: "draining".to_owned(),
    };
    assert_eq!(heard_by_client(&said), expected);
    let mut client = ClientSession::new(Format::Json, NOW);
    for text in [
        r#"{"t":"message_ack","p":{}}"#,
        r#"{"t":"reconnect","p":{"after_ms":"1"}}"#,
        r#"{"t":"publication_gap","p":{"topic":"a","epoch":"0badcafe","from":1}}"#,
        r#"{"t":"publication_gap","p":{"topic":"a","epoch":"x","from":1,"to":2}}"#,
        r#"{"t":"presence_response","p":{"topics":{"a":{}}}}"#,
    ] {
        let heard = client.handle_message(Format::Json, text.as_bytes(), NOW);
        assert!(
            matches!(heard, Err(EnvelopeError::InvalidField(_))),
            "{text}"
        );
    }
}

#[test]
fn producers_and_calls_in_the_hello() {
    let offering = ServerProfile {
        features: Features {
            calls: true,
            broker_updates: true,
            ..Features::default()
        },
        ..profile()
    };
    let hello = |session: &mut ServerSession, fields: &str| {
        let text = format!(r#"{{"t":"client_hello","p":{{{fields}}}}}"#);
        let system = SystemType::ClientHello;
        session.handle_system(&offering, system, Format::Json, text.as_bytes())
    };
    let producer_of = |fields: &str| match hello(&mut fresh(Format::Json), fields) {
        SystemEvent::Hello { producer, .. } => Ok(producer.map(|producer| producer.id)),
        event => Err(error_code(event)),
    };
    let longest = "x".repeat(PRODUCER_ID_BYTES_MAX);
    let named = |id: &str| format!(r#""producer":{{"id":"{id}"}}"#);
    assert_eq!(producer_of(""), Ok(None));
    assert_eq!(producer_of(r#""producer":null"#), Ok(None));
    assert_eq!(producer_of(&named(&longest)), Ok(Some(longest.clone())));
    for fields in [
        named(""),
        named(&format!("{longest}x")),
        r#""producer":{"id":5}"#.to_owned(),
        r#""producer":{}"#.to_owned(),
        r#""producer":"p""#.to_owned(),
    ] {
        assert_eq!(
            producer_of(&fields),
            Err(ErrorCode::InvalidMessage),
            "{fields}"
        );
    }
    for (fields, takes_calls) in [
        ("", false),
        (r#""features":{"calls":false}"#, false),
        (r#""features":{"calls":true}"#, true),
    ] {
        let mut session = fresh(Format::Json);
        hello(&mut session, fields);
        assert_eq!(session.client_takes_calls(), takes_calls, "{fields}");
    }
    for (fields, takes_updates) in [
        ("", false),
        (r#""features":{"broker_updates":false}"#, false),
        (r#""features":{"broker_updates":true}"#, true),
    ] {
        let mut session = fresh(Format::Json);
        hello(&mut session, fields);
        let takes = session.client_takes_broker_updates();
        assert_eq!(takes, takes_updates, "{fields}");
    }
    let mut session = fresh(Format::Json);
    hello(&mut session, &named("p1"));
    let again = SystemEvent::Hello {
        correlation_id: None,
        producer: None,
    };
    assert_eq!(hello(&mut session, &named("p2")), again);
}

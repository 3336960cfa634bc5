//! Requests of a client and their answers.

use crate::common::{
    config, connect, connect_with, find, next, payload, payloads, publish, server_config, start,
    url, wait_until,
};
use std::time::Duration;
use tidewire_client::event::PresenceChange;
use tidewire_client::request::{Overload, SubscribeOptions};
use tidewire_client::sequencer::Position;
use tidewire_client::{Client, ClientState, Error, Event, Priority, Publication};
use tidewire_engine::NewCall;

#[tokio::test]
async fn messages_there_and_back() {
    let (server, recorder) = start(server_config());
    let (client, mut events) = connect(&server).await;
    assert_eq!(client.state(), ClientState::Connected);
    client.send("echo", r#"{"a":"é"}"#).await.unwrap();
    client.try_send("echo", "2", Priority::Critical).unwrap();
    client.try_send_envelope(r#"{"t":"echo","p":3}"#).unwrap();
    assert_eq!(payload(&mut events).await, r#"{"a":"é"}"#);
    assert_eq!(payloads(&mut events, 2).await, [2, 3]);
    assert_eq!(
        recorder.texts(),
        [
            r#"{"c":"U","t":"echo","p":{"a":"é"}}"#,
            r#"{"c":"U","t":"echo","pri":10,"p":2}"#,
            r#"{"t":"echo","p":3}"#
        ]
    );
    client.close().await;
    assert!(matches!(next(&mut events).await, Event::Disconnected(_)));
    assert!(events.next().await.is_none());
    assert!(matches!(client.send("a", "1").await, Err(Error::Closed(_))));
}

#[tokio::test]
async fn what_waits_is_sent_before_the_close() {
    let (server, recorder) = start(server_config());
    let (client, _events) = connect(&server).await;
    for number in 0..5_000 {
        client.send("count", &number.to_string()).await.unwrap();
    }
    client.close().await;
    assert_eq!(recorder.numbers(), (0..5_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn wrong_arguments_are_the_callers() {
    let (server, _) = start(server_config());
    let (client, _events) = connect(&server).await;
    for (t, payload) in [
        ("", "1"),
        ("ping", "1"),
        ("a", ""),
        ("a", "{"),
        ("a", "1,\"t\":2"),
    ] {
        let error = client.send(t, payload).await.unwrap_err();
        assert_eq!(error.code(), "INVALID_ARGUMENT", "{t} {payload}");
    }
    assert!(client.subscribe(Vec::<String>::new()).await.is_err());
    assert!(
        client
            .publish(Publication::new("", "a", "1"))
            .await
            .is_err()
    );
    let error = client
        .send_acknowledged("a", "1", Default::default())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("queue"), "{error}");
    assert!(Client::connect(config("http://a".into())).await.is_err());
}

#[tokio::test]
async fn calls_both_ways() {
    let (server, recorder) = start(server_config());
    let (client, mut events) = connect(&server).await;
    assert_eq!(
        client.request("double", "21", None).await.unwrap(),
        "42".into()
    );
    let refused = client.request("unknown", "1", None).await.unwrap_err();
    assert_eq!(refused.code(), "NO_CLUE");
    let late = client
        .request("silence", "1", Some(Duration::from_millis(50)))
        .await;
    assert!(
        matches!(late, Err(Error::TimedOut | Error::Refused { .. })),
        "{late:?}"
    );

    let peer = recorder.peers.lock().unwrap()[0];
    for answers in [true, false] {
        let handle = server.handle();
        let asked = tokio::task::spawn_blocking(move || {
            handle.call_wait(peer, NewCall::new("confirm", r#"{"n":1}"#))
        });
        let call = find(&mut events, |event| match event {
            Event::Call(call) => Some(call),
            _ => None,
        });
        let call = call.await;
        assert_eq!(
            (call.t.as_str(), call.payload.as_str()),
            ("confirm", r#"{"n":1}"#)
        );
        if answers {
            call.responder.respond("true").unwrap();
            assert_eq!(asked.await.unwrap().unwrap(), "true".into());
        } else {
            drop(call);
            let failure = asked.await.unwrap().unwrap_err().to_string();
            assert!(failure.contains("HANDLER_ERROR"), "{failure}");
        }
    }
}

#[tokio::test]
async fn publications_with_their_places() {
    let (server, _) = start(server_config());
    let (client, mut events) = connect(&server).await;
    let subscribed = client.subscribe(["kept.a", "plain"]).await.unwrap();
    assert_eq!(subscribed.topics, ["kept.a", "plain"]);
    assert_eq!(subscribed.positions[0].position.offset, 0);
    let mut publication = Publication::new("kept.a", "count", "1");
    publication.id = Some("once".into());
    let first = client.publish(publication.clone()).await.unwrap();
    assert_eq!(first.position.map(|position| position.offset), Some(1));
    let again = client.publish(publication).await.unwrap();
    assert!(again.is_duplicate && again.position == first.position);
    client
        .try_publish(Publication::new("plain", "count", "2"))
        .unwrap();
    assert_eq!(payloads(&mut events, 2).await, [1, 2]);
    let refused = client
        .publish(Publication::new("a.*", "count", "1"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), "INVALID_MESSAGE");
    let failed = client.subscribe(["a..b"]).await.unwrap();
    assert_eq!(failed.failed, ["a..b"]);
    assert_eq!(failed.failures[0].code, "INVALID_SUBSCRIPTION");
    client.unsubscribe(["plain"]).await.unwrap();
    publish(&server, "plain", 3);
    publish(&server, "kept.a", 4);
    assert_eq!(payloads(&mut events, 1).await, [4]);
}

#[tokio::test]
async fn an_own_publication_that_is_left_out_is_no_gap() {
    let (server, _) = start(server_config());
    let (client, mut events) = connect(&server).await;
    client.subscribe(["kept.a"]).await.unwrap();
    for number in 0..20 {
        let mut own = Publication::new("kept.a", "count", "0");
        own.exclude_self = true;
        client.publish(own).await.unwrap();
        publish(&server, "kept.a", number);
    }
    for number in 0..20 {
        match next(&mut events).await {
            Event::Message(message) => {
                assert_eq!(&*message.payload().unwrap(), number.to_string().as_bytes());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn filters_and_policies_tell_no_gaps() {
    let (server, _) = start(server_config());
    let (client, mut events) = connect(&server).await;
    let options = SubscribeOptions {
        filter: Some(serde_json::json!({"n": {"$gte": 5}})),
        overload: Some(Overload::Conflate),
        ..SubscribeOptions::default()
    };
    client.subscribe_with(["kept.a"], options).await.unwrap();
    for number in [1, 7, 2, 9] {
        let payload = format!("{{\"n\":{number}}}");
        let publication = tidewire_engine::NewPublication::new("count", &payload);
        server.handle().publish("kept.a", &publication).unwrap();
    }
    for expected in [r#"{"n":7}"#, r#"{"n":9}"#] {
        match next(&mut events).await {
            Event::Message(message) => {
                assert_eq!(&*message.payload().unwrap(), expected.as_bytes());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn from_a_position() {
    let (server, _) = start(server_config());
    for number in 1..=5 {
        publish(&server, "kept.a", number);
    }
    let (client, mut events) = connect(&server).await;
    let stands = client.subscribe(["kept.a"]).await.unwrap().positions[0].position;
    client.unsubscribe(["kept.a"]).await.unwrap();
    let from = Position {
        offset: 2,
        ..stands
    };
    let options = SubscribeOptions {
        from: vec![("kept.a".into(), from)],
        ..SubscribeOptions::default()
    };
    let subscribed = client.subscribe_with(["kept.a"], options).await.unwrap();
    assert!(subscribed.positions[0].recovered);
    assert_eq!(payloads(&mut events, 3).await, [3, 4, 5]);
}

#[tokio::test]
async fn presence_of_others() {
    let (server, _) = start(server_config());
    let (client, mut events) = connect(&server).await;
    client.subscribe(["seen.a"]).await.unwrap();
    let (other, _other_events) = connect(&server).await;
    let options = SubscribeOptions {
        presence: Some(serde_json::json!({"name": "x"})),
        ..SubscribeOptions::default()
    };
    other.subscribe_with(["seen.a"], options).await.unwrap();
    let joined = find(&mut events, |event| match event {
        Event::Presence(presence) if presence.data.is_some() => Some(presence),
        _ => None,
    });
    let joined = joined.await;
    assert_eq!(joined.change, PresenceChange::Join);
    assert_eq!(joined.data.as_deref(), Some(r#"{"name":"x"}"#));
    let answer = client.presence(["seen.a"]).await.unwrap();
    assert_eq!(
        (answer.topics[0].users, answer.topics[0].connections),
        (2, 2)
    );
    other.close().await;
    let left = find(&mut events, |event| match event {
        Event::Presence(presence) if presence.change == PresenceChange::Leave => Some(presence),
        _ => None,
    });
    assert_eq!(left.await.user, joined.user);
}

#[tokio::test]
async fn a_group_shares_and_acknowledges() {
    let (server, _) = start(server_config());
    let (client, mut events) = connect(&server).await;
    let options = SubscribeOptions {
        queue_group: Some("workers".into()),
        acknowledge: true,
        window: Some(1),
        ..SubscribeOptions::default()
    };
    client.subscribe_with(["work"], options).await.unwrap();
    for number in 1..=3 {
        publish(&server, "work", number);
    }
    for number in 1..=3 {
        let message = find(&mut events, |event| match event {
            Event::Message(message) => Some(message),
            _ => None,
        });
        let message = message.await;
        assert_eq!(&*message.payload().unwrap(), number.to_string().as_bytes());
        // The window is one: without this the next would not come.
        client.acknowledge(&[message]).await.unwrap();
    }
}

#[tokio::test]
async fn deliveries_of_this_session_are_acknowledged_beside_those_of_another() {
    let (server, recorder) = start(server_config());
    let (client, mut events) = connect(&server).await;
    let options = SubscribeOptions {
        queue_group: Some("workers".into()),
        acknowledge: true,
        window: Some(1),
        ..SubscribeOptions::default()
    };
    client.subscribe_with(["work"], options).await.unwrap();
    publish(&server, "work", 1);
    publish(&server, "work", 2);
    let message = |event| match event {
        Event::Message(message) => Some(message),
        _ => None,
    };
    let before = find(&mut events, message).await;
    let peer = *recorder.peers.lock().unwrap().last().unwrap();
    let code = tidewire_client::CloseCode::SERVICE_RESTART;
    server.handle().close(peer, code, "").unwrap();
    let again = find(&mut events, message).await;
    assert_eq!((before.session(), again.session()), (1, 2));
    client.acknowledge(&[before, again]).await.unwrap();
    assert_eq!(payload(&mut events).await, "2");
}

#[tokio::test]
async fn pings_make_the_quality() {
    let (server, _) = start(server_config());
    let (client, _events) = connect(&server).await;
    for _ in 0..5 {
        client.ping().await.unwrap();
    }
    let quality = client.quality();
    assert_eq!((quality.answered, quality.loss), (5, 0.0));
    assert!(
        quality.latency_ms > 0.0 && quality.score > 50,
        "{quality:?}"
    );
}

#[tokio::test]
async fn the_rate_limit_is_heeded_so_that_nothing_is_refused() {
    let mut config = server_config();
    // The tenth that a client keeps free is 0.4 s of its rate: a server may stand still for that time, and nothing is refused.
    config.limits.rate_limit_capacity = 2_000;
    config.limits.rate_limit_refill_per_s = 500;
    let (server, recorder) = start(config);
    let (client, _events) = connect(&server).await;
    for number in 0..2_100 {
        client.send("count", &number.to_string()).await.unwrap();
    }
    wait_until("all messages", || recorder.texts().len() == 2_100).await;
    assert_eq!(server.handle().counters().messages_refused_rate, 0);
}

#[tokio::test]
async fn a_slow_application_holds_the_server_back() {
    let (server, _) = start(server_config());
    let mut config = config(url(&server));
    config.inbox_bytes_max = 100_000;
    let (client, mut events) = connect_with(config).await;
    let text = "x".repeat(10_000);
    let payload = format!("\"{text}\"");
    for _ in 0..200 {
        client.send("echo", &payload).await.unwrap();
    }
    // Nobody takes events; then all of them are there, each once.
    wait_until("everything is sent", || client.waiting_bytes() == 0).await;
    for _ in 0..200 {
        assert_eq!(
            crate::common::payload(&mut events).await.len(),
            payload.len()
        );
    }
}

#[tokio::test]
async fn dropping_the_last_handle_closes() {
    let (server, _) = start(server_config());
    let (client, events) = connect(&server).await;
    let handle = server.handle();
    wait_until("a connection", || handle.connections() == 1).await;
    drop((client, events));
    wait_until("no connection", || handle.connections() == 0).await;
}

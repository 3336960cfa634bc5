//! Limits of the server, the client and the application: an excess is reported or waits, and is never lost.

use crate::common::{
    DEADLINE, config, connect_with, find, next, payloads, server_config, start, url,
};
use std::time::Duration;
use tidewire_client::config::Queue;
use tidewire_client::{Client, ClientState, Config, Error, Event, Publication};
use tidewire_wire::format::Format;

#[tokio::test]
async fn what_is_too_large_for_the_server_is_told_and_ends_nothing() {
    let mut server = server_config();
    server.limits.message_bytes_max = 64 * 1024;
    let (server, recorder) = start(server);
    let config = Config {
        queue: Some(Queue::default()),
        ..config(url(&server))
    };
    let (client, mut events) = connect_with(config).await;
    let large = format!("\"{}\"", "x".repeat(100_000));
    let publication = || Publication::new("kept.a", "count", large.clone());
    let queued = client
        .send_acknowledged("count", &large, Default::default())
        .await
        .unwrap();
    let refusals = [
        queued.wait().await.unwrap_err(),
        client.publish(publication()).await.unwrap_err(),
        client.request("double", &large, None).await.unwrap_err(),
    ];
    for refused in refusals {
        assert_eq!(refused.code(), "MESSAGE_TOO_LARGE");
    }
    client.try_publish(publication()).unwrap();
    let code = find(&mut events, |event| match event {
        Event::Error(error) => Some(error.code),
        _ => None,
    });
    assert_eq!(code.await, "MESSAGE_TOO_LARGE");
    let next = client
        .send_acknowledged("count", "2", Default::default())
        .await
        .unwrap();
    next.wait().await.unwrap();
    assert_eq!(recorder.numbers(), [2]);
    assert_eq!(client.state(), ClientState::Connected);
}

#[tokio::test]
async fn an_application_that_takes_its_time_is_no_silence_of_the_server() {
    let (server, _) = start(server_config());
    let mut config = config(url(&server));
    config.inbox_bytes_max = 100_000;
    config.idle_timeout = Duration::from_millis(500);
    let (client, mut events) = connect_with(config).await;
    let payload = format!("\"{}\"", "x".repeat(10_000));
    for _ in 0..200 {
        client.send("echo", &payload).await.unwrap();
    }
    // Longer than the silence that is allowed, and than the time between two looks at it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for _ in 0..200 {
        let event = next(&mut events).await;
        assert!(matches!(event, Event::Message(_)), "{event:?}");
    }
}

#[tokio::test]
async fn publications_wait_while_too_many_are_unanswered() {
    let (server, _) = start(server_config());
    let mut config = config(url(&server));
    config.requests_max = 4;
    let (client, mut events) = connect_with(config).await;
    client.subscribe(["kept.a"]).await.unwrap();
    for number in 0..500u64 {
        let publication = Publication::new("kept.a", "count", number.to_string());
        client.try_publish(publication).unwrap();
    }
    assert_eq!(
        payloads(&mut events, 500).await,
        (0..500).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn requests_heed_the_rate_limit() {
    let mut server = server_config();
    server.limits.rate_limit_capacity = 50;
    server.limits.rate_limit_refill_per_s = 500;
    let (server, _) = start(server);
    let (client, mut events) = connect_with(config(url(&server))).await;
    client.subscribe(["kept.a"]).await.unwrap();
    for number in 0..300u64 {
        let publication = Publication::new("kept.a", "count", number.to_string());
        client.try_publish(publication).unwrap();
    }
    let mut received = payloads(&mut events, 300).await;
    // Where the machine stalls, the server receives several moments together and may refuse some, which are sent again
    // behind those that it took. A client that does not heed the limit would have at least 250 refused.
    let refused = server.handle().counters().messages_refused_rate;
    if refused > 0 {
        received.sort_unstable();
    }
    assert_eq!(received, (0..300).collect::<Vec<_>>());
    assert!(refused < 100, "{refused}");
}

#[tokio::test]
async fn a_panic_of_the_applications_ends_the_client_and_hangs_nobody() {
    let config = config("ws://127.0.0.1:9/ws".to_owned())
        .with_token_provider(|| async { panic!("the application's own") });
    let connecting = tokio::time::timeout(DEADLINE, Client::connect(config));
    let error = connecting.await.expect("an end in time").unwrap_err();
    assert!(matches!(error, Error::Closed(_)), "{error}");
}

/// Sizes are those on the wire: whatever the envelope adds, a message arrives, or it alone is refused.
#[tokio::test]
async fn a_message_at_the_limit_arrives_or_is_refused_alone() {
    const LIMIT: usize = 10_000;
    let mut server = server_config();
    server.limits.message_bytes_max = LIMIT;
    let (server, _) = start(server);
    for format in [Format::Json, Format::MessagePack] {
        let config = Config {
            format,
            ..config(url(&server))
        };
        let (client, mut events) = connect_with(config).await;
        // The last ones are larger than the limit by themselves, with fewer characters than it.
        let letters: Vec<usize> = (LIMIT / 2 - 40..=LIMIT / 2 + 1).collect();
        let mut refused = 0;
        for count in &letters {
            let payload = format!("\"{}\"", "é".repeat(*count));
            client.send("echo", &payload).await.unwrap();
            match next(&mut events).await {
                Event::Message(_) => assert_eq!(refused, 0, "{count} after smaller ones"),
                Event::Error(error) => {
                    assert_eq!(error.code, "MESSAGE_TOO_LARGE");
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(refused > 1 && refused < letters.len(), "{refused}");
        assert_eq!(client.state(), ClientState::Connected);
    }
}

#[tokio::test]
async fn closing_waits_for_the_answers_to_what_was_sent() {
    let (server, _) = start(server_config());
    let (client, _events) = connect_with(config(url(&server))).await;
    let publishing: Vec<_> = (0..50)
        .map(|number: u64| {
            let client = client.clone();
            let publication = Publication::new("kept.closing", "count", number.to_string());
            tokio::spawn(async move { client.publish(publication).await })
        })
        .collect();
    // Each of them has begun.
    tokio::task::yield_now().await;
    client.close().await;
    for published in publishing {
        published.await.unwrap().unwrap();
    }
}

/// A network that is dead without a word: nothing comes through, and nothing is closed.
#[tokio::test]
async fn a_dead_network_is_noticed_by_a_request_that_times_out() {
    let (server, _) = start(server_config());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = server.address();
    let (die, mut dead) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(target).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = dead.wait_for(|dead| *dead) => {}
        }
        std::future::pending::<()>().await;
    });
    let mut config = config(format!("ws://127.0.0.1:{port}/ws"));
    config.request_timeout = Duration::from_millis(300);
    let (client, mut events) = connect_with(config).await;
    // The session is established before the network dies.
    while client.request("double", "1", None).await.is_err() {}
    die.send(true).unwrap();
    let refused = client.request("double", "2", None).await.unwrap_err();
    assert_eq!(refused, Error::TimedOut);
    let reason = find(&mut events, |event| match event {
        Event::Disconnected(ended) => Some(ended.reason),
        _ => None,
    });
    let reason = reason.await;
    assert!(reason.contains("silent after a request"), "{reason}");
}

#[tokio::test]
async fn the_types_of_the_protocol_are_refused_before_sending() {
    let (server, recorder) = start(server_config());
    let config = Config {
        queue: Some(Queue::default()),
        ..config(url(&server))
    };
    let (client, _events) = connect_with(config).await;
    for t in [
        "",
        "ping",
        "pong",
        "client_hello",
        "batch",
        "error",
        "message_ack",
    ] {
        client.send(t, "1").await.unwrap_err();
        let publication = Publication::new("kept.a", t, "1");
        client.publish(publication).await.unwrap_err();
        let queued = client.send_acknowledged(t, "1", Default::default());
        queued.await.unwrap_err();
        let queued = client.publish_acknowledged("kept.a", t, "1", Default::default());
        queued.await.unwrap_err();
    }
    // Nothing blocks what comes behind.
    let next = client.send_acknowledged("count", "2", Default::default());
    next.await.unwrap().wait().await.unwrap();
    assert_eq!(recorder.numbers(), [2]);
}

/// A publication that the server refuses for its own fault leaves the queue with an event and an error.
#[tokio::test]
async fn a_queued_publication_that_is_refused_blocks_no_other() {
    let (server, _) = start(server_config());
    let config = Config {
        queue: Some(Queue::default()),
        ..config(url(&server))
    };
    let (client, mut events) = connect_with(config).await;
    let wrong = client.publish_acknowledged("bad topic", "count", "1", Default::default());
    let wrong = wrong.await.unwrap();
    let good = client.publish_acknowledged("kept.a", "count", "2", Default::default());
    let good = good.await.unwrap();
    let refused = wrong.wait().await.unwrap_err();
    good.wait().await.unwrap();
    let code = find(&mut events, |event| match event {
        Event::Error(error) => Some(error.code),
        _ => None,
    });
    assert_eq!(code.await, refused.code());
    assert_eq!(client.queue_depth().messages, 0);
}

/// The address of this machine that the client connects from is the one of its configuration.
#[tokio::test]
async fn a_connection_comes_from_the_given_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for (source, name) in [("127.0.0.2", "127.0.0.1"), ("127.0.0.3", "localhost")] {
        let mut config = config(format!("ws://{name}:{port}/ws"));
        config.source_address = Some(source.parse().unwrap());
        let opening = tokio::spawn(connect_with(config));
        let (_, peer) = listener.accept().await.unwrap();
        assert_eq!(peer.ip().to_string(), source);
        opening.abort();
    }
    // Of another kind than the server's, and not one of this machine.
    for source in ["::1", "203.0.113.7"] {
        let mut elsewhere = config(format!("ws://127.0.0.1:{port}/ws"));
        elsewhere.source_address = Some(source.parse().unwrap());
        elsewhere.reconnect = None;
        let refused = tidewire_client::Client::connect(elsewhere)
            .await
            .unwrap_err();
        assert!(refused.to_string().contains(source), "{refused}");
    }
}

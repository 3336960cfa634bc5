//! Lost connections, servers that restart, and the events about them.

use crate::common::{
    Recorder, TestServer, config, connect, connect_with, find, next, payloads, publish,
    server_config, start, url, wait_until,
};
use std::net::SocketAddr;
use std::time::Duration;
use tidewire_client::endpoints::{Choice, Endpoint};
use tidewire_client::event::Disconnected;
use tidewire_client::{Client, ClientState, CloseCode, Error, Event, Events, Publication};
use tidewire_engine::{Config as ServerConfig, Server};

/// A server on an address that another had before.
fn start_again(address: SocketAddr) -> (TestServer, Recorder) {
    start(ServerConfig {
        listen: address,
        ..server_config()
    })
}

async fn disconnected(events: &mut Events) -> Box<Disconnected> {
    find(events, |event| match event {
        Event::Disconnected(ended) => Some(ended),
        _ => None,
    })
    .await
}

async fn connected(events: &mut Events) -> u32 {
    find(events, |event| match event {
        Event::Connected(connected) => Some(connected.session),
        _ => None,
    })
    .await
}

fn cut(server: &Server, recorder: &Recorder, code: CloseCode) {
    let peer = *recorder
        .peers
        .lock()
        .expect("no test panicked with it")
        .last()
        .expect("a client was there");
    server
        .handle()
        .close(peer, code, "away")
        .expect("the server runs");
}

#[tokio::test]
async fn what_was_missed_is_recovered() {
    let (server, recorder) = start(server_config());
    let (client, mut events) = connect(&server).await;
    client.subscribe(["kept.a", "kept.b"]).await.unwrap();
    publish(&server, "kept.a", 1);
    assert_eq!(payloads(&mut events, 1).await, [1]);
    for round in 0..3 {
        cut(&server, &recorder, CloseCode::SERVICE_RESTART);
        assert_eq!(disconnected(&mut events).await.code, Some(1012));
        for number in 0..100 {
            publish(&server, "kept.a", 100 * round + number);
        }
        assert_eq!(connected(&mut events).await, round as u32 + 2);
        let expected: Vec<_> = (0..100).map(|number| 100 * round + number).collect();
        assert_eq!(payloads(&mut events, 100).await, expected);
    }
    publish(&server, "kept.b", 7);
    assert_eq!(payloads(&mut events, 1).await, [7]);
}

#[tokio::test]
async fn a_new_epoch_is_told_and_gone_on_from() {
    let (server, _) = start(server_config());
    let address = server.address();
    let (client, mut events) = connect(&server).await;
    client.subscribe(["kept.a"]).await.unwrap();
    publish(&server, "kept.a", 1);
    assert_eq!(payloads(&mut events, 1).await, [1]);
    server.stop().await;
    disconnected(&mut events).await;
    let (server, _) = start_again(address);
    let unrecovered = find(&mut events, |event| match event {
        Event::Unrecovered(unrecovered) => Some(unrecovered),
        _ => None,
    });
    let unrecovered = unrecovered.await;
    assert_eq!(
        (unrecovered.topic.as_str(), unrecovered.last.offset),
        ("kept.a", 1)
    );
    assert_ne!(unrecovered.last.epoch, unrecovered.now.epoch);
    publish(&server, "kept.a", 2);
    assert_eq!(payloads(&mut events, 1).await, [2]);
}

#[tokio::test]
async fn what_waits_while_there_is_no_server_is_sent_later() {
    let (server, _) = start(server_config());
    let address = server.address();
    let (client, mut events) = connect(&server).await;
    server.stop().await;
    disconnected(&mut events).await;
    let publishing = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .publish(Publication::new("kept.a", "count", "5"))
                .await
        }
    });
    for number in 0..100 {
        client.send("count", &number.to_string()).await.unwrap();
    }
    let (_server, recorder) = start_again(address);
    connected(&mut events).await;
    wait_until("all messages", || recorder.texts().len() == 100).await;
    assert_eq!(recorder.numbers(), (0..100).collect::<Vec<_>>());
    assert_eq!(
        publishing.await.unwrap().unwrap().position.unwrap().offset,
        1
    );
}

#[tokio::test]
async fn close_codes_say_whether_to_come_back() {
    for (code, comes_back) in [
        (4201, false),
        (4403, false),
        (1000, false),
        (4100, true),
        (4503, true),
    ] {
        let (server, recorder) = start(server_config());
        let (client, mut events) = connect(&server).await;
        cut(&server, &recorder, CloseCode::from_wire(code).unwrap());
        let ended = disconnected(&mut events).await;
        assert_eq!((ended.code, ended.reason.as_str()), (Some(code), "away"));
        assert_eq!(ended.retry_in.is_some(), comes_back, "{code}");
        if comes_back {
            assert_eq!(connected(&mut events).await, 2);
        } else {
            assert!(events.next().await.is_none());
            assert!(matches!(client.state(), ClientState::Closed(_)));
        }
    }
}

#[tokio::test]
async fn a_server_that_drains_gives_each_client_its_time() {
    let mut config = server_config();
    config.drain.reconnect_spread_ms = 3_000;
    let (server, _) = start(config);
    let (_client, mut events) = connect(&server).await;
    let server = server.into_inner();
    let draining = tokio::task::spawn_blocking(move || server.drain(Duration::from_secs(5)));
    let ended = disconnected(&mut events).await;
    assert_eq!(ended.code, Some(4300));
    // The client's own back-off is 100 ms at most; a time above that is the server's.
    assert!(ended.retry_in.is_some());
    draining.await.unwrap();
}

#[tokio::test]
async fn a_full_server_says_when_to_come_back() {
    let mut config = server_config();
    config.limits.connections_max = 1;
    config.limits.retry_after_s = 7;
    let (server, _) = start(config);
    let (_client, _events) = connect(&server).await;
    let refused = Client::connect(crate::common::config(url(&server)))
        .await
        .unwrap_err();
    assert_eq!(
        refused.retry_after(),
        Some(Duration::from_secs(7)),
        "{refused}"
    );
    let waiting = Client::start(crate::common::config(url(&server))).unwrap();
    let mut events = waiting.events();
    let ended = disconnected(&mut events).await;
    assert!(ended.retry_in >= Some(Duration::from_secs(7)), "{ended:?}");
}

#[tokio::test]
async fn without_reconnection_the_first_end_is_the_last() {
    let (server, recorder) = start(server_config());
    let mut config = config(url(&server));
    config.reconnect = None;
    let (client, mut events) = connect_with(config).await;
    cut(&server, &recorder, CloseCode::SERVICE_RESTART);
    assert_eq!(disconnected(&mut events).await.retry_in, None);
    assert!(events.next().await.is_none());
    assert!(matches!(client.send("a", "1").await, Err(Error::Closed(_))));
}

#[tokio::test]
async fn attempts_are_limited() {
    let mut config = config("ws://127.0.0.1:9/ws".to_owned());
    config.reconnect.as_mut().unwrap().attempts_max = 3;
    let client = Client::start(config).unwrap();
    let mut events = client.events();
    let mut waits = Vec::new();
    while let Some(event) = events.next().await {
        if let Event::Disconnected(ended) = event {
            waits.push(ended.retry_in.is_some());
        }
    }
    assert_eq!(waits, [true, true, true, false]);
    assert_eq!(
        client.connected().await.unwrap_err().code(),
        "CONNECT_FAILED"
    );
}

#[tokio::test]
async fn another_endpoint_takes_over() {
    let (first, _) = start(server_config());
    let (second, _) = start(server_config());
    let mut config = config(url(&first));
    config.choice = Choice::RoundRobin;
    config.endpoints.push(Endpoint::new(url(&second)));
    config.endpoints.push(Endpoint::new("ws://127.0.0.1:9/ws"));
    config.breaker.failures_max = 2;
    let client = Client::connect(config).await.unwrap();
    let mut events = client.events();
    connected(&mut events).await;
    first.stop().await;
    disconnected(&mut events).await;
    let place = find(&mut events, |event| match event {
        Event::Connected(connected) => Some(connected.url),
        _ => None,
    });
    assert_eq!(place.await, url(&second));
    let health = client.endpoints();
    assert!(health[1].score > health[0].score, "{health:?}");
}

#[tokio::test]
async fn the_first_endpoint_that_works_is_enough() {
    let (server, _) = start(server_config());
    let mut config = config("ws://127.0.0.1:9/ws".to_owned());
    config.choice = Choice::RoundRobin;
    config.endpoints.push(Endpoint::new(url(&server)));
    let client = Client::connect(config).await.unwrap();
    assert_eq!(client.state(), ClientState::Connected);
}

#[tokio::test]
async fn nobody_there_is_told_at_once() {
    let error = Client::connect(config("ws://127.0.0.1:9/ws".to_owned()))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "CONNECT_FAILED");
    let (server, _) = start(server_config());
    let wrong_path = format!("ws://{}/nothing", server.address());
    let Error::Connect { status, .. } = Client::connect(config(wrong_path)).await.unwrap_err()
    else {
        panic!("no such path");
    };
    assert_eq!(status, Some(404));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_come_back_and_spread() {
    let (server, _) = start(server_config());
    let address = server.address();
    let mut clients = Vec::new();
    for _ in 0..1_000 {
        let mut config = config(url(&server));
        let reconnect = config.reconnect.as_mut().unwrap();
        reconnect.base = Duration::from_millis(1_000);
        reconnect.max = Duration::from_millis(4_000);
        let client = Client::connect(config).await.unwrap();
        let events = client.events();
        clients.push((client, events));
    }
    server.stop().await;
    let mut waits_ms = Vec::new();
    for (_, events) in &mut clients {
        let retry_in = disconnected(events).await.retry_in.unwrap();
        waits_ms.push(retry_in.as_millis());
    }
    let (server, _) = start_again(address);
    // Each draws its own time: a quarter of them in each quarter of the second, roughly.
    let early = waits_ms.iter().filter(|wait_ms| **wait_ms < 250).count();
    assert!((150..350).contains(&early), "{early}");
    for (_, events) in &mut clients {
        assert_eq!(connected(events).await, 2);
    }
    let handle = server.handle();
    wait_until("all are back", || handle.connections() == 1_000).await;
}

#[tokio::test]
async fn closing_while_it_waits_ends_it() {
    let mut config = config("ws://127.0.0.1:9/ws".to_owned());
    let reconnect = config.reconnect.as_mut().unwrap();
    reconnect.base = Duration::from_secs(3_600);
    reconnect.max = Duration::from_secs(3_600);
    let client = Client::start(config).unwrap();
    let mut events = client.events();
    disconnected(&mut events).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.subscribe(["a"]).await }
    });
    wait_until("the request waits", || client.waiting_bytes() > 0).await;
    client.close().await;
    assert!(matches!(asking.await.unwrap(), Err(Error::Closed(_))));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_topic_that_is_not_given_again_is_told() {
    let (server, _) = start(server_config());
    let address = server.address();
    let (client, mut events) = connect(&server).await;
    client.subscribe(["kept.a"]).await.unwrap();
    server.stop().await;
    let mut closed = server_config();
    closed.topics.access = tidewire_engine::AccessRules::closed();
    let (_server, _) = start(ServerConfig {
        listen: address,
        ..closed
    });
    let lost = find(&mut events, |event| match event {
        Event::SubscriptionLost(topics) => Some(topics),
        _ => None,
    });
    assert_eq!(lost.await, ["kept.a"]);
    // The reason comes behind it.
    loop {
        if let Event::Error(error) = next(&mut events).await {
            assert_eq!(error.code, "TOPIC_FORBIDDEN");
            break;
        }
    }
}

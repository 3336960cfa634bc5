//! Subscriptions that the server makes by itself, across connections.

use crate::common::{connect, find, payloads, publish, server_config, start, wait_until};
use tidewire_client::{CloseCode, Event, Events};
use tidewire_engine::{AccessRules, Config as ServerConfig, ConnectionKey};

/// Clients may subscribe to nothing.
fn closed() -> ServerConfig {
    let mut config = server_config();
    config.topics.access = AccessRules::closed();
    config
}

async fn connected(events: &mut Events) {
    let connected = find(events, |event| {
        matches!(event, Event::Connected(_)).then_some(())
    });
    connected.await;
}

#[tokio::test]
async fn a_subscription_of_the_server_goes_on_after_a_reconnect() {
    let (server, recorder) = start(closed());
    let (client, mut events) = connect(&server).await;
    let handle = server.handle();
    let newest = || -> ConnectionKey {
        let peers = recorder.peers.lock().expect("no test panicked with it");
        *peers.last().expect("a client was there")
    };
    handle.subscribe(newest(), "kept.a").unwrap();
    wait_until("it is subscribed", || handle.counters().subscriptions == 1).await;
    publish(&server, "kept.a", 1);
    assert_eq!(payloads(&mut events, 1).await, [1]);
    for round in 0..3 {
        let number = 10 * (round + 1);
        handle
            .close(newest(), CloseCode::SERVICE_RESTART, "away")
            .unwrap();
        wait_until("it is away", || handle.counters().subscriptions == 0).await;
        publish(&server, "kept.a", number);
        connected(&mut events).await;
        // The server's application is slower than the client, which has asked by now.
        handle.subscribe(newest(), "kept.a").unwrap();
        publish(&server, "kept.a", number + 1);
        assert_eq!(payloads(&mut events, 2).await, [number, number + 1]);
    }
    drop(client);
}

#[tokio::test]
async fn what_the_server_does_not_subscribe_again_is_told() {
    let (server, recorder) = start(closed());
    let (_client, mut events) = connect(&server).await;
    let handle = server.handle();
    let peer = *recorder.peers.lock().unwrap().last().unwrap();
    handle.subscribe(peer, "kept.a").unwrap();
    wait_until("it is subscribed", || handle.counters().subscriptions == 1).await;
    publish(&server, "kept.a", 1);
    assert_eq!(payloads(&mut events, 1).await, [1]);
    handle
        .close(peer, CloseCode::SERVICE_RESTART, "away")
        .unwrap();
    let lost = find(&mut events, |event| match event {
        Event::SubscriptionLost(topics) => Some(topics),
        _ => None,
    });
    assert_eq!(lost.await, ["kept.a"]);
}

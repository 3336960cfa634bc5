//! Tokens that expire while a session runs.

use crate::common::{config, connect_with, find, next, payload, start, url, wait_until};
use crate::layers::{token, with_auth};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tidewire_client::{Client, Error, Event};
use tidewire_engine::Config as ServerConfig;

/// A token may be some seconds late, and its session lives as long.
fn server_config(grace_s: u64) -> ServerConfig {
    let mut config = with_auth();
    let auth = config.auth.as_mut().expect("a key");
    auth.leeway_s = 3;
    auth.grace_s = grace_s;
    config
}

#[tokio::test]
async fn a_client_with_a_token_function_keeps_its_session() {
    // However slow this machine is, the session does not end in the grace.
    let (server, _) = start(server_config(3_600));
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let is_asking = Arc::new(AtomicBool::new(false));
    let config = config(url(&server)).with_token_provider(move || {
        let count = counter.fetch_add(1, Ordering::SeqCst);
        let is_asking = is_asking.clone();
        assert!(!is_asking.swap(true, Ordering::SeqCst), "one at a time");
        async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            is_asking.store(false, Ordering::SeqCst);
            Ok(token(if count == 0 { 2 } else { 3_600 }))
        }
    });
    let (client, mut events) = connect_with(config).await;
    wait_until("another token", || {
        server.handle().counters().tokens_refreshed == 1
    })
    .await;
    client.send("echo", "7").await.unwrap();
    assert_eq!(payload(&mut events).await, "7");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(server.handle().counters().handshakes_completed, 1);
}

#[tokio::test]
async fn a_client_that_gets_no_token_in_time_comes_back_with_one_later() {
    let (server, _) = start(server_config(0));
    let has_token = Arc::new(AtomicBool::new(false));
    let gives = has_token.clone();
    let asked = AtomicUsize::new(0);
    let config = config(url(&server)).with_token_provider(move || {
        let count = asked.fetch_add(1, Ordering::SeqCst);
        let token = match count {
            0 => Ok(token(1)),
            _ if gives.load(Ordering::SeqCst) => Ok(token(3_600)),
            _ => Err("the tokens are out".to_owned()),
        };
        async move { token }
    });
    let (client, mut events) = connect_with(config).await;
    let code = find(&mut events, |event| match event {
        Event::Error(error) => Some(error.code),
        _ => None,
    });
    assert_eq!(code.await, "TOKEN_EXPIRED");
    let Event::Disconnected(lost) = next(&mut events).await else {
        panic!("the session goes on")
    };
    assert_eq!(lost.code, Some(4401));
    assert!(lost.retry_in.is_some());
    has_token.store(true, Ordering::SeqCst);
    find(&mut events, |event| {
        matches!(event, Event::Connected(_)).then_some(())
    })
    .await;
    client.send("echo", "8").await.unwrap();
    assert_eq!(payload(&mut events).await, "8");
    assert_eq!(server.handle().counters().sessions_expired, 1);
}

#[tokio::test]
async fn a_client_with_one_token_ends_with_it() {
    let (server, _) = start(server_config(0));
    let (client, mut events) = connect_with(config(url(&server)).with_token(token(1))).await;
    let lost = find(&mut events, |event| match event {
        Event::Disconnected(lost) => Some(lost),
        _ => None,
    });
    assert_eq!(lost.await.code, Some(4401));
    let error = client.closed().await;
    assert!(
        matches!(
            &error,
            Error::Ended {
                code: Some(4401),
                ..
            }
        ),
        "{error:?}"
    );
    let _: Client = client;
}

//! History for a client that was not there: replays of subscriptions, and pages.

use crate::common::{
    Recorder, config, connect_with, find, payloads, publish, server_config, start, url, wait_until,
};
use std::sync::{Arc, PoisonError};
use tidewire_client::request::SubscribeOptions;
use tidewire_client::{Client, CloseCode, Event, Events, Format, HistoryPage, HistoryQuery};
use tidewire_engine::Server;
use tokio::sync::Semaphore;

fn replaying(recover: bool) -> SubscribeOptions {
    SubscribeOptions {
        recover,
        replay: 3,
        ..SubscribeOptions::default()
    }
}

/// The numbers that the publications of a page have as payloads.
fn numbers(page: &HistoryPage) -> Vec<u64> {
    let publications = page.publications.iter();
    let number = |payload: &[u8]| String::from_utf8_lossy(payload).parse().expect("a number");
    publications
        .map(|message| number(&message.payload().expect("a payload")))
        .collect()
}

/// Waits until a further session has begun.
async fn connected_again(events: &mut Events) {
    find(events, |event| {
        matches!(event, Event::Connected(_)).then_some(())
    })
    .await;
}

/// Connects a client that makes one connection for each permit of the semaphore, the first already made.
async fn connect_with_permits(server: &Server) -> (Client, Events, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(1));
    let source = permits.clone();
    let config = config(url(server)).with_token_provider(move || {
        let permits = source.clone();
        async move {
            permits.acquire().await.expect("it stays open").forget();
            Ok("unused".to_owned())
        }
    });
    let (client, events) = connect_with(config).await;
    (client, events, permits)
}

/// Closes the session of the first client, which may come back.
async fn end_session(server: &Server, recorder: &Recorder) {
    let peer = recorder
        .peers
        .lock()
        .unwrap_or_else(PoisonError::into_inner)[0];
    let handle = server.handle();
    handle
        .close_with(peer, CloseCode::DRAINING, "come back")
        .expect("the peer is connected");
    wait_until("the session has ended", || handle.connections() == 0).await;
}

#[tokio::test]
async fn a_newcomer_gets_the_newest_publications_once() {
    for recover in [true, false] {
        let (server, recorder) = start(server_config());
        for number in 1..=10 {
            publish(&server, "kept.a", number);
        }
        let (client, mut events, permits) = connect_with_permits(&server).await;
        let subscribed = client.subscribe_with(["kept.a"], replaying(recover)).await;
        let positions = subscribed.unwrap().positions;
        assert_eq!((positions[0].count, positions[0].recovered), (3, false));
        publish(&server, "kept.a", 11);
        assert_eq!(payloads(&mut events, 4).await, [8, 9, 10, 11]);
        end_session(&server, &recorder).await;
        publish(&server, "kept.a", 12);
        permits.add_permits(1);
        connected_again(&mut events).await;
        let handle = server.handle();
        wait_until("it is subscribed again", || {
            handle.counters().subscriptions == 1
        })
        .await;
        publish(&server, "kept.a", 13);
        // What was missed, but nothing that was there before; or, if that is not wanted, only what is new.
        let expected = if recover { vec![12, 13] } else { vec![13] };
        assert_eq!(payloads(&mut events, expected.len()).await, expected);
        client.close().await;
    }
}

#[tokio::test]
async fn what_cannot_be_recovered_is_replayed() {
    let (server, recorder) = start(server_config());
    let (client, mut events, permits) = connect_with_permits(&server).await;
    client
        .subscribe_with(["kept.a"], replaying(true))
        .await
        .unwrap();
    publish(&server, "kept.a", 1);
    assert_eq!(payloads(&mut events, 1).await, [1]);
    end_session(&server, &recorder).await;
    assert_eq!(server.handle().forget_history("kept.a"), Ok(true));
    for number in 2..=9 {
        publish(&server, "kept.a", number);
    }
    permits.add_permits(1);
    let unrecovered = find(&mut events, |event| match event {
        Event::Unrecovered(unrecovered) => Some(unrecovered),
        _ => None,
    });
    assert_eq!(unrecovered.await.now.offset, 8);
    publish(&server, "kept.a", 10);
    assert_eq!(payloads(&mut events, 4).await, [7, 8, 9, 10]);
}

#[tokio::test]
async fn histories_are_read_page_by_page() {
    let (server, _) = start(server_config());
    for number in 1..=250 {
        publish(&server, "kept.a", number);
    }
    for format in [Format::Json, Format::MessagePack] {
        let mut config = config(url(&server));
        config.format = format;
        let (client, _events) = connect_with(config).await;
        for newest_first in [false, true] {
            let mut query = HistoryQuery::new("kept.a");
            query.newest_first = newest_first;
            let mut seen = Vec::new();
            loop {
                let page = client.history(query.clone()).await.unwrap();
                assert!(page.complete && page.publications.len() <= 100);
                assert_eq!((page.position.offset, page.oldest), (250, 1));
                seen.extend(numbers(&page));
                if !page.more {
                    break;
                }
                query.since = page.last();
            }
            if newest_first {
                seen.reverse();
            }
            assert!(seen.into_iter().eq(1..=250));
        }
        let refused = client.history(HistoryQuery::new("plain")).await;
        assert_eq!(refused.unwrap_err().code(), "NOT_FOUND");
        let mut wrong = HistoryQuery::new("kept.a");
        wrong.limit = 0;
        let refused = client.history(wrong).await.unwrap_err();
        assert_eq!(refused.code(), "INVALID_ARGUMENT");
        client.close().await;
    }
    assert_eq!(server.handle().counters().subscriptions, 0);
}

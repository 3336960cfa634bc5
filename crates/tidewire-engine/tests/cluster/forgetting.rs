//! The end of a topic's history on several servers. Each test starts a `redis-server` of its own.

use crate::common::cluster::{shared_topics, start_connected};
use tidewire_engine::{HistoryLimits, HistoryQuery, NewPublication, TopicRule};
use tidewire_testkit::redis::RedisServer;

#[test]
fn whoever_forgets_a_history_finds_nothing_of_it_afterwards() {
    let redis = RedisServer::start("");
    let mut config = shared_topics(&redis.url());
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits::of(1_000)),
        ..TopicRule::new("h.>")
    }];
    let servers = [start_connected(config.clone()), start_connected(config)];
    let handle = servers[1].handle();
    let publication = NewPublication::new("count", "1");
    let length = || {
        let query = HistoryQuery {
            since: None,
            limit: 10,
            newest_first: false,
        };
        let page = handle.history("h.a", query).expect("a broker");
        page.expect("a history").publications.len()
    };
    // The answer and the message to all servers come on different connections, in either order.
    for round in 0..50 {
        let published = servers[0].handle().publish("h.a", &publication);
        published.expect("a broker");
        while length() == 0 {}
        assert_eq!(handle.forget_history("h.a"), Ok(true), "round {round}");
        assert_eq!(length(), 0, "round {round}");
    }
}

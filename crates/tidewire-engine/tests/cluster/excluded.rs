//! Connections that a publication excludes, on every server.

use crate::common;

use common::cluster::{shared_history, start_connected};
use common::topics::subscribe;
use common::{Client, connect_v1};
use serde_json::json;
use tidewire_engine::{ConnectionQuery, NewPublication, PublishError};
use tidewire_testkit::redis::RedisServer;

#[test]
fn several_connections_are_excluded_on_every_server() {
    let redis = RedisServer::start("");
    let servers = [(); 2].map(|()| start_connected(shared_history(&redis.url(), 100)));
    let mut excluded = Vec::new();
    let mut clients: Vec<Client> = Vec::new();
    for server in &servers {
        let mut one = connect_v1(server);
        subscribe(&mut one, json!(["h.a", "plain"]));
        let query = ConnectionQuery {
            limit: 10,
            ..ConnectionQuery::default()
        };
        let listed = server.handle().list_connections(&query).expect("a list");
        excluded.push(listed.items[0].connection);
        let mut other = connect_v1(server);
        subscribe(&mut other, json!(["h.a", "plain"]));
        clients.extend([one, other]);
    }
    let handle = servers[0].handle();
    let message = |number: u64| NewPublication::new("count", format!(r#"{{"n":{number}}}"#));
    let without = |number: u64| message(number).without_all(excluded.clone());
    for (at, topic) in ["h.a", "plain"].into_iter().enumerate() {
        let number = 10 * at as u64;
        handle
            .publish(topic, &without(number + 1))
            .expect("a broker");
        // Everybody but one connection of the first server gets this one.
        let one = message(number + 2).without(excluded[0]);
        handle.publish(topic, &one).expect("a broker");
        handle
            .publish(topic, &message(number + 3))
            .expect("a broker");
    }
    handle.publish_to_everyone(&without(21)).expect("a server");
    handle.publish_to_everyone(&message(23)).expect("a server");
    for (at, client) in clients.iter_mut().enumerate() {
        let expected: &[u64] = match at {
            0 => &[3, 13, 23],
            2 => &[2, 3, 12, 13, 23],
            _ => &[1, 2, 3, 11, 12, 13, 21, 23],
        };
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            seen.push(client.next_json()["p"]["n"].as_u64().expect("a number"));
        }
        seen.sort_unstable();
        assert_eq!(seen, expected, "client {at}");
    }
    let too_many = (0..1_001).map(|number| {
        let key = format!("{number}-0");
        key.parse().expect("a key")
    });
    let refused = handle.publish("plain", &message(1).without_all(too_many));
    assert_eq!(refused, Err(PublishError::Excluded));
}

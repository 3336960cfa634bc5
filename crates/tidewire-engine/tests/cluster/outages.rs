//! Outages of the broker behind several servers, and topics that nobody subscribes to. Each test starts a
//! `redis-server` of its own.

use crate::common;

use common::cluster::{is_connected, partitions, shared_topics, start_connected};
use common::topics::{publish, subscribe};
use common::{Client, SECRET, connect_as, connect_v1, start, wait_until};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{BrokerAddress, Config, HistoryLimits, NewPublication, Server, TopicRule};
use tidewire_testkit::redis::RedisServer;
use tidewire_wire::close::CloseCode;

/// `last.>` gives the newest publication.
fn config(redis: &RedisServer) -> Config {
    let mut config = shared_topics(&redis.url());
    config.broker.as_mut().expect("a broker").wait_ms = 300;
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits::of(1)),
        last_value: true,
        ..TopicRule::new("last.>")
    }];
    config
}

#[test]
fn the_newest_publication_is_found_at_a_server_without_subscribers() {
    let mut redis = RedisServer::start("");
    let servers = [(); 2].map(|()| start_connected(config(&redis)));
    let mut publisher = connect_v1(&servers[0]);
    let payload = json!({"topic": "last.a", "type": "count", "payload": {"n": 7}});
    let request = json!({"t": "publish_request", "cid": "1", "p": payload});
    assert_eq!(publisher.ask(&request)["t"], "publish_response");
    let mut reader = connect_v1(&servers[1]);
    let sync = |topic: &str| json!({"t": "sync_request", "p": {"topics": [topic], "include_snapshots": true}});
    let snapshot = reader.ask(&sync("last.a"));
    assert_eq!(
        (&snapshot["c"], &snapshot["tp"], &snapshot["p"]),
        (&json!("S"), &json!("last.a"), &json!({"n": 7})),
        "{snapshot}"
    );
    assert_eq!(reader.ask(&sync("last.b"))["p"]["code"], "INVALID_ACTION");
    redis.kill();
    wait_until("no broker", || !is_connected(&servers[1]));
    let refused = reader.ask(&sync("last.c"));
    assert_eq!(refused["p"]["code"], "BROKER_UNAVAILABLE", "{refused}");
}

#[test]
fn a_server_whose_broker_thread_is_blocked_is_not_ready() {
    let redis = RedisServer::start("");
    let mut config = config(&redis);
    config.limits.shard_stall_ms = 200;
    let server = start_connected(config);
    let (go, held) = channel::<()>();
    let publication = NewPublication::new("count", "{}");
    let handle = server.handle();
    handle.publish_with("last.a", &publication, move |_| {
        let _ = held.recv();
    });
    wait_until("the stall is seen", || !is_connected(&server));
    let health = handle.broker_health().expect("a broker");
    let reason = health.reason.expect("a reason");
    assert!(reason.contains("publish_with"), "{reason}");
    drop(go);
    wait_until("the broker goes on", || is_connected(&server));
    // One that panics ends neither the thread nor the server.
    handle.publish_with("last.a", &publication, |outcome| panic!("{outcome:?}"));
    let published = handle.publish("last.a", &publication);
    assert!(published.is_ok(), "{published:?}");
}

#[test]
fn a_gap_of_a_pattern_is_told_to_its_own_subscribers() {
    let mut redis = RedisServer::start("");
    let server = start_connected(config(&redis));
    let mut clients = ["a.*", "a.>"].map(|pattern| {
        let mut client = connect_v1(&server);
        subscribe(&mut client, json!([pattern]));
        (client, pattern)
    });
    redis.kill();
    wait_until("no broker", || !is_connected(&server));
    redis.run();
    wait_until("a broker", || is_connected(&server));
    let mut publisher = connect_v1(&server);
    publish(&mut publisher, "a.b", 1);
    for (client, pattern) in &mut clients {
        let gap = client.next_json();
        assert_eq!(gap["t"], "publication_gap", "{gap}");
        assert_eq!(gap["p"]["topic"], *pattern, "{gap}");
        // Each partition has one.
        let mut publication = client.next_json();
        for _ in 1..partitions() {
            assert_eq!(publication["p"]["topic"], *pattern, "{publication}");
            publication = client.next_json();
        }
        assert_eq!(publication["tp"], "a.b", "only its own gap: {publication}");
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn ada(server: &Server) -> Client {
    connect_as(server, "ada")
}

/// A Redis, and the URL of a user of it who can be cut off.
fn with_a_far_user() -> (RedisServer, String) {
    let port = free_port();
    let redis = RedisServer::start(&format!("--port {port}"));
    assert_eq!(
        redis.ask("ACL SETUSER far on >secret ~* &* +@all"),
        "+OK\r\n"
    );
    (redis, format!("redis://far:secret@127.0.0.1:{port}"))
}

fn secured(redis: &RedisServer, url: &str) -> Config {
    let mut config = config(redis);
    config.auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    config.broker.as_mut().expect("a broker").addresses =
        BrokerAddress::parse_list(url).expect("a URL");
    config
}

fn cut_off(redis: &RedisServer, server: &Server) {
    redis.ask("ACL SETUSER far off");
    redis.ask("CLIENT KILL USER far");
    wait_until("the server is cut off", || !is_connected(server));
}

/// The counter of a server's link.
fn count(server: &Server, name: &str) -> u64 {
    let health = server.handle().broker_health().expect("a broker");
    let mut counts = health.counts.into_iter();
    let found = counts.find(|(counter, _)| *counter == name);
    found.expect("a counter of this name").1
}

const GONE: CloseCode = CloseCode::POLICY_VIOLATION;

#[test]
fn a_late_revocation_spares_sessions_that_began_after_it() {
    let (redis, far_url) = with_a_far_user();
    let near = start_connected(secured(&redis, &redis.url()));
    let far = start_connected(secured(&redis, &far_url));
    let mut before = ada(&far);
    cut_off(&redis, &far);
    near.handle()
        .close_user("ada", GONE, "gone")
        .expect("a broker");
    // The clocks of the servers may differ by a second for all they know.
    let told = Instant::now();
    wait_until("a later session", || {
        told.elapsed() > Duration::from_millis(1_200)
    });
    let mut after = ada(&far);
    redis.ask("ACL SETUSER far on");
    before.assert_closed(GONE);
    let answer: Value = after
        .ask(&json!({"t": "subscription_update", "p": {"action": "subscribe", "topics": ["b"]}}));
    assert_eq!(answer["t"], "subscription_update", "{answer}");
}

#[test]
fn a_server_that_begins_without_the_broker_learns_of_revocations_since() {
    let (redis, far_url) = with_a_far_user();
    let near = start_connected(secured(&redis, &redis.url()));
    // It is no news for the other server.
    near.handle()
        .close_user("ada", GONE, "before")
        .expect("a broker");
    let told = Instant::now();
    wait_until("a later beginning", || {
        told.elapsed() > Duration::from_millis(1_200)
    });
    redis.ask("ACL SETUSER far off");
    let far = start(secured(&redis, &far_url), tidewire_engine::apps::Sink);
    let mut revoked = ada(&far);
    near.handle()
        .close_user("ada", GONE, "gone")
        .expect("a broker");
    let mut other = connect_as(&far, "bob");
    redis.ask("ACL SETUSER far on");
    revoked.assert_closed(GONE);
    wait_until("a broker", || is_connected(&far));
    let answer: Value = other
        .ask(&json!({"t": "subscription_update", "p": {"action": "subscribe", "topics": ["b"]}}));
    assert_eq!(answer["t"], "subscription_update", "{answer}");
}

#[test]
fn all_sessions_end_where_commands_were_lost() {
    let (redis, far_url) = with_a_far_user();
    let near = start_connected(secured(&redis, &redis.url()));
    let far = start_connected(secured(&redis, &far_url));
    let (mut here, mut there) = (ada(&near), ada(&far));
    let close_nobody = || {
        let handle = near.handle();
        handle.close_user("nobody", GONE, "").expect("a broker");
    };
    close_nobody();
    cut_off(&redis, &far);
    close_nobody();
    // More than are kept were told meanwhile.
    let trim = r#"XTRIM "tw:{0}:t:\x01control" MAXLEN 0"#;
    assert!(redis.ask(trim).starts_with(':'));
    redis.ask("ACL SETUSER far on");
    // They come back one after the other.
    assert_eq!(there.next_json()["t"], "reconnect");
    there.assert_closed(CloseCode::SERVICE_RESTART);
    wait_until("a count", || count(&far, "commands_lost") == 1);
    let mut again = ada(&far);
    for client in [&mut here, &mut again] {
        let update = json!({"action": "subscribe", "topics": ["b"]});
        let answer = client.ask(&json!({"t": "subscription_update", "p": update}));
        assert_eq!(answer["t"], "subscription_update", "{answer}");
    }
    assert_eq!(count(&near, "commands_lost"), 0);
}

/// An application that blocks its shard as long as a test holds the lock.
#[derive(Clone, Default)]
struct Blocks(std::sync::Arc<std::sync::Mutex<()>>);

impl tidewire_engine::Application for Blocks {
    fn on_message(
        &mut self,
        _: &mut tidewire_engine::Context<'_>,
        _: tidewire_engine::Message<'_>,
    ) {
        drop(self.0.lock().expect("no panic"));
    }
}

#[test]
fn a_revocation_waits_for_a_shard_that_has_no_room() {
    // A shard takes less mail.
    const MANY: usize = 5_000;
    let (redis, far_url) = with_a_far_user();
    let near = start_connected(secured(&redis, &redis.url()));
    let mut far = secured(&redis, &far_url);
    far.shards = 1;
    let application = Blocks::default();
    let far = start(far, application.clone());
    wait_until("a broker", || is_connected(&far));
    let mut revoked = ada(&far);
    let blocked = application.0.lock().expect("no panic");
    revoked.send_text(&json!({"t": "x", "p": 1}).to_string());
    let handle = near.handle();
    for _ in 0..MANY {
        handle.close_user("nobody", GONE, "").expect("a broker");
    }
    handle.close_user("ada", GONE, "gone").expect("a broker");
    // The other server has heard of all of them.
    wait_until("deliveries", || count(&far, "deliveries") > MANY as u64);
    drop(blocked);
    revoked.assert_closed(GONE);
}

#[test]
fn a_server_that_is_cut_off_sends_its_clients_to_others_if_that_is_wanted() {
    let mut redis = RedisServer::start("");
    let mut cut = config(&redis);
    cut.broker.as_mut().expect("a broker").lost_close_ms = Some(300);
    cut.drain.reconnect_spread_ms = 10;
    let (closes, stays) = (start_connected(cut), start_connected(config(&redis)));
    let (mut client, mut other) = (connect_v1(&closes), connect_v1(&stays));
    redis.kill();
    let told = client.next_json();
    assert_eq!(told["t"], "reconnect", "{told}");
    client.assert_closed(CloseCode::SERVICE_RESTART);
    let health = closes.handle().broker_health().expect("a broker");
    assert!(health.away_ms >= 300 && !health.is_connected, "{health:?}");
    // Once in an outage: who comes back stays.
    let mut back = connect_v1(&closes);
    wait_until("three times as long", || {
        closes.handle().broker_health().expect("a broker").away_ms > 1_200
    });
    assert_eq!(back.ask(&json!({"t": "ping"}))["t"], "PONG");
    assert_eq!(other.ask(&json!({"t": "ping"}))["t"], "PONG");
    redis.run();
    wait_until("a broker", || is_connected(&closes));
    wait_until("no outage", || {
        closes.handle().broker_health().expect("a broker").away_ms == 0
    });
}

//! Access to the broker: rules of access, passwords and certificates that are read again, and settings that all servers
//! must have in common. Each test starts a `redis-server` of its own.

use crate::common;

use common::cluster::{is_connected, shared_topics, start_connected};
use common::topics::{publish, subscribe};
use common::{Client, connect_v1, start, wait_until};
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use tidewire_engine::apps::Sink;
use tidewire_engine::{Config, HistoryLimits, HistoryQuery, PasswordSource, Server, TopicRule};
use tidewire_testkit::redis::RedisServer;

/// A Redis with a user `tide`, as docs/scale-out.md describes it.
fn redis_with_user(folder: &Path) -> RedisServer {
    let file = folder.join("users.acl");
    let rule = "~tw:* &tw:* +@all -@dangerous +info +config|get";
    let users = format!("user default on nopass ~* &* +@all\nuser tide on >secret {rule}\n");
    fs::write(&file, users).expect("written");
    RedisServer::start(&format!("--aclfile {}", file.display()))
}

fn config(redis: &RedisServer, password: PasswordSource) -> Config {
    let mut config = shared_topics(&redis.url());
    let broker = config.broker.as_mut().expect("a broker");
    broker.username = Some("tide".to_owned());
    broker.password = Some(password);
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits::of(1_000)),
        ..TopicRule::new("h.>")
    }];
    config
}

/// The numbers of the next publications that a client receives, without gaps between them.
fn numbers(client: &mut Client, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let message = client.next_json();
        assert_ne!(message["t"], "publication_gap", "{message}");
        numbers.extend(message["p"]["n"].as_u64());
    }
    numbers
}

#[test]
fn a_client_that_repeats_patterns_disturbs_nobody_under_the_documented_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    let redis = redis_with_user(folder.path());
    let file = folder.path().join("password");
    fs::write(&file, "secret\n").expect("written");
    let server = start_connected(config(&redis, PasswordSource::File(file)));
    let mut other = connect_v1(&server);
    subscribe(&mut other, json!(["h.a.b"]));
    let (mut publisher, mut noisy) = (connect_v1(&server), connect_v1(&server));
    for number in 0..99 {
        let update = |action: &str| {
            let payload = json!({"action": action, "topics": ["h.a.*"]});
            json!({"t": "subscription_update", "p": payload}).to_string()
        };
        noisy.send_text(&update("subscribe"));
        publish(&mut publisher, "h.a.b", number);
        noisy.send_text(&update("unsubscribe"));
    }
    assert_eq!(numbers(&mut other, 99), (0..99).collect::<Vec<_>>());
    let health = server.handle().broker_health().expect("a broker");
    assert!(
        health.is_connected && health.problems.is_empty(),
        "{health:?}"
    );
    let mut watcher = connect_v1(&server);
    subscribe(&mut watcher, json!(["h.a.*"]));
    publish(&mut publisher, "h.a.b", 99);
    assert_eq!(numbers(&mut watcher, 1), [99]);
}

#[test]
fn a_password_is_read_again_before_each_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let redis = redis_with_user(folder.path());
    let file = folder.path().join("password");
    fs::write(&file, "secret").expect("written");
    let command = PasswordSource::Command(format!("cat {}", file.display()));
    let servers = [PasswordSource::File(file.clone()), command]
        .map(|source| start_connected(config(&redis, source)));
    assert_eq!(redis.ask("ACL SETUSER tide resetpass >fresh"), "+OK\r\n");
    fs::write(&file, "fresh").expect("written");
    redis.ask("CLIENT KILL USER tide");
    let disconnects = |server: &Server| {
        let health = server.handle().broker_health().expect("a broker");
        let mut counts = health.counts.into_iter();
        counts
            .find(|(name, _)| *name == "disconnects")
            .expect("a count")
            .1
    };
    for server in &servers {
        wait_until("it was disconnected and is back", || {
            disconnects(server) > 0 && is_connected(server)
        });
        let mut client = connect_v1(server);
        publish(&mut client, "h.a", 1);
    }
    fs::remove_file(&file).expect("removed");
    redis.ask("CLIENT KILL USER tide");
    wait_until("a reason", || {
        let health = servers[0].handle().broker_health().expect("a broker");
        health
            .reason
            .unwrap_or_default()
            .contains("the password file")
    });
}

/// An authority, and a certificate of it for `localhost` and its key, in files.
fn certificates(folder: &Path) {
    let mut authority = rcgen::CertificateParams::default();
    // Another name than the certificate has, which would look as one that signs itself.
    let name = &mut authority.distinguished_name;
    name.push(rcgen::DnType::CommonName, "the authority of a test");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let authority_file = authority.self_signed(&authority_key).expect("an authority");
    let key = rcgen::KeyPair::generate().expect("a key");
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = certificate.signed_by(&key, &issuer).expect("a certificate");
    for (name, text) in [
        ("ca.pem", authority_file.pem()),
        ("cert.pem", certificate.pem()),
        ("key.pem", key.serialize_pem()),
    ] {
        fs::write(folder.join(name), text).expect("a file");
    }
}

#[test]
fn a_redis_that_asks_for_a_certificate_gets_one_that_is_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let path = folder.path().display();
    let redis = RedisServer::start(&format!(
        "--tls-port {port} --tls-cert-file {path}/cert.pem --tls-key-file {path}/key.pem \
         --tls-ca-cert-file {path}/ca.pem --tls-auth-clients yes"
    ));
    let mut without = shared_topics(&format!("valkeys://localhost:{port}?db=3"));
    let broker = without.broker.as_mut().expect("a broker");
    broker.authorities = Some(folder.path().join("ca.pem"));
    let mut with = without.clone();
    let own = ["own.pem", "own.key"].map(|name| folder.path().join(name));
    for (from, to) in ["cert.pem", "key.pem"].iter().zip(&own) {
        fs::copy(folder.path().join(from), to).expect("copied");
    }
    let broker = with.broker.as_mut().expect("a broker");
    broker.certificate = Some((own[0].clone(), own[1].clone()));
    let refused = start(without, Sink);
    let server = start_connected(with);
    assert!(!is_connected(&refused));
    // A certificate that cannot be read stops the next connection, and the right one lets it in again.
    fs::write(&own[0], "no certificate").expect("written");
    redis.ask("CLIENT KILL TYPE normal SKIPME yes");
    wait_until("a reason", || {
        let health = server.handle().broker_health().expect("a broker");
        !health.is_connected
            && health
                .reason
                .unwrap_or_default()
                .to_lowercase()
                .contains("certificate")
    });
    fs::copy(folder.path().join("cert.pem"), &own[0]).expect("copied");
    wait_until("a broker", || is_connected(&server));
}

#[test]
fn a_rolling_restart_that_adds_history_loses_nothing() {
    let redis = RedisServer::start("");
    let plain = shared_topics(&redis.url());
    let mut kept = plain.clone();
    kept.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits::of(1_000)),
        ..TopicRule::new("h.>")
    }];
    let old = start_connected(plain);
    let mut old_reader = connect_v1(&old);
    subscribe(&mut old_reader, json!(["h.a"]));
    let mut publisher = connect_v1(&old);
    publish(&mut publisher, "h.a", 0);
    let new = start_connected(kept.clone());
    let mut new_reader = connect_v1(&new);
    subscribe(&mut new_reader, json!(["h.a"]));
    let mut other = connect_v1(&new);
    for number in (1..201).step_by(2) {
        publish(&mut publisher, "h.a", number);
        publish(&mut other, "h.a", number + 1);
    }
    let [mut at_old, mut at_new] = [(&mut old_reader, 201), (&mut new_reader, 200)]
        .map(|(client, count)| numbers(client, count));
    assert_eq!(at_old[1..], at_new, "in one order");
    at_old.sort_unstable();
    at_new.sort_unstable();
    assert_eq!(at_old, (0..=200).collect::<Vec<_>>());
    assert_eq!(at_new, (1..=200).collect::<Vec<_>>());
    let health = new.handle().broker_health().expect("a broker");
    let kinds: Vec<_> = health.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, ["settings_differ"]);
    assert!(!health.problems[0].is_fatal);
    // What the old server published is in the history of the new one.
    let query = HistoryQuery {
        since: None,
        limit: 1_000,
        newest_first: false,
    };
    let topic = new.handle().history("h.a", query).expect("a history");
    let kept = topic.map(|page| page.publications.len());
    assert_eq!(kept, Some(200));
}

#[test]
fn a_server_that_differs_does_not_join_and_says_what_differs() {
    let redis = RedisServer::start("");
    let first = start_connected(shared_topics(&redis.url()));
    let mut config = shared_topics(&redis.url());
    config.broker.as_mut().expect("a broker").is_durable = true;
    let second = start(config, Sink);
    wait_until("a problem", || {
        let health = second.handle().broker_health().expect("a broker");
        health.problems.iter().any(|problem| {
            problem.is_fatal
                && problem
                    .text
                    .contains("broker_is_durable is true here and false")
        })
    });
    assert!(!is_connected(&second) && is_connected(&first));
}

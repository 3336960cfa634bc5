//! Another configuration for a running server: what changes at once, what stays, and that a mistake changes nothing.

use crate::common;

use common::topics::{open_topics, subscribe};
use common::{Client, Opening, SECRET, certified, config, connect_v1, start, token, token_by};
use serde_json::json;
use std::time::Duration;
use tidewire_engine::apps::{Echo, Sink};
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::ops::{ApiKey, ApiRights, NamedApiKey};
use tidewire_engine::{
    AccessRules, Config, HistoryLimits, HistoryQuery, NewPublication, OriginPolicy, ReloadError,
    ReloadFunction, Reloaded, Server, TopicRule,
};

const OTHER: &[u8] = b"another secret of sufficient size";

fn key(secret: &[u8]) -> KeyMaterial {
    KeyMaterial::Hs256(secret.to_vec())
}

fn reload(server: &Server, config: &Config) -> Reloaded {
    server
        .reloader()
        .reload(config)
        .expect("a good configuration")
}

/// An accepted client still receives answers.
#[track_caller]
fn assert_alive(client: &mut Client) {
    let ping = json!({"t": "ping", "p": {"timestamp": 1}});
    assert_eq!(client.ask(&ping)["t"], "PONG");
}

#[test]
fn keys_are_rotated_and_sessions_stay() {
    let mut config = Config {
        auth: Some(AuthConfig::new(key(SECRET))),
        ..config()
    };
    let server = start(config.clone(), Echo);
    let bearer = |token: String| {
        let opening = Opening::new(server.address());
        opening.header("Authorization", format!("Bearer {token}"))
    };
    let (old, new) = (
        || bearer(token(json!({}))),
        || bearer(token_by(&key(OTHER), None, json!({}))),
    );
    let mut session = old().open();
    session.next_json();
    assert_eq!(new().refused().0, 401);

    config.auth = Some(AuthConfig::new(key(OTHER)));
    let reloaded = reload(&server, &config);
    assert_eq!(reloaded.changed, ["jwt_secret"]);
    assert_eq!(reloaded.needs_restart, [""; 0]);
    assert_alive(&mut session);
    new().open();
    assert_eq!(old().refused().0, 401);

    // Whether tokens are needed does not change while the server runs.
    config.auth = None;
    assert_eq!(reload(&server, &config).needs_restart, ["no_auth"]);
    assert_eq!(Opening::new(server.address()).refused().0, 401);
    assert_alive(&mut session);
}

#[test]
fn pages_limits_and_access_change_for_those_who_come() {
    let mut config = config();
    let server = start(config.clone(), Sink);
    let page = || Opening::new(server.address()).header("Origin", "https://page.example");
    assert_eq!(page().refused().0, 403);
    let mut session = connect_v1(&server);

    config.origins = OriginPolicy::Listed(vec!["https://page.example".to_owned()]);
    config.topics.access = AccessRules::open();
    config.limits.connections_max = 2;
    config.limits.message_bytes_max = 1_000;
    config.shards = 7;
    let reloaded = reload(&server, &config);
    assert_eq!(
        reloaded.changed,
        [
            "client_publish_allow",
            "client_queue_group_allow",
            "client_subscribe_allow",
            "connections_max",
            "message_bytes_max",
            "origin"
        ]
    );
    assert_eq!(reloaded.needs_restart, ["shards"]);
    assert_eq!(reload(&server, &config).changed, [""; 0]);

    let mut other = page().open();
    assert_eq!(other.next_json()["t"], "server_ready");
    subscribe(&mut other, json!(["news"]));
    assert_eq!(page().refused().0, 503);
    // The rights and the sizes of the older session are those of its start.
    let long = json!({"t": "x", "p": "y".repeat(2_000)});
    session.send_text(&long.to_string());
    let wanted = json!({"t": "subscription_update", "p": {"action": "subscribe", "topics": ["a"]}});
    assert_eq!(session.ask(&wanted)["p"]["failed_topics"], json!(["a"]));
}

#[test]
fn rules_of_topics_hold_for_the_next_publication() {
    let mut config = open_topics();
    let server = start(config.clone(), Sink);
    let mut client = connect_v1(&server);
    subscribe(&mut client, json!(["news"]));
    let publish = |client: &mut Client, number: u64| {
        let news = NewPublication::new("count", number.to_string());
        server.handle().publish("news", &news).unwrap();
        client.next_json()
    };
    assert!(publish(&mut client, 1).get("o").is_none());

    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits::of(10)),
        ..TopicRule::new("news")
    }];
    assert_eq!(reload(&server, &config).changed, ["topic_rules"]);
    assert_eq!(publish(&mut client, 2)["o"], 1);

    // Without the rule nothing is kept, but who was away notices: the numbers go on.
    config.topics.rules.clear();
    reload(&server, &config);
    let third = publish(&mut client, 3);
    assert_eq!(third["o"], 2);
    let query = HistoryQuery {
        since: None,
        limit: 10,
        newest_first: false,
    };
    let page = server.handle().history("news", query).unwrap();
    let page = page.expect("the topic is numbered");
    assert_eq!(page.publications.len(), 0);
}

#[test]
fn a_mistake_changes_nothing() {
    let auth = || Some(AuthConfig::new(key(SECRET)));
    let good = Config {
        auth: auth(),
        ..config()
    };
    let server = start(good.clone(), Echo);
    let bad = [
        Config {
            auth: Some(AuthConfig::new(key(b"short"))),
            ..good.clone()
        },
        {
            let mut config = good.clone();
            config.topics.rules = vec![TopicRule::new("a..b")];
            config
        },
        {
            let mut config = good.clone();
            config.limits.message_bytes_max = 1;
            config
        },
    ];
    for mut config in bad {
        config.origins = OriginPolicy::Any;
        let error = server.reloader().reload(&config).unwrap_err();
        assert!(matches!(error, ReloadError::Configuration(_)), "{error}");
    }
    let bearer = format!("Bearer {}", token(json!({})));
    let client = Opening::new(server.address()).header("Authorization", bearer);
    client.clone().open();
    let page = client.header("Origin", "https://page.example");
    assert_eq!(page.refused().0, 403);
}

#[test]
fn there_may_be_any_number_of_reloads() {
    let mut config = config();
    let server = start(config.clone(), Echo);
    let mut session = connect_v1(&server);
    for number in 1..=2_000 {
        config.limits.calls_per_connection_max = number;
        assert_eq!(
            reload(&server, &config).changed,
            ["calls_per_connection_max"]
        );
    }
    assert_alive(&mut session);
    connect_v1(&server);
}

#[test]
fn a_certificate_is_replaced_and_connections_stay() {
    let (files, trust, folder) = certified();
    let (new_files, new_trust, _new_folder) = certified();
    let config = Config {
        tls: Some(files.clone()),
        ..config()
    };
    let server = start(config.clone(), Echo);
    let opening = Opening::new(server.address());
    let mut session = opening.clone().tls(&trust).open();
    session.next_json();

    // The files have other content under the same names.
    std::fs::copy(&new_files.certificate, &files.certificate).unwrap();
    let broken = server.reloader().reload(&config);
    assert!(
        broken.is_err(),
        "the key does not belong to the certificate"
    );
    opening.clone().tls(&trust).open();
    std::fs::copy(&new_files.key, &files.key).unwrap();
    assert_eq!(reload(&server, &config).changed, ["tls_certificate"]);
    assert_eq!(reload(&server, &config).changed, [""; 0]);
    opening.clone().tls(&new_trust).open();
    assert_alive(&mut session);
    drop(folder);
}

#[test]
fn the_api_reloads_for_keys_with_that_right() {
    let mut config = config();
    config.ops_listen = Some("127.0.0.1:0".parse().unwrap());
    let key = |name: &str, rights, letter: u8| NamedApiKey {
        name: name.to_owned(),
        rights,
        key: ApiKey::new(vec![letter; 16]).unwrap(),
    };
    let admin = ApiRights {
        admin: true,
        ..ApiRights::default()
    };
    let publish = ApiRights {
        publish: true,
        ..ApiRights::default()
    };
    config.ops_api_keys = vec![key("ops", admin, b'o'), key("backend", publish, b'b')];
    let server = start(config, Sink);
    let ask = |letter: &str, method: &str, path: &str, body: &str| {
        let line = format!("X-API-Key: {}\r\n", letter.repeat(16));
        common::api::http(&server).ask(method, path, &line, body)
    };
    let refused = ask("b", "POST", "/api/v1/reload", "");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "not_permitted")
    );
    let words = "the key backend does not have the right admin, which this needs";
    assert_eq!(refused.json()["error"]["message"], words);
    for (letter, status) in [("b", 200), ("o", 403)] {
        let body = r#"{"topic": "a", "type": "x", "payload": 1}"#;
        assert_eq!(ask(letter, "POST", "/api/v1/publish", body).status, status);
        assert_eq!(ask(letter, "GET", "/api/v1/connections", "").status, 403);
    }
    assert_eq!(ask("x", "GET", "/api/v1/connections", "").status, 401);

    assert_eq!(ask("o", "POST", "/api/v1/reload", "").status, 501);
    let answers = std::sync::Mutex::new(vec![
        Err("tidewire.toml:3: no such option".to_owned()),
        Ok(Reloaded {
            changed: vec!["origin"],
            needs_restart: vec!["shards"],
        }),
    ]);
    server.on_reload(ReloadFunction(Box::new(move || {
        answers.lock().unwrap().pop().unwrap()
    })));
    let reloaded = ask("o", "POST", "/api/v1/reload", "");
    let expected = json!({"changed": ["origin"], "needs_restart": ["shards"]});
    assert_eq!((reloaded.status, reloaded.json()), (200, expected));
    let failed = ask("o", "POST", "/api/v1/reload", "");
    assert_eq!(
        (failed.status, failed.code().as_str()),
        (409, "not_reloaded")
    );
    let words = "tidewire.toml:3: no such option; nothing has changed";
    assert_eq!(failed.json()["error"]["message"], words);
    server.drain(Duration::from_secs(1));
}

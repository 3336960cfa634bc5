//! A server with the HTTP API, and those who use it.

use super::http::{Answer, Http};
use super::topics::open_topics;
use super::{Client, Opening, SECRET, start, token, unix_s};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tidewire_engine::apps::Sink;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::ops::{ApiKey, NamedApiKey};
use tidewire_engine::{Config, HistoryLimits, Server, TopicRule};

/// Topics for everyone, history of `kept.*`, presence on `room.*`, tokens, and the HTTP API.
pub fn config_with_api() -> Config {
    let mut config = open_topics();
    config.auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    config.ops_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let key = ApiKey::new(b"0123456789abcdef".to_vec()).expect("a long key");
    config.ops_api_keys = vec![NamedApiKey::all("backend", key)];
    config.topics.rules = vec![
        TopicRule {
            history: Some(HistoryLimits {
                publications_max: 1_000,
                bytes_max: 64 << 20,
                age_max_ms: 0,
            }),
            ..TopicRule::new("kept.*")
        },
        TopicRule {
            presence: true,
            ..TopicRule::new("room.*")
        },
    ];
    config
}

pub fn server() -> Server {
    start(config_with_api(), Sink)
}

pub fn open(server: &Server, user: &str) -> Client {
    let claims = json!({"sub": user, "exp": unix_s() + 60});
    let mut client = Opening::new(server.address())
        .header("Authorization", format!("Bearer {}", token(claims)))
        .open();
    assert_eq!(client.next_json()["t"], "server_ready");
    client
}

pub fn http(server: &Server) -> Http {
    Http::connect(server.ops_address().expect("an operations listener"))
}

pub fn with_key(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    let line = "Authorization: Bearer 0123456789abcdef\r\n";
    http(server).ask(method, path, line, body)
}

#[track_caller]
pub fn post(server: &Server, path: &str, body: &Value) -> Value {
    let answer = with_key(server, "POST", path, &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[track_caller]
pub fn get(server: &Server, path: &str) -> Value {
    let answer = with_key(server, "GET", path, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

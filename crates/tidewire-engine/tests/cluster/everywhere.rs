//! Lists and requests of the HTTP API over all servers of a cluster.

use crate::common;

use common::Client;
use common::api::{config_with_api, open, post, with_key};
use common::cluster::{shared_topics, start_connected};
use common::topics::subscribe;
use common::wait_until;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tidewire_engine::{Config, Server};
use tidewire_testkit::redis::RedisServer;

fn server(redis: &RedisServer) -> Server {
    start_connected(Config {
        broker: shared_topics(&redis.url()).broker,
        ..config_with_api()
    })
}

/// Servers that know of each other.
fn servers<const N: usize>(redis: &RedisServer) -> [Server; N] {
    let servers = [(); N].map(|()| server(redis));
    wait_until("all know all", || {
        servers.iter().all(|server| nodes(server).len() == N)
    });
    servers
}

fn nodes(server: &Server) -> Vec<String> {
    let broker = server.handle().broker_health().expect("a broker");
    broker.nodes.into_iter().map(|node| node.node).collect()
}

#[track_caller]
fn get(server: &Server, path: &str) -> Value {
    let answer = with_key(server, "GET", path, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// A client that takes calls.
fn callable(server: &Server, user: &str) -> Client {
    let mut client = open(server, user);
    client.ask(&json!({"t": "client_hello", "p": {"features": {"calls": true}}}));
    client
}

/// Three servers, each with a session of ada and one of bob.
fn three() -> (RedisServer, [Server; 3], Vec<Client>) {
    let redis = RedisServer::start("");
    let servers: [Server; 3] = servers(&redis);
    let mut clients = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        for user in ["ada", "bob"] {
            let mut client = open(server, user);
            subscribe(&mut client, json!(["shared", format!("only.{number}")]));
            clients.push(client);
        }
    }
    (redis, servers, clients)
}

fn items<'a>(page: &'a Value, name: &str) -> &'a [Value] {
    page[name].as_array().expect("a list")
}

/// The sessions that a server lists, in pages.
fn pages(server: &Server, limit: usize) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(server, &format!("/api/v1/connections?limit={limit}{after}"));
        assert_eq!(page.get("silent"), None);
        let items = items(&page, "connections");
        assert!(items.len() <= limit);
        found.extend_from_slice(items);
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return found,
        }
    }
}

#[test]
fn any_server_lists_the_connections_of_all() {
    let (_redis, servers, _clients) = three();
    for server in &servers {
        let nodes = nodes(server);
        for limit in [1, 2, 4, 100] {
            let found = pages(server, limit);
            let texts = |name: &'static str| {
                let text = move |item: &Value| match &item[name] {
                    Value::Array(list) => list[0].to_string(),
                    text => text.to_string(),
                };
                found.iter().map(text).collect::<BTreeSet<_>>()
            };
            // Each session once.
            assert_eq!((found.len(), texts("connection").len()), (6, 6), "{limit}");
            assert_eq!(
                texts("nodes"),
                nodes.iter().map(|node| json!(node).to_string()).collect()
            );
        }
        let of_ada = get(server, "/api/v1/connections?user=ada");
        assert_eq!(items(&of_ada, "connections").len(), 3);
        // One of another server is described by it.
        for item in items(&of_ada, "connections") {
            for name in ["connection", "id"] {
                let name = item[name].as_str().expect("a text");
                let described = get(server, &format!("/api/v1/connections/{name}"));
                assert_eq!(described["connection"]["connection"], item["connection"]);
                assert_eq!(items(&described, "subscriptions").len(), 2);
            }
        }
        for node in nodes {
            let page = get(server, &format!("/api/v1/connections?node={node}"));
            assert_eq!(items(&page, "connections").len(), 2);
        }
    }
}

#[test]
fn any_server_lists_the_topics_of_all() {
    let (_redis, servers, _clients) = three();
    for server in &servers {
        let first = get(server, "/api/v1/topics?limit=3");
        let names = items(&first, "topics")
            .iter()
            .map(|item| item["topic"].clone());
        assert_eq!(names.collect::<Vec<_>>(), ["only.0", "only.1", "only.2"]);
        assert_eq!(first["next"], "only.2");
        let rest = get(server, "/api/v1/topics?after=only.2");
        let shared = &items(&rest, "topics")[0];
        assert_eq!(
            (&shared["topic"], &shared["subscribers"]),
            (&json!("shared"), &json!(6))
        );
        assert_eq!(
            (items(shared, "nodes").len(), &rest["next"]),
            (3, &Value::Null)
        );
        for node in nodes(server) {
            let page = get(server, &format!("/api/v1/topics?node={node}&prefix=only."));
            assert_eq!(items(&page, "topics").len(), 1);
        }
    }
    let answer = with_key(&servers[0], "GET", "/api/v1/topics?node=0123", "");
    assert_eq!(
        (answer.status, answer.code()),
        (404, "unknown_node".to_owned())
    );
}

#[test]
fn any_server_tells_the_statistics_of_each_and_of_all() {
    let (_redis, servers, _clients) = three();
    let open = |stats: &Value| stats["total"]["connections_open"].as_u64();
    let names = nodes(&servers[0]);
    for name in &names {
        let one = get(&servers[0], &format!("/api/v1/stats?node={name}"));
        assert_eq!(open(&one), Some(2), "{one}");
        assert!(
            one["shards"].is_array() && one["version"].is_string(),
            "{one}"
        );
    }
    let all = get(&servers[1], "/api/v1/stats?node=all");
    assert_eq!(open(&all), Some(6), "{all}");
    assert_eq!(all["nodes"].as_array().map(Vec::len), Some(3), "{all}");
    assert_eq!((&all["silent"], &all["ready"]), (&json!([]), &json!(true)));
    let shared = all["topics"].as_array().into_iter().flatten();
    let shared = shared.clone().find(|topic| topic["topic"] == "shared");
    assert_eq!(
        shared.map(|topic| &topic["subscribers"]),
        Some(&json!(6)),
        "{all}"
    );
    for (path, status) in [
        ("/api/v1/stats?node=n0", 404),
        ("/api/v1/stats?node=all&slow=3", 400),
    ] {
        assert_eq!(
            with_key(&servers[0], "GET", path, "").status,
            status,
            "{path}"
        );
    }
}

#[test]
fn a_user_on_another_server_answers_a_request() {
    let redis = RedisServer::start("");
    let [here, there]: [Server; 2] = servers(&redis);
    let _old = callable(&here, "ada");
    // The session that was opened last is asked: of two in one millisecond that is not known.
    std::thread::sleep(std::time::Duration::from_millis(5));
    let mut new = callable(&there, "ada");
    let asked = std::thread::spawn(move || {
        let request = new.next_json();
        let payload = json!({"payload": {"n": 2}});
        let answer = json!({"t": "call_response", "cid": request["cid"], "p": payload});
        new.send_text(&answer.to_string());
        (request["p"].clone(), new)
    });
    let answer = post(
        &here,
        "/api/v1/request",
        &json!({"user": "ada", "type": "ask"}),
    );
    assert_eq!(answer["payload"], json!({"n": 2}), "{answer}");
    drop(asked.join().expect("the client answers"));
    let body = json!({"user": "eve", "type": "ask"}).to_string();
    let answer = with_key(&here, "POST", "/api/v1/request", &body);
    assert_eq!(
        (answer.status, answer.code()),
        (404, "unknown_user".to_owned())
    );
}

//! Subscriptions that a token of one topic allows: which tokens do, and when they end. In virtual time.

use crate::common;

use common::simulated::{SimulatedClient, serve};
use common::{SECRET, Said, config, token};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::token::{SigningKey, sign};
use tidewire_engine::{
    AccessRules, Config, Handle, HistoryLimits, NewPublication, Rules, TopicRule,
};
use tidewire_net::Handler;
use tidewire_testkit::simulation::{Driver, UNIX_MS_AT_START};

struct World<H: Handler> {
    driver: Driver<H>,
    handle: Handle,
}

/// Clients may subscribe to `free`, publish to nothing, and have the access that their token says. `never.>` is denied.
fn guarded() -> Config {
    let mut config = Config {
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
        ..config()
    };
    config.topics.access_claim = Some("access".to_owned());
    config.topics.access = AccessRules {
        subscribe: Rules {
            allow: vec!["free".to_owned()],
            deny: vec!["never.>".to_owned()],
        },
        ..AccessRules::closed()
    };
    let history = HistoryLimits {
        publications_max: 100,
        bytes_max: 1 << 20,
        age_max_ms: 0,
    };
    config.topics.rules = vec![TopicRule {
        history: Some(history),
        ..TopicRule::new("kept.>")
    }];
    config.limits.ping_interval_ms = 1 << 40;
    config.limits.idle_timeout_ms = 1 << 40;
    config
}

fn world(config: Config) -> World<impl Handler> {
    let (driver, handle) = serve(config, |_| Sink);
    World { driver, handle }
}

/// A time of day at this virtual time, in seconds.
fn at(s: i64) -> i64 {
    (UNIX_MS_AT_START / 1_000) as i64 + s
}

/// The token of a session that lasts for all of a test.
fn session(claims: Value) -> String {
    let mut all = json!({"exp": at(1_000_000)});
    all.as_object_mut()
        .expect("an object")
        .extend(claims.as_object().expect("an object").clone());
    token(all)
}

/// A token for a topic, until this virtual time in seconds.
fn until(topic: &str, expires_s: i64) -> String {
    topic_token(topic, json!({"exp": at(expires_s)}))
}

fn topic_token(topic: &str, claims: Value) -> String {
    let mut all = json!({"use": "subscription", "topic": topic, "exp": at(10_000)});
    for (name, value) in claims.as_object().expect("an object") {
        all[name] = value.clone();
    }
    token(all)
}

fn subscribe(topics: &Value, tokens: &Value) -> Value {
    json!({
        "t": "subscription_update", "cid": "s",
        "p": {"action": "subscribe", "topics": topics, "tokens": tokens},
    })
}

impl<H: Handler> World<H> {
    fn connect(&mut self, token: &str) -> SimulatedClient {
        let end = self.driver.network().connect(0);
        let bearer = format!("Bearer {token}");
        let mut client = SimulatedClient::open(end, &[("Authorization", &bearer)]);
        self.pass_ms(1);
        assert_eq!(client.receive_json()[0]["t"], "server_ready");
        client
    }

    fn pass_ms(&mut self, ms: u64) {
        let until_ms = self.driver.now_ms() + ms;
        self.driver.run_until(until_ms);
    }

    fn ask(&mut self, client: &mut SimulatedClient, message: &Value) -> Vec<Value> {
        client.send(message);
        self.pass_ms(10);
        received(client)
    }

    /// Subscribes with tokens: the topics that succeeded, and the code of each that failed.
    fn subscribe(
        &mut self,
        client: &mut SimulatedClient,
        topics: Value,
        tokens: Value,
    ) -> (Value, Vec<(String, String)>) {
        let answers = self.ask(client, &subscribe(&topics, &tokens));
        let answer = &answers[0];
        assert_eq!(answer["cid"], "s", "{answer}");
        let failures = answer["p"]["failures"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let failures = failures.map(|failure| (text(&failure["topic"]), text(&failure["code"])));
        (answer["p"]["success_topics"].clone(), failures.collect())
    }

    /// Whether a client gets what is published to a topic.
    fn gets(&mut self, client: &mut SimulatedClient, topic: &str) -> bool {
        let publication = NewPublication::new("news", "{}".to_owned());
        self.handle.publish(topic, &publication).expect("room");
        self.pass_ms(10);
        received(client)
            .iter()
            .any(|message| message["t"] == "news")
    }
}

fn received(client: &mut SimulatedClient) -> Vec<Value> {
    let value = |said| match said {
        Said::Text(text) => serde_json::from_str(&text).expect("JSON"),
        other => panic!("{other:?}"),
    };
    client.receive().into_iter().map(value).collect()
}

fn failed(topic: &str, code: &str) -> Vec<(String, String)> {
    vec![(topic.to_owned(), code.to_owned())]
}

#[test]
fn a_token_allows_its_topic_and_no_other() {
    let mut world = world(guarded());
    let mut client = world.connect(&session(json!({})));
    let tokens = json!({
        "rooms.1": until("rooms.1", 100), "rooms.*.new": until("rooms.*.new", 100),
        "never.1": until("never.1", 100),
    });
    let topics = json!(["rooms.1", "free", "rooms.2", "rooms.*.new", "never.1"]);
    let (done, failures) = world.subscribe(&mut client, topics, tokens);
    assert_eq!(done, json!(["rooms.1", "free", "rooms.*.new"]));
    let expected = ["rooms.2", "never.1"].map(|topic| failed(topic, "TOPIC_FORBIDDEN"));
    assert_eq!(failures, expected.concat());
    assert!(world.gets(&mut client, "rooms.1") && world.gets(&mut client, "rooms.7.new"));
    assert!(!world.gets(&mut client, "rooms.2"));
}

#[test]
fn a_token_that_is_not_good_fails_its_topic() {
    let mut world = world(guarded());
    let mut client = world.connect(&session(json!({})));
    let good = until("a", 100);
    let tampered = format!("{}x", &good[..good.len() - 1]);
    for (token, code) in [
        (tampered, "TOKEN_REFUSED"),
        ("nonsense".to_owned(), "TOKEN_REFUSED"),
        (until("b", 100), "TOKEN_REFUSED"),
        (until("a.*", 100), "TOKEN_REFUSED"),
        (until(">", 100), "TOKEN_REFUSED"),
        (topic_token("a", json!({"sub": "user-2"})), "TOKEN_REFUSED"),
        (topic_token("a", json!({"use": "session"})), "TOKEN_REFUSED"),
        (topic_token("a", json!({"topic": 7})), "TOKEN_REFUSED"),
        (topic_token("a", json!({"nbf": at(500)})), "TOKEN_REFUSED"),
        (until("a", -6), "TOKEN_EXPIRED"),
        // The session's own token.
        (session(json!({})), "TOKEN_REFUSED"),
    ] {
        let (done, failures) = world.subscribe(&mut client, json!(["a"]), json!({"a": token}));
        assert_eq!((done, failures), (json!([]), failed("a", code)), "{token}");
    }
    assert_eq!(world.handle.counters().tokens_refused, 11);
    let (done, _) = world.subscribe(&mut client, json!(["a"]), json!({"a": good}));
    assert_eq!(done, json!(["a"]));
}

#[test]
fn a_subscription_token_is_no_token_of_a_session() {
    let mut world = world(guarded());
    let end = world.driver.network().connect(0);
    let bearer = format!("Bearer {}", until("free", 100));
    let stranger = SimulatedClient::open(end, &[("Authorization", &bearer)]);
    world.pass_ms(1);
    let head = stranger.end.receive();
    assert!(head.starts_with(b"HTTP/1.1 401 "), "refused");
    let mut client = world.connect(&session(json!({})));
    let refresh = json!({"t": "auth_refresh", "cid": "r", "p": {"token": until("free", 100)}});
    let answer = world.ask(&mut client, &refresh);
    assert_eq!(answer[0]["p"]["code"], "TOKEN_REFUSED", "{answer:?}");
}

#[test]
fn a_subscription_ends_with_its_token() {
    let mut world = world(guarded());
    let mut client = world.connect(&session(json!({})));
    // A claim that is null is a malformed one.
    let malformed = topic_token("b", json!({ "exp": null }));
    let tokens = json!({"a": until("a", 100), "b": malformed, "kept.c": until("kept.c", 100)});
    let (done, failures) = world.subscribe(&mut client, json!(["a", "b", "kept.c"]), tokens);
    assert_eq!(done, json!(["a", "kept.c"]));
    assert_eq!(failures, failed("b", "TOKEN_REFUSED"));
    // The clocks may be five seconds apart.
    world.driver.run_until(104_900);
    assert!(received(&mut client).is_empty() && world.gets(&mut client, "a"));
    world.driver.run_until(106_100);
    let ended = received(&mut client);
    let [ended] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(ended["t"], "subscription_update");
    assert_eq!(
        (&ended["cid"], &ended["p"]["action"]),
        (&Value::Null, &json!("unsubscribe"))
    );
    let mut topics: Vec<_> = ended["p"]["success_topics"]
        .as_array()
        .expect("topics")
        .clone();
    topics.sort_by_key(ToString::to_string);
    assert_eq!(topics, [json!("a"), json!("kept.c")]);
    for failure in ended["p"]["failures"].as_array().expect("reasons") {
        assert_eq!(failure["code"], "TOKEN_EXPIRED");
    }
    assert!(!world.gets(&mut client, "a"));
    assert_eq!(world.handle.counters().subscriptions, 0);
    // With another token it goes on, and misses nothing.
    world
        .handle
        .publish("kept.c", &NewPublication::new("news", "{}".to_owned()))
        .expect("room");
    let again = json!({"kept.c": until("kept.c", 500)});
    let mut request = subscribe(&json!(["kept.c"]), &again);
    request["p"]["replay"] = json!(10);
    let received = world.ask(&mut client, &request);
    assert!(
        received.iter().any(|message| message["t"] == "news"),
        "{received:?}"
    );
}

#[test]
fn a_token_without_an_end_allows_its_topic_for_good() {
    let mut world = world(guarded());
    let mut client = world.connect(&session(json!({})));
    let claims = json!({"use": "subscription", "sub": "user-1", "topic": "a"});
    let key = SigningKey::new(&KeyMaterial::Hs256(SECRET.to_vec())).expect("a good key");
    let endless = sign(&claims, &key, None).expect("a good key signs");
    let tokens = json!({"a": endless, "b": until("b", 100)});
    world.subscribe(&mut client, json!(["a", "b"]), tokens);
    world.driver.run_until(500_000);
    assert_eq!(received(&mut client).len(), 1, "the end of the other one");
    assert!(world.gets(&mut client, "a") && !world.gets(&mut client, "b"));
}

#[test]
fn another_token_in_time_prolongs_a_subscription() {
    let mut world = world(guarded());
    let mut client = world.connect(&session(json!({})));
    let subscribe = |world: &mut World<_>, client: &mut _, token: String| {
        world.subscribe(client, json!(["a"]), json!({ "a": token }))
    };
    subscribe(&mut world, &mut client, until("a", 100));
    world.driver.run_until(90_000);
    // One that is not good changes nothing.
    let (_, failures) = subscribe(&mut world, &mut client, until("b", 500));
    assert_eq!(failures, failed("a", "TOKEN_REFUSED"));
    let (done, _) = subscribe(&mut world, &mut client, until("a", 200));
    assert_eq!(done, json!(["a"]));
    world.driver.run_until(150_000);
    assert!(world.gets(&mut client, "a"));
    // A sooner end counts as well.
    subscribe(&mut world, &mut client, until("a", 160));
    world.driver.run_until(166_000);
    assert_eq!(received(&mut client).len(), 1);
    assert!(!world.gets(&mut client, "a"));
}

#[test]
fn a_topic_that_the_rights_allow_by_then_goes_on() {
    let mut world = world(guarded());
    let mut client = world.connect(&session(json!({})));
    let topics = json!(["a", "b"]);
    let tokens = json!({"a": until("a", 100), "b": until("b", 100)});
    world.subscribe(&mut client, topics, tokens);
    let refresh = |access: Value| {
        let token = session(json!({"access": {"subscribe": access}}));
        json!({"t": "auth_refresh", "cid": "r", "p": {"token": token}})
    };
    // A change of the rights ends no subscription with a token of its own.
    let answer = world.ask(&mut client, &refresh(json!({"allow": ["a"]})));
    assert_eq!(answer.len(), 1, "{answer:?}");
    assert!(world.gets(&mut client, "b"));
    world.driver.run_until(106_000);
    let ended = received(&mut client);
    assert_eq!(ended[0]["p"]["success_topics"], json!(["b"]));
    assert!(world.gets(&mut client, "a"));
    // A denial does.
    world.subscribe(&mut client, json!(["b"]), json!({"b": until("b", 500)}));
    let answer = world.ask(
        &mut client,
        &refresh(json!({"allow": ["a"], "deny": ["b"]})),
    );
    assert_eq!(answer[1]["p"]["success_topics"], json!(["b"]), "{answer:?}");
    assert!(!world.gets(&mut client, "b"));
}

#[test]
fn who_has_left_is_told_nothing_and_may_come_back() {
    let mut world = world(guarded());
    let mut client = world.connect(&session(json!({})));
    world.subscribe(&mut client, json!(["a"]), json!({"a": until("a", 100)}));
    let leave =
        json!({"t": "subscription_update", "p": {"action": "unsubscribe", "topics": ["a"]}});
    world.ask(&mut client, &leave);
    world.driver.run_until(110_000);
    assert!(received(&mut client).is_empty());
    let (_, failures) = world.subscribe(&mut client, json!(["a"]), json!({}));
    assert_eq!(failures, failed("a", "TOPIC_FORBIDDEN"));
}

#[test]
fn a_token_is_for_no_queue_group_and_no_history() {
    let mut world = world(guarded());
    let mut client = world.connect(&session(json!({})));
    let tokens = json!({"kept.a": until("kept.a", 100)});
    let mut group = subscribe(&json!(["kept.a"]), &tokens);
    group["p"]["queue_group"] = json!("g");
    let answer = world.ask(&mut client, &group);
    assert_eq!(answer[0]["p"]["failures"][0]["code"], "TOPIC_FORBIDDEN");
    let (done, _) = world.subscribe(&mut client, json!(["kept.a"]), tokens);
    assert_eq!(done, json!(["kept.a"]));
    let history = json!({"t": "history_request", "cid": "h", "p": {"topic": "kept.a"}});
    let answer = world.ask(&mut client, &history);
    assert_eq!(answer[0]["p"]["code"], "TOPIC_FORBIDDEN", "{answer:?}");
}

#[test]
fn a_server_without_tokens_refuses_them() {
    let mut config = guarded();
    config.auth = None;
    let mut world = world(config);
    let end = world.driver.network().connect(0);
    let mut client = SimulatedClient::open(end, &[]);
    world.pass_ms(1);
    drop(client.receive());
    let tokens = json!({"a": until("a", 100)});
    let (_, failures) = world.subscribe(&mut client, json!(["a"]), tokens);
    assert_eq!(failures, failed("a", "TOKEN_REFUSED"));
}

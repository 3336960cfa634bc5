//! Sessions end with their token, unless they get another one in time. In virtual time.

use crate::common;

use common::simulated::{SimulatedClient, serve};
use common::topics::open_topics;
use common::{SECRET, Said, token};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{AccessRules, Application, Config, Context, Handle, Message, Peer, Protocol};
use tidewire_net::Handler;
use tidewire_testkit::simulation::{Driver, UNIX_MS_AT_START};

/// The messages of an application, in order. It gives everybody rights of its own if it is configured so.
#[derive(Clone, Default)]
struct Log {
    received: Arc<Mutex<Vec<String>>>,
    rights: Option<AccessRules>,
}

impl Application for Log {
    fn on_connect(&mut self, context: &mut Context<'_>, _: &Peer) {
        if let Some(rights) = &self.rights {
            context.set_access(rights.clone()).expect("good rules");
        }
    }

    fn on_message(&mut self, _: &mut Context<'_>, message: Message<'_>) {
        let text = String::from_utf8_lossy(message.bytes).into_owned();
        self.received.lock().expect("no panic").push(text);
    }
}

struct World<H: Handler> {
    driver: Driver<H>,
    handle: Handle,
    log: Log,
}

fn auth() -> AuthConfig {
    AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))
}

/// Nothing is said but what the tests are about.
fn with(auth: Option<AuthConfig>) -> Config {
    let mut config = Config {
        auth,
        ..open_topics()
    };
    config.limits.ping_interval_ms = 1 << 40;
    config.limits.idle_timeout_ms = 1 << 40;
    config
}

fn world(config: Config, log: Log) -> World<impl Handler> {
    let seen = log.clone();
    let (driver, handle) = serve(config, move |_| seen.clone());
    World {
        driver,
        handle,
        log,
    }
}

/// A server that checks tokens, with the defaults.
fn guarded() -> World<impl Handler> {
    world(with(Some(auth())), Log::default())
}

/// A token that expires at this virtual time, in seconds.
fn until(expires_s: i64) -> String {
    with_claims(expires_s, json!({}))
}

fn with_claims(expires_s: i64, mut claims: Value) -> String {
    claims["exp"] = json!((UNIX_MS_AT_START / 1_000) as i64 + expires_s);
    token(claims)
}

fn refresh(token: &str) -> Value {
    json!({"t": "auth_refresh", "cid": "r", "p": {"token": token}})
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

    /// Goes on to this virtual time, in milliseconds.
    fn go_to(&mut self, ms: u64) {
        self.driver.run_until(ms);
    }

    /// Sends a message and gives what is said within some milliseconds.
    fn ask(&mut self, client: &mut SimulatedClient, message: &Value) -> Vec<Value> {
        client.send(message);
        self.pass_ms(10);
        received(client)
    }
}

/// The messages since the last call, and closes as `{"close": code}`.
fn received(client: &mut SimulatedClient) -> Vec<Value> {
    let value = |said| match said {
        Said::Text(text) => serde_json::from_str(&text).expect("JSON"),
        Said::Close(code, _) => json!({ "close": code }),
        other => panic!("{other:?}"),
    };
    client.receive().into_iter().map(value).collect()
}

#[track_caller]
fn assert_ended(client: &mut SimulatedClient) {
    let received = received(client);
    let [error, close] = &received[..] else {
        panic!("{received:?}")
    };
    assert_eq!(error["t"], "error");
    assert_eq!(error["p"]["code"], "TOKEN_EXPIRED");
    assert_eq!(error["p"]["recoverable"], false);
    assert_eq!(*close, json!({"close": 4401}));
}

/// That a client was warned, and of what: the times in whole seconds.
#[track_caller]
fn assert_warned(client: &mut SimulatedClient, expires_in_s: u64, ends_in_s: u64) {
    let received = received(client);
    let [warning] = &received[..] else {
        panic!("{received:?}")
    };
    assert_eq!(warning["t"], "auth_expiry_warning");
    let seconds = |name: &str| warning["p"][name].as_u64().map(|ms| ms.div_ceil(1_000));
    assert_eq!(seconds("expires_in_ms"), Some(expires_in_s), "{warning}");
    assert_eq!(seconds("ends_in_ms"), Some(ends_in_s), "{warning}");
}

#[test]
fn a_client_is_warned_and_its_session_ends_after_the_grace() {
    let mut world = guarded();
    let mut client = world.connect(&until(200));
    world.go_to(139_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    world.go_to(140_100);
    assert_warned(&mut client, 60, 70);
    world.go_to(209_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    // It is alive until then.
    assert_eq!(world.ask(&mut client, &json!({"t": "x"})), [] as [Value; 0]);
    assert_eq!(world.log.received.lock().expect("no panic").len(), 1);
    world.go_to(210_100);
    assert_ended(&mut client);
    let counters = world.handle.counters();
    assert_eq!(counters.sessions_expired, 1);
    assert_eq!(counters.connections_open, 0);
    // Messages after the end of the session are not received.
    client.send(&json!({"t": "late"}));
    world.pass_ms(1_000);
    assert_eq!(world.log.received.lock().expect("no panic").len(), 1);
}

#[test]
fn another_token_prolongs_the_session() {
    let mut world = guarded();
    let mut client = world.connect(&until(200));
    world.go_to(140_100);
    assert_warned(&mut client, 60, 70);
    let answer = world.ask(&mut client, &refresh(&until(300)));
    let [answer] = &answer[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(answer["t"], "auth_refresh_response");
    assert_eq!(answer["cid"], "r");
    assert_eq!(answer["p"]["expires_in_ms"], 300_000 - 140_100);
    assert_eq!(answer["p"]["ends_in_ms"], 310_000 - 140_100);
    world.go_to(239_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    world.go_to(240_100);
    assert_warned(&mut client, 60, 70);
    world.go_to(310_100);
    assert_ended(&mut client);
    assert_eq!(world.handle.counters().tokens_refreshed, 1);
}

#[test]
fn another_token_may_come_in_the_grace_and_without_a_warning() {
    let mut world = guarded();
    let mut late = world.connect(&until(200));
    let mut early = world.connect(&until(200));
    let answer = world.ask(&mut early, &refresh(&until(500)));
    assert_eq!(answer[0]["t"], "auth_refresh_response");
    world.go_to(209_900);
    assert_eq!(received(&mut early), [] as [Value; 0]);
    assert_warned(&mut late, 60, 70);
    let answer = world.ask(&mut late, &refresh(&until(500)));
    assert_eq!(answer[0]["t"], "auth_refresh_response");
    world.go_to(400_000);
    assert_eq!(world.handle.counters().connections_open, 2);
}

/// The newest token counts, though it expires before the one it takes the place of.
#[test]
fn a_shorter_token_shortens_the_session() {
    let mut world = guarded();
    let mut client = world.connect(&until(1_000));
    world.ask(&mut client, &refresh(&until(200)));
    world.go_to(140_100);
    assert_warned(&mut client, 60, 70);
    world.go_to(210_100);
    assert_ended(&mut client);
}

/// A client that gives the same token again and again would otherwise be warned as often.
#[test]
fn the_same_token_is_not_warned_of_twice() {
    let mut world = guarded();
    let token = until(200);
    let mut client = world.connect(&token);
    world.go_to(140_100);
    assert_warned(&mut client, 60, 70);
    let answer = world.ask(&mut client, &refresh(&token));
    assert_eq!(answer[0]["t"], "auth_refresh_response");
    world.go_to(209_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    world.go_to(210_100);
    assert_ended(&mut client);
}

#[test]
fn tokens_that_are_not_accepted_change_nothing() {
    let mut world = guarded();
    let mut client = world.connect(&until(200));
    let stranger = KeyMaterial::Hs256(b"another secret of thirty-two bytes".to_vec());
    let exp = UNIX_MS_AT_START / 1_000 + 500;
    let forged = common::token_by(&stranger, None, json!({ "exp": exp }));
    let other_user = with_claims(500, json!({"sub": "user-2"}));
    let rules_of_no_shape = with_claims(500, json!({"topics": ["all"]}));
    for (bad, code) in [
        (forged.as_str(), "TOKEN_REFUSED"),
        (&until(-60), "TOKEN_REFUSED"),
        (&other_user, "TOKEN_REFUSED"),
        (&rules_of_no_shape, "TOKEN_REFUSED"),
        ("x", "TOKEN_REFUSED"),
        (&"x".repeat(8 * 1024), "TOKEN_REFUSED"),
        (&"x".repeat(8 * 1024 + 1), "INVALID_MESSAGE"),
        ("", "INVALID_MESSAGE"),
    ] {
        let answer = world.ask(&mut client, &refresh(bad));
        let [error] = &answer[..] else {
            panic!("{answer:?}")
        };
        assert_eq!((&error["t"], &error["cid"]), (&json!("error"), &json!("r")));
        assert_eq!(error["p"]["code"], code, "{error}");
        assert_eq!(error["p"]["recoverable"], true);
    }
    let counters = world.handle.counters();
    assert_eq!((counters.tokens_refused, counters.tokens_refreshed), (6, 0));
    world.go_to(140_100);
    assert_warned(&mut client, 60, 70);
    world.go_to(210_100);
    assert_ended(&mut client);
}

fn allowing(topics: &[&str]) -> Value {
    let rules = json!({ "allow": topics });
    json!({"topics": {"subscribe": rules, "publish": rules}})
}

fn subscribe(topics: &[&str]) -> Value {
    json!({"t": "subscription_update", "cid": "s", "p": {"action": "subscribe", "topics": topics}})
}

fn publish(topic: &str) -> Value {
    json!({"t": "publish_request", "cid": "p", "p": {"topic": topic, "type": "news"}})
}

#[test]
fn lesser_rights_of_another_token_end_subscriptions() {
    let mut world = guarded();
    let mut client = world.connect(&with_claims(100, allowing(&["a", "b"])));
    let mut other = world.connect(&until(1_000));
    let answer = world.ask(&mut client, &subscribe(&["a", "b"]));
    assert_eq!(answer[0]["p"]["success_topics"], json!(["a", "b"]));
    let answer = world.ask(&mut client, &refresh(&with_claims(500, allowing(&["a"]))));
    let [answer, ended] = &answer[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(answer["t"], "auth_refresh_response");
    assert_eq!(ended["t"], "subscription_update");
    assert_eq!(ended["p"]["action"], "unsubscribe");
    assert_eq!(ended["p"]["success_topics"], json!(["b"]));
    let answer = world.ask(&mut client, &publish("b"));
    assert_eq!(answer[0]["p"]["code"], "TOPIC_FORBIDDEN");
    for topic in ["b", "a"] {
        world.ask(&mut other, &publish(topic));
    }
    let news: Vec<Value> = received(&mut client);
    let topics: Vec<&Value> = news.iter().map(|news| &news["tp"]).collect();
    assert_eq!(topics, ["a"]);
    // More rights than before count as well, from the next request on.
    world.ask(&mut client, &refresh(&until(500)));
    let answer = world.ask(&mut client, &subscribe(&["b"]));
    assert_eq!(answer[0]["p"]["success_topics"], json!(["b"]));
}

#[test]
fn rights_that_the_application_has_given_stay() {
    let log = Log {
        rights: Some(AccessRules::closed()),
        ..Log::default()
    };
    let mut world = world(with(Some(auth())), log);
    let mut client = world.connect(&until(100));
    let answer = world.ask(&mut client, &refresh(&with_claims(500, allowing(&["a"]))));
    assert_eq!(answer[0]["t"], "auth_refresh_response");
    let answer = world.ask(&mut client, &subscribe(&["a"]));
    assert_eq!(answer[0]["p"]["failed_topics"], json!(["a"]));
}

#[test]
fn sessions_go_on_for_ever_if_so_configured() {
    let mut world = world(
        with(Some(AuthConfig {
            ends_sessions: false,
            ..auth()
        })),
        Log::default(),
    );
    let mut client = world.connect(&until(100));
    world.go_to(10_000_000);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    let answer = world.ask(&mut client, &refresh(&until(10_500)));
    let [answer] = &answer[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(answer["t"], "auth_refresh_response");
    assert_eq!(answer["p"], json!({"expires_in_ms": 500_000}));
    world.go_to(20_000_000);
    assert_eq!(world.handle.counters().connections_open, 1);
}

#[test]
fn a_server_without_tokens_ends_nothing() {
    let mut world = world(with(None), Log::default());
    let mut client = world.connect(&until(100));
    let answer = world.ask(&mut client, &refresh(&until(500)));
    assert_eq!(answer[0]["p"]["code"], "INVALID_ACTION");
    assert_eq!(answer[0]["cid"], "r");
    world.go_to(10_000_000);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    assert_eq!(world.handle.counters().connections_open, 1);
}

#[test]
fn the_times_are_configurable() {
    let config = AuthConfig {
        grace_s: 30,
        warning_s: 20,
        ..auth()
    };
    let mut world = world(with(Some(config)), Log::default());
    let mut client = world.connect(&until(100));
    world.go_to(79_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    world.go_to(80_100);
    assert_warned(&mut client, 20, 50);
    world.go_to(129_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    world.go_to(130_100);
    assert_ended(&mut client);
}

#[test]
fn no_warning_and_no_grace_but_that_of_the_clocks() {
    let config = AuthConfig {
        grace_s: 0,
        warning_s: 0,
        leeway_s: 7,
        ..auth()
    };
    let mut world = world(with(Some(config)), Log::default());
    let mut client = world.connect(&until(100));
    world.go_to(106_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    // A token in this state is still good enough for a new session, which must not end at once.
    let mut late = world.connect(&until(100));
    assert_eq!(received(&mut late), [] as [Value; 0]);
    world.go_to(107_100);
    assert_ended(&mut client);
    assert_ended(&mut late);
}

/// Otherwise a client would be asked for a token as soon as it has given one.
#[test]
fn of_short_lived_tokens_is_warned_at_half_their_time() {
    let mut world = guarded();
    let mut client = world.connect(&until(40));
    world.go_to(19_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    world.go_to(20_100);
    assert_warned(&mut client, 20, 30);
    world.ask(&mut client, &refresh(&until(60)));
    world.go_to(39_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    world.go_to(40_300);
    assert_warned(&mut client, 20, 30);
}

/// Numbers that every reader has exactly (PROTOCOL.md, section 5.2 (3)).
#[test]
fn the_times_of_a_token_that_never_expires_are_lowered() {
    let mut world = guarded();
    let mut client = world.connect(&until(60));
    let never = token(json!({"exp": u64::MAX}));
    let answer = &world.ask(&mut client, &refresh(&never))[0];
    assert_eq!(answer["t"], "auth_refresh_response");
    for field in ["expires_in_ms", "ends_in_ms"] {
        assert_eq!(answer["p"][field], (1_u64 << 53) - 1, "{field}");
    }
}

#[test]
fn a_token_that_never_expires_is_no_overflow() {
    let config = AuthConfig {
        grace_s: u64::MAX,
        warning_s: u64::MAX,
        ..auth()
    };
    let mut world = world(with(Some(config)), Log::default());
    let mut client = world.connect(&token(json!({"exp": u64::MAX})));
    world.go_to(10_000_000);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    let answer = world.ask(&mut client, &refresh(&token(json!({"exp": u64::MAX}))));
    assert_eq!(answer[0]["t"], "auth_refresh_response");
}

#[test]
fn without_version_1_there_is_only_the_close() {
    let config = Config {
        protocol: Protocol::Raw,
        ..with(Some(auth()))
    };
    let mut world = world(config, Log::default());
    let end = world.driver.network().connect(0);
    let bearer = format!("Bearer {}", until(100));
    let mut client = SimulatedClient::open(end, &[("Authorization", &bearer)]);
    world.go_to(109_900);
    assert_eq!(received(&mut client), [] as [Value; 0]);
    world.go_to(110_100);
    assert_eq!(received(&mut client), [json!({"close": 4401})]);
}

/// The same timer reports messages that the rate limit refused.
#[test]
fn a_flood_does_not_put_the_end_off() {
    let mut config = with(Some(auth()));
    config.limits.rate_limit_capacity = 5;
    config.limits.rate_limit_refill_per_s = 1;
    let mut world = world(config, Log::default());
    let mut client = world.connect(&until(100));
    for second in 41..=110 {
        for part in 0..4 {
            for _ in 0..10 {
                client.send(&json!({"t": "x"}));
            }
            world.go_to(second * 1_000 - 750 + part * 250);
        }
    }
    world.go_to(110_100);
    let received = received(&mut client);
    let warned = received
        .iter()
        .any(|said| said["t"] == "auth_expiry_warning");
    assert!(warned, "{received:?}");
    let [.., error, close] = &received[..] else {
        panic!("{received:?}")
    };
    assert_eq!(error["p"]["code"], "TOKEN_EXPIRED", "{received:?}");
    assert_eq!(*close, json!({"close": 4401}));
}

use super::*;
use crate::auth::KeySetSource;
use crate::topics::config::TopicRule;
use serde_json::json;
use tidewire_testkit::options::{Example, examples};

fn config(settings: Value) -> Result<Config, String> {
    config_from(settings.as_object().unwrap()).map_err(|error| error.to_string())
}

fn open(mut settings: Value) -> Result<Config, String> {
    settings["no_auth"] = json!(true);
    config(settings)
}

#[test]
fn each_plain_setting_reaches_its_field() {
    let config = open(json!({
        "shards": 3, "drain_rate_per_s": 4, "idle_timeout_ms": 5, "lag_bytes_max": 6, "deduplicate": true,
    }))
    .unwrap();
    assert_eq!((config.shards, config.drain.rate_per_s), (3, 4));
    assert_eq!(config.limits.idle_timeout_ms, 5);
    assert_eq!(config.topics.limits.lag_bytes_max, 6);
    assert!(config.producers.deduplicate);
}

#[test]
fn every_option_refuses_a_value_of_another_kind() {
    for spec in OPTIONS.iter().filter(|spec| spec.keyword) {
        let error = config(json!({ spec.name: {"a": {}} })).unwrap_err();
        let name = spec.name;
        assert!(error.starts_with(&format!("{name}: ")), "{error}");
        assert!(error.contains("expected "), "{error}");
    }
}

#[test]
fn every_option_changes_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    for example in examples(folder.path()) {
        let Example {
            option,
            value,
            mut beside,
        } = example;
        let name = option.name.as_str();
        if !option.keyword || OF_BINDINGS.contains(&name) {
            continue;
        }
        beside.insert(name.to_owned(), value);
        let with = config(Value::Object(beside.clone())).unwrap();
        beside.remove(name);
        // Some cannot be left out alone.
        if let Ok(without) = config(Value::Object(beside)) {
            assert_ne!(format!("{with:?}"), format!("{without:?}"), "{name}");
        }
    }
}

#[test]
fn the_defaults_of_the_table_are_those_of_the_configuration() {
    let text = |settings: &Settings| format!("{:?}", settings.config().unwrap());
    let mut plain = Settings::new(Way::Flag);
    let secret = json!("s".repeat(32));
    plain
        .set(Origin::of(Way::Flag), "jwt_secret", &secret)
        .unwrap();
    let expected = text(&plain);
    for spec in OPTIONS.iter().filter(|spec| spec.file) {
        let Some(default) = spec.default else {
            continue;
        };
        let mut given = plain.clone();
        given
            .set(Origin::file("f:1"), spec.name, &json!(default))
            .unwrap();
        assert_eq!(text(&given), expected, "{}", spec.name);
    }
    // An option that has its default only in the engine would be missing in the comparison above.
    assert!(
        plain::NAMES
            .iter()
            .all(|name| *name == "shards" || given_default(name).is_some())
    );
}

fn given_default(name: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|spec| spec.name == name)?.default
}

#[test]
fn a_stronger_source_overrides_a_weaker_one() {
    let mut settings = Settings::new(Way::Flag);
    for (origin, value) in [
        (Origin::of(Way::Variable), "2"),
        (Origin::file("f:1"), "3"),
        (Origin::of(Way::Flag), "4"),
        (Origin::of(Way::Variable), "5"),
    ] {
        settings.set(origin, "shards", &json!(value)).unwrap();
    }
    assert_eq!(settings.integer("shards"), Some(4));
    // An ignored value is checked all the same.
    let error = settings
        .set(Origin::file("f:1"), "shards", &json!("x"))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "f:1: shards: \"x\": expected a whole number from 1 to 64 (event loops)"
    );
}

#[test]
fn errors_spell_options_as_they_were_given() {
    let error = |way: Way, name: &str, value: &str| {
        let mut settings = Settings::new(way);
        let set = settings.set(Origin::of(way), name, &json!(value));
        set.and_then(|()| settings.config().map(drop))
            .unwrap_err()
            .to_string()
    };
    for (way, name, value, expected) in [
        (
            Way::Flag,
            "deflate",
            "yes",
            "--deflate: \"yes\": expected one of off, shared, per-connection",
        ),
        (
            Way::Variable,
            "no_auth",
            "1",
            "TIDEWIRE_NO_AUTH: \"1\": expected true or false",
        ),
        (
            Way::Variable,
            "retry_after_s",
            "99999999999999999999",
            "TIDEWIRE_RETRY_AFTER_S: \"99999999999999999999\": expected a whole number from 0 to \
             18446744073709551615 (s)",
        ),
        (
            Way::Flag,
            "tls_key",
            "a",
            "--tls-key: the key needs its certificate: give --tls-certificate",
        ),
        (
            Way::Flag,
            "path",
            "/a,b",
            "--path: \"b\": expected a path that starts with a slash, or any",
        ),
        (
            Way::Flag,
            "lisen",
            "a",
            "unknown option lisen: did you mean --listen?",
        ),
        (Way::Flag, "port", "1", "unknown option port"),
    ] {
        let error = error(way, name, value);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn secrets_are_not_shown() {
    for spec in OPTIONS.iter().filter(|spec| spec.kind == Kind::Secret) {
        let error = config(json!({ spec.name: ["hidden"] })).unwrap_err();
        assert_eq!(error, format!("{}: expected a text", spec.name));
    }
}

#[test]
fn choices_have_dashes_or_underscores() {
    for deflate in ["per-connection", "per_connection"] {
        let config = open(json!({ "deflate": deflate })).unwrap();
        assert_eq!(
            config.compression.deflate,
            crate::config::Deflate::PerConnection
        );
    }
    let config = open(json!({"group_overload": "drop-newest"})).unwrap();
    let overload = config.topics.limits.group_overload;
    assert_eq!(overload, crate::topics::config::GroupOverload::DropNewest);
}

#[test]
fn a_ratio_is_a_number_from_0_to_1() {
    for (way, value) in [
        (Way::Flag, json!("0.25")),
        (Way::File, json!(0.25)),
        (Way::File, json!("0.25")),
    ] {
        let mut settings = Settings::new(way);
        settings
            .set(Origin::of(way), "otlp_sampling", &value)
            .unwrap();
        assert_eq!(settings.text("otlp_sampling").as_deref(), Some("0.25"));
    }
    let mut settings = Settings::new(Way::Flag);
    for wrong in ["1.1", "-0.1", "NaN", "all", ""] {
        let origin = Origin::of(Way::Flag);
        let error = settings
            .set(origin, "otlp_sampling", &json!(wrong))
            .unwrap_err();
        assert!(
            error.to_string().contains("expected a number from 0 to 1"),
            "{error}"
        );
    }
}

#[test]
fn texts_of_flags_variables_and_files() {
    let set = |origin: Origin, value: Value| {
        let mut settings = Settings::new(Way::Flag);
        settings.set(origin, "path", &value).unwrap();
        settings.texts("path").unwrap()
    };
    let both = ["/a", "/b"];
    assert_eq!(set(Origin::of(Way::Variable), json!("/a,/b")), both);
    assert_eq!(set(Origin::file("f:1"), json!("/a,/b")), both);
    assert_eq!(set(Origin::file("f:1"), json!(["/a", "/b"])), both);
    assert_eq!(set(Origin::of(Way::Keyword), json!("/a,/b")), ["/a,/b"]);
}

#[test]
fn origins_of_pages_without_a_host() {
    let set = |text: &str| {
        let mut settings = Settings::new(Way::Flag);
        settings.set(Origin::of(Way::Flag), "origin", &json!(text))
    };
    for origin in ["null", "file://", "capacitor://localhost", "app://.", "any"] {
        assert!(set(origin).is_ok(), "{origin}");
    }
    for wrong in ["nul", "https://", "://a", "file:///", "https://a.example/"] {
        assert!(set(wrong).is_err(), "{wrong}");
    }
}

/// The rule of these keys, each on a line of its own from the second on.
fn rule_of_file(fields: &[(&str, Value)]) -> Result<TopicRule, SettingError> {
    let keys = fields.iter().enumerate().map(|(line, (key, value))| {
        let origin = Origin::file(&format!("f:{}", line + 2));
        ((*key).to_owned(), value.clone(), origin)
    });
    let mut settings = Settings::new(Way::Flag);
    settings.add_rule(&Origin::file("f:1"), &keys.collect::<Vec<_>>())?;
    Ok(settings.rules()[0].rule.clone())
}

#[test]
fn rules_of_a_file_name_the_line() {
    let every = rule_of_file(&[
        ("pattern", json!("orders.>")),
        ("history_age_s", json!(60)),
        ("history_publications", json!(1000)),
        ("history_bytes", json!("65536")),
        ("last_value", json!(true)),
        ("presence", json!(true)),
        ("priority", json!(8)),
        ("overload", json!("drop_oldest")),
    ])
    .unwrap();
    let history = every.history.unwrap();
    assert_eq!(
        (
            history.publications_max,
            history.bytes_max,
            history.age_max_ms
        ),
        (1000, 65536, 60_000)
    );
    assert!(every.last_value && every.presence && every.pattern == "orders.>");
    assert_eq!(every.priority, tidewire_wire::envelope::Priority::High);
    for (fields, expected) in [
        (
            vec![("presence", json!(true))],
            "f:1: pattern: a rule needs a pattern",
        ),
        (vec![("pattern", json!("a..b"))], "f:2: pattern: \"a..b\": "),
        (
            vec![("pattern", json!("users.{sub}"))],
            "f:2: pattern: \"users.{sub}\": a rule holds",
        ),
        (
            vec![("pattern", json!("a")), ("priority", json!(4))],
            "f:3: priority: 4: expected one of 1, 3",
        ),
        (
            vec![("pattern", json!("a")), ("overload", json!("drop"))],
            "f:3: overload: \"drop\": expected one of",
        ),
        (
            vec![("pattern", json!("a")), ("histroy_bytes", json!(4))],
            "f:3: unknown key histroy_bytes: did you mean history_bytes?",
        ),
        (
            vec![("pattern", json!("a")), ("history_bytes", json!(-4))],
            "f:3: history_bytes: -4: expected a whole",
        ),
        (
            vec![("pattern", json!("a")), ("history_age_s", json!(4))],
            "f:3: history_age_s: it needs history_publications",
        ),
        (
            vec![("pattern", json!("a")), ("last_value", json!(true))],
            "f:3: last_value: it needs history_publications",
        ),
    ] {
        let error = rule_of_file(&fields).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_narrow_pattern_has_what_a_wide_one_says_besides() {
    let rules =
        open(json!({"history": [">=100", "rooms.>=7"], "presence": ["rooms.*", "users.>"]}));
    let seen: Vec<_> = rules
        .unwrap()
        .topics
        .rules
        .into_iter()
        .map(|rule| {
            let count = rule.history.map(|history| history.publications_max);
            (rule.pattern, count, rule.presence)
        })
        .collect();
    let expected = [
        ("rooms.*", Some(7), true),
        ("rooms.>", Some(7), false),
        ("users.>", Some(100), true),
        (">", Some(100), false),
    ];
    assert_eq!(
        seen,
        expected.map(|(pattern, count, is_present)| (pattern.to_owned(), count, is_present))
    );
}

#[test]
fn access_is_closed_unless_something_is_allowed() {
    let access = |settings| open(settings).unwrap().topics.access;
    let closed = access(json!({"client_subscribe_allow": "a", "client_subscribe_deny": "b"}));
    assert_eq!(
        (closed.subscribe.allow, closed.subscribe.deny),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    assert!(closed.publish.allow.is_empty() && closed.presence.is_none());
    let open = access(
        json!({"topics_open": true, "client_subscribe_allow": "a", "client_subscribe_deny": "b"}),
    );
    assert_eq!(
        (open.subscribe.allow, open.subscribe.deny),
        (vec![">".to_owned()], vec!["b".to_owned()])
    );
    assert_eq!(open.publish.allow, [">"]);
}

/// Options that a binding reads itself.
const OF_BINDINGS: &[&str] = &["queue_bytes_max", "snapshot_requests"];

#[test]
fn null_is_the_default() {
    let config = open(json!({"message_bytes_max": null, "listen": null})).unwrap();
    assert_eq!(config.limits.message_bytes_max, 1 << 20);
    assert_eq!(config.listen.port(), 5006);
}

#[test]
fn an_address_in_either_spelling() {
    let listen = |settings| open(settings).map(|config| config.listen.to_string());
    assert_eq!(listen(json!({"listen": "[::1]:7"})).unwrap(), "[::1]:7");
    assert_eq!(listen(json!({"port": 7})).unwrap(), "127.0.0.1:7");
    assert_eq!(listen(json!({"host": "0.0.0.0"})).unwrap(), "0.0.0.0:5006");
    assert!(listen(json!({"listen": "[::1]:7", "port": 7})).is_err());
    assert!(listen(json!({"listen": "7"})).is_err());
    assert!(listen(json!({"port": 65_536})).is_err());
}

#[test]
fn a_mistake_names_the_setting_that_was_meant() {
    let unknown = |name: &str| open(json!({ name: 1 })).unwrap_err();
    assert!(unknown("max_connections").contains("unknown option max_connections"));
    assert!(unknown("connection_max").ends_with("did you mean connections_max?"));
    assert!(unknown("client_subscribe_alow").ends_with("did you mean client_subscribe_allow?"));
    assert_eq!(unknown("zzz"), "unknown option zzz");
}

#[test]
fn tokens() {
    let secret = "s".repeat(32);
    let auth =
        config(json!({"jwt_secret": secret, "jwt_previous_secret": secret, "jwt_leeway_s": 9}))
            .unwrap()
            .auth
            .unwrap();
    assert_eq!(auth.leeway_s, 9);
    assert!(auth.previous_key.is_some());
    assert_eq!((auth.grace_s, auth.warning_s), (10, 60));
    assert!(auth.ends_sessions);
    let auth = config(json!({
        "jwt_secret": secret, "token_grace_s": 3, "token_warning_s": 0, "keep_expired_sessions": true,
    }));
    let auth = auth.unwrap().auth.unwrap();
    assert_eq!((auth.grace_s, auth.warning_s), (3, 0));
    assert!(!auth.ends_sessions);
    assert!(
        config(json!({}))
            .unwrap_err()
            .starts_with("jwt_secret: a key is needed")
    );
    assert!(config(json!({"protocol": "raw"})).unwrap().auth.is_none());
    assert!(
        open(json!({"jwt_secret": secret}))
            .unwrap_err()
            .starts_with("no_auth and jwt_secret exclude each other")
    );
    let both = json!({"jwt_secret": secret, "jwt_secret_file": "/nowhere"});
    let error = config(both).unwrap_err();
    assert!(
        error.starts_with("jwt_secret and jwt_secret_file exclude"),
        "{error}"
    );
    let error = config(json!({"jwt_secret_file": "/nowhere"})).unwrap_err();
    assert!(error.contains("cannot read /nowhere"), "{error}");
}

#[test]
fn key_sets() {
    let at = |url: &str| config(json!({ "jwt_jwks_url": url }));
    let auth = at("https://a.example/jwks").unwrap().auth.unwrap();
    assert!(auth.key.is_none());
    let Some(KeySetSource::Url(source)) = auth.key_set else {
        panic!("no URL")
    };
    assert_eq!(source.url.to_string(), "https://a.example/jwks");
    assert_eq!((source.refresh_s, source.authorities), (300, None));
    for (given, words) in [
        (
            json!({"jwt_jwks_url": "http://a.example/jwks"}),
            "jwt_jwks_url: the key set: http://a.example",
        ),
        (
            json!({"jwt_jwks_url": "a.example"}),
            "jwt_jwks_url: the scheme",
        ),
        (json!({"jwt_jwks_file": "/nowhere"}), "cannot read /nowhere"),
        (
            json!({"jwt_jwks_url": "https://a.example/", "jwt_secret": "s".repeat(32)}),
            "jwt_secret and jwt_jwks_url exclude each other",
        ),
        (
            json!({"jwt_jwks_url": "https://a.example/", "jwt_key_id": "a"}),
            "jwt_key_id: it is for a single key",
        ),
    ] {
        let error = config(given).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    std::fs::write(&file, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#).unwrap();
    let error = config(json!({ "jwt_jwks_file": file })).unwrap_err();
    let words = "jwt_jwks_file: the key set: no key that checks tokens: key 1 is a secret of less than 32 bytes";
    assert!(error.contains(words), "{error}");
}

#[test]
fn topics() {
    let topics = open(json!({
        "client_subscribe_allow": ["prices", "users.{sub}.>"],
        "client_publish_allow": "rooms.*",
        "history": {"rooms.>": 7},
        "presence": ["rooms.*"],
        "topic_rules": [{"pattern": "a", "history_publications": 1, "last_value": true, "overload": "conflate"}],
    }))
    .unwrap()
    .topics;
    assert_eq!(topics.access.subscribe.allow, ["prices", "users.{sub}.>"]);
    assert_eq!(topics.access.publish.allow, ["rooms.*"]);
    let patterns: Vec<&str> = topics
        .rules
        .iter()
        .map(|rule| rule.pattern.as_str())
        .collect();
    assert_eq!(patterns, ["rooms.*", "rooms.>", "a"]);
    assert!(topics.rules[2].last_value);
    assert_eq!(
        topics.rules[2].overload,
        tidewire_wire::session::Overload::Conflate
    );
}

#[test]
fn mistakes_about_topics() {
    for (settings, expected) in [
        (
            json!({"client_subscribe_allow": ["a..b"]}),
            "client_subscribe_allow: \"a..b\": ",
        ),
        (
            json!({"history": {"a": -1}}),
            "history: \"a\": -1: expected",
        ),
        (json!({"history": ["a"]}), "history: \"a\": expected"),
        (json!({"history": {"a..b": 1}}), "history: \"a..b\": "),
        (json!({"presence": ["a..b"]}), "presence: \"a..b\": "),
        (json!({"topic_rules": [{}]}), "topic_rules[0]: pattern: "),
        (
            json!({"topic_rules": [{"pattern": "a", "x": 1}]}),
            "topic_rules[0]: unknown key x",
        ),
        (
            json!({"topic_rules": [{"pattern": "a", "last_value": true}]}),
            "topic_rules[0]: last_value: it needs",
        ),
        (
            json!({"topic_rules": [{"pattern": "a", "priority": 2}]}),
            "topic_rules[0]: priority: ",
        ),
    ] {
        let error = open(settings.clone()).unwrap_err();
        assert!(error.starts_with(expected), "{settings}: {error}");
    }
}

#[test]
fn what_does_not_fit_together() {
    for (settings, expected) in [
        (
            json!({"api_key": "k".repeat(16)}),
            "api_key: the key is of use",
        ),
        (json!({"tls_key": "a"}), "tls_key: the key needs"),
        (
            json!({"identity_key": "a"}),
            "identity_key: the key is of use",
        ),
        (
            json!({"require_signatures": true}),
            "require_signatures: a key is needed",
        ),
        (
            json!({"encryption": "yes"}),
            "encryption: \"yes\": expected",
        ),
        (
            json!({"compression_level": 10}),
            "compression_level: 10: expected a whole number from 1 to 9",
        ),
    ] {
        let error = open(settings.clone()).unwrap_err();
        assert!(error.starts_with(expected), "{settings}: {error}");
    }
}

#[test]
fn proxies_are_one_or_several() {
    let proxies = |settings| open(settings).map(|config| config.proxies.networks.len());
    assert_eq!(proxies(json!({"trusted_proxy": "10.0.0.0/8"})), Ok(1));
    let both = json!({"trusted_proxy": ["10.0.0.1", "::1"], "forwarded_header": "forwarded"});
    assert_eq!(proxies(both), Ok(2));
    let error = proxies(json!({"trusted_proxy": "proxy.example"})).unwrap_err();
    assert!(
        error.starts_with("trusted_proxy: \"proxy.example\": expected an address"),
        "{error}"
    );
    let error = proxies(json!({"forwarded_header": "via"})).unwrap_err();
    assert_eq!(
        error,
        "forwarded_header: \"via\": expected one of x-forwarded-for, forwarded"
    );
}

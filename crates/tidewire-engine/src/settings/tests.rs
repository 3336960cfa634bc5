use super::*;
use serde_json::json;

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
    assert!(config.intake.deduplicate);
}

#[test]
fn every_plain_setting_wants_a_value_of_its_type() {
    for name in PLAIN {
        let error = open(json!({ *name: [] })).unwrap_err();
        assert!(error.starts_with(&format!("{name}: ")), "{error}");
    }
}

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
            .starts_with("no_auth: ")
    );
    let both = json!({"jwt_secret": secret, "jwt_secret_file": "/nowhere"});
    assert!(config(both).unwrap_err().contains("cannot read /nowhere"));
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
            "client_*_allow",
        ),
        (json!({"history": {"a": -1}}), "history: expected"),
        (json!({"history": ["a"]}), "history: expected"),
        (json!({"history": {"a..b": 1}}), "history: a..b: "),
        (json!({"presence": ["a..b"]}), "presence: a..b: "),
        (json!({"topic_rules": [{}]}), "topic_rules[0]: pattern: "),
        (
            json!({"topic_rules": [{"pattern": "a", "x": 1}]}),
            "topic_rules[0]: unknown key x",
        ),
        (
            json!({"topic_rules": [{"pattern": "a", "last_value": true}]}),
            "topic_rules[0]: last_value needs",
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
        (json!({"api_key": "k".repeat(16)}), "api_key: it is of use"),
        (json!({"tls_key": "a"}), "tls_key: it needs"),
        (json!({"identity_key": "a"}), "identity_key: it is of use"),
        (
            json!({"require_signatures": true}),
            "require_signatures: it needs",
        ),
        (json!({"encryption": "yes"}), "encryption: expected"),
        (
            json!({"compression_level": 10}),
            "compression_level: expected",
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
        "forwarded_header: expected x-forwarded-for or forwarded"
    );
}

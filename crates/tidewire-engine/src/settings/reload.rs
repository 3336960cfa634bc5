//! Reload: which options of other settings are meant by what a server reports, and which settings are in force after it.
//!
//! A server compares configurations, in which some options are one field. The settings know which of these options
//! were given.

use super::given::Settings;
use super::spec::Kind;
use super::table::OPTIONS;

impl Settings {
    /// The options that `reported` stands for: those that differ from the `earlier` settings. If none differs, a file
    /// has another content: the files that were given for it.
    #[must_use]
    pub fn changed_from(&self, earlier: &Self, reported: &'static str) -> Vec<&'static str> {
        let family = family(reported);
        let differs = |name: &&str| self.differs(earlier, name);
        let changed: Vec<_> = family.iter().copied().filter(differs).collect();
        if !changed.is_empty() {
            return changed;
        }
        let files: Vec<_> = family
            .iter()
            .copied()
            .filter(|name| self.is_given_as_file(name))
            .collect();
        if files.is_empty() {
            vec![reported]
        } else {
            files
        }
    }

    /// Returns whether an option has the same value in both settings. One that was not given has its default.
    #[must_use]
    pub fn has_same(&self, other: &Self, name: &str) -> bool {
        self.value(name) == other.value(name)
    }

    /// Restores the options that `reported` stands for to their values in the `earlier` settings.
    pub fn keep(&mut self, earlier: &Self, reported: &'static str) {
        for name in family(reported) {
            if *name == RULES {
                self.rules.clone_from(&earlier.rules);
            }
            match earlier.given.get_key_value(name) {
                Some((name, given)) => {
                    self.given.insert(name, given.clone());
                }
                None => {
                    self.given.remove(name);
                }
            }
        }
    }

    fn differs(&self, earlier: &Self, name: &str) -> bool {
        if name == RULES {
            let rules = |settings: &Self| -> Vec<_> {
                settings
                    .rules
                    .iter()
                    .map(|given| given.rule.clone())
                    .collect()
            };
            return rules(self) != rules(earlier);
        }
        let value = |settings: &Self| settings.given.get(name).map(|given| given.value.clone());
        value(self) != value(earlier)
    }

    fn is_given_as_file(&self, name: &str) -> bool {
        let given = self.given.get(name);
        given.is_some_and(|given| given.spec.kind == Kind::File)
    }
}

/// The options that a server compares together, by the one that it reports.
fn family(reported: &'static str) -> &'static [&'static str] {
    let family = FAMILIES.iter().find(|family| family[0] == reported);
    match family {
        Some(family) => family,
        // Every other option stands for itself.
        None => OPTIONS
            .iter()
            .find(|option| option.name == reported)
            .map_or(&[], |option| std::slice::from_ref(&option.name)),
    }
}

/// The first of each is the one that a server reports.
const FAMILIES: &[&[&str]] = &[
    &["listen", "host", "port"],
    &["api_key", "api_key_file", "api_keys_file"],
    &["trusted_proxy", "forwarded_header"],
    &["tls_certificate", "tls_key"],
    &[
        "client_subscribe_allow",
        "client_subscribe_deny",
        "topics_open",
    ],
    &["client_publish_allow", "client_publish_deny", "topics_open"],
    &[
        "client_presence_allow",
        "client_presence_deny",
        "topics_open",
    ],
    &[
        "client_queue_group_allow",
        "client_queue_group_deny",
        "topics_open",
    ],
    &[RULES, "history", "presence"],
    &["encryption", "identity_key"],
    &[
        "signature_secret",
        "signature_secret_file",
        "signature_public_key",
        "require_signatures",
        "signature_nonces_max",
    ],
    &[
        "broker",
        "broker_partitions",
        "broker_ca_file",
        "broker_certificate_file",
        "broker_key_file",
        "broker_username",
        "broker_password_file",
        "broker_password_command",
        "broker_prefix",
        "broker_is_durable",
        "broker_wait_ms",
        "broker_lost_close_s",
    ],
    &["backend_secret", "backend_secret_file"],
    &[
        "backend",
        "backend_events",
        "backend_secret",
        "backend_secret_file",
        "backend_ca_file",
        "backend_away",
        "backend_connections_max",
        "backend_in_flight_max",
        "backend_in_flight_bytes_max",
        "backend_connect_timeout_ms",
        "backend_timeout_ms",
        "backend_idle_timeout_ms",
        "backend_answer_bytes_max",
    ],
    &[
        "jwt_secret",
        "jwt_secret_file",
        "jwt_public_key",
        "jwt_algorithm",
        "jwt_key_id",
    ],
    &[
        "jwt_previous_secret",
        "jwt_previous_secret_file",
        "jwt_previous_public_key",
        "jwt_previous_algorithm",
        "jwt_previous_key_id",
    ],
    // Without tokens all of these are of no use.
    &[
        "no_auth",
        "jwt_secret",
        "jwt_secret_file",
        "jwt_public_key",
        "jwt_algorithm",
        "jwt_key_id",
        "jwt_jwks_file",
        "jwt_jwks_url",
        "jwt_jwks_ca_file",
        "jwt_jwks_refresh_s",
        "jwt_previous_secret",
        "jwt_previous_secret_file",
        "jwt_previous_public_key",
        "jwt_previous_algorithm",
        "jwt_previous_key_id",
        "jwt_issuer",
        "jwt_audience",
        "jwt_leeway_s",
        "token_grace_s",
        "token_warning_s",
        "keep_expired_sessions",
        "cookie_name",
        "token_query_parameter",
        "token_subprotocol_prefix",
    ],
    &[
        "jwt_jwks_url",
        "jwt_jwks_ca_file",
        "jwt_jwks_refresh_s",
        "jwt_jwks_file",
        "jwt_secret",
        "jwt_secret_file",
        "jwt_public_key",
    ],
];

/// Rules that have tables of their own, and are not among the options that were given.
const RULES: &str = "topic_rules";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Way;
    use crate::settings::origin::Origin;
    use serde_json::{Value, json};

    fn settings(options: &Value) -> Settings {
        let mut settings = Settings::new(Way::Flag);
        for (name, value) in options.as_object().unwrap() {
            settings
                .set(Origin::file("tidewire.toml"), name, value)
                .unwrap();
        }
        settings
    }

    #[test]
    fn every_name_of_a_family_is_an_option() {
        for name in FAMILIES.iter().copied().flatten() {
            assert!(OPTIONS.iter().any(|option| option.name == *name), "{name}");
        }
    }

    #[test]
    fn a_report_means_the_options_that_differ() {
        let earlier = settings(&json!({"topics_open": true, "api_keys_file": "keys", "shards": 1}));
        let new = settings(&json!({
            "client_subscribe_allow": ["a"], "api_keys_file": "keys", "shards": 2,
            "topic_rules": [{"pattern": "a", "history_publications": 1}],
        }));
        let names = |reported| new.changed_from(&earlier, reported);
        let subscribe = ["client_subscribe_allow", "topics_open"];
        assert_eq!(names("client_subscribe_allow"), subscribe);
        assert_eq!(names("client_publish_allow"), ["topics_open"]);
        assert_eq!(names("shards"), ["shards"]);
        assert_eq!(names("topic_rules"), ["topic_rules"]);
        // The same path with other keys in the file.
        assert_eq!(names("api_key"), ["api_keys_file"]);
    }

    #[test]
    fn what_is_kept_is_as_it_was() {
        let earlier = settings(&json!({"shards": 1, "broker_prefix": "a", "topic_rules": []}));
        let mut new = settings(&json!({
            "shards": 2, "broker": "redis://a", "errors_max": 7,
            "topic_rules": [{"pattern": "a", "history_publications": 1}],
        }));
        for name in ["shards", "broker", "topic_rules"] {
            new.keep(&earlier, name);
        }
        let given: Vec<_> = new.given().map(|(name, value, _)| (name, value)).collect();
        let expected = [("shards", "1"), ("errors_max", "7"), ("broker_prefix", "a")];
        let mut expected = expected
            .map(|(name, value)| (name, value.to_owned()))
            .to_vec();
        // In the order of the table.
        let place = |name: &str| OPTIONS.iter().position(|option| option.name == name);
        expected.sort_by_key(|(name, _)| place(name));
        assert_eq!(given, expected);
        assert!(new.rules().is_empty());
    }
}

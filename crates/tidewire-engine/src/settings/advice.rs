//! Warnings: settings that are permitted, but most likely not meant.

use super::given::Settings;
use super::lookup::spelled;
use super::table::OPTIONS;
use crate::config::Config;
use crate::config::backend::{BackendAway, BackendEvent};
use crate::topics::name::covers;

impl Settings {
    /// One line for each setting that is permitted but most likely not meant: clients without tokens on an address that
    /// other machines reach, keys of a login service for tokens of any audience, rules of topics that never apply,
    /// access that is allowed and denied, a policy that does not hold for shared topics. Each line names the option
    /// where it was given. `config` is what these settings make.
    #[must_use]
    pub fn warnings(&self, config: &Config) -> Vec<String> {
        let mut warnings = Vec::new();
        warnings.extend(self.exposed(config));
        warnings.extend(self.any_audience(config));
        warnings.extend(self.without_effect());
        self.shadowed_rules(&mut warnings);
        self.useless_access(&mut warnings);
        let spell = |warning: String| spelled(&warning, self.way());
        warnings.into_iter().map(spell).collect()
    }

    /// Logs the [`warnings`](Self::warnings).
    pub fn log_warnings(&self, config: &Config) {
        for warning in self.warnings(config) {
            tracing::warn!("{warning}");
        }
    }

    /// Everybody may connect, from anywhere.
    fn exposed(&self, config: &Config) -> Option<String> {
        let backend = config.backend.as_ref();
        let is_decided = backend.is_some_and(|backend| {
            backend.events.has(BackendEvent::Connect) && backend.away == BackendAway::Refuse
        });
        if config.auth.is_some() || is_decided || config.listen.ip().is_loopback() {
            return None;
        }
        let reason = if self.flag("no_auth") {
            self.label("no_auth")
        } else if backend.is_some_and(|backend| backend.events.has(BackendEvent::Connect)) {
            format!("{} while the backend is away", self.label("backend_away"))
        } else {
            self.label("protocol")
        };
        Some(format!(
            "{reason}: everybody who can reach {} may connect without a token; give a key such as \
             `jwt_secret_file`, or listen on 127.0.0.1",
            config.listen
        ))
    }

    /// Tokens for other services, which a login service signs with the same keys.
    fn any_audience(&self, config: &Config) -> Option<String> {
        let auth = config.auth.as_ref()?;
        if auth.audience.is_some() {
            return None;
        }
        let sources = ["jwt_jwks_url", "jwt_jwks_file"];
        let source = sources.into_iter().find(|name| self.is_given(name))?;
        Some(format!(
            "{}: tokens that the same login service signs for other services are accepted too; give \
             `jwt_audience`, the value of `aud` in tokens for this server",
            self.label(source)
        ))
    }

    /// Settings of a backend or a broker that is not there.
    fn without_effect(&self) -> Vec<String> {
        let missing = ["backend", "broker"].into_iter();
        let missing = missing.filter(|main| !self.is_set(main));
        missing
            .flat_map(|main| {
                let of_it = move |name: &&str| name.starts_with(&format!("{main}_"));
                let names = OPTIONS.iter().map(|spec| spec.name).filter(of_it);
                let given = names.filter(|name| self.is_set(name));
                given
                    .map(move |name| format!("{} has no effect without `{main}`", self.label(name)))
            })
            .collect()
    }

    /// Warns of rules that an earlier one covers. Those of `history` and `presence` are before all others.
    fn shadowed_rules(&self, warnings: &mut Vec<String>) {
        let rules = self.rules();
        for (index, later) in rules.iter().enumerate() {
            let pattern = &later.rule.pattern;
            let is_covering = |wide: &str| covers(wide, pattern);
            let earlier = rules[..index].iter();
            let mut earlier = earlier.filter(|earlier| is_covering(&earlier.rule.pattern));
            let by_option = || {
                let counts = self.counts("history");
                let history = counts.iter().map(|(wide, _)| ("history", wide.as_str()));
                let presence = self.texts("presence").unwrap_or_default();
                let presence = presence.iter().map(|wide| ("presence", wide.as_str()));
                let (name, wide) = history
                    .chain(presence)
                    .find(|(_, wide)| is_covering(wide))?;
                Some(format!(
                    "{} has {wide}, which comes before all rules; give all that is kept of these \
                     topics in rules",
                    self.label(name)
                ))
            };
            let reason = earlier.next().map(|earlier| {
                format!(
                    "{} covers its topics and stands before it; put the narrow rule first",
                    earlier.label
                )
            });
            if let Some(reason) = reason.or_else(by_option) {
                warnings.push(format!("{} never applies: {reason}", later.label));
            }
        }
    }

    /// The rights that are allowed but denied as a whole, and those that are allowed in any case.
    fn useless_access(&self, warnings: &mut Vec<String>) {
        for what in ["subscribe", "publish", "presence", "queue_group"] {
            let allow = format!("client_{what}_allow");
            let deny = format!("client_{what}_deny");
            let denied = self.texts(&deny).unwrap_or_default();
            for glob in self.texts(&allow).unwrap_or_default() {
                if let Some(wide) = denied.iter().find(|wide| covers(wide, &glob)) {
                    warnings.push(format!(
                        "{}: {glob} has no effect, because {} has {wide}, which overrides it",
                        self.label(&allow),
                        self.label(&deny)
                    ));
                }
            }
            if self.is_set(&allow) && self.flag("topics_open") {
                warnings.push(format!(
                    "{} has no effect, because {} allows every topic",
                    self.label(&allow),
                    self.label("topics_open")
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::{Origin, Settings, Way};
    use serde_json::{Value, json};
    use std::io::Write as _;

    fn settings(options: &[(&str, Value)], rules: &[&str]) -> Settings {
        let mut settings = Settings::new(Way::Flag);
        for (index, (name, value)) in options.iter().enumerate() {
            let origin = Origin::file(&format!("f:{}", index + 1));
            settings.set(origin, name, value).unwrap();
        }
        for (index, pattern) in rules.iter().enumerate() {
            let origin = Origin::file(&format!("f:{}", 10 + index));
            let key = ("pattern".to_owned(), json!(pattern), origin.clone());
            settings.add_rule(&origin, &[key]).unwrap();
        }
        settings
    }

    fn warnings(options: &[(&str, Value)], rules: &[&str]) -> Vec<String> {
        let settings = settings(options, rules);
        let config = settings.config().unwrap();
        settings.warnings(&config)
    }

    #[test]
    fn a_usual_configuration_has_no_warning() {
        let options = [
            ("no_auth", json!(true)),
            ("history", json!({"news.>": 5})),
            ("client_subscribe_allow", json!(["a.>"])),
            ("client_subscribe_deny", json!(["a.secret"])),
        ];
        assert_eq!(warnings(&options, &["a.b", "a.*", ">"]), [""; 0]);
    }

    #[test]
    fn everybody_beyond_this_machine() {
        let listen = ("listen", json!("0.0.0.0:1"));
        let expected = "f:2: no_auth: everybody who can reach 0.0.0.0:1 may connect without a token; \
                        give a key such as --jwt-secret-file, or listen on 127.0.0.1";
        let found = warnings(&[listen.clone(), ("no_auth", json!(true))], &[]);
        assert_eq!(found, [expected]);
        let raw = warnings(&[listen.clone(), ("protocol", json!("raw"))], &[]);
        assert!(raw[0].starts_with("f:2: protocol: everybody"), "{raw:?}");
        let secret = ("jwt_secret", json!("0123456789abcdef0123456789abcdef"));
        assert_eq!(warnings(&[listen, secret], &[]), [""; 0]);
    }

    #[test]
    fn keys_of_a_login_service_without_an_audience() {
        let url = ("jwt_jwks_url", json!("https://login.example/jwks.json"));
        let audience = ("jwt_audience", json!("tidewire"));
        let issuer = ("jwt_issuer", json!("https://login.example"));
        let expected = "tokens that the same login service signs for other services are accepted too; \
                        give --jwt-audience, the value of `aud` in tokens for this server";
        let found = warnings(&[issuer, url.clone()], &[]);
        assert_eq!(found, [format!("f:2: jwt_jwks_url: {expected}")]);
        assert_eq!(warnings(&[url, audience], &[]), [""; 0]);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let key = r#"{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}"#;
        file.write_all(format!("{{\"keys\":[{key}]}}").as_bytes())
            .unwrap();
        let found = warnings(&[("jwt_jwks_file", json!(file.path()))], &[]);
        assert_eq!(found, [format!("f:1: jwt_jwks_file: {expected}")]);
    }

    #[test]
    fn settings_of_a_backend_and_a_broker_that_are_not_there() {
        let mut options = vec![
            ("no_auth", json!(true)),
            ("backend_secret", json!("0123456789abcdef0123456789abcdef")),
            ("broker_prefix", json!("tw")),
        ];
        let expected = [
            "f:2: backend_secret has no effect without --backend",
            "f:3: broker_prefix has no effect without --broker",
        ];
        assert_eq!(warnings(&options, &[]), expected);
        options.push(("backend", json!("http://127.0.0.1:9")));
        options.push(("backend_events", json!(["connect"])));
        assert_eq!(warnings(&options, &[]), expected[1..]);
    }

    #[test]
    fn rules_that_never_apply() {
        let auth = ("no_auth", json!(true));
        let found = warnings(std::slice::from_ref(&auth), &["a.>", "b", "a.b"]);
        let expected = "f:12: the rule a.b never applies: f:10: the rule a.> covers its topics and \
                        stands before it; put the narrow rule first";
        assert_eq!(found, [expected]);
        let found = warnings(&[auth, ("presence", json!("b.*"))], &["b.c"]);
        let expected = "f:10: the rule b.c never applies: f:2: presence has b.*, which comes before \
                        all rules; give all that is kept of these topics in rules";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn two_rules_with_one_pattern_are_refused() {
        let settings = settings(&[("no_auth", json!(true))], &["a.>", "b", "a.>"]);
        let error = settings.config().unwrap_err().to_string();
        let expected = "f:12: the rule a.>: another rule has the same pattern (f:10: the rule a.>), \
                        and only the first one applies: give the keys of both in one rule";
        assert_eq!(error, expected);
    }

    #[test]
    fn access_that_is_allowed_and_denied() {
        let options = [
            ("no_auth", json!(true)),
            ("client_publish_allow", json!(["a.b", "c"])),
            ("client_publish_deny", json!("a.*")),
            ("topics_open", json!(true)),
        ];
        let expected = [
            "f:2: client_publish_allow: a.b has no effect, because f:3: client_publish_deny has a.*, \
             which overrides it",
            "f:2: client_publish_allow has no effect, because f:4: topics_open allows every topic",
        ];
        assert_eq!(warnings(&options, &[]), expected);
    }
}

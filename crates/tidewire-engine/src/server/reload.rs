//! Reload: another configuration for a running server. Sessions stay.
//!
//! Everything is checked and read before anything changes, so that a configuration with a mistake leaves the server as
//! it was. What shards and sockets were made with stays until the next start.

use super::{Keys, Server, StartError, check, lower};
use crate::auth::AuthConfig;
use crate::auth::key_set::{KeySetSource, Wish};
use crate::config::Config;
use crate::handle::Handle;
use crate::model::{ReloadFunction, Reloaded, SettingsFunction};
use crate::state::shared::{Setup, Shared};
use crate::topics::config::{RuleSet, TopicRule};
use std::sync::{Arc, Mutex, PoisonError};
use tidewire_net::tls::CertificateSlot;

/// Gives a running server other configurations, from any thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reloader {
    handle: Handle,
    certificate: Option<CertificateSlot>,
    /// One reload at a time.
    reloading: Arc<Mutex<()>>,
}

/// Why everything is as it was before. The caller's fault.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// No server could start with this configuration.
    #[error(transparent)]
    Configuration(#[from] StartError),
}

impl Server {
    /// The source of other configurations of this server.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader {
            handle: self.handle.clone(),
            certificate: self.certificate.clone(),
            reloading: Arc::default(),
        }
    }

    /// Sets what `POST /api/v1/reload` of the operations listener does. The first call counts.
    pub fn on_reload(&self, function: ReloadFunction) {
        let _ = self.handle.shared.functions.reload.set(function);
    }

    /// Sets what `GET /api/v1/settings` of the operations listener lists. The first call counts.
    pub fn on_settings(&self, function: SettingsFunction) {
        let _ = self.handle.shared.functions.settings.set(function);
    }
}

impl Reloader {
    /// Gives the server another configuration. Keys and certificates are read again, from the files that `config` names.
    /// New connections, publications and checks of tokens use it at once. Sessions stay: they have the rights of their
    /// token as it was checked, until they refresh it, and the sizes of messages that held when they were accepted.
    ///
    /// # Errors
    /// [`ReloadError`]; nothing has changed.
    pub fn reload(&self, config: &Config) -> Result<Reloaded, ReloadError> {
        let _reloading = self
            .reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let shared = &self.handle.shared;
        let mut config = config.clone();
        lower(&mut config);
        let in_force = shared.hub.rules.get();
        let present = in_force.of_presence();
        let (config, mut reloaded) = merge(&shared.setup.get().config, &config, present);
        check(&config)?;
        let rules = in_force.replaced(&config.topics.rules);
        let rules =
            rules.map_err(|(pattern, problem)| StartError::TopicRule { pattern, problem })?;
        config.topics.access.check().map_err(StartError::from)?;
        let mut keys = Keys::new(&config)?;
        if let (Some(verifier), Some(set)) = (&mut keys.verifier, &shared.key_set) {
            verifier.adopt(set);
        }
        if let (Some(slot), Some(files)) = (&self.certificate, &config.tls) {
            let replaced = slot.replace(&files.certificate, &files.key);
            let is_other = replaced.map_err(StartError::from)?;
            // A renewed certificate has the path of the old one.
            if is_other && !reloaded.changed.contains(&CERTIFICATE) {
                reloaded.changed.push(CERTIFICATE);
            }
        }
        if !reloaded.changed.is_empty() {
            install(shared, config, keys, rules);
        }
        if let Some(set) = &shared.key_set {
            set.wish(Wish::Now);
        }
        reloaded.changed.sort_unstable();
        reloaded.needs_restart.sort_unstable();
        Ok(reloaded)
    }
}

/// Nothing in here can fail.
fn install(shared: &Shared, mut config: Config, keys: Keys, rules: RuleSet) {
    lower(&mut config);
    shared.hub.rules.replace(rules);
    shared.hub.limits.replace(config.topics.limits.clone());
    shared.setup.replace(Setup::new(config, keys.verifier));
}

/// The configuration in force with everything of `new` that can change, and the options that differ. `present` are the
/// rules of presence in force.
fn merge(old: &Config, new: &Config, present: &[TopicRule]) -> (Config, Reloaded) {
    let mut merged = old.clone();
    let mut reloaded = Reloaded::default();
    merge_plain(&mut merged, new, &mut reloaded);
    merge_auth(&mut merged, new, &mut reloaded);
    merge_rules(&mut merged, new, present, &mut reloaded);
    compare_backend(old, new, &mut reloaded);
    match (&mut merged.tls, &new.tls) {
        (None, None) => {}
        (Some(old), Some(new)) => {
            if old.certificate != new.certificate || old.key != new.key {
                reloaded.changed.push(CERTIFICATE);
                old.clone_from(new);
            }
        }
        _ => reloaded.needs_restart.push(CERTIFICATE),
    }
    (merged, reloaded)
}

/// Tokens: keys and rules can change, whether tokens are needed cannot.
fn merge_auth(merged: &mut Config, new: &Config, reloaded: &mut Reloaded) {
    match (&mut merged.auth, &new.auth) {
        (None, None) => {}
        (Some(old), Some(new)) => {
            let mut new = new.clone();
            if old.key_set != new.key_set && (is_fetched(old) || is_fetched(&new)) {
                // The thread that fetches keys starts and ends with the server.
                reloaded.needs_restart.push("jwt_jwks_url");
                new.key.clone_from(&old.key);
                new.key_set.clone_from(&old.key_set);
            }
            let differences = [
                ("jwt_secret", old.key != new.key),
                ("jwt_jwks_file", old.key_set != new.key_set),
                ("jwt_previous_secret", old.previous_key != new.previous_key),
                ("jwt_issuer", old.issuer != new.issuer),
                ("jwt_audience", old.audience != new.audience),
                ("jwt_leeway_s", old.leeway_s != new.leeway_s),
                (
                    "keep_expired_sessions",
                    old.ends_sessions != new.ends_sessions,
                ),
                ("token_grace_s", old.grace_s != new.grace_s),
                ("token_warning_s", old.warning_s != new.warning_s),
                ("cookie_name", old.cookie_name != new.cookie_name),
                (
                    "token_query_parameter",
                    old.query_parameter != new.query_parameter,
                ),
                (
                    "token_subprotocol_prefix",
                    old.subprotocol_prefix != new.subprotocol_prefix,
                ),
            ];
            let changed = differences.into_iter().filter(|(_, differs)| *differs);
            reloaded.changed.extend(changed.map(|(name, _)| name));
            *old = new;
        }
        _ => reloaded.needs_restart.push("no_auth"),
    }
}

fn is_fetched(auth: &AuthConfig) -> bool {
    matches!(auth.key_set, Some(KeySetSource::Url(_)))
}

/// The backend: nothing of it changes.
fn compare_backend(old: &Config, new: &Config, reloaded: &mut Reloaded) {
    let (old, new) = match (&old.backend, &new.backend) {
        (None, None) => return,
        (Some(old), Some(new)) => (old, new),
        _ => return reloaded.needs_restart.push("backend"),
    };
    let differences = [
        ("backend", old.url != new.url),
        ("backend_events", old.events != new.events),
        ("backend_secret", old.secret != new.secret),
        ("backend_ca_file", old.authorities != new.authorities),
        ("backend_away", old.away != new.away),
        (
            "backend_connections_max",
            old.connections_max != new.connections_max,
        ),
        (
            "backend_in_flight_max",
            old.in_flight_max != new.in_flight_max,
        ),
        (
            "backend_in_flight_bytes_max",
            old.in_flight_bytes_max != new.in_flight_bytes_max,
        ),
        (
            "backend_connect_timeout_ms",
            old.connect_timeout_ms != new.connect_timeout_ms,
        ),
        ("backend_timeout_ms", old.timeout_ms != new.timeout_ms),
        (
            "backend_idle_timeout_ms",
            old.idle_timeout_ms != new.idle_timeout_ms,
        ),
        (
            "backend_answer_bytes_max",
            old.answer_bytes_max != new.answer_bytes_max,
        ),
    ];
    let differing = differences.into_iter().filter(|(_, differs)| *differs);
    reloaded
        .needs_restart
        .extend(differing.map(|(name, _)| name));
}

/// Rules of topics: who is present cannot begin or cease to be known. With a broker nothing changes, because the servers
/// that share a topic have to agree about it.
fn merge_rules(merged: &mut Config, new: &Config, present: &[TopicRule], reloaded: &mut Reloaded) {
    if merged.broker.is_some() {
        if merged.topics.rules != new.topics.rules {
            reloaded.needs_restart.push("topic_rules");
        }
        return;
    }
    let (old, new) = (&mut merged.topics.rules, &new.topics.rules);
    let presence = |rules: &[TopicRule]| -> Vec<String> {
        let present = rules.iter().filter(|rule| rule.presence);
        present.map(|rule| rule.pattern.clone()).collect()
    };
    // The rules of an earlier reload may differ from those at the start. For presence those at the start hold.
    if presence(present) != presence(new) {
        reloaded.needs_restart.push("presence");
    }
    if old != new {
        reloaded.changed.push("topic_rules");
        old.clone_from(new);
    }
}

/// A certificate and its key.
const CERTIFICATE: &str = "tls_certificate";

/// Compares the fields of options, and copies those that can change.
macro_rules! plain {
    (
        changes { $($live:ident: $($field:ident).+;)+ }
        stays { $($fixed:ident: $($other:ident).+;)+ }
    ) => {
        fn merge_plain(merged: &mut Config, new: &Config, reloaded: &mut Reloaded) {
            $(
                if merged.$($field).+ != new.$($field).+ {
                    reloaded.changed.push(stringify!($live));
                    merged.$($field).+.clone_from(&new.$($field).+);
                }
            )+
            $(
                if merged.$($other).+ != new.$($other).+ {
                    reloaded.needs_restart.push(stringify!($fixed));
                }
            )+
        }

        /// Options that [`merge`] compares as fields.
        #[cfg(test)]
        const PLAIN: &[&str] = &[$(stringify!($live),)+ $(stringify!($fixed),)+];
    };
}

plain! {
    changes {
        path: paths;
        origin: origins;
        api_key: ops_api_keys;
        subprotocol: subprotocols;
        trusted_proxy: proxies;
        auth_failure_after_upgrade: auth_failure_after_upgrade;
        client_subscribe_allow: topics.access.subscribe;
        client_publish_allow: topics.access.publish;
        client_presence_allow: topics.access.presence;
        client_queue_group_allow: topics.access.queue_group;
        topic_access_claim: topics.access_claim;
        drain_rate_per_s: drain.rate_per_s;
        reconnect_spread_ms: drain.reconnect_spread_ms;
        compression_threshold_bytes: compression.threshold_bytes;
        connections_max: limits.connections_max;
        handshake_timeout_ms: limits.handshake_timeout_ms;
        request_head_bytes_max: limits.request_head_bytes_max;
        message_bytes_max: limits.message_bytes_max;
        rate_limit_capacity: limits.rate_limit_capacity;
        rate_limit_refill_per_s: limits.rate_limit_refill_per_s;
        errors_max: limits.errors_max;
        errors_window_ms: limits.errors_window_ms;
        outbox_pause_bytes: limits.outbox_pause_bytes;
        ping_interval_ms: limits.ping_interval_ms;
        idle_timeout_ms: limits.idle_timeout_ms;
        close_timeout_ms: limits.close_timeout_ms;
        retry_after_s: limits.retry_after_s;
        call_timeout_ms: limits.call_timeout_ms;
        calls_per_connection_max: limits.calls_per_connection_max;
        subscriptions_per_connection_max: topics.limits.subscriptions_per_connection_max;
        subscription_bytes_per_connection_max: topics.limits.subscription_bytes_per_connection_max;
        patterns_per_connection_max: topics.limits.patterns_per_connection_max;
        subscribers_per_topic_max: topics.limits.subscribers_per_topic_max;
        payload_bytes_max: topics.limits.payload_bytes_max;
        topic_bidi_controls: topics.limits.bidi_controls;
        backlog_bytes_max: topics.limits.backlog_bytes_max;
        presence_bytes_per_s: topics.limits.presence_bytes_per_s;
        presence_data_bytes_max: topics.limits.presence_data_bytes_max;
        lag_publications_max: topics.limits.lag_publications_max;
        lag_bytes_max: topics.limits.lag_bytes_max;
    }
    stays {
        listen: listen;
        ops_listen: ops_listen;
        shards: shards;
        reuse_port: reuse_port;
        protocol: protocol;
        allow_host: hosts;
        encryption: encryption;
        identity_key: identity_key;
        signature_secret: signing;
        deflate: compression.deflate;
        compression_level: compression.level;
        deflate_window_bits: compression.window_bits;
        deduplicate: producers.deduplicate;
        deduplicated_ids_max: producers.remembered_ids_max;
        producers_max: producers.producers_max;
        producer_ttl_ms: producers.producer_ttl_ms;
        handshakes_max: limits.handshakes_max;
        handshakes_per_address_max: limits.handshakes_per_address_max;
        handshakes_parked_max: limits.handshakes_parked_max;
        outbox_bytes_max: limits.outbox_bytes_max;
        outboxes_bytes_max: limits.outboxes_bytes_max;
        receive_buffer_bytes_max: limits.receive_buffer_bytes_max;
        receive_buffers_bytes_max: limits.receive_buffers_bytes_max;
        shard_stall_ms: limits.shard_stall_ms;
        owner_work_ms_per_s: limits.owner_work_ms_per_s;
        unfinished_bytes_per_owner_max: limits.unfinished_bytes_per_owner_max;
        unfinished_bytes_max: limits.unfinished_bytes_max;
        subscription_bytes_per_owner_max: topics.limits.subscription_bytes_per_owner_max;
        subscription_bytes_max: topics.limits.subscription_bytes_max;
        history_bytes_max: topics.limits.history_bytes_max;
        history_topics_max: topics.limits.history_topics_max;
        remembered_ids_max: topics.limits.remembered_ids_max;
        group_waiting_max: topics.limits.group_waiting_max;
        group_waiting_bytes_max: topics.limits.group_waiting_bytes_max;
        groups_per_topic_max: topics.limits.groups_per_topic_max;
        group_overload: topics.limits.group_overload;
        broker: broker;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::api_key::{ApiKey, NamedApiKey};
    use crate::auth::{AuthConfig, KeyMaterial};
    use crate::config::backend::{BackendConfig, BackendUrl};
    use crate::config::{OriginPolicy, TlsFiles};
    use crate::settings::{OPTIONS, plain_names};

    #[test]
    fn every_plain_option_either_changes_or_stays() {
        let missing: Vec<_> = plain_names()
            .iter()
            .filter(|name| !PLAIN.contains(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn every_name_in_a_report_is_an_option() {
        let known = |name: &str| OPTIONS.iter().any(|option| option.name == name);
        let others = [
            "presence",
            "topic_rules",
            "no_auth",
            "jwt_secret",
            CERTIFICATE,
        ];
        for name in PLAIN.iter().chain(&others) {
            assert!(known(name), "{name}");
        }
    }

    #[test]
    fn presence_waits_for_a_restart_at_every_reload() {
        let rule = |presence| TopicRule {
            presence,
            ..TopicRule::new("a")
        };
        let with = |presence| {
            let mut config = Config::default();
            config.topics.rules = vec![rule(presence)];
            config
        };
        let (first, reloaded) = merge(&with(false), &with(true), &[rule(false)]);
        assert_eq!(reloaded.needs_restart, ["presence"]);
        let (_, again) = merge(&first, &with(true), &[rule(false)]);
        assert_eq!(again.needs_restart, ["presence"]);
        assert!(again.changed.is_empty(), "{again:?}");
        let (_, back) = merge(&first, &with(false), &[rule(false)]);
        assert!(back.needs_restart.is_empty(), "{back:?}");
    }

    #[test]
    fn the_backend_stays_and_what_differs_is_named() {
        let with = |url: &str, timeout_ms| {
            let mut backend = BackendConfig::new(BackendUrl::parse(url).unwrap());
            backend.timeout_ms = timeout_ms;
            Config {
                backend: Some(backend),
                ..Config::default()
            }
        };
        let old = with("http://a/", 1);
        let (merged, reloaded) = merge(&old, &with("http://b/", 2), &[]);
        assert_eq!(merged.backend, old.backend);
        assert_eq!(reloaded.needs_restart, ["backend", "backend_timeout_ms"]);
        let (_, reloaded) = merge(&old, &Config::default(), &[]);
        assert_eq!(reloaded.needs_restart, ["backend"]);
        assert!(merge(&old, &old, &[]).1.needs_restart.is_empty());
    }

    #[test]
    fn what_can_change_is_taken_and_the_rest_is_named() {
        let old = Config::default();
        let mut new = Config {
            shards: old.shards + 1,
            origins: OriginPolicy::Any,
            ..Config::default()
        };
        new.limits.errors_max = 7;
        new.topics.rules = vec![TopicRule {
            presence: true,
            ..TopicRule::new("a")
        }];
        let key = ApiKey::new(vec![b'x'; 16]).unwrap();
        new.ops_api_keys = vec![NamedApiKey::all("a", key)];
        new.tls = Some(TlsFiles {
            certificate: "a".into(),
            key: "b".into(),
        });
        new.auth = Some(AuthConfig::new(KeyMaterial::Hs256(vec![0; 32])));
        let (merged, reloaded) = merge(&old, &new, &[]);
        assert_eq!(
            reloaded.changed,
            ["origin", "api_key", "errors_max", "topic_rules"]
        );
        assert_eq!(
            reloaded.needs_restart,
            ["shards", "no_auth", "presence", "tls_certificate"]
        );
        assert_eq!(merged.shards, old.shards);
        assert_eq!(merged.origins, OriginPolicy::Any);
        assert_eq!(merged.limits.errors_max, 7);
        assert!(merged.auth.is_none() && merged.tls.is_none());
    }
}

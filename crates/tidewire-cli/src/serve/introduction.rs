//! Introduction of a server at its start: addresses, who may connect, limits, next steps.

use std::net::SocketAddr;
use tidewire_engine::auth::{AuthConfig, KeySetSource};
use tidewire_engine::settings::Settings;
use tidewire_engine::{AccessRules, BackendAway, BackendEvent, Config, OriginPolicy, Protocol};

/// The addresses on which a server listens: those in the configuration, or those of its open sockets.
pub(super) struct Addresses {
    pub(super) clients: SocketAddr,
    pub(super) operations: Option<SocketAddr>,
}

/// The lines, each ended by a line feed.
pub(super) fn text(settings: &Settings, config: &Config, addresses: &Addresses) -> String {
    let mut out = format!(
        "tidewire {}: {}\n",
        env!("CARGO_PKG_VERSION"),
        application(settings, config)
    );
    let lines = [
        ("clients", clients(config, addresses.clients)),
        ("users", users(config)),
        ("pages", pages(&config.origins)),
        ("topics", topics(config)),
        ("backend", backend(config)),
        ("limits", limits(config)),
        ("operations", operations(config, addresses.operations)),
    ];
    for (name, line) in lines.into_iter().filter(|(_, line)| !line.is_empty()) {
        out.push_str(&format!("  {name:<11} {line}\n"));
    }
    out
}

/// The suggested next commands.
pub(super) fn next_steps(
    settings: &Settings,
    config: &Config,
    operations: Option<SocketAddr>,
) -> String {
    let mut steps = Vec::new();
    if config.auth.is_some() {
        let key = match settings.text("jwt_secret_file") {
            Some(path) => format!("--jwt-secret-file {path}"),
            None => "…".to_owned(),
        };
        steps.push(format!(
            "`tidewire token {key} --subject user-1` makes a token to try"
        ));
    }
    if let Some(address) = operations {
        steps.push(format!(
            "`tidewire top http://{address}` shows the activity"
        ));
    }
    steps.push("Ctrl-C ends it".to_owned());
    format!("  {:<11} {}\n", "next", steps.join("; "))
}

fn application(settings: &Settings, config: &Config) -> String {
    let application = match settings.text("app").as_deref() {
        Some("sink") => "application sink (messages are discarded)",
        _ => "application echo (every message comes back)",
    };
    let protocol = match config.protocol {
        Protocol::V1 => "protocol version 1",
        Protocol::Raw => "plain WebSocket messages",
    };
    let loops = if config.shards == 1 {
        "1 event loop".to_owned()
    } else {
        format!("{} event loops", config.shards)
    };
    format!("{application}, {protocol}, {loops}")
}

/// Such as `ws://127.0.0.1:5006/ws`.
pub(super) fn url(config: &Config, address: SocketAddr) -> String {
    let scheme = if config.tls.is_some() { "wss" } else { "ws" };
    let path = config.paths.first().map_or("/", String::as_str);
    format!("{scheme}://{address}{path}")
}

fn clients(config: &Config, address: SocketAddr) -> String {
    let url = url(config, address);
    match config.paths.get(1..) {
        None => format!("{url} and any other path"),
        Some([]) => url,
        Some(others) => format!("{url}, also {}", others.join(", ")),
    }
}

fn users(config: &Config) -> String {
    let backend = config.backend.as_ref();
    let is_asked = backend.is_some_and(|backend| backend.events.has(BackendEvent::Connect));
    match &config.auth {
        None if is_asked => "those whom the backend accepts".to_owned(),
        None => "everybody, without a token".to_owned(),
        Some(auth) => format!(
            "those with a token ({}) in {}{}",
            key_names(auth),
            token_places(auth),
            if is_asked {
                ", whom the backend accepts"
            } else {
                ""
            }
        ),
    }
}

/// The keys that tokens are checked with.
fn key_names(auth: &AuthConfig) -> String {
    match (&auth.key, &auth.key_set) {
        (Some(key), _) => key.material.algorithm_name().to_owned(),
        (None, Some(KeySetSource::Url(source))) => {
            format!("keys from {}", source.url.without_query())
        }
        (None, _) => "keys of a file".to_owned(),
    }
}

fn token_places(auth: &AuthConfig) -> String {
    let mut places = vec![
        format!("the cookie {}", auth.cookie_name),
        "Authorization: Bearer".to_owned(),
    ];
    if let Some(prefix) = &auth.subprotocol_prefix {
        places.push(format!("a subprotocol {prefix}…"));
    }
    if let Some(name) = &auth.query_parameter {
        places.push(format!("the query parameter {name}"));
    }
    let last = places.pop().unwrap_or_default();
    format!("{} or {last}", places.join(", "))
}

fn pages(origins: &OriginPolicy) -> String {
    match origins {
        OriginPolicy::Any => "web pages of every origin".to_owned(),
        OriginPolicy::SameHost => {
            "web pages of the same host and port (--origin allows others)".to_owned()
        }
        OriginPolicy::Listed(origins) => {
            format!("web pages of the same host and of {}", origins.join(", "))
        }
    }
}

fn topics(config: &Config) -> String {
    if config.protocol == Protocol::Raw {
        return "none (plain messages)".to_owned();
    }
    let access = &config.topics.access;
    let mut text = if *access == AccessRules::open() {
        "clients may use all".to_owned()
    } else if *access == AccessRules::closed() {
        "clients may use none (--topics-open or --client-subscribe-allow permits it)".to_owned()
    } else {
        let of = |allow: &[String]| match allow {
            [] => "none".to_owned(),
            globs => globs.join(", "),
        };
        format!(
            "clients may subscribe to {}; publish to {}",
            of(&access.subscribe.allow),
            of(&access.publish.allow)
        )
    };
    if let (Some(claim), Some(_)) = (&config.topics.access_claim, &config.auth) {
        text.push_str(&format!("; the claim `{claim}` of a token replaces this"));
    }
    text
}

/// Empty without a backend.
fn backend(config: &Config) -> String {
    let Some(backend) = &config.backend else {
        return String::new();
    };
    let events = BackendEvent::ALL.into_iter();
    let events = events.filter(|event| backend.events.has(*event));
    let events: Vec<_> = events.map(BackendEvent::name).collect();
    let signed = match backend.secret {
        Some(_) => "signed",
        None => "not signed (--backend-secret-file signs them)",
    };
    let away = match backend.away {
        BackendAway::Refuse => "refused",
        BackendAway::Allow => "allowed",
    };
    format!(
        "{} gets {}, {signed}; without its answer clients are {away}",
        backend.url,
        events.join(", ")
    )
}

fn limits(config: &Config) -> String {
    let limits = &config.limits;
    let rate = match limits.rate_limit_capacity {
        0 => "any rate".to_owned(),
        _ => format!("{} messages/s", grouped(limits.rate_limit_refill_per_s)),
    };
    format!(
        "{} connections; each: messages up to {}, {rate}, {} waiting to be sent",
        grouped(limits.connections_max as u64),
        size(limits.message_bytes_max),
        size(limits.outbox_bytes_max)
    )
}

fn operations(config: &Config, address: Option<SocketAddr>) -> String {
    let Some(address) = address else {
        return "none (--ops-listen 127.0.0.1:5007 gives health, metrics and `tidewire top`)"
            .to_owned();
    };
    let api = if config.ops_api_keys.is_empty() {
        "no HTTP API (--api-key-file enables it)"
    } else {
        "HTTP API with a key"
    };
    format!("http://{address} (/health, /ready, /metrics, /stats; {api})")
}

/// A number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the largest unit of which they are a multiple.
fn size(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{} bytes", grouped(bytes as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let numbers = [0, 999, 1_000, 1_000_000].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "1,000,000"]);
        let sizes = [0, 1_000, 65_536, 1 << 20].map(size);
        assert_eq!(sizes, ["0 bytes", "1,000 bytes", "64 KiB", "1 MiB"]);
    }
}

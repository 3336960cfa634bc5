//! The metrics of the keys that are fetched from a server.

use crate::auth::key_set::KeySet;
use crate::clock::unix_ms;
use crate::ops::metrics::{write_head, write_plain};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// The metrics of a set as text. Writing to a string cannot fail.
pub(crate) fn metrics(set: &KeySet) -> String {
    let mut body = String::new();
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let counts = &set.counts;
    let values = [
        set.keys().len() as u64,
        load(&counts.fetched),
        load(&counts.failed),
    ];
    write_plain(&mut body, &PLAIN, values);
    let fetched_ms = load(&counts.fetched_unix_ms);
    if fetched_ms > 0 {
        let age_s = unix_ms().saturating_sub(fetched_ms) as f64 / 1e3;
        let name = "tidewire_jwks_age_seconds";
        let help = "The time since the set of keys was fetched last";
        write_head(&mut body, name, help, "gauge");
        let _ = writeln!(body, "{name} {age_s}");
    }
    body
}

/// Name, kind and description of the metrics that exist from the start.
const PLAIN: [(&str, &str, &str); 3] = [
    (
        "tidewire_jwks_keys",
        "gauge",
        "Keys of the set that check tokens now",
    ),
    (
        "tidewire_jwks_fetches_total",
        "counter",
        "Fetches that brought a set of keys",
    ),
    (
        "tidewire_jwks_failures_total",
        "counter",
        "Fetches of the set of keys that failed",
    ),
];

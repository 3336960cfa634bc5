//! A server's own counters, read from its operations listener.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::operations::{self, OperationsError};

/// The source of the counters: `GET /stats` at these addresses, plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsSource {
    /// The operations listener of each of the server's processes; the counters are added up.
    pub addresses: Vec<SocketAddr>,
}

/// One of the server's processes, by its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerProcess {
    /// The process.
    pub process_id: u32,
    /// Its open connections.
    pub connections_open: u64,
    /// Its resident memory.
    pub resident_bytes: u64,
}

/// The counters of a server at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// `messages_delivered`: passed to the application.
    pub delivered: u64,
    /// Every `messages_refused_…`, by the rest of its name.
    pub refused_by: BTreeMap<String, u64>,
    /// `deliveries`: publications sent, counted for each receiver; `None` from a server that does
    /// not count them.
    pub deliveries: Option<u64>,
}

impl ServerCounts {
    /// The counts since `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (reason, count) in &mut self.refused_by {
            let before = before.refused_by.get(reason).copied();
            *count = count.saturating_sub(before.unwrap_or(0));
        }
        Self {
            delivered: self.delivered.saturating_sub(before.delivered),
            refused_by: self.refused_by,
            deliveries: self
                .deliveries
                .map(|count| count.saturating_sub(before.deliveries.unwrap_or(0))),
        }
    }

    /// Adds those of another process.
    fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        for (reason, count) in &other.refused_by {
            *self.refused_by.entry(reason.clone()).or_default() += count;
        }
        self.deliveries = match (self.deliveries, other.deliveries) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
    }

    /// Messages refused for any reason.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused_by.values().sum()
    }
}

/// The reason for which the counters cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// No answer of HTTP within [`STATS_TIMEOUT`].
    #[error("cannot read the operations listener at {address}: {source}")]
    Unreadable {
        /// The listener.
        address: SocketAddr,
        /// The reason.
        source: OperationsError,
    },
    /// The answer is not that of an operations listener.
    #[error("the operations listener at {address} returns no counters: {what}")]
    Malformed {
        /// The listener.
        address: SocketAddr,
        /// The missing part.
        what: &'static str,
    },
}

impl StatsSource {
    /// One process.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            addresses: vec![address],
        }
    }

    /// Reads the counters once.
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn read(&self) -> Result<ServerCounts, StatsError> {
        let mut sum = ServerCounts::default();
        for address in &self.addresses {
            let counts = answer_of(*address).and_then(|value| {
                counts(&value).map_err(|what| StatsError::Malformed {
                    address: *address,
                    what,
                })
            })?;
            sum.add(&counts);
        }
        Ok(sum)
    }

    /// The processes that can be asked.
    #[must_use]
    pub fn processes(&self) -> Vec<ServerProcess> {
        let answers = self.addresses.iter();
        let answers = answers.filter_map(|address| answer_of(*address).ok());
        answers
            .filter_map(|value| {
                let total = value.get("total")?;
                Some(ServerProcess {
                    process_id: u32::try_from(value.get("process_id")?.as_u64()?).ok()?,
                    connections_open: total.get("connections_open")?.as_u64()?,
                    resident_bytes: value.get("resident_bytes")?.as_u64()?,
                })
            })
            .collect()
    }

    /// The counts since `before`: as soon as they have the expected value, or after the time that a
    /// server may need to sum the counts of its threads.
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn read_settled(
        &self,
        before: &ServerCounts,
        is_settled: impl Fn(&ServerCounts) -> bool,
    ) -> Result<ServerCounts, StatsError> {
        let end = Instant::now() + SETTLE_MAX;
        loop {
            let counts = self.read()?.since(before);
            if is_settled(&counts) || Instant::now() >= end {
                return Ok(counts);
            }
            std::thread::sleep(SETTLE_STEP);
        }
    }
}

fn answer_of(address: SocketAddr) -> Result<Value, StatsError> {
    let body = operations::get(&address.to_string(), "/stats", STATS_TIMEOUT)
        .map_err(|source| StatsError::Unreadable { address, source })?;
    serde_json::from_slice(&body).map_err(|_| StatsError::Malformed {
        address,
        what: "the body is not JSON",
    })
}

fn counts(value: &Value) -> Result<ServerCounts, &'static str> {
    let totals = value
        .get("total")
        .or_else(|| value.get("totals"))
        .unwrap_or(value);
    let totals = totals.as_object().ok_or("the body is not an object")?;
    let delivered = totals
        .get("messages_delivered")
        .and_then(Value::as_u64)
        .ok_or("`messages_delivered` is missing")?;
    let refused_by = totals
        .iter()
        .filter_map(|(name, count)| {
            let reason = name
                .strip_prefix("messages_refused")?
                .trim_start_matches('_');
            Some((reason.to_owned(), count.as_u64()?))
        })
        .collect();
    let deliveries = totals.get("deliveries").and_then(Value::as_u64);
    Ok(ServerCounts {
        delivered,
        refused_by,
        deliveries,
    })
}

/// The longest silence of the listener.
pub const STATS_TIMEOUT: Duration = Duration::from_secs(2);

const SETTLE_MAX: Duration = Duration::from_secs(1);
const SETTLE_STEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_totals_are_found_and_refusals_added() {
        let answer = json!({"total": {
            "messages_delivered": 10, "deliveries": 9, "messages_refused_rate": 2, "messages_refused_size": 3,
        }});
        let counts = counts(&answer).unwrap();
        let by =
            |rate, size| BTreeMap::from([("rate".to_owned(), rate), ("size".to_owned(), size)]);
        assert_eq!(
            counts,
            ServerCounts {
                delivered: 10,
                refused_by: by(2, 3),
                deliveries: Some(9),
            }
        );
        assert_eq!(counts.refused(), 5);
        let before = ServerCounts {
            delivered: 4,
            refused_by: by(1, 0),
            deliveries: None,
        };
        let since = counts.since(&before);
        assert_eq!((since.delivered, since.refused_by), (6, by(1, 3)));
        assert_eq!(before.clone().since(&before).deliveries, None);
    }

    #[test]
    fn anything_else_is_an_error() {
        for answer in [json!({"total": {}}), json!([]), json!({"total": 1})] {
            assert!(counts(&answer).is_err(), "{answer}");
        }
    }
}

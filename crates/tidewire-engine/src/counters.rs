//! Counters and gauges of a shard.
//!
//! One thread, the shard's own, writes its [`Counters`]; any thread reads them. So counting is a load and a
//! store without a lock, and a [`Snapshot`] stops no thread: each of its numbers is exact, but they may be
//! some messages apart from each other while the shard works.

mod histogram;
mod timings;

pub use histogram::{BOUNDS_NS, Histogram, HistogramSnapshot};
pub use timings::{TIMINGS, Timing, Timings, TimingsSnapshot};

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// The kind of a metric, in Prometheus's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from zero at the start.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A row of the table of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The field of [`Counters`] and [`Snapshot`].
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: MetricKind,
    /// The counted thing, in one sentence without a full stop.
    pub help: &'static str,
}

impl Counter {
    /// Adds `count`. Only the shard's own thread may call it: a second writer's counts could get
    /// lost.
    #[inline]
    pub fn add(&self, count: u64) {
        self.set(self.load().wrapping_add(count));
    }

    /// Subtracts `count`, for a gauge. Only on the shard's own thread. Stops at zero.
    #[inline]
    pub fn sub(&self, count: u64) {
        self.set(self.load().saturating_sub(count));
    }

    /// Replaces the value, for a gauge. Only on the shard's own thread.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    #[inline]
    #[must_use]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($name:ident, $kind:ident, $help:literal;)+) => {
        /// The counters of one shard. The alignment keeps those of two shards out of one cache
        /// line.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $(#[doc = concat!($help, ".")] pub $name: Counter,)+
            /// Histograms of durations; no part of [`Snapshot`].
            pub timings: Timings,
        }

        /// The counters of one shard, or the sum of several, at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct Snapshot {
            $(#[doc = concat!($help, ".")] pub $name: u64,)+
        }

        /// Every counter, in the order of [`Snapshot::values`].
        pub const METRICS: &[Metric] = &[
            $(Metric { name: stringify!($name), kind: MetricKind::$kind, help: $help },)+
        ];

        impl Counters {
            /// All values now.
            #[must_use]
            pub fn snapshot(&self) -> Snapshot {
                Snapshot { $($name: self.$name.load(),)+ }
            }
        }

        impl Snapshot {
            /// This and another, added up.
            #[must_use]
            pub fn sum(self, other: &Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)+ }
            }

            /// The numbers, in the order of [`METRICS`].
            #[must_use]
            pub fn values(&self) -> [u64; METRICS.len()] {
                [$(self.$name,)+]
            }
        }
    };
}

counters! {
    connections_open, Gauge, "Open sessions";
    connections_accepted, Counter, "TCP connections accepted";
    connections_rejected_full, Counter, "Upgrades refused with HTTP 503 because the server was full";
    handshakes_in_progress, Gauge, "Connections in the opening handshake that the server reads";
    handshakes_parked, Gauge, "Connections in the opening handshake that wait for others of their address";
    handshakes_completed, Counter, "Opening handshakes that led to a session";
    handshakes_failed, Counter, "Connections that ended before they became a session, for any reason";
    handshake_timeouts, Counter, "Opening handshakes that took too long";
    handshakes_evicted, Counter, "Opening handshakes ended early because others waited";
    proxy_headers_refused, Counter, "Connections from trusted proxies that ended because of a malformed PROXY header";
    host_rejections, Counter, "Upgrades refused because of their host name";
    origin_rejections, Counter, "Upgrades refused because of their origin";
    auth_failures, Counter, "Upgrades with a token that was missing or not accepted";
    application_panics, Counter, "Panics of the application; each ended the connections for which it was called";
    shard_stalls, Counter, "Stalls of shards after which publications were dropped and the sessions ended";
    sessions_expired, Counter, "Sessions ended because their token had expired";
    tokens_refreshed, Counter, "New tokens that clients sent for their sessions";
    tokens_refused, Counter, "New tokens that clients sent for their sessions and that were refused";
    signatures_refused, Counter, "Signed messages refused because too many signatures were remembered, of their user or address or of all";
    messages_received, Counter, "Complete messages received, of every kind";
    bytes_received, Counter, "Payload bytes of the messages received";
    messages_delivered, Counter, "Messages passed to the application";
    messages_refused_rate, Counter, "Messages refused by the rate limit";
    messages_refused_size, Counter, "Messages refused because they were larger than the limit";
    messages_refused_invalid, Counter, "Messages refused because they violated the protocol";
    messages_unfinished_evicted, Counter, "Connections ended because the unfinished messages of a user or address, or of all, took too much memory";
    messages_out_of_turn, Counter, "Messages of producers refused because an earlier one was missing or another connection had replaced theirs";
    messages_repeated, Counter, "Messages dropped because they had been passed to the application before";
    producers_opened, Counter, "Sessions that number their messages";
    producers_refused, Counter, "Sessions whose numbers are not remembered because there were too many producers";
    producers_superseded, Counter, "Sessions ended because another connection replaced them as their producer";
    error_budgets_exhausted, Counter, "Sessions ended because they exceeded their error budget";
    system_messages_received, Counter, "Messages of the protocol itself, answered by the engine";
    messages_sent, Counter, "Messages sent, of every kind";
    bytes_sent, Counter, "Payload bytes of the messages sent";
    messages_compressed, Counter, "Messages compressed for sending; a message to many receivers counts once";
    messages_inflated, Counter, "Compressed messages received and inflated";
    key_exchanges, Counter, "Connections that agreed on encryption";
    key_updates, Counter, "Key changes of connections by the server";
    pings_received, Counter, "WebSocket pings received, each answered by a pong";
    pongs_received, Counter, "WebSocket pongs received";
    protocol_errors, Counter, "Connections ended because the peer violated RFC 6455";
    topics, Gauge, "Topics and patterns with subscribers";
    subscriptions, Gauge, "Current subscriptions";
    subscriptions_forbidden, Counter, "Subscriptions refused because the user has no access to the topic";
    publications_received, Counter, "Publications of clients that were accepted";
    publications_refused, Counter, "Publications of clients that were refused";
    publications_repeated, Counter, "Publications of clients dropped because their id or number had arrived before";
    deliveries, Counter, "Publications sent, counted for each receiver";
    publications_replayed, Counter, "Publications sent again to subscribers that had missed them";
    deliveries_skipped, Counter, "Deliveries of volatile publications to connections that lagged, which did not get them";
    publications_dropped, Counter, "Publications dropped or replaced because a subscription lagged";
    publications_unfiltered, Counter, "Publications that subscribers with filters did not receive because their user or address had used its part of the second";
    publications_expired, Counter, "Publications that nobody received because their time to live had ended";
    gaps_reported, Counter, "Gaps reported to lagging subscribers";
    history_requests, Counter, "History requests of clients";
    recoveries_complete, Counter, "Subscriptions that recovered everything that they had missed";
    recoveries_incomplete, Counter, "Subscriptions that could not recover everything that they had missed";
    presence_events, Counter, "Joins, leaves and updates sent to the subscribers of topics";
    presence_refused, Counter, "Presence data refused because its user or address had used its part of the second";
    calls_open, Gauge, "Calls that wait for their answer, in both directions";
    calls_received, Counter, "Calls of clients passed to the application";
    calls_refused, Counter, "Calls of clients refused because too many were open or their cid was in use";
    calls_answered, Counter, "Calls of clients that were answered, successfully or with an error";
    calls_timed_out, Counter, "Calls of clients that were not answered in time";
    calls_abandoned, Counter, "Calls of clients whose connection ended before the answer";
    call_answers_late, Counter, "Answers of the application dropped because their call, publication or handshake had ended";
    calls_sent, Counter, "Calls sent to clients";
    calls_sent_answered, Counter, "Calls to clients that were answered, successfully or with an error";
    calls_sent_timed_out, Counter, "Calls to clients that were not answered in time";
    calls_sent_abandoned, Counter, "Calls to clients whose connection ended before the answer";
    call_responses_unexpected, Counter, "Answers of clients to no open call";
    sync_requests, Counter, "Requests of clients for the state of topics";
    snapshots_sent, Counter, "Snapshots sent to clients that requested the state of topics";
    idle_timeouts, Counter, "Sessions ended because the peer was silent for too long";
    outbox_overflows, Counter, "Connections ended because the peer did not read the messages that waited for it";
    reading_pauses, Counter, "Pauses of reading because too many bytes waited to be sent to the peer";
    backlog_pauses, Counter, "Pauses of reading because a shard had too much to deliver";
    broker_pauses, Counter, "Pauses of reading because the broker had not answered yet";
    queue_full_pauses, Counter, "Pauses of reading because the application was not ready";
    jobs_deferred, Counter, "Messages whose remaining work waited for the next turn";
    work_us, Counter, "Measured work of messages and of the jobs that they requested, in microseconds";
    work_peak_us, Gauge, "Largest measured work of one connection in one turn of a shard, in microseconds, summed over the shards";
    owner_work_peak_us, Gauge, "Largest measured work of all connections of one user or address in one turn of a shard, in microseconds, summed over the shards";
    shard_work_peak_us, Gauge, "Largest measured work of all connections of a shard in one turn, in microseconds, summed over the shards";
    delivery_peak_us, Gauge, "Largest measured delivery work of a shard in one turn, in microseconds, summed over the shards";
    sessions_closed_by_peer, Counter, "Sessions ended by a close of the peer";
    sessions_closed_by_server, Counter, "Sessions ended by a close of the server";
    sessions_lost, Counter, "Sessions whose connection ended without a close";
    tls_failures, Counter, "Connections ended by an error of TLS";
    drained_connections, Counter, "Sessions closed by a drain";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;

    #[test]
    fn values_follow_the_table() {
        let counters = Counters::default();
        counters.connections_open.add(3);
        counters.connections_open.sub(1);
        counters.drained_connections.set(7);
        let values = counters.snapshot().values();
        assert_eq!((METRICS[0].name, values[0]), ("connections_open", 2));
        assert_eq!(
            (METRICS[METRICS.len() - 1].name, values[METRICS.len() - 1]),
            ("drained_connections", 7)
        );
        assert_eq!(values.iter().sum::<u64>(), 9);
    }

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_sentence() {
        let names: HashSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(
                !metric.help.is_empty() && !metric.help.ends_with('.'),
                "{}",
                metric.name
            );
        }
    }

    #[test]
    fn snapshots_add_up_and_serialize_by_name() {
        let (left, right) = (Counters::default(), Counters::default());
        left.messages_received.add(5);
        right.messages_received.add(6);
        right.bytes_sent.add(1);
        let sum = left.snapshot().sum(&right.snapshot());
        let json = serde_json::to_value(sum).unwrap();
        assert_eq!(json["messages_received"], 11);
        assert_eq!(json["bytes_sent"], 1);
        assert_eq!(json.as_object().unwrap().len(), METRICS.len());
    }

    #[test]
    fn a_gauge_stops_at_zero() {
        let counter = Counter::default();
        counter.sub(1);
        assert_eq!(counter.load(), 0);
    }

    #[test]
    fn another_thread_sees_numbers_that_only_grow() {
        let counters = Arc::new(Counters::default());
        let reader = std::thread::spawn({
            let counters = Arc::clone(&counters);
            move || {
                let mut before = 0;
                while before < 100_000 {
                    let now = counters.messages_received.load();
                    assert!(now >= before);
                    before = now;
                }
            }
        });
        for _ in 0..100_000 {
            counters.messages_received.add(1);
        }
        reader.join().unwrap();
    }
}

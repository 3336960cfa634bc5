//! The tests by name.

use crate::report::model;

/// A test by name. CONTRIBUTING.md, "Recipes", lists what a new one touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TestKind {
    /// `connection-storm`: opens all connections as fast as it can.
    ConnectionStorm,
    /// `ping-latency`: pings one after another, on all connections at once.
    PingLatency,
    /// `throughput`: 175-byte trading messages as fast as the server accepts them.
    Throughput,
    /// `size-matrix`: throughput for each payload size.
    SizeMatrix,
    /// `format-comparison`: the same message as JSON, MessagePack and zlib.
    FormatComparison,
    /// `sustained-hold`: holds the connections with a slow ping.
    SustainedHold,
    /// `connection-limit`: the largest stable number of connections.
    ConnectionLimit,
    /// `fan-out`: one publisher and many subscribers of one topic.
    FanOut,
    /// `connect-latency`: one connection after the other, each closed when it is ready.
    ConnectLatency,
    /// `rapid-reconnect`: connections that are closed when they are ready, and opened again.
    RapidReconnect,
    /// `sustained-throughput`: throughput for longer, with the rate of each second.
    SustainedThroughput,
    /// `echo`: N messages in flight on each connection, for a server that sends them back.
    Echo,
}

impl TestKind {
    /// Those that run when nothing else is asked for: they need no particular application on the server, and
    /// no rights to topics.
    pub const DEFAULT: [Self; 7] = [
        Self::ConnectionStorm,
        Self::PingLatency,
        Self::Throughput,
        Self::SizeMatrix,
        Self::FormatComparison,
        Self::SustainedHold,
        Self::ConnectionLimit,
    ];

    /// All tests.
    pub const ALL: [Self; 12] = [
        Self::ConnectionStorm,
        Self::PingLatency,
        Self::Throughput,
        Self::SizeMatrix,
        Self::FormatComparison,
        Self::SustainedHold,
        Self::ConnectionLimit,
        Self::FanOut,
        Self::ConnectLatency,
        Self::RapidReconnect,
        Self::SustainedThroughput,
        Self::Echo,
    ];

    /// The name in reports and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ConnectionStorm => model::CONNECTION_STORM,
            Self::PingLatency => model::PING_LATENCY,
            Self::Throughput => model::THROUGHPUT,
            Self::SizeMatrix => model::SIZE_MATRIX,
            Self::FormatComparison => model::FORMAT_COMPARISON,
            Self::SustainedHold => model::SUSTAINED_HOLD,
            Self::ConnectionLimit => model::CONNECTION_LIMIT,
            Self::FanOut => model::FAN_OUT,
            Self::ConnectLatency => model::CONNECT_LATENCY,
            Self::RapidReconnect => model::RAPID_RECONNECT,
            Self::SustainedThroughput => model::SUSTAINED_THROUGHPUT,
            Self::Echo => model::ECHO,
        }
    }

    /// The test with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|test| test.name() == name)
    }

    /// Whether the test sends messages, which may leave at a given rate.
    #[must_use]
    pub fn has_rate(self) -> bool {
        match self {
            Self::Throughput
            | Self::SizeMatrix
            | Self::FormatComparison
            | Self::FanOut
            | Self::SustainedThroughput
            | Self::Echo => true,
            Self::ConnectionStorm
            | Self::ConnectLatency
            | Self::RapidReconnect
            | Self::PingLatency
            | Self::SustainedHold
            | Self::ConnectionLimit => false,
        }
    }

    /// Those of the tiers that the test runs with: the search for a limit starts at the first and runs
    /// once, and a test of one connection has no tiers.
    pub(crate) fn tiers(self, tiers: &[usize]) -> &[usize] {
        if matches!(self, Self::ConnectionLimit | Self::ConnectLatency) {
            &tiers[..tiers.len().min(1)]
        } else {
            tiers
        }
    }
}

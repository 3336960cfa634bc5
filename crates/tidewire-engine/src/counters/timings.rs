//! Timings of a shard: one [`Histogram`] for each duration that is measured.

use super::histogram::{Histogram, HistogramSnapshot};

/// A row of the table of timings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The field of [`Timings`]. In `/metrics` it is `tidewire_` before and `_seconds` behind.
    pub name: &'static str,
    /// The measured time, in one sentence without a full stop.
    pub help: &'static str,
}

macro_rules! timings {
    ($($name:ident, $help:literal;)+) => {
        /// The timings of one shard.
        #[derive(Debug, Default)]
        pub struct Timings {
            $(#[doc = concat!($help, ".")] pub $name: Histogram,)+
        }

        /// Every timing, in the order of [`Timings::snapshot`].
        pub const TIMINGS: &[Timing] = &[
            $(Timing { name: stringify!($name), help: $help },)+
        ];

        impl Timings {
            /// All histograms now, in the order of [`TIMINGS`].
            #[must_use]
            pub fn snapshot(&self) -> TimingsSnapshot {
                [$(self.$name.snapshot(),)+]
            }
        }
    };
}

/// The histograms of one shard at one moment, in the order of [`TIMINGS`].
pub type TimingsSnapshot = [HistogramSnapshot; TIMINGS.len()];

timings! {
    handshake_duration, "Time from the TCP connection to the session";
    publication_delivery_duration, "Time from a publication to its writing to the sockets of a shard, counted once for each publication and shard; that of the oldest publication of a turn stands for all of the turn";
    turn_duration, "Work of one turn of the event loop, without the wait for events";
    history_duration, "Time from a history request of a client to its answer";
    recovery_duration, "Time in which a subscriber receives missed publications before it joins the topic";
}

//! Processor time of the generator and of the server, as shares of the time available to each.

use serde::Deserialize;

use crate::report::model::Bottleneck;

/// Processor time of both sides in one test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// The time of the test, in seconds.
    pub duration_s: f64,
    /// The generator's threads, without the time that they spent in a wait loop before the next
    /// message's time.
    pub client: Side,
    /// The server's processes; `None` when they are on another machine or not visible.
    pub server: Option<Side>,
    /// Cores that both sides may use.
    pub shared_cores: f64,
}

/// Processor time of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Side {
    /// Seconds of the busiest thread: idle threads do not help it.
    pub busiest_s: f64,
    /// Seconds of all threads.
    pub total_s: f64,
    /// Cores that it may use, fewer if a quota limits it; 0 when not known.
    pub cores: f64,
}

impl Side {
    /// The used share of the available time: of one core by its busiest thread, or of all its cores
    /// by all threads, whichever is larger. 0 when no time has passed.
    #[must_use]
    pub fn share(&self, duration_s: f64) -> f64 {
        if duration_s <= 0.0 {
            return 0.0;
        }
        let one_core = if self.cores > 0.0 {
            self.cores.min(1.0)
        } else {
            1.0
        };
        let busiest = self.busiest_s / (duration_s * one_core);
        if self.cores > 0.0 {
            busiest.max(self.total_s / (duration_s * self.cores))
        } else {
            busiest
        }
    }
}

impl Usage {
    /// The generator's share of its cores.
    #[must_use]
    pub fn client_share(&self) -> f64 {
        self.client.share(self.duration_s)
    }

    /// The server's share of its cores, if it is known.
    #[must_use]
    pub fn server_share(&self) -> Option<f64> {
        self.server.map(|server| server.share(self.duration_s))
    }

    /// The share of the cores of both sides that both together have used, if they share some.
    #[must_use]
    pub fn joint_share(&self) -> Option<f64> {
        let server = self.server.filter(|_| self.shared_cores > 0.0)?;
        let cores = self.client.cores + server.cores - self.shared_cores;
        let together_s = self.client.total_s + server.total_s;
        (cores > 0.0 && self.duration_s > 0.0).then(|| together_s / (cores * self.duration_s))
    }

    /// The saturated side: from [`SATURATED_SHARE`] of its cores on, because the last tenth is for
    /// the kernel's other work and for the ramps at both ends of a test. Two sides that share cores
    /// and fill them together are both the limit.
    #[must_use]
    pub fn bottleneck(&self) -> Bottleneck {
        let is_full = |share: f64| share >= SATURATED_SHARE;
        let client = is_full(self.client_share());
        let server = self.server_share().is_some_and(is_full);
        match (client, server) {
            (true, true) => Bottleneck::Both,
            (true, false) => Bottleneck::Client,
            (false, true) => Bottleneck::Server,
            (false, false) if self.joint_share().is_some_and(is_full) => Bottleneck::Both,
            (false, false) => Bottleneck::None,
        }
    }
}

/// Share of its available processor time from which a side counts as saturated.
pub const SATURATED_SHARE: f64 = 0.90;

#[cfg(test)]
mod tests {
    use super::*;

    fn side(busiest_s: f64, total_s: f64, cores: f64) -> Side {
        Side {
            busiest_s,
            total_s,
            cores,
        }
    }

    fn usage(client: Side, server: Option<Side>, shared_cores: f64) -> Usage {
        Usage {
            duration_s: 1.0,
            client,
            server,
            shared_cores,
        }
    }

    #[test]
    fn a_side_is_saturated_from_nine_tenths_on() {
        let of = |client: f64, server: Option<f64>| {
            let side = |share| side(share, share, 1.0);
            usage(side(client), server.map(side), 0.0).bottleneck()
        };
        assert_eq!(of(0.5, Some(0.90)), Bottleneck::Server);
        assert_eq!(of(0.90, Some(0.89)), Bottleneck::Client);
        assert_eq!(of(0.95, Some(0.99)), Bottleneck::Both);
        assert_eq!(of(0.89, Some(0.89)), Bottleneck::None);
        assert_eq!(of(0.97, None), Bottleneck::Client);
        assert_eq!(of(0.2, None), Bottleneck::None);
    }

    #[test]
    fn a_share_is_of_the_cores_that_a_side_may_use() {
        // Four threads on one core fill it, though none of them does.
        assert!((side(0.25, 1.0, 1.0).share(1.0) - 1.0).abs() < 1e-9);
        // A quota of half a core is used up at half a core.
        assert!((side(0.5, 0.5, 0.5).share(1.0) - 1.0).abs() < 1e-9);
        // One thread cannot use a second core.
        assert!((side(1.0, 1.0, 2.0).share(1.0) - 1.0).abs() < 1e-9);
        assert!((side(0.5, 0.5, 0.0).share(1.0) - 0.5).abs() < 1e-9);
        assert_eq!(side(1.0, 1.0, 1.0).share(0.0), 0.0);
    }

    #[test]
    fn two_sides_that_fill_a_core_together_are_both_the_limit() {
        let (client, server) = (side(0.55, 0.55, 1.0), side(0.40, 0.40, 1.0));
        let shared = usage(client, Some(server), 1.0);
        assert_eq!(shared.bottleneck(), Bottleneck::Both);
        assert!((shared.joint_share().unwrap() - 0.95).abs() < 1e-9);
        let apart = usage(client, Some(server), 0.0);
        assert_eq!(apart.bottleneck(), Bottleneck::None);
        assert_eq!(apart.joint_share(), None);
    }
}

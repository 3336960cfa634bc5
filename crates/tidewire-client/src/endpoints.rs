//! Endpoints: the addresses of one service, their health, and the choice of the next one.

use crate::breaker::{Breaker, BreakerConfig, BreakerState};

/// The choice of the next endpoint among the healthy ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Choice {
    /// At random, by weight times health.
    #[default]
    Weighted,
    /// The endpoint with the fewest connections of this process, as the caller of [`Endpoints::choose`] reports them;
    /// among equal ones the healthier.
    LeastConnections,
    /// Round robin.
    RoundRobin,
}

/// One address of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The URL, such as `wss://a.example.com/ws`.
    pub url: String,
    /// Its share of the load in relation to the others; at least 1. Default 1.
    pub weight: u32,
}

/// The endpoints of a client and their health.
#[derive(Debug)]
pub struct Endpoints {
    choice: Choice,
    entries: Vec<Entry>,
    next: usize,
}

#[derive(Debug)]
struct Entry {
    endpoint: Endpoint,
    breaker: Breaker,
    /// From 0 to 100.
    health: f64,
    /// The smoothed time from the first byte to an established session.
    connect_ms: Option<f64>,
}

/// The health of an endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointHealth {
    /// Its address.
    pub url: String,
    /// From 0 (every attempt fails) to 100.
    pub score: u8,
    /// The smoothed time to establish a session, in milliseconds; `None` before the first session.
    pub connect_ms: Option<f64>,
    /// The state of its circuit breaker.
    pub breaker: BreakerState,
}

impl Endpoint {
    /// An endpoint of weight 1.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            weight: 1,
        }
    }
}

impl Endpoints {
    /// Healthy endpoints, each with its own circuit breaker.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, choice: Choice, breaker: &BreakerConfig) -> Self {
        let entry = |endpoint| Entry {
            endpoint,
            breaker: Breaker::new(breaker.clone()),
            health: HEALTH_MAX,
            connect_ms: None,
        };
        Self {
            choice,
            entries: endpoints.into_iter().map(entry).collect(),
            next: 0,
        }
    }

    /// Chooses the endpoint for the next attempt. The caller reports the result of the attempt to
    /// [`Self::handle_success`] or [`Self::handle_failure`]. `random` is any number. `connections` has the number of
    /// connections of this process to each endpoint, in their order; missing numbers count as 0. Endpoints in
    /// `left_out` are not chosen.
    ///
    /// # Errors
    /// The milliseconds until one of the circuit breakers allows an attempt.
    pub fn choose(
        &mut self,
        now_ms: u64,
        random: u64,
        connections: &[usize],
        left_out: &[usize],
    ) -> Result<usize, u64> {
        let mut order = self.order(random, connections);
        order.retain(|index| !left_out.contains(index));
        let mut soonest_ms = u64::MAX;
        // Endpoints in trouble are tried after the others, whatever the order.
        order.sort_by_key(|index| self.entries[*index].health < HEALTH_POOR);
        for index in order {
            match self.entries[index].breaker.try_acquire(now_ms) {
                Ok(()) => {
                    self.next = (index + 1) % self.entries.len();
                    return Ok(index);
                }
                Err(wait_ms) => soonest_ms = soonest_ms.min(wait_ms),
            }
        }
        Err(soonest_ms)
    }

    /// The milliseconds until one of the circuit breakers allows an attempt; 0 if one does now.
    #[must_use]
    pub fn wait_ms(&self, now_ms: u64) -> u64 {
        let waits = self
            .entries
            .iter()
            .map(|entry| entry.breaker.wait_ms(now_ms));
        waits.min().unwrap_or_default()
    }

    /// Records that a session was established after this number of milliseconds.
    pub fn handle_success(&mut self, index: usize, connect_ms: u64) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.breaker.handle_success();
            entry.health += (HEALTH_MAX - entry.health) * HEALTH_GAIN;
            let new_ms = connect_ms as f64;
            entry.connect_ms = Some(
                entry
                    .connect_ms
                    .map_or(new_ms, |old_ms| old_ms + (new_ms - old_ms) * SMOOTHING),
            );
        }
    }

    /// Records that an attempt failed, or that the server ended a session because of a fault of its own.
    pub fn handle_failure(&mut self, index: usize, now_ms: u64) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.breaker.handle_failure(now_ms);
            entry.health *= HEALTH_LOSS;
        }
    }

    /// The address of an endpoint.
    #[must_use]
    pub fn url(&self, index: usize) -> &str {
        self.entries
            .get(index)
            .map_or("", |entry| entry.endpoint.url.as_str())
    }

    /// The number of endpoints.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The health of each endpoint.
    #[must_use]
    pub fn health(&self, now_ms: u64) -> Vec<EndpointHealth> {
        let health = |entry: &Entry| EndpointHealth {
            url: entry.endpoint.url.clone(),
            score: entry.health.round() as u8,
            connect_ms: entry.connect_ms,
            breaker: entry.breaker.state(now_ms),
        };
        self.entries.iter().map(health).collect()
    }

    /// All endpoints in the order in which they should be tried.
    fn order(&self, random: u64, connections: &[usize]) -> Vec<usize> {
        let count = self.entries.len();
        let in_turn = (0..count).map(|step| (self.next + step) % count);
        match self.choice {
            Choice::RoundRobin => in_turn.collect(),
            Choice::LeastConnections => {
                let mut order: Vec<usize> = in_turn.collect();
                let health = |index: usize| HEALTH_MAX - self.entries[index].health;
                order.sort_by(|a, b| {
                    let of = |index: &usize| connections.get(*index).copied().unwrap_or_default();
                    of(a).cmp(&of(b)).then(health(*a).total_cmp(&health(*b)))
                });
                order
            }
            Choice::Weighted => self.by_weight(random),
        }
    }

    /// Draws the endpoints in a random order, by weight times health.
    fn by_weight(&self, random: u64) -> Vec<usize> {
        let mut left: Vec<usize> = (0..self.entries.len()).collect();
        let mut order = Vec::with_capacity(left.len());
        let mut random = random;
        while !left.is_empty() {
            let weight = |index: &usize| self.entries[*index].weight();
            let total: f64 = left.iter().map(weight).sum();
            let mut at = (random >> 11) as f64 / (1u64 << 53) as f64 * total;
            let hit = left.iter().position(|index| {
                at -= weight(index);
                at < 0.0
            });
            order.push(left.remove(hit.unwrap_or(left.len() - 1)));
            // The next draw needs no better randomness than this (splitmix64).
            random = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            random ^= random >> 27;
        }
        order
    }
}

impl Entry {
    fn weight(&self) -> f64 {
        f64::from(self.endpoint.weight.max(1)) * self.health.max(1.0)
    }
}

const HEALTH_MAX: f64 = 100.0;
/// An endpoint with a lower score is tried only after the others.
const HEALTH_POOR: f64 = 30.0;
/// The share of the lost score that a success restores.
const HEALTH_GAIN: f64 = 0.3;
/// The share of the score that remains after a failure.
const HEALTH_LOSS: f64 = 0.5;
const SMOOTHING: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngCore as _, SeedableRng as _};
    use std::time::Duration;

    fn endpoints(weights: &[u32], choice: Choice) -> Endpoints {
        let named = |(index, weight): (usize, &u32)| Endpoint {
            url: format!("ws://{index}/ws"),
            weight: *weight,
        };
        let breaker = BreakerConfig {
            failures_max: 3,
            open_for: Duration::from_secs(10),
            trials: 1,
        };
        Endpoints::new(
            weights.iter().enumerate().map(named).collect(),
            choice,
            &breaker,
        )
    }

    fn shares(endpoints: &mut Endpoints, rounds: usize) -> Vec<f64> {
        let mut rng = rand::rngs::StdRng::seed_from_u64(7);
        let mut counts = vec![0.0; endpoints.len()];
        for _ in 0..rounds {
            counts[endpoints.choose(0, rng.next_u64(), &[], &[]).unwrap()] += 1.0;
        }
        counts.iter().map(|count| count / rounds as f64).collect()
    }

    #[test]
    fn weights_are_shares() {
        let shares = shares(&mut endpoints(&[1, 3], Choice::Weighted), 4_000);
        assert!((0.22..0.28).contains(&shares[0]), "{shares:?}");
    }

    #[test]
    fn a_sick_endpoint_gets_less_and_recovers() {
        let mut pair = endpoints(&[1, 1], Choice::Weighted);
        pair.handle_failure(0, 0);
        let sick = shares(&mut pair, 4_000)[0];
        assert!((0.28..0.39).contains(&sick), "{sick}");
        pair.handle_failure(0, 0);
        assert_eq!(
            shares(&mut pair, 100)[0],
            0.0,
            "25 is poor: the other first"
        );
        for _ in 0..20 {
            pair.handle_success(0, 5);
        }
        assert!(shares(&mut pair, 4_000)[0] > 0.45);
        let health = pair.health(0);
        assert_eq!((health[0].score, health[0].connect_ms), (100, Some(5.0)));
    }

    #[test]
    fn in_turn_and_past_what_is_broken() {
        let mut three = endpoints(&[1, 1, 1], Choice::RoundRobin);
        let next = |three: &mut Endpoints, now_ms| three.choose(now_ms, 0, &[], &[]);
        let turn: Vec<_> = (0..4).map(|_| next(&mut three, 0).unwrap()).collect();
        assert_eq!(turn, [0, 1, 2, 0]);
        for _ in 0..3 {
            three.handle_failure(1, 100);
        }
        assert_eq!(three.health(100)[1].breaker, BreakerState::Open);
        let turn: Vec<_> = (0..3).map(|_| next(&mut three, 100).unwrap()).collect();
        assert_eq!(turn, [2, 0, 2]);
    }

    #[test]
    fn all_broken_says_how_long() {
        let mut pair = endpoints(&[1, 1], Choice::RoundRobin);
        for now_ms in [0, 500] {
            for _ in 0..3 {
                pair.handle_failure(usize::from(now_ms > 0), now_ms);
            }
        }
        assert_eq!(pair.choose(1_000, 0, &[], &[]), Err(9_000));
        assert_eq!((pair.wait_ms(1_000), pair.wait_ms(10_000)), (9_000, 0));
        assert_eq!(pair.choose(10_000, 0, &[], &[]), Ok(0));
    }

    #[test]
    fn those_left_out_are_not_chosen() {
        let mut three = endpoints(&[1_000_000, 1, 1], Choice::Weighted);
        let mut tried = Vec::new();
        for random in [0, 1 << 40, u64::MAX] {
            tried.push(three.choose(0, random, &[], &tried).unwrap());
        }
        tried.sort_unstable();
        assert_eq!(tried, [0, 1, 2]);
    }

    #[test]
    fn the_least_connections_win() {
        let mut three = endpoints(&[1, 1, 1], Choice::LeastConnections);
        assert_eq!(three.choose(0, 0, &[2, 0, 1], &[]), Ok(1));
        assert_eq!(
            three.choose(0, 0, &[2, 3, 2], &[]),
            Ok(2),
            "in turn among equals"
        );
        three.handle_failure(2, 0);
        assert_eq!(
            three.choose(0, 0, &[2, 3, 2], &[]),
            Ok(0),
            "the healthier among equals"
        );
    }
}

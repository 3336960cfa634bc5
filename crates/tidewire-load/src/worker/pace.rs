//! Pace: the planned time of each message, a pure function of the number of messages before it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// How messages are spread over time.
#[derive(Debug, Clone, PartialEq)]
pub enum Pace {
    /// A constant rate, evenly.
    Constant {
        /// Messages per second; positive.
        per_s: f64,
    },
    /// A constant average rate, at random times as independent users would send.
    Poisson(Arrivals),
    /// Changing rates, in a straight line from one to the next, and then nothing more.
    Stages(Ramp),
}

/// Rates over time, and the messages due up to each change.
#[derive(Debug, Clone, PartialEq)]
pub struct Ramp {
    segments: Arc<[Segment]>,
    /// With random gaps: arrivals of one message per second on average.
    arrivals: Option<Arrivals>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    start_s: f64,
    duration_s: f64,
    from_per_s: f64,
    to_per_s: f64,
    /// Messages due before it.
    before: f64,
}

impl Segment {
    fn count(&self) -> f64 {
        self.duration_s * (self.from_per_s + self.to_per_s) / 2.0
    }

    /// The time at which the message with this number, counted from the segment's first, is due:
    /// seconds from its start. The number is the integral of the rate, a quadratic in the time.
    fn time_of(&self, number: f64) -> f64 {
        let slope = (self.to_per_s - self.from_per_s) / self.duration_s;
        if slope.abs() < 1e-9 {
            return number / self.from_per_s;
        }
        let root = (self.from_per_s * self.from_per_s + 2.0 * slope * number).max(0.0);
        // The form that does not subtract nearly equal numbers.
        2.0 * number / (self.from_per_s + root.sqrt())
    }
}

impl Ramp {
    /// The time at which the message is due, in nanoseconds from the start; `u64::MAX` after the
    /// last stage.
    fn intended_ns(&self, index: u64) -> u64 {
        let number = match &self.arrivals {
            None => index as f64,
            Some(arrivals) => arrivals.time_ns(index) as f64 / 1e9,
        };
        let at = self
            .segments
            .partition_point(|segment| segment.before + segment.count() <= number);
        let Some(segment) = self.segments.get(at) else {
            return u64::MAX;
        };
        let since_s = segment.time_of(number - segment.before);
        ((segment.start_s + since_s) * 1e9) as u64
    }
}

impl Arrivals {
    fn time_ns(&self, index: u64) -> u64 {
        let drawn = self.times_ns.len().max(1) as u64;
        let lap_ns = self.times_ns.last().copied().unwrap_or(0);
        let within = self.times_ns.get((index % drawn) as usize);
        (index / drawn)
            .saturating_mul(lap_ns)
            .saturating_add(within.copied().unwrap_or(0))
    }
}

/// Arrival times drawn beforehand, so that a pace stays a pure function.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// Nanoseconds from the start, ascending; after the last the pattern repeats.
    times_ns: Arc<[u64]>,
}

impl Pace {
    /// A Poisson process of `per_s` messages per second, drawn from `seed`.
    #[must_use]
    pub fn poisson(per_s: f64, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut gaps = 0.0;
        let times: Vec<f64> = (0..ARRIVALS_DRAWN)
            .map(|_| {
                // The inverse of the exponential distribution; 1 - u is never zero.
                let uniform: f64 = random.random();
                gaps -= (1.0 - uniform).ln();
                gaps
            })
            .collect();
        // Given their number and the total time, such times are independent of the total time: all
        // drawn times are scaled to the exact rate, which their pattern then keeps.
        let interval_ns = ARRIVALS_DRAWN as f64 / gaps * 1e9 / per_s;
        let times_ns = times.iter().map(|at| (at * interval_ns) as u64).collect();
        Self::Poisson(Arrivals { times_ns })
    }

    /// Towards one rate after another, each in its time, in a straight line; the first from 0.
    #[must_use]
    pub fn stages(stages: &[(Duration, f64)], is_poisson: bool, seed: u64) -> Self {
        let (mut start_s, mut from_per_s, mut before) = (0.0, 0.0, 0.0);
        let mut segments = Vec::new();
        for &(duration, to_per_s) in stages {
            let segment = Segment {
                start_s,
                duration_s: duration.as_secs_f64(),
                from_per_s,
                to_per_s,
                before,
            };
            (start_s, from_per_s) = (start_s + segment.duration_s, to_per_s);
            before += segment.count();
            segments.push(segment);
        }
        // A time without a rate has no message, and a step without length only changes the rate.
        segments.retain(|segment| segment.count() > 0.0);
        let arrivals = is_poisson.then(|| match Self::poisson(1.0, seed) {
            Self::Poisson(arrivals) => arrivals,
            _ => Arrivals {
                times_ns: [].into(),
            },
        });
        Self::Stages(Ramp {
            segments: segments.into(),
            arrivals,
        })
    }

    /// Whether the times are random.
    #[must_use]
    pub fn is_random(&self) -> bool {
        match self {
            Self::Constant { .. } => false,
            Self::Poisson(_) => true,
            Self::Stages(ramp) => ramp.arrivals.is_some(),
        }
    }

    /// Evenly or at random times.
    #[must_use]
    pub fn at(per_s: f64, is_poisson: bool, seed: u64) -> Self {
        if is_poisson {
            Self::poisson(per_s, seed)
        } else {
            Self::Constant { per_s }
        }
    }

    /// The planned time of message number `index`, counted from 0, in nanoseconds from the start.
    #[must_use]
    pub fn intended_ns(&self, index: u64) -> u64 {
        match self {
            Self::Constant { per_s } => (index as f64 * 1e9 / per_s) as u64,
            Self::Poisson(arrivals) => arrivals.time_ns(index),
            Self::Stages(ramp) => ramp.intended_ns(index),
        }
    }
}

/// A worker's share of the messages of a pace: one of each round for each of its connections. All
/// shares together are the whole, however the connections are divided.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    pace: Pace,
    /// Messages per second of the whole.
    per_s: f64,
    /// Messages of a round: connections of all workers.
    round: u64,
    /// The messages of a round that belong to this worker, ascending.
    slots: Arc<[u64]>,
}

impl Share {
    /// The share of the worker with this index, where `members` has the connections of each worker.
    #[must_use]
    pub fn of(pace: Pace, per_s: f64, members: &[u64], worker: usize) -> Self {
        Self {
            pace,
            per_s,
            round: members.iter().sum(),
            slots: slots(members, worker),
        }
    }

    /// The share of one of several parts of this share, where `members` has the connections of each part.
    #[must_use]
    pub fn among(&self, members: &[u64], part: usize) -> Self {
        let places = slots(members, part);
        let slots = places.iter().filter_map(|place| {
            let place = usize::try_from(*place).ok()?;
            self.slots.get(place).copied()
        });
        Self {
            pace: self.pace.clone(),
            per_s: self.per_s,
            round: self.round,
            slots: slots.collect(),
        }
    }

    /// All of a pace.
    #[must_use]
    pub fn whole(pace: Pace, per_s: f64) -> Self {
        Self::of(pace, per_s, &[1], 0)
    }

    /// The planned time of this worker's message number `index`, counted from 0, in nanoseconds
    /// from the start; `u64::MAX` for a worker without a share.
    #[must_use]
    pub fn intended_ns(&self, index: u64) -> u64 {
        let own = self.slots.len() as u64;
        let Some(round) = index.checked_div(own) else {
            return u64::MAX;
        };
        let slot = self.slots[(index % own) as usize];
        let number = round.saturating_mul(self.round).saturating_add(slot);
        self.pace.intended_ns(number)
    }

    /// Messages of this worker that are due in the first `window_ns` nanoseconds.
    #[must_use]
    pub fn due_in(&self, window_ns: u64) -> u64 {
        // Times ascend, so a binary search finds their number.
        let (mut low, mut high) = (0, 1);
        while self.intended_ns(high - 1) < window_ns {
            (low, high) = (high, high.saturating_mul(2));
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.intended_ns(middle) < window_ns {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Messages per second of all workers together.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.per_s
    }

    /// Whether the messages are due at random times.
    #[must_use]
    pub fn is_poisson(&self) -> bool {
        self.pace.is_random()
    }

    /// Whether it has no message at all.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.slots.is_empty()
    }
}

/// The messages of a round that belong to a worker: each worker has one per connection, spread over
/// the round.
fn slots(members: &[u64], worker: usize) -> Arc<[u64]> {
    let round: u64 = members.iter().sum();
    let mut credits = vec![0; members.len()];
    let mut own = Vec::new();
    for slot in 0..round {
        // The worker that is furthest behind its share is next.
        for (credit, count) in credits.iter_mut().zip(members) {
            *credit += count.cast_signed();
        }
        let ranked = credits.iter().enumerate().rev();
        let Some(next) = ranked
            .max_by_key(|(_, credit)| **credit)
            .map(|(index, _)| index)
        else {
            break;
        };
        credits[next] -= round.cast_signed();
        if next == worker {
            own.push(slot);
        }
    }
    own.into()
}

/// The bounds of a rate, in messages per second.
pub const RATE_PER_S: RangeInclusive<f64> = 0.001..=1e9;

/// More than one second's messages at any rate that one thread can keep; the pattern repeats after
/// it.
const ARRIVALS_DRAWN: usize = 1 << 16;

/// The first of each part of this many messages, and the length of the part: one each, or the same
/// number of parts for any number, so that a rate that nobody can keep costs no time.
pub(crate) fn parts(messages: u64) -> impl Iterator<Item = (u64, u64)> {
    let length = messages.div_ceil(PARTS_MAX).max(1);
    let starts = (0..messages).step_by(usize::try_from(length).unwrap_or(usize::MAX));
    starts.map(move |start| (start, length.min(messages - start)))
}

const PARTS_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_pace_has_even_gaps() {
        let pace = Pace::Constant { per_s: 1000.0 };
        let times = [0, 1, 5].map(|index| pace.intended_ns(index));
        assert_eq!(times, [0, 1_000_000, 5_000_000]);
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_variance_of_the_process() {
        let pace = Pace::poisson(10_000.0, 7);
        let count = 2 * ARRIVALS_DRAWN as u64;
        let gaps: Vec<f64> = (1..count)
            .map(|index| (pace.intended_ns(index) - pace.intended_ns(index - 1)) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 100_000.0 - 1.0).abs() < 0.03, "{mean}");
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.05,
            "{}",
            variance.sqrt()
        );
    }

    #[test]
    fn the_same_seed_draws_the_same_times() {
        assert_eq!(Pace::poisson(5.0, 1), Pace::poisson(5.0, 1));
        assert_ne!(Pace::poisson(5.0, 1), Pace::poisson(5.0, 2));
    }

    #[test]
    fn random_times_have_the_very_rate_in_the_long_run() {
        let pace = Pace::poisson(1000.0, 7);
        let laps = 3 * ARRIVALS_DRAWN as u64;
        let seconds = pace.intended_ns(laps - 1) as f64 / 1e9;
        assert!((laps as f64 / seconds - 1000.0).abs() < 1e-3, "{seconds}");
    }

    /// However the connections are divided: no message is missing, none is in two shares, and all
    /// together leave at the times of the whole.
    #[test]
    fn the_workers_shares_are_the_whole() {
        for members in [
            vec![1],
            vec![5],
            vec![2, 1],
            vec![1, 0, 0, 0],
            vec![3, 3, 2],
            vec![0, 7, 1],
        ] {
            for pace in [Pace::Constant { per_s: 1000.0 }, Pace::poisson(1000.0, 3)] {
                let shares: Vec<Share> = (0..members.len())
                    .map(|worker| Share::of(pace.clone(), 1000.0, &members, worker))
                    .collect();
                let window_ns = 100_000_000;
                let mut times: Vec<u64> = shares
                    .iter()
                    .flat_map(|share| {
                        (0..share.due_in(window_ns)).map(|index| share.intended_ns(index))
                    })
                    .collect();
                times.sort_unstable();
                let whole: Vec<u64> = (0..)
                    .map(|index| pace.intended_ns(index))
                    .take_while(|at| *at < window_ns)
                    .collect();
                assert_eq!(times, whole, "{members:?}");
                assert!(whole.len() > 50);
            }
        }
    }

    #[test]
    fn the_parts_of_a_share_are_the_share() {
        let share = Share::of(Pace::Constant { per_s: 1000.0 }, 1000.0, &[3, 5, 2], 1);
        let times = |share: &Share| -> Vec<u64> {
            let due = share.due_in(100_000_000);
            (0..due).map(|index| share.intended_ns(index)).collect()
        };
        let mut parts: Vec<u64> = (0..3)
            .flat_map(|part| times(&share.among(&[2, 0, 3], part)))
            .collect();
        parts.sort_unstable();
        assert_eq!(parts, times(&share));
    }

    #[test]
    fn the_messages_of_a_round_are_spread_over_the_workers() {
        let own = |worker| slots(&[2, 2], worker).to_vec();
        assert_eq!((own(0), own(1)), (vec![0, 2], vec![1, 3]));
        let uneven: Vec<Vec<u64>> = (0..3)
            .map(|worker| slots(&[1, 0, 3], worker).to_vec())
            .collect();
        assert_eq!(uneven[0].len() + uneven[2].len(), 4);
        assert!(uneven[1].is_empty());
    }

    #[test]
    fn stages_lead_from_rate_to_rate() {
        let s = Duration::from_secs;
        // 0 to 100 in 2 s: 100 messages. 100 for 1 s: 100 more. Down to 0 in 2 s: 100 more.
        let stages = [(s(2), 100.0), (s(1), 100.0), (s(2), 0.0)];
        let pace = Pace::stages(&stages, false, 1);
        let at = |index| pace.intended_ns(index) as f64 / 1e9;
        assert_eq!(at(0), 0.0);
        assert!(
            (at(25) - 1.0).abs() < 1e-6,
            "a quarter in half the time: {}",
            at(25)
        );
        assert!((at(100) - 2.0).abs() < 1e-6);
        assert!((at(150) - 2.5).abs() < 1e-6);
        assert!((at(275) - 4.0).abs() < 1e-6);
        assert_eq!(pace.intended_ns(300), u64::MAX);
        let times: Vec<u64> = (0..300).map(|index| pace.intended_ns(index)).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn stages_that_jump_or_pause_keep_their_times() {
        let s = Duration::from_secs;
        let stages = [
            (s(0), 10.0),
            (s(1), 10.0),
            (s(0), 0.0),
            (s(5), 0.0),
            (s(0), 4.0),
            (s(1), 4.0),
        ];
        let pace = Pace::stages(&stages, false, 1);
        let at = |index| pace.intended_ns(index) as f64 / 1e9;
        assert!((at(9) - 0.9).abs() < 1e-6);
        assert!((at(10) - 6.0).abs() < 1e-6, "{}", at(10));
        assert!((at(13) - 6.75).abs() < 1e-6);
        assert_eq!(pace.intended_ns(14), u64::MAX);
        let random = Pace::stages(&[(s(0), 1000.0), (s(10), 1000.0)], true, 3);
        let due = Share::whole(random, 1000.0).due_in(u64::MAX);
        assert!((9_700..10_300).contains(&due), "{due}");
    }

    #[test]
    fn the_slowest_rate_does_not_overflow() {
        let share = Share::whole(
            Pace::Constant {
                per_s: *RATE_PER_S.start(),
            },
            0.001,
        );
        assert_eq!(share.due_in(1_000_000_000), 1);
        assert_eq!(share.intended_ns(u64::MAX), u64::MAX);
        let none = Share::of(Pace::Constant { per_s: 1.0 }, 1.0, &[1, 0], 1);
        assert_eq!((none.due_in(u64::MAX), none.intended_ns(0)), (0, u64::MAX));
    }
}

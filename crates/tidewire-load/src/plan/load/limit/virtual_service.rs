//! Searches in virtual time against a service of known capacity: the interval that a search finds contains it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidewire_testkit::seeds::number_of_seeds;

use super::FindLimit;
use super::judge::{Outcome, judge};
use super::search::{Found, search};
use crate::accounting::tally::{Exchange, Tally};
use crate::plan::load::conclude::results_of;
use crate::report::{LatencyOrigin, TestResult};
use crate::verdict::expectation::{Expectation, Figures, Part};
use crate::worker::pace::{Pace, Share};

/// A service with a number of workers; the time of each request varies by a fifth.
#[derive(Clone, Copy)]
struct Service {
    workers: u32,
    takes_ms: f64,
    /// Every n-th request fails at once.
    fails_every: Option<u64>,
}

impl Service {
    fn capacity_per_s(self) -> f64 {
        f64::from(self.workers) * 1_000.0 / self.takes_ms
    }

    /// A step in virtual time.
    fn serve(self, rate: f64, longest: Duration, random: &mut SmallRng) -> (Tally, Share) {
        let share = Share::whole(Pace::at(rate, false, 1), rate);
        let end_ns = longest.as_nanos() as u64;
        let drained_ns = end_ns + 2_000_000_000;
        let mut tally = Tally::new(0, 1);
        tally.due = share.due_in(end_ns);
        tally.stopped_ns = end_ns;
        let mut free: BinaryHeap<Reverse<u64>> = (0..self.workers).map(|_| Reverse(0)).collect();
        for number in 0..tally.due {
            let intended_ns = share.intended_ns(number);
            let exchange = Exchange {
                intended_ns,
                sent_ns: intended_ns,
                ..Exchange::default()
            };
            tally.send(&exchange, Default::default());
            if self.fails_every.is_some_and(|every| number % every == 0) {
                tally.fail(&exchange, "unexpected-status", 503, intended_ns + 1_000);
                continue;
            }
            let Reverse(ready_ns) = free.pop().unwrap_or_default();
            let takes_ms = self.takes_ms * random.random_range(0.8..1.2);
            let done_ns = ready_ns.max(intended_ns) + (takes_ms * 1e6) as u64;
            free.push(Reverse(done_ns));
            match done_ns <= drained_ns {
                true => tally.succeed(&exchange, 200, 10, done_ns),
                false => tally.leave_unfinished(&exchange, drained_ns),
            }
        }
        (tally, share)
    }
}

fn judged(tally: &Tally, expectations: &[Expectation]) -> TestResult {
    let latency = tally.all_latencies();
    let figures = Figures {
        latency: Some(&latency),
        errors: Some(Part {
            count: tally.requests.unsuccessful(),
            of: tally.requests.due(),
        }),
        ..Figures::default()
    };
    let mut result = TestResult::new("http", 10);
    result.latency_us = latency.summary(LatencyOrigin::Intended);
    result.load.requests = Some(tally.requests);
    result.load.expectations = results_of(expectations, &figures);
    result
}

fn find(service: Service, expected: &str, seed: u64) -> Found {
    let mut random = SmallRng::seed_from_u64(seed);
    let expectation: Expectation = expected.parse().expect("it is right");
    let limits = FindLimit {
        from_per_s: 10.0 * 1.3f64.powi((seed % 10) as i32),
        ..FindLimit::default()
    };
    let needed = expectation.values_needed();
    let found = search::<()>(&limits, needed, |rate, longest| {
        let (tally, share) = service.serve(rate, longest, &mut random);
        let result = judged(&tally, std::slice::from_ref(&expectation));
        // Now and then the generator itself is stopped; such a step proves nothing about the service.
        Ok(Some(match random.random_range(0..12) {
            0 => Outcome::Disturbed("the generator was stopped".to_owned()),
            _ => judge(&result, &tally, (&share, rate, longest.as_secs_f64())),
        }))
    });
    found.expect("nothing fails")
}

#[test]
fn nine_of_ten_searches_find_the_capacity() {
    // With a limit far above what a growing queue reaches in a step, the queue itself is the reason.
    for (workers, takes_ms, expected) in [(1, 10.0, "p99<1s"), (4, 25.0, "p99<5s")] {
        let service = Service {
            workers,
            takes_ms,
            fails_every: None,
        };
        let capacity = service.capacity_per_s();
        let seeds = number_of_seeds(30);
        let contained = (0..seeds).filter(|&seed| {
            let found = find(service, expected, seed);
            let (held, broke) = (found.held.unwrap_or(0.0), found.broke.unwrap_or(0.0));
            held <= capacity && broke >= capacity
        });
        let contained = contained.count() as u64;
        assert!(
            contained * 10 >= seeds * 9,
            "{contained} of {seeds} contain {capacity}/s"
        );
    }
}

#[test]
fn a_queue_that_grows_slowly_does_not_hold() {
    let service = Service {
        workers: 1,
        takes_ms: 10.0,
        fails_every: None,
    };
    let mut random = SmallRng::seed_from_u64(7);
    let longest = Duration::from_secs(5);
    let (tally, share) = service.serve(108.0, longest, &mut random);
    let expectation: Expectation = "p99<1s".parse().expect("it is right");
    let result = judged(&tally, &[expectation]);
    assert!(result.load.expectations[0].kept, "it is the backlog alone");
    let outcome = judge(&result, &tally, (&share, 108.0, 5.0));
    let Outcome::Broke(broken) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(broken.reason.contains("the backlog grew by"), "{broken:?}");
}

#[test]
fn a_service_that_is_always_too_slow_is_an_answer_with_its_value() {
    let service = Service {
        workers: 1_000,
        takes_ms: 200.0,
        fails_every: None,
    };
    let found = find(service, "p99<50ms", 3);
    assert_eq!((found.held, found.is_independent), (None, true));
    assert!(
        found.reason.starts_with("`p99<50ms` was 2"),
        "{}",
        found.reason
    );
    let service = Service {
        takes_ms: 5.0,
        fails_every: Some(10),
        ..service
    };
    let found = find(service, "errors<1%", 3);
    assert_eq!((found.held, found.is_independent), (None, true));
    assert!(
        found.reason.starts_with("`errors<1%` was 10"),
        "{}",
        found.reason
    );
}

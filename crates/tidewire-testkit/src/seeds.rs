//! Seeds of simulations: how many of them run, and on how many threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs a simulation with each seed from 0, on all cores: `seeds` of them, or the number in the variable
/// `TIDEWIRE_SEEDS`. With `TIDEWIRE_SEED` it runs this seed alone, exactly as it was.
///
/// # Panics
/// If a seed fails; the message names the smallest of those that failed.
pub fn each_seed(seeds: u64, run: impl Fn(u64) + Sync) {
    if let Some(seed) = number_from("TIDEWIRE_SEED") {
        return run(seed);
    }
    let seeds = number_of_seeds(seeds);
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let work = || {
        while failed.load(Ordering::Relaxed) == u64::MAX {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            if catch_unwind(AssertUnwindSafe(|| run(seed))).is_err() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    assert!(
        failed == u64::MAX,
        "a seed fails; TIDEWIRE_SEED={failed} runs it alone"
    );
}

/// The number in the variable `TIDEWIRE_SEEDS`, or `seeds`: the budget of a commit. `make long-test` runs more.
///
/// # Panics
/// If the variable is no number.
#[must_use]
pub fn number_of_seeds(seeds: u64) -> u64 {
    number_from("TIDEWIRE_SEEDS").unwrap_or(seeds)
}

fn number_from(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number of seeds, or a seed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn each_seed_runs_once() {
        let seen = Mutex::new(Vec::new());
        each_seed(100, |seed| seen.lock().expect("no panic").push(seed));
        let mut seen = seen.into_inner().expect("no panic");
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_seed_that_fails_is_named() {
        let fails = || each_seed(100, |seed| assert!(seed != 7, "seven"));
        let message = catch_unwind(fails).expect_err("a failed seed");
        let message = message.downcast_ref::<String>().expect("a text");
        assert!(message.contains("TIDEWIRE_SEED=7 "), "{message}");
    }
}

//! The whole engine on a simulated network: clients that come, go, stall and lose their connections at random, and
//! a checker of what they see.
//!
//! `TIDEWIRE_SEEDS=100000` runs more of it, `TIDEWIRE_SEED=4711` one that failed, exactly as it was.

mod client;
#[path = "../common/hostile.rs"]
#[allow(dead_code, missing_docs, unreachable_pub)]
mod hostile;
mod intruder;
mod outcome;
mod world;

use outcome::Outcome;
use std::sync::Mutex;
use tidewire_testkit::seeds::each_seed;
use world::run;

/// Seeds without a wish for others.
const SEEDS: u64 = 50;

#[test]
fn whatever_the_network_does_every_subscriber_is_served_or_told() {
    let total = Mutex::new(Outcome::default());
    each_seed(SEEDS, |seed| {
        let outcome = run(seed);
        total.lock().expect("no panic").add(&outcome);
    });
    let total = total.into_inner().expect("no panic");
    // A simulation in which nothing happens proves nothing.
    println!("{total:#?}");
    if std::env::var_os("TIDEWIRE_SEED").is_some() {
        return;
    }
    assert!(total.publications_received > 0 && total.recoveries > 0);
    assert!(total.incomplete_recoveries > 0 && total.gaps > 0 && total.replayed > 0);
    assert!(total.resets > 0 && total.jobs_done > 0 && total.presence_checks > 0);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [3, 99, 12_345] {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(3).trace, run(4).trace);
}

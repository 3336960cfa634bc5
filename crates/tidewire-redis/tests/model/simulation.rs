//! Seeded runs of links against the model, with faults at random moments.

use crate::world::{Faults, TOPICS, World};
use tidewire_testkit::seeds::each_seed;

/// Three nodes publish and come and go while things break; then there is a rest, and everything is compared.
fn run(seed: u64, faults: Faults) {
    let mut world = World::new(seed, 3, faults);
    for node in 0..3 {
        for topic in 0..TOPICS.len() {
            world.set_interest(node, topic, node != 2);
        }
    }
    let rate = 1 + world.random.below(6);
    let break_every = 40 + world.random.below(2_000);
    for _ in 0..6_000 {
        for _ in 0..world.random.below(rate + 1) {
            let (node, topic) = (world.random.below(3), world.random.below(4));
            if world.random.one_in(3) {
                world.publish(node as usize, topic as usize);
            }
        }
        if world.random.one_in(400) {
            let (node, topic) = (world.random.below(3), world.random.below(4));
            let is_wanted = world.random.one_in(2);
            world.set_interest(node as usize, topic as usize, is_wanted);
        }
        if world.random.one_in(break_every) {
            world.break_something();
        }
        world.step();
    }
    for topic in 0..TOPICS.len() {
        world.set_interest(0, topic, true);
        world.set_interest(1, topic, true);
    }
    world.rest();
    for node in &world.nodes {
        assert!(node.link.health().is_connected, "{:?}", node.link.health());
        assert_eq!(node.link.waiting_bytes(), 0);
        let counters = node.link.counters();
        assert_eq!(
            counters.offered,
            counters.settled + counters.refused + counters.unknown
        );
        if faults != Faults::Losses {
            assert_eq!(counters.lineages, 0);
        }
    }
    let redis = &world.redis;
    world.log.check_end(redis, |node, _| node != 2);
}

/// A node watches a pattern while its interest in the topics comes and goes; nothing breaks.
fn run_pattern(seed: u64) {
    let mut world = World::new(seed, 2, Faults::Resets);
    world.nodes[1].link.watch(&"*".into());
    for _ in 0..1_000 {
        world.step();
    }
    for _ in 0..4_000 {
        let topic = world.random.below(4) as usize;
        if world.random.one_in(3) {
            world.publish(0, topic);
        }
        if world.random.one_in(30) {
            let is_wanted = world.random.one_in(2);
            world.set_interest(1, topic, is_wanted);
        }
        world.step();
    }
    world.rest();
    let all = (0..world.log.offers()).map(|number| ((1, number), 1));
    assert_eq!(world.log.seen, all.collect());
    let counters = world.nodes[1].link.counters();
    assert!(
        counters.matched > 0 && counters.delivered > 0,
        "{counters:?}"
    );
}

#[test]
fn a_pattern_sees_every_publication_once_whatever_else_is_subscribed_to() {
    for seed in 0..30 {
        run_pattern(seed);
    }
}

/// Patterns that begin alike come and go, so that the globs of a node change all the time; one of them stays.
fn run_changing_patterns(seed: u64) {
    const STAYS: &str = "r.*.x";
    const OTHERS: [&str; 8] = [
        "r.>", "r.1.*", "s.>", "r.*.y", "*.1.x", ">", "r.2.>", "r.*.>",
    ];
    let mut world = World::new(seed, 2, Faults::Resets);
    world.nodes[1].link.watch(&STAYS.into());
    for _ in 0..1_000 {
        world.step();
    }
    for _ in 0..4_000 {
        if world.random.one_in(3) {
            let topic = format!("r.{}.x", world.random.below(3));
            world.publish_on(0, &topic.as_str().into());
        }
        if world.random.one_in(20) {
            let now = world.now();
            let pattern = OTHERS[world.random.below(8) as usize];
            let is_wanted = world.random.one_in(2);
            let link = &mut world.nodes[1].link;
            match is_wanted {
                true => link.watch(&pattern.into()),
                false => link.unwatch(pattern, now),
            }
        }
        world.step();
    }
    world.rest();
    let all = (0..world.log.offers()).map(|number| ((1, number), 1));
    assert_eq!(world.log.seen, all.collect());
    assert_eq!(world.log.pattern_gaps, 0);
}

#[test]
fn a_pattern_sees_every_publication_once_whatever_other_patterns_come_and_go() {
    each_seed(8, run_changing_patterns);
}

fn run_all(faults: Faults) {
    each_seed(15, |seed| run(seed, faults));
}

#[test]
fn the_guarantees_hold_while_connections_break() {
    run_all(Faults::Resets);
}

#[test]
fn the_guarantees_hold_while_a_durable_process_restarts() {
    run_all(Faults::Restarts);
}

#[test]
fn the_guarantees_hold_while_the_data_moves_to_other_processes() {
    run_all(Faults::Moves);
}

#[test]
fn the_guarantees_hold_while_data_is_lost() {
    run_all(Faults::Losses);
}

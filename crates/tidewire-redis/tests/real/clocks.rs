//! The clock of Redis is set forward and back, and nothing that was acknowledged is lost.

use crate::peer::Peer;
use crate::server::{Server, wait_for};
use tidewire_redis::{Event, History, Keep, LinkOptions};
use tidewire_testkit::stepped_clock::SteppedClock;

/// As the engine keeps topics: a day after their last use.
const KEPT_FOR_A_DAY: History = Some(Keep {
    publications_max: 10_000,
    idle_ms: 24 * 3_600_000,
});

const HOUR: i64 = 3_600;

fn steps(peer: &Peer) -> Vec<i64> {
    let steps = peer.events.iter().filter_map(|event| match event {
        Event::ClockStepped(step_ms) => Some(*step_ms),
        _ => None,
    });
    steps.collect()
}

#[test]
fn a_step_of_redis_clock_loses_nothing_acknowledged_and_is_told() {
    let clock = SteppedClock::new();
    let server = Server::start_with(&clock);
    let mut peers = [(); 2].map(|()| Peer::connect(&server.path(), LinkOptions::default()));
    peers[1].want("kept", KEPT_FOR_A_DAY);
    peers[1].want("plain", None);
    // Redis forgets a topic without publications sooner, and such a topic can lose nothing.
    peers[0].place("kept", KEPT_FOR_A_DAY, "first");
    peers[0].place("plain", None, "first");
    let mut said = vec!["first".to_owned()];
    // Forward, back to where it was, and to before it.
    for (number, hours) in [1, 0, -1, -11, 11].into_iter().enumerate() {
        let before = steps(&peers[0]).len();
        clock.set(hours * HOUR);
        // Until both have noticed it and work.
        wait_for("noticed", || {
            let text = said.len().to_string();
            for topic in ["kept", "plain"] {
                let history = KEPT_FOR_A_DAY.filter(|_| topic == "kept");
                let number = peers[0].publish(topic, history, &text);
                wait_for("published", || {
                    peers.iter_mut().for_each(Peer::turn);
                    peers[0].published.contains_key(&number)
                });
                peers[0].published[&number].expect("acknowledged");
            }
            said.push(text);
            let have_noticed = peers.iter().all(|peer| steps(peer).len() > number);
            let work = |peer: &Peer| peer.link.health().is_connected;
            have_noticed && peers.iter().all(work)
        });
        let all = steps(&peers[0]);
        assert_eq!(all.len(), before + 1, "{all:?}");
    }
    let count = said.len();
    wait_for("delivered", || {
        peers.iter_mut().for_each(Peer::turn);
        peers[1].payloads("kept").len() >= count && peers[1].payloads("plain").len() >= count
    });
    for topic in ["kept", "plain"] {
        assert_eq!(peers[1].payloads(topic), said, "{topic}");
        assert_eq!(peers[1].gaps(topic), 0, "{topic}");
    }
    let hour_ms = HOUR * 1_000;
    let expected = [1, -1, -1, -10, 22].map(|hours| hours * hour_ms);
    for peer in &peers {
        let steps = steps(peer);
        let is_near = |(step, expected): (&i64, i64)| (step - expected).abs() < 60_000;
        assert!(steps.iter().zip(expected).all(is_near), "{steps:?}");
        assert_eq!(peer.link.counters().clock_steps, 5);
    }
    // Whoever comes later has all of it.
    let mut late = Peer::connect(&server.path(), LinkOptions::default());
    let head = late.want("kept", KEPT_FOR_A_DAY).expect("a head");
    assert_eq!(head.offset, count as u64, "one epoch");
}

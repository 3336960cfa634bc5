//! Clocks that are wrong and are corrected, on one server of several.

use super::TOPIC;
use super::world::{Fate, world};
use crate::common::simulated::SimulatedClient;
use serde_json::{Value, json};
use tidewire_net::simulation::UNIX_MS_AT_START;

fn of_type(client: &mut SimulatedClient, name: &str) -> Vec<Value> {
    let messages = client.receive_json();
    messages
        .into_iter()
        .filter(|message| message["t"] == name)
        .collect()
}

const HOUR_MS: i64 = 3_600_000;

#[test]
fn a_step_of_a_servers_clock_changes_no_ttl_and_no_beginning_of_a_session() {
    for step_ms in [HOUR_MS, -HOUR_MS, 30_000] {
        let mut world = world(1, Fate::Losses);
        world.run(3_000);
        world.step_clock(1, step_ms);
        let (here, mut there) = (world.connect(0), world.connect(1));
        world.run(500);
        // A command to the sessions of a user is compared with the time in this id.
        let ready = of_type(&mut there, "server_ready");
        let id = ready[0]["p"]["details"]["connection_id"]
            .as_str()
            .expect("an id");
        let id = id.replace('-', "");
        let began_ms = u64::from_str_radix(&id[..12], 16).expect("a UUID");
        assert!(
            (UNIX_MS_AT_START..UNIX_MS_AT_START + 60_000).contains(&began_ms),
            "{step_ms}"
        );
        there.send(
            &json!({"t": "subscription_update", "p": {"action": "subscribe", "topics": [TOPIC]}}),
        );
        world.run(1_000);
        world.step_clock(1, -step_ms);
        let payload = json!({"topic": TOPIC, "type": "x", "payload": {"n": 1}, "ttl_ms": 20_000});
        here.send(&json!({"t": "publish_request", "cid": "1", "p": payload}));
        world.run(1_000);
        world.step_clock(1, step_ms);
        here.send(&json!({"t": "publish_request", "cid": "2", "p": payload}));
        world.run(1_000);
        let received = of_type(&mut there, "x");
        assert_eq!(received.len(), 2, "{step_ms}: {received:?}");
    }
}

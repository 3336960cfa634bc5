//! The vectors of pings and silence, run by a server in virtual time.

use crate::common;

use common::Said;
use common::simulated::SimulatedClient;
use serde_json::Value;
use tidewire_engine::apps::Sink;
use tidewire_engine::{Config, simulation};
use tidewire_testkit::simulation::{Driver, Faults};
use tidewire_testkit::vectors::frames::Side;
use tidewire_testkit::vectors::liveness::{Case, Sent};
use tidewire_testkit::vectors::{self, Hex};
use tidewire_wire::frame::{OpCode, write_frame};

#[test]
fn liveness() {
    for case in vectors::load::<Case>("liveness") {
        assert_eq!(case.side, Side::Server, "{}", case.name);
        run(&case);
    }
}

fn run(case: &Case) {
    let mut config = Config {
        shards: 1,
        ..Config::default()
    };
    config.limits.ping_interval_ms = case.ping_interval_ms;
    config.limits.idle_timeout_ms = case.idle_timeout_ms;
    let (shards, _handle) = simulation::shards(config, |_| Sink, 0).expect("a server");
    let mut driver = Driver::new(Faults {
        delay_ms: 0..=0,
        ..Faults::default()
    });
    for shard in shards {
        driver.add(shard);
    }
    let mut client = SimulatedClient::open(driver.network().connect(0), &[]);
    driver.run_until(0);
    assert_eq!(names(&client.receive()), [message("server_ready")]);
    for step in &case.steps {
        driver.run_until(step.at_ms - 1);
        assert_eq!(client.receive(), [], "{} before {step:?}", case.name);
        if !step.receive.is_empty() {
            driver.run_until(step.at_ms);
            assert_eq!(client.receive(), [], "{} before {step:?}", case.name);
            client.end.send(&step.receive);
        }
        driver.run_until(step.at_ms + LATE_MS);
        assert_eq!(
            names(&client.receive()),
            step.send,
            "{} at {step:?}",
            case.name
        );
    }
}

/// The sent messages, in the words of the vectors.
fn names(said: &[Said]) -> Vec<Sent> {
    let frame = |opcode, payload: &[u8]| {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, opcode, payload, None);
        Sent::Frame(Hex(bytes))
    };
    let name = |said: &Said| match said {
        Said::Text(text) => {
            let value: Value = serde_json::from_str(text).expect("JSON");
            message(value["t"].as_str().expect("a type"))
        }
        Said::Ping(payload) => frame(OpCode::Ping, payload),
        Said::Pong(payload) => frame(OpCode::Pong, payload),
        Said::Close(code, _) => Sent::Close(code.expect("a code")),
        other => panic!("{other:?}"),
    };
    said.iter().map(name).collect()
}

fn message(name: &str) -> Sent {
    Sent::Message(name.to_owned())
}

/// How late a server may be, in milliseconds: the timers of three pings.
const LATE_MS: u64 = 50;

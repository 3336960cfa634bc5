//! Random bytes at every stage of many connections: the server lives, and everything is accounted for.

use crate::common;

use common::{
    Opening, assert_settled, close_frame, config, connect_v1, frame, start, text_frame, wait_until,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use tidewire_engine::apps::Echo;
use tidewire_engine::{Config, Server};
use tidewire_wire::frame::OpCode;

const CONNECTIONS: u64 = 4_000;

#[test]
fn nothing_random_breaks_the_server() {
    let mut config = Config {
        shards: 2,
        ..config()
    };
    config.limits.handshake_timeout_ms = 1_000;
    config.limits.message_bytes_max = 64 * 1024;
    config.limits.rate_limit_capacity = 50;
    config.limits.rate_limit_refill_per_s = 50;
    let server = start(config, Echo);
    let mut bystander = connect_v1(&server);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for number in 0..CONNECTIONS / 4 {
                    let seed = thread * CONNECTIONS + number;
                    trouble(server, &mut StdRng::seed_from_u64(seed));
                }
            });
        }
    });
    assert_eq!(bystander.ask(&json!({"t": "ping"}))["t"], "PONG");
    drop(bystander);
    let handle = server.handle();
    wait_until("all accepted", || {
        handle.counters().connections_accepted == CONNECTIONS + 1
    });
    let counters = assert_settled(&handle);
    // It was trouble of every kind.
    for (name, count) in [
        ("handshakes_failed", counters.handshakes_failed),
        ("protocol_errors", counters.protocol_errors),
        ("messages_delivered", counters.messages_delivered),
        (
            "messages_refused_invalid",
            counters.messages_refused_invalid,
        ),
        ("messages_refused_rate", counters.messages_refused_rate),
        ("messages_refused_size", counters.messages_refused_size),
        ("sessions_lost", counters.sessions_lost),
        ("sessions_closed_by_peer", counters.sessions_closed_by_peer),
        (
            "sessions_closed_by_server",
            counters.sessions_closed_by_server,
        ),
    ] {
        assert!(count > 20, "{name}: {count}");
    }
}

/// One connection that misbehaves.
fn trouble(server: &Server, rng: &mut StdRng) {
    let mut bytes = Vec::new();
    let request = Opening::new(server.address()).request();
    match rng.random_range(0..10) {
        0 => bytes.extend(noise(rng, 300)),
        1 => {
            let mut mangled = request;
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..mangled.len());
                mangled[at] = rng.random();
            }
            bytes.extend(mangled);
        }
        2 => bytes.extend(&request[..rng.random_range(0..request.len())]),
        _ => {
            bytes.extend(request);
            for _ in 0..rng.random_range(0..6) {
                bytes.extend(a_frame(rng));
            }
        }
    }
    let Ok(mut stream) = TcpStream::connect(server.address()) else {
        panic!("the server is gone")
    };
    stream
        .set_read_timeout(Some(Duration::from_millis(rng.random_range(1..5))))
        .expect("a timeout");
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let part = if rng.random_bool(0.8) {
            rest.len()
        } else {
            rng.random_range(1..=rest.len())
        };
        if stream.write_all(&rest[..part]).is_err() {
            return;
        }
        rest = &rest[part..];
    }
    if rng.random_bool(0.3) {
        let _ = stream.shutdown(Shutdown::Write);
    }
    if rng.random_bool(0.5) {
        let mut answer = [0; 1024];
        let _ = stream.read(&mut answer);
    }
}

fn noise(rng: &mut StdRng, bytes_max: usize) -> Vec<u8> {
    let mut bytes = vec![0; rng.random_range(0..bytes_max)];
    rng.fill(&mut bytes[..]);
    bytes
}

/// Frames good and bad.
fn a_frame(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..14) {
        0 => noise(rng, 100),
        1 => frame(OpCode::Text, &noise(rng, 100)),
        2 => frame(OpCode::Binary, &noise(rng, 300)),
        3 => frame(OpCode::Binary, &[&b"M:"[..], &noise(rng, 60)].concat()),
        4 => frame(OpCode::Binary, &[&b"C:x"[..], &noise(rng, 60)].concat()),
        5 => frame(
            OpCode::Binary,
            &vec![b'{'; 64 * 1024 + rng.random_range(0..2)],
        ),
        6 => text_frame("{\"t\":\"health_check\",\"p\":").repeat(3),
        7 => text_frame(r#"{"t":"batch","p":{"messages":[{"t":"a"},{"t":5},{}]}}"#),
        8 => text_frame(r#"{"t":"x"}"#).repeat(rng.random_range(1..80)),
        9 => frame(OpCode::Ping, &noise(rng, 125)),
        10 => close_frame(None),
        11 => {
            let mut good = text_frame(r#"{"t":"x"}"#);
            let at = rng.random_range(0..good.len());
            good[at] ^= 1 << rng.random_range(0..8);
            good
        }
        12 => {
            let good = frame(OpCode::Text, &[b'x'; 500]);
            good[..rng.random_range(0..good.len())].to_vec()
        }
        _ => text_frame(r#"{"t":"ping","p":{"timestamp":1}}"#),
    }
}

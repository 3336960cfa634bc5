//! permessage-deflate and `C:`, as clients meet them.

use crate::common;

use common::{
    Client, Opening, Said, assert_settled, config, connect, connect_v1, raw_config, start, tcp,
    wait_until,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::io::{Read as _, Write as _};
use tidewire_engine::apps::{Echo, Sink};
use tidewire_engine::{Compression, Config, Deflate, Encryption, Outgoing};
use tidewire_testkit::vectors::deflate::Negotiation;
use tidewire_testkit::vectors::load;
use tidewire_wire::close::CloseCode;
use tidewire_wire::deflate::{Compressor, DeflateParameters};
use tidewire_wire::frame::{OpCode, write_compressed_frame};

fn with_deflate(config: Config, deflate: Deflate) -> Config {
    Config {
        compression: Compression {
            deflate,
            ..Compression::default()
        },
        ..config
    }
}

fn offering(address: std::net::SocketAddr) -> Opening {
    Opening::new(address).deflate(DeflateParameters::default())
}

/// Some JSON of a size that is worth compressing.
fn long_text(seed: usize) -> String {
    let rows: Vec<_> = (0..80)
        .map(|row| json!({ "row": row, "price": row * seed, "side": "buy" }))
        .collect();
    json!({ "t": "rows", "p": { "rows": rows } }).to_string()
}

fn send_compressed(client: &mut Client, compressor: &mut Compressor, text: &str) -> usize {
    let (mut deflated, mut frame) = (Vec::new(), Vec::new());
    compressor.compress(text.as_bytes(), &mut deflated);
    write_compressed_frame(&mut frame, OpCode::Text, &deflated, Some([1, 2, 3, 4]));
    client.send_bytes(&frame);
    deflated.len()
}

#[test]
fn messages_go_both_ways_compressed() {
    for deflate in [Deflate::Shared, Deflate::PerConnection] {
        for config in [raw_config(), config()] {
            let server = start(with_deflate(config, deflate), Echo);
            let mut client = offering(server.address()).open();
            let agreed = client.deflate.expect("the server takes the offer");
            assert_eq!(
                agreed.client_no_context_takeover,
                deflate == Deflate::Shared
            );
            assert_eq!(
                agreed.server_no_context_takeover,
                deflate == Deflate::Shared
            );
            let mut compressor = Compressor::new(6, 15, !agreed.client_no_context_takeover);
            let mut sizes = Vec::new();
            for seed in [1, 2, 1] {
                let text = long_text(seed);
                sizes.push(send_compressed(&mut client, &mut compressor, &text));
                loop {
                    let answer = client.next_text();
                    if answer == text {
                        break;
                    }
                    assert!(answer.contains("server_ready"), "{answer}");
                }
            }
            assert_eq!(client.compressed(), 3);
            // Only with a memory the third is shorter than the first, which it repeats.
            assert_eq!(sizes[2] < sizes[0] / 2, deflate == Deflate::PerConnection);
            drop(client);
            let now = assert_settled(&server.handle());
            assert_eq!((now.messages_compressed, now.messages_inflated), (3, 3));
        }
    }
}

#[test]
fn short_messages_and_clients_that_did_not_ask_get_plain_ones() {
    let server = start(with_deflate(raw_config(), Deflate::Shared), Echo);
    let mut client = offering(server.address()).open();
    client.send_text("short");
    assert_eq!(client.next_text(), "short");
    assert_eq!(client.compressed(), 0);
    // What does not get smaller is not sent compressed either.
    let mut noise = vec![0; 5000];
    StdRng::seed_from_u64(1).fill(&mut noise[..]);
    client.send_binary(&noise);
    assert_eq!(client.next(), Said::Binary(noise));
    assert_eq!(client.compressed(), 0);
    let mut plain = connect(&server);
    assert_eq!(plain.deflate, None);
    plain.send_text(&long_text(1));
    assert_eq!(plain.next_text(), long_text(1));

    let server = start(raw_config(), Echo);
    assert_eq!(offering(server.address()).open().deflate, None);
}

/// The cases of `deflate-negotiation.json` that name a setting of encryption, at a real server.
#[test]
fn a_server_that_requires_encryption_declines() {
    let mut settings = Vec::new();
    for case in load::<Negotiation>("deflate-negotiation") {
        let Negotiation::Server {
            name,
            encryption: Some(setting),
            offers,
            response,
            ..
        } = case
        else {
            continue;
        };
        let config = Config {
            encryption: match &*setting {
                "required" => Encryption::Required,
                "required-v2" => Encryption::RequiredV2,
                "optional" => Encryption::Optional,
                other => panic!("{name}: {other}"),
            },
            ..with_deflate(config(), Deflate::PerConnection)
        };
        let server = start(config, Echo);
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Extensions: {}\r\n\r\n",
            server.address(),
            offers.join(", "),
        );
        let mut stream = tcp(server.address());
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{name}: {head}");
        let agreed = head
            .lines()
            .find_map(|line| line.strip_prefix("Sec-WebSocket-Extensions: "));
        assert_eq!(agreed, response.as_deref(), "{name}");
        settings.push(setting);
    }
    for setting in ["required", "optional"] {
        assert!(settings.iter().any(|seen| seen == setting), "{setting}");
    }
}

#[test]
fn a_smaller_window_is_kept() {
    for deflate in [Deflate::Shared, Deflate::PerConnection] {
        let server = start(with_deflate(raw_config(), deflate), Echo);
        let offered = DeflateParameters {
            server_max_window_bits: 9,
            client_max_window_bits: 10,
            ..DeflateParameters::default()
        };
        let mut client = Opening::new(server.address()).deflate(offered).open();
        let agreed = client.deflate.expect("the server takes the offer");
        assert_eq!(agreed.server_max_window_bits, 9);
        assert_eq!(agreed.client_max_window_bits, 10);
        for seed in 1..4 {
            let text = long_text(seed).repeat(5);
            client.send_text(&text);
            assert_eq!(client.next_text(), text);
        }
        assert_eq!(client.compressed(), 3);
    }
}

#[test]
fn a_bomb_ends_its_connection_and_nothing_else() {
    for deflate in [Deflate::Shared, Deflate::PerConnection] {
        let server = start(with_deflate(raw_config(), deflate), Echo);
        let mut other = offering(server.address()).open();
        let mut client = offering(server.address()).open();
        let bomb = "0".repeat(200_000_000);
        let mut compressor = Compressor::new(9, 15, false);
        let bytes = send_compressed(&mut client, &mut compressor, &bomb);
        assert!(bytes < 1_000_000);
        client.assert_closed(CloseCode::MESSAGE_TOO_LARGE);
        send_compressed(&mut other, &mut compressor, &long_text(1));
        assert_eq!(other.next_text(), long_text(1));
        drop((client, other));
        let now = assert_settled(&server.handle());
        assert_eq!(now.messages_refused_size, 1);
    }
}

#[test]
fn what_does_not_inflate_ends_its_connection() {
    let server = start(with_deflate(raw_config(), Deflate::Shared), Echo);
    for (payload, code) in [
        (&[0xff; 20][..], CloseCode::INVALID_PAYLOAD),
        // A text that is not UTF-8: a stored block of one byte 0xff.
        (
            &[0x00, 0x01, 0x00, 0xfe, 0xff, 0xff, 0x00],
            CloseCode::INVALID_PAYLOAD,
        ),
    ] {
        let mut client = offering(server.address()).open();
        let mut frame = Vec::new();
        write_compressed_frame(&mut frame, OpCode::Text, payload, Some([0; 4]));
        client.send_bytes(&frame);
        client.assert_closed(code);
    }
    // A compressed message where none was agreed upon.
    let mut client = connect(&server);
    let mut frame = Vec::new();
    write_compressed_frame(&mut frame, OpCode::Text, &[0], Some([0; 4]));
    client.send_bytes(&frame);
    client.assert_closed(CloseCode::PROTOCOL_ERROR);
    drop(client);
    assert_eq!(assert_settled(&server.handle()).protocol_errors, 3);
}

/// A message that the rate limit refuses is counted once, whatever else is wrong with it.
#[test]
fn refused_and_too_large_counts_once() {
    for config in [raw_config(), config()] {
        let mut config = with_deflate(config, Deflate::PerConnection);
        config.limits.rate_limit_capacity = 1;
        config.limits.rate_limit_refill_per_s = 1;
        let server = start(config, Sink);
        let mut client = offering(server.address()).open();
        let mut compressor = Compressor::new(6, 15, true);
        for text in [r#"{"t":"a"}"#, &"0".repeat(5_000_000)] {
            send_compressed(&mut client, &mut compressor, text);
        }
        client.close_after_all();
        drop(client);
        assert_eq!(assert_settled(&server.handle()).messages_received, 2);
    }
}

#[test]
fn a_refused_message_does_not_break_the_memory() {
    let mut config = with_deflate(config(), Deflate::PerConnection);
    config.limits.rate_limit_capacity = 3;
    config.limits.rate_limit_refill_per_s = 1;
    let server = start(config, Echo);
    let mut client = offering(server.address()).open();
    let mut compressor = Compressor::new(6, 15, true);
    for seed in 0..20 {
        let text = json!({ "t": "n", "p": { "seed": seed } }).to_string();
        send_compressed(&mut client, &mut compressor, &text);
    }
    wait_until("all twenty read", || {
        server.handle().counters().messages_received == 20
    });
    let now = server.handle().counters();
    assert!(now.messages_refused_rate > 0, "{now:?}");
    assert_eq!(now.protocol_errors, 0);
    assert_eq!(now.messages_inflated, 20);
}

#[test]
fn a_broadcast_is_compressed_once() {
    for deflate in [Deflate::Shared, Deflate::PerConnection] {
        let server = start(with_deflate(raw_config(), deflate), Echo);
        let mut clients: Vec<_> = (0..20).map(|_| offering(server.address()).open()).collect();
        let mut plain = connect(&server);
        if deflate == Deflate::PerConnection {
            // Their compressors have something to refer to, which the shared form must not upset.
            for client in &mut clients {
                client.send_text(&long_text(7));
                assert_eq!(client.next_text(), long_text(7));
            }
        }
        let before = server.handle().counters().messages_compressed;
        for seed in [7, 8] {
            let message = Outgoing::Text(long_text(seed).into());
            server.handle().broadcast(message).unwrap();
            for client in &mut clients {
                assert_eq!(client.next_text(), long_text(seed));
            }
            assert_eq!(plain.next_text(), long_text(seed));
        }
        let after = server.handle().counters().messages_compressed;
        assert_eq!(after - before, 2);
        for client in &mut clients {
            client.send_text(&long_text(7));
            assert_eq!(client.next_text(), long_text(7));
        }
    }
}

#[test]
fn long_json_goes_as_zlib_to_who_asked() {
    let server = start(config(), Echo);
    let mut client = Opening::new(server.address())
        .target("/ws?compression=true")
        .open();
    assert_eq!(client.next_json()["t"], "server_ready");
    client.send_text(&long_text(3));
    let Said::Binary(bytes) = client.next() else {
        panic!("not compressed")
    };
    let mut text = Vec::new();
    let stream = bytes.strip_prefix(b"C:").expect("the prefix");
    tidewire_wire::format::inflate(stream, &mut text, 100_000).unwrap();
    assert_eq!(text, long_text(3).as_bytes());
    assert!(bytes.len() < text.len() / 3);
    // A hello that forbids it has the last word.
    let hello = json!({ "t": "client_hello", "p": { "features": { "compression": false } } });
    assert_eq!(client.ask(&hello)["t"], "server_hello");
    client.send_text(&long_text(3));
    assert_eq!(client.next_text(), long_text(3));

    let mut not_asked = connect_v1(&server);
    not_asked.send_text(&long_text(3));
    assert_eq!(not_asked.next_text(), long_text(3));
}

#[test]
fn a_broadcast_as_zlib_is_compressed_once() {
    let server = start(config(), Sink);
    let mut clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = Opening::new(server.address())
                .target("/ws?compression=true")
                .open();
            assert_eq!(client.next_json()["t"], "server_ready");
            client
        })
        .collect();
    let message = Outgoing::Text(long_text(1).into());
    server.handle().broadcast(message).unwrap();
    for client in &mut clients {
        assert!(matches!(client.next(), Said::Binary(bytes) if bytes.starts_with(b"C:")));
    }
    assert_eq!(server.handle().counters().messages_compressed, 1);
}

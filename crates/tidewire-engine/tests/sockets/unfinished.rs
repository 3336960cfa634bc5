//! Messages that begin and do not end.

use crate::common;

use common::{Client, SECRET, config, connect_as, start, wait_until};
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{Config, Server};
use tidewire_wire::close::CloseCode;

const KIB: usize = 1024;

/// The header of a masked text frame of 64 KiB, with a mask of zeros.
const HEADER: [u8; 14] = [0x81, 0xFF, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];

fn server(owner_bytes_max: usize, bytes_max: usize) -> Server {
    let mut config = Config {
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
        shards: 2,
        ..config()
    };
    config.limits.message_bytes_max = 64 * KIB;
    config.limits.unfinished_bytes_per_owner_max = owner_bytes_max;
    config.limits.unfinished_bytes_max = bytes_max;
    start(config, Echo)
}

/// A message of 64 KiB; the last byte is missing.
fn message() -> Vec<u8> {
    let mut text = br#"{"t":"long","p":""#.to_vec();
    text.resize(64 * KIB - 2, b'x');
    text.extend_from_slice(b"\"}");
    [&HEADER[..], &text[..text.len() - 1]].concat()
}

/// Waits until the server has the bytes of N unfinished messages.
fn wait_for(server: &Server, messages: usize) {
    wait_until("the messages are there", || {
        let bytes = server.handle().unfinished_message_bytes();
        bytes >= messages * (64 * KIB - 1)
    });
}

fn finish(client: &mut Client) {
    client.send_bytes(b"}");
    assert_eq!(client.next_json()["t"], "long");
}

#[test]
fn beyond_its_limit_a_user_loses_its_oldest_message_and_others_none() {
    let server = server(200 * KIB, 100 * 1024 * KIB);
    let mut other = connect_as(&server, "bob");
    other.send_bytes(&message());
    wait_for(&server, 1);
    let mut clients: Vec<Client> = Vec::new();
    for count in 1..=3 {
        let mut client = connect_as(&server, "ann");
        client.send_bytes(&message());
        wait_for(&server, 1 + count);
        clients.push(client);
    }
    let mut one_too_many = connect_as(&server, "ann");
    one_too_many.send_bytes(&message());
    clients[0].assert_closed(CloseCode::UNFINISHED_MESSAGES);
    for client in clients[1..]
        .iter_mut()
        .chain([&mut one_too_many, &mut other])
    {
        finish(client);
    }
    let handle = server.handle();
    assert_eq!(handle.unfinished_message_bytes(), 0);
    assert_eq!(handle.counters().messages_unfinished_evicted, 1);
}

#[test]
fn beyond_the_limit_of_the_server_who_has_most_loses_its_oldest() {
    let server = server(100 * 1024 * KIB, 200 * KIB);
    let mut first = connect_as(&server, "ann");
    first.send_bytes(&message());
    wait_for(&server, 1);
    let mut second = connect_as(&server, "ann");
    second.send_bytes(&message());
    wait_for(&server, 2);
    let mut other = connect_as(&server, "bob");
    other.send_bytes(&message());
    wait_for(&server, 3);
    let mut another = connect_as(&server, "cid");
    another.send_bytes(&message());
    first.assert_closed(CloseCode::UNFINISHED_MESSAGES);
    for client in [&mut second, &mut other, &mut another] {
        finish(client);
    }
}

#[test]
fn what_a_lost_connection_had_is_free_again() {
    let server = server(200 * KIB, 200 * KIB);
    for _ in 0..5 {
        let mut client = connect_as(&server, "ann");
        client.send_bytes(&message());
        wait_for(&server, 1);
        drop(client);
        wait_until("it is gone", || {
            server.handle().unfinished_message_bytes() == 0
        });
    }
    assert_eq!(server.handle().counters().messages_unfinished_evicted, 0);
}

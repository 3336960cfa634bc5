//! Connections that carry plaintext before the client's side of TLS, as through a proxy.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Running, TestHandler, assert_same, pattern};
use rustls::{ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use tidewire_net::{Closed, Connect, tls};

fn server_config() -> Arc<tls::ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    tls::server_config_from(vec![made.cert.der().clone()], key).unwrap()
}

/// A shard with one connection, and the other end of that.
fn begin(mut lab: TestHandler) -> (Running, TcpStream) {
    lab.begins_again = true;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Running::plain(lab);
    let name = tls::server_name("localhost").unwrap();
    let connect = Connect {
        address: listener.local_addr().unwrap().into(),
        source: None,
        tls: Some((tls::client_config(None).unwrap(), name)),
        usage: tidewire_net::Usage::Any,
    };
    client
        .ask(move |_, io| io.connect_before_tls(connect))
        .unwrap();
    let stream = common::with_deadline(listener.accept().unwrap().0);
    (client, stream)
}

#[test]
fn a_client_may_say_something_before_tls() {
    let mut lab = TestHandler::with_data(|io, id, data| {
        if io.is_tls_held(id) {
            assert_eq!(data, b"go on");
            io.start_tls(id, &[]);
        } else {
            io.send(id, data);
        }
        data.len()
    });
    lab.on_connect = Box::new(|io, id| {
        assert!(io.send(
            id,
            if io.is_tls_held(id) {
                b"before"
            } else {
                b"inside"
            }
        ));
    });
    let (client, mut stream) = begin(lab);
    let mut text = [0; 6];
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"before");
    let id = client.connected();
    stream.write_all(b"go on").unwrap();
    let server = ServerConnection::new(server_config()).unwrap();
    let mut stream = StreamOwned::new(server, stream);
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"inside");
    assert_eq!(client.connected(), id, "it is ready once more");
    let sent = pattern(30_000);
    stream.write_all(&sent).unwrap();
    let mut received = vec![0; sent.len()];
    stream.read_exact(&mut received).unwrap();
    assert_same(&received, &sent);
    drop(stream);
    client.wait_until_empty();
    client.stop();
}

#[test]
fn a_peer_without_tls_ends_what_was_plain_before() {
    let lab = TestHandler::with_data(|io, id, data| {
        io.start_tls(id, &data[5..]);
        data.len()
    });
    let (client, mut stream) = begin(lab);
    stream
        .write_all(b"go on and this is no TLS record")
        .unwrap();
    assert!(matches!(client.closed(), Closed::Tls(_)));
    client.wait_until_empty();
    client.stop();
}

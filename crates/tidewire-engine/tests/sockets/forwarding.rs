//! Connections that come through proxies: whose address counts.

use crate::common;

use common::simulated::{SimulatedClient, serve, upgrade};
use common::{Opening, assert_settled, certified, config, start, status, tcp};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tidewire_engine::{
    Application, Config, Context, ForwardedHeader, Handle, Message, Peer, Server, TrustedProxies,
};
use tidewire_net::Handler;
use tidewire_testkit::simulation::{ClientEnd, Driver};

const PROXY: [u8; 4] = [10, 0, 0, 1];
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x07\xc7\x38\x01\xbb";
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
const V1: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.7 51000 443\r\n";

/// Remembers who connected.
#[derive(Clone, Default)]
struct Addresses(Arc<Mutex<Vec<String>>>);

impl Application for Addresses {
    fn on_connect(&mut self, _: &mut Context<'_>, peer: &Peer) {
        let address = peer.address.expect("the peer is there");
        self.0.lock().expect("no panic").push(address.to_string());
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}
}

impl Addresses {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

fn trusting(header: ForwardedHeader) -> Config {
    let networks = ["10.0.0.0/8", "127.0.0.0/8"].map(|text| text.parse().expect("a network"));
    Config {
        proxies: TrustedProxies {
            networks: networks.to_vec(),
            header,
        },
        ..config()
    }
}

struct Simulated<H: Handler> {
    driver: Driver<H>,
    addresses: Addresses,
    handle: Handle,
}

fn simulated(config: Config) -> Simulated<impl Handler> {
    let addresses = Addresses::default();
    let seen = addresses.clone();
    let (driver, handle) = serve(config, move |_| seen.clone());
    Simulated {
        driver,
        addresses,
        handle,
    }
}

impl<H: Handler> Simulated<H> {
    fn connect(&mut self, from: [u8; 4]) -> ClientEnd {
        let from = SocketAddr::from((from, 4_000));
        self.driver.network().connect_from(0, from)
    }

    fn pass(&mut self, ms: u64) {
        let until_ms = self.driver.now_ms() + ms;
        self.driver.run_until(until_ms);
    }

    /// The client that the server sees for these bytes, in one piece and in single bytes.
    fn seen(&mut self, from: [u8; 4], bytes: &[u8]) -> Vec<String> {
        let whole = self.connect(from);
        whole.send(bytes);
        self.pass(1);
        let seen = self.addresses.take();
        let pieces = self.connect(from);
        for byte in bytes {
            pieces.send(&[*byte]);
            self.pass(1);
        }
        assert_eq!(self.addresses.take(), seen);
        assert_eq!(
            whole.receive().get(..12).map(<[u8]>::to_vec),
            pieces.receive().get(..12).map(<[u8]>::to_vec)
        );
        seen
    }
}

#[test]
fn a_proxy_header_names_the_client() {
    let mut server = simulated(trusting(ForwardedHeader::XForwardedFor));
    let request = upgrade(&[]);
    for (header, expected) in [
        (V1, "192.0.2.1:51000"),
        (V2, "192.0.2.1:51000"),
        (V2_LOCAL, "10.0.0.1:4000"),
        (b"PROXY UNKNOWN\r\n", "10.0.0.1:4000"),
        (b"", "10.0.0.1:4000"),
    ] {
        let seen = server.seen(PROXY, &[header, &request].concat());
        assert_eq!(seen, [expected], "{header:?}");
    }
}

#[test]
fn a_proxy_header_of_anybody_else_is_no_request() {
    let mut server = simulated(trusting(ForwardedHeader::XForwardedFor));
    let request = upgrade(&[]);
    for header in [V1, V2, V2_LOCAL] {
        let client = server.connect([192, 0, 2, 9]);
        client.send(&[header, &request].concat());
        server.pass(1);
        let said = String::from_utf8(client.receive()).expect("a text");
        assert_eq!(status(&said), 400, "{header:?}");
    }
    assert!(server.addresses.take().is_empty());
    // Nor is a second one of a proxy.
    let client = server.connect(PROXY);
    client.send(&[V1, V1, &request].concat());
    server.pass(1);
    let said = String::from_utf8(client.receive()).expect("a text");
    assert_eq!(status(&said), 400);
    assert_eq!(server.handle.counters().proxy_headers_refused, 0);
}

#[test]
fn a_malformed_proxy_header_ends_the_connection() {
    let mut server = simulated(trusting(ForwardedHeader::XForwardedFor));
    let mut too_long = V2[..14].to_vec();
    too_long.extend([0xff, 0xff]);
    for header in [
        &b"PROXY TCP4 nonsense\r\n"[..],
        &[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat(),
        &too_long,
    ] {
        let client = server.connect(PROXY);
        client.send(header);
        server.pass(1);
        let said = String::from_utf8(client.receive()).expect("a text");
        assert_eq!(status(&said), 400, "{header:?}");
        assert!(said.contains("the PROXY header is "), "{said}");
    }
    assert_eq!(server.handle.counters().proxy_headers_refused, 3);
}

#[test]
fn header_lines_of_proxies_name_the_client() {
    let mut server = simulated(trusting(ForwardedHeader::XForwardedFor));
    let name = "X-Forwarded-For";
    for (from, headers, expected) in [
        (PROXY, &[(name, "192.0.2.1")][..], "192.0.2.1:0"),
        (
            PROXY,
            &[(name, "198.51.100.1, 192.0.2.1, 10.0.0.2")],
            "192.0.2.1:0",
        ),
        (
            PROXY,
            &[(name, "198.51.100.1"), ("x-forwarded-for", "192.0.2.1")],
            "192.0.2.1:0",
        ),
        (PROXY, &[(name, "2001:db8::1")], "[2001:db8::1]:0"),
        (PROXY, &[(name, "192.0.2.1, nonsense")], "10.0.0.1:4000"),
        // Not the header that the proxies write.
        (PROXY, &[("Forwarded", "for=192.0.2.1")], "10.0.0.1:4000"),
        // Anybody can write it.
        ([192, 0, 2, 9], &[(name, "192.0.2.1")], "192.0.2.9:4000"),
    ] {
        assert_eq!(
            server.seen(from, &upgrade(headers)),
            [expected],
            "{headers:?}"
        );
    }
    // A balancer that forwards a proxy: the proxy tells who it forwards in turn.
    let balanced = b"PROXY TCP4 10.0.0.2 198.51.100.7 51000 443\r\n";
    let request = upgrade(&[(name, "192.0.2.1")]);
    assert_eq!(
        server.seen(PROXY, &[balanced.as_slice(), &request].concat()),
        ["192.0.2.1:0"]
    );
    // A client behind the balancer is no proxy.
    assert_eq!(
        server.seen(PROXY, &[V1, &upgrade(&[(name, "203.0.113.1")])].concat()),
        ["192.0.2.1:51000"]
    );

    let mut server = simulated(trusting(ForwardedHeader::Forwarded));
    let headers = [
        ("Forwarded", "for=\"[2001:db8::1]:81\";proto=https"),
        (name, "198.51.100.1"),
    ];
    assert_eq!(server.seen(PROXY, &upgrade(&headers)), ["[2001:db8::1]:81"]);
}

#[test]
fn pending_handshakes_are_counted_for_the_client() {
    let mut config = trusting(ForwardedHeader::XForwardedFor);
    config.limits.handshakes_per_address_max = 1;
    let mut server = simulated(config);
    let request = upgrade(&[]);
    let silent = server.connect(PROXY);
    silent.send(V1);
    let parked = server.connect(PROXY);
    parked.send(&[V1, &request].concat());
    let other = server.connect(PROXY);
    other.send(b"PROXY TCP4 192.0.2.2 198.51.100.7 51000 443\r\n");
    other.send(&request);
    // Proxies that have not told yet are not limited.
    let _waiting: Vec<_> = (0..5).map(|_| server.connect(PROXY)).collect();
    server.pass(100);
    assert_eq!(server.addresses.take(), ["192.0.2.2:51000"]);
    assert_eq!(server.handle.counters().handshakes_parked, 1);
    // The first one of the same client makes room when it has had half a second.
    server.pass(500);
    assert_eq!(server.addresses.take(), ["192.0.2.1:51000"]);
    drop((silent, parked, other));
}

#[test]
fn a_proxy_header_comes_before_tls() {
    let (files, trust, _folder) = certified();
    let addresses = Addresses::default();
    let config = Config {
        tls: Some(files),
        ..trusting(ForwardedHeader::XForwardedFor)
    };
    let server = start(config, addresses.clone());
    for header in [V1, V2, b""] {
        let mut opening = Opening::new(server.address()).tls(&trust);
        opening.preface = header.to_vec();
        let mut client = opening.open();
        assert_eq!(client.next_json()["t"], "server_ready");
        let [seen] = &addresses.take()[..] else {
            panic!("one session")
        };
        assert_eq!(seen == "192.0.2.1:51000", !header.is_empty(), "{seen}");
    }
    // In single bytes, and the beginning of TLS with the last ones.
    trickle(&server);
    // One that is no header gets no word that TLS would not understand.
    let mut stream = tcp(server.address());
    stream.write_all(b"PROXY nonsense\r\n").expect("a socket");
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(said.is_empty(), "{said:?}");
    assert_eq!(assert_settled(&server.handle()).proxy_headers_refused, 1);
}

fn trickle(server: &Server) {
    let mut stream = tcp(server.address());
    for byte in V2 {
        stream.write_all(&[*byte]).expect("a socket");
        stream.flush().expect("a socket");
    }
    // A record of TLS that is no ClientHello: it is TLS that refuses it.
    let failures = server.handle().counters().tls_failures;
    stream.write_all(b"\x17\x03\x03\0\x01\0").expect("a socket");
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert_eq!(server.handle().counters().tls_failures, failures + 1);
}

#[test]
fn the_address_is_the_client_s_in_lists_too() {
    let server = start(
        trusting(ForwardedHeader::XForwardedFor),
        Addresses::default(),
    );
    let opening = Opening::new(server.address()).header("X-Forwarded-For", "192.0.2.1");
    let _client = opening.open();
    let query = tidewire_engine::ConnectionQuery {
        limit: 10,
        ..Default::default()
    };
    common::wait_until("the session", || server.handle().connections() == 1);
    let listed = server
        .handle()
        .list_connections(&query)
        .expect("a shard that answers");
    assert_eq!(listed.items[0].address.as_deref(), Some("192.0.2.1:0"));
}

#[test]
fn a_session_through_a_proxy_is_a_session() {
    let mut server = simulated(trusting(ForwardedHeader::XForwardedFor));
    let end = server.connect(PROXY);
    end.send(V1);
    let mut client = SimulatedClient::open(end, &[]);
    client.send(&serde_json::json!({"t": "ping", "p": {"timestamp": 5}}));
    server.pass(1);
    let said: Vec<_> = client.receive_json();
    assert_eq!(
        (&said[0]["t"], &said[1]["t"]),
        (&"server_ready".into(), &"PONG".into())
    );
}
